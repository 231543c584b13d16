//! Wake-ups that are file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd. Its descriptor is readable while more has been given than taken.
///
/// Programs are shown the descriptors of those that count, and may set and clear their
/// `O_NONBLOCK`: no call here relies on it. The others are the device's own, and never block.
#[derive(Debug)]
pub(crate) struct Notify {
    eventfd: EventFd,
    counts: bool,
}

impl Notify {
    /// Makes one that counts what is given, so that it is taken one by one.
    pub(crate) fn counter() -> io::Result<Self> {
        Self::new(true)
    }

    /// Makes one that does not count: all that was given is taken at once.
    pub(crate) fn flag() -> io::Result<Self> {
        Self::new(false)
    }

    fn new(counts: bool) -> io::Result<Self> {
        let mut flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        flags.set(EfdFlags::EFD_SEMAPHORE, counts);
        Ok(Notify { eventfd: EventFd::from_value_and_flags(0, flags)?, counts })
    }

    /// Adds one. At the kernel's limit of 2^64 - 2 nothing is added, and it stays readable.
    pub(crate) fn give(&self) {
        let _ = self.eventfd.write(1);
    }

    /// Takes one, or all if it does not count. Returns whether there was one. Never sleeps, unless
    /// others read the descriptor at the same moment.
    pub(crate) fn take(&self) -> bool {
        (!self.counts || self.is_readable()) && self.eventfd.read().is_ok()
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::ZERO) == Ok(1)
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn nothing_is_taken_of_nothing_whether_the_descriptor_blocks_or_not() {
        let notify = Notify::counter().unwrap();
        for flags in [OFlag::O_NONBLOCK, OFlag::empty()] {
            fcntl(&notify, FcntlArg::F_SETFL(flags)).unwrap();
            assert!(!notify.take());
            (0..2).for_each(|_| notify.give());
            assert_eq!([notify.take(), notify.take(), notify.take()], [true, true, false]);
        }
    }
}
