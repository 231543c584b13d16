//! A socket of SDP over a device: the answers to the program's calls.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use rddp_real::Value;
use rddp_stream::{Errno, SdpInfo};

use super::end;
use super::link::{self, Life, Link};
use crate::kinds::kind::{Begin, Close, Readiness, SocketKind};
use crate::socket::{self, Care, Held, Mode, Settings};
use crate::wait::{self, Elsewhere};

/// A socket of SDP over a device, held for the length of a call.
#[derive(Debug)]
pub struct Device {
    pub(in crate::kinds) held: Held,
    pub(in crate::kinds) fd: c_int,
}

impl Device {
    pub(super) fn link(&self) -> Result<Arc<Link>, Errno> {
        link::of(self.held.cookie()).ok_or_else(end::refusal)
    }

    /// Returns the link of a socket that has one. Before `connect`, and where that went on in plain
    /// TCP, the kernel's socket is all there is.
    fn if_linked(&self) -> Option<Arc<Link>> {
        if self.held.is_still_tcp() { None } else { self.link().ok() }
    }
}

impl SocketKind for Device {
    fn admit(held: Held, fd: c_int) -> Result<Self, Errno> {
        let device = Device { held, fd };
        device.link().map(|_| device)
    }

    fn held(&self) -> &Held {
        &self.held
    }

    fn fd(&self) -> c_int {
        self.fd
    }

    fn recv(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        self.receive(pieces, flags)
    }

    fn send(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        self.send_all(pieces, flags)
    }

    fn send_file(&self, from: c_int, offset: Option<&mut i64>, count: usize) -> Result<usize, Errno> {
        self.send_part_of_file(from, offset, count)
    }

    fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        self.shut(how)
    }

    fn available(&self) -> Result<usize, Errno> {
        Ok(self.link()?.stream()?.map_or(0, |stream| stream.ready().octets))
    }

    fn care(&self, level: c_int, name: c_int) -> Care {
        socket::care(level, name)
    }

    fn apply(&self, settings: &Settings) {
        if let Some(Ok(Some(stream))) = self.if_linked().map(|link| link.stream()) {
            stream.set_low_water(usize::try_from(settings.saved.rcvlowat).unwrap_or(1));
        }
    }

    fn kernels(&self) -> Option<c_int> {
        self.if_linked()?.tcp()
    }

    fn describe(&self, settings: &mut Settings) {
        if let Some(link) = self.if_linked() {
            match &*link.life() {
                Life::Connected(_) => settings.mode = Mode::On,
                Life::Failed(errno) => settings.fail(*errno),
                Life::Connecting | Life::Listening(_) => {}
            }
        }
    }

    fn sdp_info(&self) -> Option<SdpInfo> {
        None
    }

    fn peer_private_data(&self) -> Value {
        Value::octets(&[])
    }

    fn take_error(&self) -> Option<Errno> {
        if self.held.is_still_tcp() {
            return None;
        }
        Some(self.link().map_or_else(|errno| errno, |link| link.take_error()))
    }

    fn names(&self) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        self.if_linked().map(|link| link.names())
    }
}

impl Begin for Device {
    fn connecting(&self, to: Option<SocketAddr>) -> Result<(), Errno> {
        self.held.settings().to = to;
        Ok(())
    }

    fn connects(&self) -> Option<Result<(), Errno>> {
        Some(self.connect())
    }

    fn listens(&self, backlog: c_int) -> Result<(), Errno> {
        self.listen(backlog)
    }

    fn accepts(&self, flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
        // A program may try again for ever behind ECONNABORTED.
        self.accept(flags).map_err(|errno| if errno == Errno::ABORTED { Errno::INVALID } else { errno })
    }
}

impl Readiness for Device {}

impl Close for Device {
    fn close(&self) -> bool {
        if let Some(link) = link::forget(self.held.cookie()) {
            link.close(link.lingers());
        }
        wait::gone(&self.held, Elsewhere::Unknown);
        false
    }
}
