//! A TCP socket that is ours only because the program has set an option of ours on it.

use std::ffi::c_int;

use rddp_stream::Errno;

use super::kind::{Begin, Close, Readiness, SocketKind};
use crate::socket::Held;
use crate::wait::{self, Elsewhere};

/// A plain socket of ours, held for the length of a call.
#[derive(Debug)]
pub struct Plain {
    pub(super) held: Held,
    pub(super) fd: c_int,
}

impl SocketKind for Plain {
    fn admit(_held: Held, _fd: c_int) -> Result<Self, Errno> {
        Err(Errno::PLAIN)
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn fd(&self) -> c_int {
        self.fd
    }
}

impl Begin for Plain {}

impl Readiness for Plain {}

impl Close for Plain {
    fn close(&self) -> bool {
        wait::gone(&self.held, Elsewhere::Unknown);
        false
    }
}
