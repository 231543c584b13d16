//! The base of a stream of any kind: the descriptor, the shared state, and what asks nobody which
//! kind it is.

use std::os::fd::RawFd;

use super::caller::Nobody;
use super::state::State;
use super::sys::{Kernel, held};
use super::{Caller, Calls, Errno};

/// The part of a stream that is the same for each kind.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    pub(super) kernel: Kernel<'a>,
    pub(super) state: &'a State,
}

impl<'a> Base<'a> {
    /// Returns the base of a stream on `fd`, a connected (or connecting) TCP socket.
    #[must_use]
    pub fn new(fd: RawFd, state: &'a State, calls: &'a Calls) -> Self {
        held::begin_call();
        Self { kernel: Kernel { fd, calls, caller: &Nobody }, state }
    }

    pub(super) fn called_by(self, caller: &'a dyn Caller) -> Self {
        Self { kernel: Kernel { caller, ..self.kernel }, state: self.state }
    }

    /// Returns the socket's `SO_COOKIE`, by which the state is found again.
    ///
    /// # Errors
    /// The errno of `getsockopt`.
    pub fn cookie(&self) -> Result<u64, Errno> {
        self.kernel.cookie()
    }
}
