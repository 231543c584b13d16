//! What can be asked about an endpoint.

use std::ffi::c_int;

use rddp_rnic::Revision;

use super::adapter::Adapter;
use super::endpoint;
use crate::socket::{Mode, Settings};

/// The most private data of a peer.
const MAX_PRIVATE_DATA: usize = 512;

/// `struct ddp_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    /// A [`Mode`].
    pub mode: i32,
    /// Why it failed or ended.
    pub failure: i32,
    /// The code of our Terminate, or -1.
    pub terminate_sent: i32,
    /// The code of the peer's, or -1.
    pub terminate_received: i32,
    /// Inbound Reads and atomics at a time.
    pub ird: u32,
    /// Outbound ones.
    pub ord: u32,
    /// Of MPA.
    pub revision: u32,
    /// A set of `flag`.
    pub flags: u32,
    /// To TCP.
    pub octets_sent: u64,
    /// From TCP.
    pub octets_received: u64,
    /// Octets of `private_data`.
    pub private_len: u32,
    /// Nothing.
    pub reserved: u32,
    /// What the peer's program said in the startup.
    pub private_data: [u8; MAX_PRIVATE_DATA],
}

/// `DDP_INFO_*`.
mod flag {
    pub(super) const CRC: u32 = 1;
    pub(super) const MARKERS_SENT: u32 = 2;
    pub(super) const MARKERS_RECEIVED: u32 = 4;
}

/// `ddp_info`.
///
/// # Errors
/// As for all calls on an endpoint.
pub fn info(fd: c_int) -> Result<Info, c_int> {
    let (_, endpoint) = endpoint::of(fd)?;
    let code = |code: Option<rddp_rnic::TerminateRepr>| code.map_or(-1, |repr| i32::from(repr.code.0));
    let counters = endpoint.qp.counters();
    let mut info = Info {
        mode: Mode::Asked as i32,
        failure: 0,
        terminate_sent: code(endpoint.qp.terminate_sent()),
        terminate_received: code(endpoint.qp.terminate_received()),
        ird: 0,
        ord: 0,
        revision: 0,
        flags: 0,
        octets_sent: counters.octets_sent,
        octets_received: counters.octets_received,
        private_len: 0,
        reserved: 0,
        private_data: [0; MAX_PRIVATE_DATA],
    };
    let mode = crate::socket::hold(fd).map(|held| {
        let mut settings = held.settings().clone();
        describe(held.cookie(), &mut settings);
        settings
    });
    if let Some(settings) = mode {
        (info.mode, info.failure) = (settings.mode as i32, settings.failure);
    }
    endpoint.look(|connected, _| {
        let Some(connected) = connected else { return };
        let negotiated = &connected.negotiated;
        (info.ird, info.ord) = (negotiated.ird.into(), negotiated.ord.into());
        info.revision = if negotiated.revision == Revision::Two { 2 } else { 1 };
        for (is, flag) in [
            (negotiated.crc, flag::CRC),
            (negotiated.markers_tx, flag::MARKERS_SENT),
            (negotiated.markers_rx, flag::MARKERS_RECEIVED),
        ] {
            info.flags |= if is { flag } else { 0 };
        }
        let len = connected.private_data.len().min(MAX_PRIVATE_DATA);
        info.private_data[..len].copy_from_slice(&connected.private_data[..len]);
        info.private_len = len as u32;
    });
    Ok(info)
}

/// What the peer's program said in the startup.
pub fn peer_private_data(cookie: u64) -> Vec<u8> {
    let endpoint = Adapter::existing().and_then(|adapter| adapter.endpoints.read().get(&cookie).cloned());
    let said = endpoint.map(|endpoint| {
        endpoint.look(|connected, _| connected.map(|connected| connected.private_data.clone()))
    });
    said.flatten().unwrap_or_default()
}

/// The mode of a socket in raw mode, as its endpoint knows it.
pub fn describe(cookie: u64, settings: &mut Settings) {
    let Some(adapter) = Adapter::existing() else { return };
    let Some(endpoint) = adapter.endpoints.read().get(&cookie).cloned() else { return };
    let status: Option<c_int> = endpoint.look(|connected, over| {
        if connected.is_some() && settings.mode == Mode::Starting {
            settings.mode = Mode::On;
        }
        over
    });
    if let Some(status) = status {
        settings.fail(status);
    }
}
