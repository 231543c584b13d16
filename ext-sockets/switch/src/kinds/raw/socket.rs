//! A socket in raw mode: the answers to the program's ordinary calls. It carries no octets of
//! theirs.

use std::ffi::c_int;
use std::net::SocketAddr;

use rddp_real::Value;
use rddp_rnic::KernelCounts;
use rddp_stream::Errno;

use super::{begin, endpoint, info};
use crate::kinds::kind::{Begin, Close, Readiness, SocketKind};
use crate::socket::{self, Care, Held, Locked, Mode, Settings};
use crate::wait::{self, Elsewhere};

/// A socket in raw mode, held for the length of a call.
#[derive(Debug)]
pub struct Raw {
    pub(in crate::kinds) held: Held,
    pub(in crate::kinds) fd: c_int,
}

impl SocketKind for Raw {
    fn admit(_held: Held, _fd: c_int) -> Result<Self, Errno> {
        Err(Errno::UNSUPPORTED)
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn fd(&self) -> c_int {
        self.fd
    }

    fn care(&self, level: c_int, name: c_int) -> Care {
        socket::care(level, name)
    }

    fn describe(&self, settings: &mut Settings) {
        info::describe(self.held.cookie(), settings);
    }

    fn kernel_counts(&self) -> Option<KernelCounts> {
        info::kernel_counts(self.held.cookie())
    }

    fn peer_private_data(&self) -> Value {
        Value::octets(&info::peer_private_data(self.held.cookie()))
    }
}

impl Begin for Raw {
    fn connecting(&self, to: Option<SocketAddr>) -> Result<(), Errno> {
        self.held.settings().to = to;
        Ok(())
    }

    fn connected(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        begin::connected(&self.held, self.fd, result)
    }

    /// Takes the connection over; the startup begins with `ddp_begin`.
    fn established(&self, settings: &mut Locked<'_>) -> Result<(), Errno> {
        settings.mode = Mode::Starting;
        Ok(())
    }
}

impl Readiness for Raw {}

impl Close for Raw {
    fn close(&self) -> bool {
        endpoint::closed(self.held.cookie());
        wait::gone(&self.held, Elsewhere::Unknown);
        false
    }
}
