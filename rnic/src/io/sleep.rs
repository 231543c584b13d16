//! Sleeping on a few sockets, without an epoll set.
//!
//! While a socket is in a set, each packet for it costs the kernel a walk through the set's lists, also when nobody
//! sleeps on it: about half a microsecond of every message's way. So the sockets of a queue with few QPs are in
//! none, and who sleeps on them names them each time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::EpollFlags;
use nix::sys::time::TimeSpec;

use crate::cq::Watched;

/// Sockets and what to wake for.
#[derive(Default)]
pub(crate) struct Sleep {
    sockets: Vec<(Watched, PollFlags)>,
}

impl Sleep {
    pub(crate) fn add(&mut self, socket: Watched, events: PollFlags) {
        self.sockets.push((socket, events));
    }

    /// Sleeps until a socket has what it is watched for or one of `wakes` is readable, for at most `timeout` (`None`: no
    /// limit). A signal ends it with `Interrupted`.
    pub(crate) fn wait(self, wakes: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let sockets = self.sockets.iter().map(|(socket, events)| PollFd::new(socket.as_fd(), *events));
        let wakes = wakes.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = sockets.chain(wakes).collect();
        match ppoll(&mut fds, timeout.map(TimeSpec::from), None) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What `poll` is to watch for where an epoll set would watch for `interest`.
pub(crate) fn poll_flags(interest: EpollFlags) -> PollFlags {
    let events = [(EpollFlags::EPOLLIN, PollFlags::POLLIN), (EpollFlags::EPOLLOUT, PollFlags::POLLOUT)];
    events.into_iter().filter(|(flag, _)| interest.contains(*flag)).map(|(_, flag)| flag).collect()
}
