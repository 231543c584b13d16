//! One framed descriptor that a call waits for.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};

use crate::kinds::framed::{self, Framed};
use crate::socket;

/// See the module.
pub(super) enum Watched {
    Framed(Framed),
    /// Every call on it answers an error, so that the program has to be told to make one.
    Refused,
}

impl Watched {
    /// The socket under `fd`, if it is not for the kernel alone to speak of.
    #[inline]
    pub(super) fn of(fd: c_int) -> Option<Self> {
        match framed::of(fd) {
            Ok(None) => None,
            Ok(Some(framed)) => Some(Watched::Framed(framed)),
            Err(_) => Self::refused(fd),
        }
    }

    #[cold]
    fn refused(fd: c_int) -> Option<Self> {
        socket::hold_checked(fd).map(|_| Watched::Refused)
    }

    /// What to ask the kernel for.
    pub(super) fn interest(&self, want: c_short) -> c_short {
        match self {
            Watched::Framed(framed) => framed.interest(want),
            Watched::Refused => want,
        }
    }

    /// When to [look](Self::look) at the latest, though the kernel says nothing.
    pub(super) fn deadline(&self, want: c_short) -> Option<Duration> {
        let readable = want & (POLLIN | POLLRDNORM) != 0;
        match self {
            Watched::Framed(framed) if framed.is_over() => Some(Duration::ZERO),
            Watched::Framed(framed) if readable && framed.holds_octets() => Some(Duration::ZERO),
            Watched::Framed(framed) => framed.deadline(),
            Watched::Refused => Some(Duration::ZERO),
        }
    }

    /// What of `want` holds for the program, the kernel having answered `ready`. `None`: the number is another file's by now,
    /// of which the kernel has not been asked in the right way.
    pub(super) fn look(&self, ready: c_short, want: c_short) -> Option<c_short> {
        match self {
            Watched::Framed(framed) => {
                let revents = framed.revents(ready, want);
                let is_there = revents & BROKEN == 0 || framed.is_there();
                is_there.then_some(revents)
            }
            Watched::Refused => Some(BROKEN & !POLLNVAL | want & TRANSFER),
        }
    }
}

/// What a descriptor also shows that is another file's than it was.
const BROKEN: c_short = POLLERR | POLLHUP | POLLNVAL;
const TRANSFER: c_short = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
