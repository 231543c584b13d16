//! The beginning of a connection in raw mode: `ddp_attach`, `ddp_begin` and `connect`.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use rddp_real as real;
use rddp_rnic::{ConnectError, ConnectOptions, NoReceive, PortMapper, QpConfig, Revision, RtrSet};
use rddp_stream::{Errno, Role};

use super::adapter::{Adapter, errno_of};
use super::endpoint::{self, Endpoint, startup_errno};
use super::{memory, queue, shared};
use crate::socket::{self, Held, KindId, Locked, Mode, Settings};
use crate::sys::raw;

/// `struct ddp_endpoint`: the program's options of an endpoint.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct How {
    /// The event queue of the endpoint.
    pub queue: i32,
    /// The protection domain whose memory the endpoint may use.
    pub domain: i32,
    /// The program's mark of the endpoint, which is in each of its events.
    pub tag: u64,
    /// The largest number of works of the send queue whose events were not taken; 0:
    /// `DEFAULT_WORKS`.
    pub max_send: u32,
    /// The largest number of receives of its own whose events were not taken; 0: `DEFAULT_WORKS`.
    pub max_recv: u32,
    /// A set of `flag`.
    pub flags: u32,
    /// The time limit of the startup in milliseconds; 0: the default.
    pub timeout: u32,
    /// The number of the shared receives that the endpoint takes from; 0: it has its own.
    pub receives: i32,
    /// Always 0.
    pub reserved: u32,
}

impl How {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether the program answers the peer's Request.
    pub(super) fn asks(&self) -> bool {
        self.has(flag::ASK)
    }

    pub(super) fn max_send(&self) -> u32 {
        if self.max_send == 0 { DEFAULT_WORKS } else { self.max_send }
    }

    pub(super) fn max_recv(&self) -> u32 {
        if self.max_recv == 0 && self.receives == 0 { DEFAULT_WORKS } else { self.max_recv }
    }

    fn makes_sense(&self) -> bool {
        let shares = self.receives != 0;
        self.flags & !flag::ALL == 0
            && self.max_send <= MAX_WORKS
            && self.max_recv <= MAX_WORKS
            && self.reserved == 0
            && !(shares && self.max_recv != 0)
            && !(shares && self.has(flag::WAIT))
    }
}

/// `DDP_ENDPOINT_*`.
mod flag {
    pub(super) const WAIT: u32 = 1;
    pub(super) const NO_INBOUND_READ: u32 = 2;
    pub(super) const NO_INBOUND_WRITE: u32 = 4;
    pub(super) const REVISION_ONE: u32 = 8;
    pub(super) const EARLY_PLACEMENT: u32 = 16;
    pub(super) const ASK: u32 = 32;
    pub(super) const ALL: u32 = 63;
}

const DEFAULT_WORKS: u32 = 128;
const MAX_WORKS: u32 = 1 << 16;

/// Makes a socket an endpoint: `ddp_attach`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn attach(fd: c_int, how: &How) -> Result<(), Errno> {
    let Some(held) = socket::hold_checked(fd) else {
        real::is_tcp(fd)?;
        return Err(Errno::UNSUPPORTED);
    };
    let mut settings = held.settings();
    match (settings.kind == KindId::Raw, settings.attached, settings.mode) {
        (false, ..) => return Err(Errno::UNSUPPORTED),
        (true, true, _) => return Err(Errno(libc::EALREADY)),
        (true, false, Mode::Failed) => return Err(settings.failure),
        (true, false, _) => {}
    }
    let tcp = real::tcp_state(fd).ok_or(Errno::INVALID)?;
    if !matches!(tcp, real::TCP_CLOSE | real::TCP_ESTABLISHED | real::TCP_SYN_SENT) {
        return Err(if tcp == real::TCP_LISTEN { Errno::INVALID } else { Errno(libc::ENOTCONN) });
    }
    let adapter = Adapter::get()?;
    let endpoint = make(adapter, fd, how, &settings)?;
    endpoint.queue.admit(&endpoint)?;
    adapter.endpoints.write().insert(held.cookie(), endpoint.clone());
    settings.attached = true;
    Ok(())
}

/// Begins the startup on a connection that exists already: `ddp_begin`.
///
/// # Errors
/// ENOTCONN: TCP is not connected; EALREADY: the startup has begun.
pub fn begin(fd: c_int) -> Result<(), Errno> {
    let (_, endpoint) = endpoint::of(fd)?;
    let held = socket::hold_checked(fd).ok_or(Errno::NO_DESCRIPTOR)?;
    match real::tcp_state(fd) {
        Some(real::TCP_ESTABLISHED | real::TCP_SYN_SENT) => start(fd, &endpoint, &mut held.settings()),
        _ => Err(Errno(libc::ENOTCONN)),
    }
}

