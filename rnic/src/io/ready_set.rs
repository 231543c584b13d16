//! A level-triggered epoll set of the sockets that one completion queue's QPs use, if they are many, and a wake-up.
//!
//! A program that polls or waits reads its sockets by this set in its own thread (the background thread has a set of
//! its own, in [`driver`](super::driver)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::bell::{Asleep, Bell};

/// The token of the wake-up; no QP has this number.
const WAKE: u64 = u64::MAX;

/// Ready sockets looked at in one go.
const BATCH: usize = 64;

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

    /// Also looks for room to send, or no longer does.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        // A socket that has left the set needs no interest.
        let _ = self.epoll.modify(socket, &mut EpollEvent::new(interest, token));
    }

    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.epoll.delete(socket);
    }

    /// Calls `ready` with the token of each ready socket, after at most `timeout` (`None`: no limit; a signal ends it with
    /// `Interrupted`). A thread that may sleep gives what says so.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        asleep: Option<Asleep<'_>>,
        mut ready: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); BATCH];
        let count = self.epoll.wait(&mut events, epoll_timeout(timeout))?;
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

/// Rounds up to whole milliseconds, so that nobody wakes a little early and again and again.
pub(crate) fn epoll_timeout(timeout: Option<Duration>) -> EpollTimeout {
    let Some(timeout) = timeout else { return EpollTimeout::NONE };
    let millis = timeout.as_micros().div_ceil(1000).min(60_000);
    EpollTimeout::from(u16::try_from(millis).unwrap_or(60_000))
}
