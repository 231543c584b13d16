//! One descriptor of ours that a call waits for.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};

use crate::kinds::{self, Ours};
use crate::socket;

/// A descriptor that is not for the kernel alone to speak of.
pub(super) enum Watched {
    /// Its kind says what is ready.
    Ours(Ours),
    /// Every call on it answers an error, so that the program has to be told to make one.
    Refused,
}

impl Watched {
    /// Returns the socket under `fd`, if it is not for the kernel alone to speak of.
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

    /// Returns what to ask the kernel for.
    pub(super) fn interest(&self, want: c_short) -> c_short {
        match self {
            Watched::Ours(ours) => ours.interest(want),
            Watched::Refused => want,
        }
    }

    /// Returns whether urgent octets are not the kernel's to tell of.
    pub(super) fn tells_urgent(&self) -> bool {
        matches!(self, Watched::Ours(ours) if ours.tells_urgent())
    }

    /// Returns when to [look](Self::look) at the latest, though the kernel says nothing.
    pub(super) fn deadline(&self, want: c_short) -> Option<Duration> {
        match self {
            Watched::Ours(ours) => ours.deadline(want),
            Watched::Refused => Some(Duration::ZERO),
        }
    }

    /// Returns what of `want` holds for the program, the kernel having answered `ready`. `None`: the
    /// number is another file's by now, of which the kernel has not been asked in the right way.
    pub(super) fn look(&self, ready: c_short, want: c_short) -> Option<c_short> {
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

/// Returns whether the number is still this socket's. One that another file was opened under, where
/// nobody saw it, is forgotten.
fn is_there(ours: &Ours) -> bool {
    let is_there = ours.held().is_under(ours.fd());
    if !is_there {
        socket::forget_stale(ours.fd(), ours.held());
    }
    is_there
}

/// What a descriptor also shows that is another file's than it was.
const BROKEN: c_short = POLLERR | POLLHUP | POLLNVAL;
const TRANSFER: c_short = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
