//! Sockets by number, as long as there are operations for them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rddp_real::Errno;

use super::lane::Lane;
use super::polling::Polling;
use crate::threads::Direction;

/// The lanes and polls of all sockets.
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

    /// Returns the lane of the socket under this number, made now if there was none.
    pub(super) fn lane(&self, fd: c_int, direction: Direction) -> Arc<Lane> {
        let mut known = self.known();
        known.sockets.entry(fd).or_insert_with(|| Socket::new(fd)).lane(direction).clone()
    }

    /// Returns the lanes of this number.
    pub(super) fn lanes(&self, fd: c_int) -> Vec<Arc<Lane>> {
        let known = self.known();
        known
            .sockets
            .get(&fd)
            .map_or_else(Vec::new, |socket| vec![socket.send.clone(), socket.receive.clone()])
    }

    /// Forgets a number and returns its lanes.
    pub(super) fn forget(&self, fd: c_int) -> Vec<Arc<Lane>> {
        let forgotten = self.known().sockets.remove(&fd);
        forgotten.map_or_else(Vec::new, |socket| vec![socket.send, socket.receive])
    }

    /// Forgets a number if `stale` is still its lane, and ends the operations of the socket that
    /// was there.
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

    /// Adds a poll under way.
    pub(super) fn add_poll(&self, poll: Arc<Polling>) {
        let mut known = self.known();
        known.polls.retain(|poll| !poll.is_over());
        known.polls.push(poll);
    }

    /// Returns the polls that have this number among theirs.
    pub(super) fn polls(&self, fd: c_int) -> Vec<Arc<Polling>> {
        self.known().polls.iter().filter(|poll| poll.concerns(fd) && !poll.is_over()).cloned().collect()
    }

    /// Returns the known numbers from `first` to `last`.
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
