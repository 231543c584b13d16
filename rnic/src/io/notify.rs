//! Wake-ups that are file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd. Its descriptor is readable while more has been given than taken.
#[derive(Debug)]
pub(crate) struct Notify(EventFd);

impl Notify {
    /// Makes one that counts what is given, so that it is taken one by one.
    pub(crate) fn counter() -> io::Result<Self> {
        Self::new(EfdFlags::EFD_SEMAPHORE)
    }

    /// Makes one that does not count: all that was given is taken at once.
    pub(crate) fn flag() -> io::Result<Self> {
        Self::new(EfdFlags::empty())
    }

    fn new(flags: EfdFlags) -> io::Result<Self> {
        let flags = flags | EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Notify(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Adds one. At the kernel's limit of 2^64 - 2 nothing is added, and it stays readable.
    pub(crate) fn give(&self) {
        let _ = self.0.write(1);
    }

    /// Takes one, or all if it does not count. Returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
