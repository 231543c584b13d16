//! An epoll set with the sockets of many QPs: those of one completion queue, or of all queues of a
//! completion channel.
//!
//! A program's thread that polls or waits finds by it which sockets are ready. It is
//! level-triggered: what one thread leaves unread wakes the next. The background thread has a set
//! of its own, in [`driver`](super::driver).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::Mutex;

use crate::cq::Member;

/// The number of ready sockets that one call of `epoll_wait` may return.
const BATCH: usize = 64;

/// An epoll set that has no descriptor before it is needed.
#[derive(Debug, Default)]
pub(crate) struct ReadySet {
    epoll: OnceLock<Epoll>,
    /// Set once the sockets of all members are in the set, or about to be.
    used: AtomicBool,
    members: Mutex<HashMap<u64, Weak<dyn Member>>>,
}

impl ReadySet {
    /// Begins to use the set. Returns whether it was in use before.
    pub(crate) fn begin(&self) -> io::Result<bool> {
        if self.epoll.get().is_none() {
            // Where two threads make one at the same time, the second is closed again.
            let _ = self.epoll.set(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        }
        Ok(self.used.swap(true, Ordering::AcqRel))
    }

    /// Ends the use of the set, into which not all sockets could be put.
    pub(crate) fn give_up(&self) {
        self.used.store(false, Ordering::Release);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// Returns the set, once it has been used.
    fn epoll(&self) -> &Epoll {
        self.epoll.get().expect("who has called `begin` has made it")
    }

    pub(crate) fn add(&self, socket: BorrowedFd<'_>, token: u64, member: &Arc<dyn Member>) -> io::Result<()> {
        self.members.lock().insert(token, Arc::downgrade(member));
        match self.epoll().add(socket, EpollEvent::new(EpollFlags::EPOLLIN, token)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the events that a socket is watched for.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        // This fails for a socket that has left the set, which is watched for nothing.
        let _ = self.epoll().modify(socket, &mut EpollEvent::new(interest, token));
    }

    pub(crate) fn remove(&self, socket: BorrowedFd<'_>, token: u64) {
        self.members.lock().remove(&token);
        let _ = self.epoll().delete(socket);
    }

    /// Has the members make progress whose sockets are ready. Never sleeps.
    pub(crate) fn serve(&self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); BATCH];
        let count = self.epoll().wait(&mut events, EpollTimeout::ZERO)?;
        for event in &events[..count] {
            let member = self.members.lock().get(&event.data()).and_then(Weak::upgrade);
            if let Some(member) = member {
                member.try_progress();
            }
        }
        Ok(())
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll().0.as_fd()
    }
}

/// Converts a time limit to whole milliseconds, at most a minute. It is rounded up: a thread that
/// woke a little early would go to sleep for no time at all, again and again.
pub(crate) fn epoll_timeout(timeout: Option<Duration>) -> EpollTimeout {
    let Some(timeout) = timeout else { return EpollTimeout::NONE };
    let millis = timeout.as_micros().div_ceil(1000).min(60_000);
    EpollTimeout::from(u16::try_from(millis).unwrap_or(60_000))
}
