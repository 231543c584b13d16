//! A descriptor that wakes threads which sleep in `poll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A counter of the kernel that is readable once it was rung, until it is silenced.
#[derive(Debug)]
pub(crate) struct Bell(EventFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Bell(EventFd::from_value_and_flags(0, flags)?))
    }

    pub(crate) fn ring(&self) {
        // It fails where the counter is full, which is readable.
        let _ = self.0.write(1);
    }

    pub(crate) fn silence(&self) {
        // It fails where nobody has rung.
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
