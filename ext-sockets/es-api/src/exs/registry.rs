//! Sockets by number, as far as there are operations for them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rddp_real::Errno;

use super::lane::Lane;
use super::polling::Polling;
use crate::threads::Direction;

/// See the module.
#[derive(Default)]
pub(super) struct Registry(Mutex<Known>);

#[derive(Default)]
struct Known {
    sockets: HashMap<c_int, Socket>,
    polls: Vec<Arc<Polling>>,
}

/// One socket's lanes.
#[derive(Clone)]
struct Socket {
    send: Arc<Lane>,
    receive: Arc<Lane>,
}

impl Socket {
    fn new(fd: c_int) -> Self {
        let connecting = Arc::new(AtomicBool::new(false));
        let lane = |direction| Lane::new(fd, direction, &connecting);
        Socket { send: lane(Direction::Send), receive: lane(Direction::Receive) }
    }

    fn lane(&self, direction: Direction) -> &Arc<Lane> {
        match direction {
            Direction::Send => &self.send,
            Direction::Receive => &self.receive,
        }
    }
}

impl Registry {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane of what is under this number, new if nothing was known of it.
    pub(super) fn lane(&self, fd: c_int, direction: Direction) -> Arc<Lane> {
        let mut known = self.known();
        known.sockets.entry(fd).or_insert_with(|| Socket::new(fd)).lane(direction).clone()
    }

    /// The lanes of this number that are known.
    pub(super) fn lanes(&self, fd: c_int) -> Vec<Arc<Lane>> {
        let known = self.known();
        known
            .sockets
            .get(&fd)
            .map_or_else(Vec::new, |socket| vec![socket.send.clone(), socket.receive.clone()])
    }

    /// Forgets a number and gives what was known of it.
    pub(super) fn forget(&self, fd: c_int) -> Vec<Arc<Lane>> {
        let forgotten = self.known().sockets.remove(&fd);
        forgotten.map_or_else(Vec::new, |socket| vec![socket.send, socket.receive])
    }

    /// Forgets a number if this is still its lane, and ends what was under way for what it was.
    pub(super) fn forget_stale(&self, fd: c_int, stale: &Arc<Lane>) {
        let mut known = self.known();
        let is_it =
            |socket: &mut Socket| Arc::ptr_eq(&socket.send, stale) || Arc::ptr_eq(&socket.receive, stale);
        let forgotten =
            known.sockets.get_mut(&fd).is_some_and(is_it).then(|| known.sockets.remove(&fd)).flatten();
        drop(known);
        if let Some(Socket { send, receive }) = forgotten {
            send.close(Errno::ABORTED);
            receive.close(Errno::ABORTED);
        }
    }

    /// Notes a poll that goes on.
    pub(super) fn add_poll(&self, poll: Arc<Polling>) {
        let mut known = self.known();
        known.polls.retain(|poll| !poll.is_over());
        known.polls.push(poll);
    }

    /// The polls that concern this number.
    pub(super) fn polls(&self, fd: c_int) -> Vec<Arc<Polling>> {
        self.known().polls.iter().filter(|poll| poll.concerns(fd) && !poll.is_over()).cloned().collect()
    }

    /// The numbers from `first` to `last` that something is known of.
    pub(super) fn within(&self, first: c_int, last: c_int) -> Vec<c_int> {
        let known = self.known();
        let polled = known.polls.iter().filter(|poll| !poll.is_over()).flat_map(|poll| poll.fds());
        let mut fds: Vec<_> = known.sockets.keys().copied().chain(polled).collect();
        fds.retain(|fd| (first..=last).contains(fd));
        fds.sort_unstable();
        fds.dedup();
        fds
    }
}