fn make(adapter: &Adapter, fd: c_int, how: &How, settings: &Settings) -> Result<Arc<Endpoint>, Errno> {
    if !how.makes_sense() {
        return Err(Errno::INVALID);
    }
    let queue = queue::of(adapter, how.queue)?;
    let domain = memory::domain(adapter, how.domain)?;
    let shared = (how.receives != 0).then(|| shared::of(adapter, how.receives)).transpose()?;
    let config = QpConfig {
        // As many again for quiet works, which are not counted: they have no events to be taken.
        max_send: 2 * how.max_send() as usize,
        max_recv: how.max_recv() as usize,
        srq: shared.as_ref().map(|shared| shared.srq.clone()),
        inbound_read: !how.has(flag::NO_INBOUND_READ) && !how.has(flag::WAIT),
        inbound_write: !how.has(flag::NO_INBOUND_WRITE),
        no_receive: if how.has(flag::WAIT) { NoReceive::Wait } else { NoReceive::Terminate },
        events: Some(queue.events.clone()),
        placement: settings.placement(),
        ..QpConfig::new(&queue.cq)
    };
    let qp = domain.create_qp(&config).map_err(|error| errno_of(&error))?;
    Ok(Endpoint::new(qp, queue, shared, options(how, settings), fd, how))
}

fn options(how: &How, settings: &Settings) -> ConnectOptions {
    let offers = |bit| settings.rtr & bit != 0;
    let mut options = ConnectOptions {
        revision: if how.has(flag::REVISION_ONE) { Revision::One } else { Revision::Two },
        crc: settings.crc,
        markers: settings.markers,
        ird: settings.ird,
        ord: settings.ord,
        peer_to_peer: settings.rtr != 0,
        rtr: RtrSet { write: offers(0b001), read: offers(0b010), send: offers(0b100) },
        private_data: settings.private_data.as_deref().unwrap_or_default().to_vec(),
        place_before_crc: how.has(flag::EARLY_PLACEMENT),
        port_mapper: PortMapper::Off,
        ..ConnectOptions::default()
    };
    if how.timeout != 0 {
        options.timeout = Duration::from_millis(how.timeout.into());
    }
    options
}

/// Begins the startup, which the RNIC does in the background.
fn start(fd: c_int, endpoint: &Endpoint, settings: &mut Locked<'_>) -> Result<(), Errno> {
    let active = settings.role.unwrap_or(Role::Initiator) == Role::Initiator;
    settings.saved.store(fd);
    let socket = socket2::Socket::from(raw::duplicate(fd)?);
    let begun = if endpoint.asks && !active {
        endpoint.qp.begin_asking(socket, &endpoint.options)
    } else {
        endpoint.qp.begin(socket, &endpoint.options, active)
    };
    begun.map_err(|error| match error {
        ConnectError::NotIdle(_) => Errno(libc::EALREADY),
        error => startup_errno(&error),
    })?;
    settings.role = Some(if active { Role::Initiator } else { Role::Responder });
    settings.mode = Mode::Starting;
    Ok(())
}

/// Goes on after the C library's `connect` on a socket in raw mode, which had this result.
///
/// # Errors
/// The error for the program.
pub(super) fn connected(held: &Held, fd: c_int, result: Result<(), Errno>) -> Result<(), Errno> {
    let mut settings = held.settings();
    match result {
        Ok(()) | Err(Errno(libc::EINPROGRESS | libc::EINTR)) => {}
        Err(Errno(libc::EALREADY | libc::EISCONN)) => return result,
        Err(_) => {
            settings.mode = Mode::Asked;
            return result;
        }
    }
    settings.mode = Mode::Starting;
    let endpoint =
        Adapter::existing().and_then(|adapter| adapter.endpoints.read().get(&held.cookie()).cloned());
    let Some(endpoint) = endpoint else { return result };
    let waits = result.is_ok() && !real::is_nonblocking(fd);
    start(fd, &endpoint, &mut settings)?;
    drop(settings);
    match result {
        Ok(()) if waits => {
            endpoint.qp.await_begun(endpoint.options.timeout + Duration::from_secs(1));
            endpoint.resolve().unwrap_or(Err(Errno::TIMED_OUT))
        }
        Ok(()) => Err(Errno(libc::EINPROGRESS)),
        Err(_) => result,
    }
}
