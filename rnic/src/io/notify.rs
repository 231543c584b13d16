//! A wake-up that is a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd that counts: readable while more has been given than taken.
#[derive(Debug)]
pub(crate) struct Notify(EventFd);

impl Notify {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        Ok(Notify(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Adds one. At the counter's ceiling nothing is added: it is readable then anyway.
    pub(crate) fn give(&self) {
        let _ = self.0.write(1);
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&self) -> bool {
        self.0.read().is_ok()
    }

    /// Takes all.
    pub(crate) fn clear(&self) {
        while self.take() {}
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
