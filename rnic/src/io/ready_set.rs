//! The epoll set of one completion queue.
//!
//! A program's thread that polls or waits finds by it which sockets are ready, if the queue has
//! many QPs. It is level-triggered: what one thread leaves unread wakes the next. The background
//! thread has a set of its own, in [`driver`](super::driver).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::bell::{Asleep, Bell};

/// The token of the wake-up; no QP has this number.
const WAKE: u64 = u64::MAX;

/// The number of ready sockets that one call of `epoll_wait` may return.
const BATCH: usize = 64;

/// A completion queue's epoll set, and the bell that is in it.
#[derive(Debug)]
pub(crate) struct ReadySet {
    epoll: Epoll,
    pub(crate) bell: Bell,
}

impl ReadySet {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = Bell::new()?;
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(ReadySet { epoll, bell })
    }

    pub(crate) fn add(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        match self.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, token)) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the events that a socket is watched for.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        // This fails for a socket that has left the set, which is watched for nothing.
        let _ = self.epoll.modify(socket, &mut EpollEvent::new(interest, token));
    }

    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.epoll.delete(socket);
    }

    /// Sleeps until a socket is ready, for at most `timeout` (`None`: no limit), and calls `ready`
    /// with the token of each. A signal ends the sleep with `Interrupted`. A caller that may sleep
    /// hands in `asleep`, so that the bell wakes it.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        asleep: Option<Asleep<'_>>,
        mut ready: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); BATCH];
        let count = self.epoll.wait(&mut events, epoll_timeout(timeout))?;
        // Awake: the bell need not ring for this thread while it serves the sockets.
        drop(asleep);
        for event in &events[..count] {
            if event.data() != WAKE {
                ready(event.data());
            }
        }
        Ok(())
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// Converts a time limit to whole milliseconds, at most a minute. It is rounded up: a thread that
/// woke a little early would go to sleep for no time at all, again and again.
pub(crate) fn epoll_timeout(timeout: Option<Duration>) -> EpollTimeout {
    let Some(timeout) = timeout else { return EpollTimeout::NONE };
    let millis = timeout.as_micros().div_ceil(1000).min(60_000);
    EpollTimeout::from(u16::try_from(millis).unwrap_or(60_000))
}
