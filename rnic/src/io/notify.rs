//! A wake-up that is a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd: readable while something has been given that was not taken.
#[derive(Debug)]
pub(crate) struct Notify(EventFd);

impl Notify {
    /// What is given is counted, and taken one by one.
    pub(crate) fn counter() -> io::Result<Self> {
        Self::new(EfdFlags::EFD_SEMAPHORE)
    }

    /// Whatever was given is taken at once.
    pub(crate) fn flag() -> io::Result<Self> {
        Self::new(EfdFlags::empty())
    }

    fn new(flags: EfdFlags) -> io::Result<Self> {
        let flags = flags | EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Notify(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Adds one. At the counter's ceiling nothing is added: it is readable then anyway.
    pub(crate) fn give(&self) {
        let _ = self.0.write(1);
    }

    /// Takes one, or all if it is a flag; whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
