//! Sleeping on a few sockets without an epoll set.
//!
//! For each packet of a socket that is in an epoll set the kernel walks through the set's lists,
//! also when no thread sleeps on the set: about half a microsecond for every message. So the
//! sockets of a queue with few QPs are in no set, and a thread that goes to sleep names them to the
//! kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::EpollFlags;
use nix::sys::time::TimeSpec;
use smallvec::SmallVec;

use crate::cq::{FEW, Watched};

/// The sockets that a thread is going to sleep on, and the events to wake for.
#[derive(Default)]
pub(crate) struct Sleep {
    sockets: SmallVec<[(Watched, PollFlags); FEW]>,
}

impl Sleep {
    pub(crate) fn add(&mut self, socket: Watched, events: PollFlags) {
        self.sockets.push((socket, events));
    }

    /// Sleeps until a socket has an event that it is watched for or one of `wakes` is readable, for
    /// at most `timeout` (`None`: no limit). A signal ends the sleep with `Interrupted`.
    pub(crate) fn wait<'a>(
        self,
        wakes: impl IntoIterator<Item = BorrowedFd<'a>>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let sockets = self.sockets.iter().map(|(socket, events)| PollFd::new(socket.as_fd(), *events));
        let wakes = wakes.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds: SmallVec<[PollFd<'_>; 2 * FEW]> = sockets.chain(wakes).collect();
        match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the events of `poll` that correspond to `interest` of an epoll set.
pub(crate) fn poll_flags(interest: EpollFlags) -> PollFlags {
    let events = [(EpollFlags::EPOLLIN, PollFlags::POLLIN), (EpollFlags::EPOLLOUT, PollFlags::POLLOUT)];
    events.into_iter().filter(|(flag, _)| interest.contains(*flag)).map(|(_, flag)| flag).collect()
}
