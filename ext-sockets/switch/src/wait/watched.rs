//! A descriptor of ours that a call waits for.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};

use crate::kinds::{self, Ours};
use crate::socket;

/// A descriptor whose readiness the kernel alone does not know.
pub(super) enum Watched {
    /// A socket of ours; its kind knows what is ready.
    Ours(Ours),
    /// A socket on which every call fails, so that the program must be told to make one.
    Refused,
}

impl Watched {
    /// Returns the socket under `fd`, if the kernel alone does not know its readiness.
    #[inline]
    pub(super) fn of(fd: c_int) -> Option<Self> {
        match kinds::of(fd) {
            Ok(None) => None,
            Ok(Some(ours)) => Some(Watched::Ours(ours)),
            Err(_) => Self::refused(fd),
        }
    }

    #[cold]
    fn refused(fd: c_int) -> Option<Self> {
        socket::hold_checked(fd).map(|_| Watched::Refused)
    }

    /// Returns the events to ask the kernel for.
    pub(super) fn interest(&self, want: c_short) -> c_short {
        match self {
            Watched::Ours(ours) => ours.interest(want),
            Watched::Refused => want,
        }
    }

    /// Returns whether a wait for `want` must be for edges.
    pub(super) fn waits_by_edges(&self, want: c_short) -> bool {
        matches!(self, Watched::Ours(ours) if ours.waits_by_edges(want))
    }

    /// Returns whether the kind, and not the kernel, reports urgent octets.
    pub(super) fn tells_urgent(&self) -> bool {
        matches!(self, Watched::Ours(ours) if ours.tells_urgent())
    }

    /// Returns when to [look](Self::look) at the latest, though the kernel reports nothing.
    pub(super) fn deadline(&self, want: c_short) -> Option<Duration> {
        match self {
            Watched::Ours(ours) => ours.deadline(want),
            Watched::Refused => Some(Duration::ZERO),
        }
    }

    /// Returns the events of `want` that hold for the program, after the kernel has answered
    /// `ready`. `None`: the number is another file's by now, for which the kernel must be asked
    /// again.
    pub(super) fn current(&self, ready: c_short, want: c_short) -> Option<c_short> {
        match self {
            Watched::Ours(ours) => {
                let revents = ours.revents(ready, want);
                let is_there = revents & BROKEN == 0 || is_there(ours);
                is_there.then_some(revents)
            }
            Watched::Refused => Some(BROKEN & !POLLNVAL | want & TRANSFER),
        }
    }
}

/// Returns whether the number is still this socket's. If another file was opened under it without
/// our notice, it is forgotten.
fn is_there(ours: &Ours) -> bool {
    let is_there = ours.held().is_under(ours.fd());
    if !is_there {
        socket::forget_stale(ours.fd(), ours.held());
    }
    is_there
}

/// Events that a number also shows when it has become another file's.
const BROKEN: c_short = POLLERR | POLLHUP | POLLNVAL;
const TRANSFER: c_short = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
