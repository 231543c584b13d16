//! Wake-ups that are file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A flag of the device's own, whose descriptor is readable while it is set.
#[derive(Debug)]
pub(crate) struct Notify(EventFd);

impl Notify {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Notify(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Sets the flag.
    pub(crate) fn give(&self) {
        let _ = self.0.write(1);
    }

    /// Clears the flag. Returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
