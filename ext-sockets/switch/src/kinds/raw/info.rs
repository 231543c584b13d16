//! The state of an endpoint, for the program: `ddp_info`.

use std::ffi::c_int;

use rddp_mpa::{Request, ULP_NEGOTIATES};
use rddp_rnic::{ConnectOptions, Connected, KernelCounts};
use rddp_stream::Errno;

use super::adapter::Adapter;
use super::endpoint;
use crate::socket::{Mode, Settings};

/// The largest private data of a peer, in octets.
pub(crate) const MAX_PRIVATE_DATA: usize = 512;

/// `struct ddp_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    /// A [`Mode`].
    pub mode: i32,
    /// The error with which the connection failed or ended.
    pub failure: i32,
    /// The code of our Terminate, or -1.
    pub terminate_sent: i32,
    /// The code of the peer's Terminate, or -1.
    pub terminate_received: i32,
    /// The number of inbound Reads and atomics at a time.
    pub ird: u32,
    /// The number of outbound Reads and atomics at a time.
    pub ord: u32,
    /// The revision of MPA.
    pub revision: u32,
    /// A set of `flag`.
    pub flags: u32,
    /// The octets given to TCP.
    pub octets_sent: u64,
    /// The octets taken from TCP.
    pub octets_received: u64,
    /// The octets used of `private_data`.
    pub private_len: u32,
    /// Always 0.
    pub reserved: u32,
    /// The private data of the peer's startup frame.
    pub private_data: [u8; MAX_PRIVATE_DATA],
}

/// `DDP_INFO_*`.
mod flag {
    pub(super) const CRC: u32 = 1;
    pub(super) const MARKERS_SENT: u32 = 2;
    pub(super) const MARKERS_RECEIVED: u32 = 4;
}

/// Returns the state of an endpoint: `ddp_info`.
///
/// # Errors
/// As for all calls on an endpoint.
pub fn info(fd: c_int) -> Result<Info, Errno> {
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
        (info.mode, info.failure) = (settings.mode as i32, settings.failure.0);
    }
    endpoint.with_life(|life| {
        match (life.connected(), &life.request) {
            (Some(connected), _) => info.agreed(connected),
            (None, Some(request)) => info.asked(request, &endpoint.options),
            (None, None) => {}
        }
        info.say(life.said());
    });
    Ok(info)
}

impl Info {
    fn agreed(&mut self, connected: &Connected) {
        let Some(agreed) = &connected.negotiated else { return };
        (self.ird, self.ord) = (agreed.ird.into(), agreed.ord.into());
        self.revision = agreed.revision as u32;
        self.flag(agreed.crc, agreed.markers_tx, agreed.markers_rx);
    }

    /// Fills in the peer's Request. The depths change sides: the peer's ORD is the number of Reads
    /// that come in here.
    fn asked(&mut self, request: &Request, own: &ConnectOptions) {
        let depth = |depth: Option<u16>| depth.unwrap_or(ULP_NEGOTIATES).into();
        (self.ird, self.ord) = (depth(request.peer_ord), depth(request.peer_ird));
        self.revision = request.revision as u32;
        self.flag(own.crc || request.crc, request.markers, own.markers);
    }

    fn flag(&mut self, crc: bool, markers_sent: bool, markers_received: bool) {
        let all = [
            (crc, flag::CRC),
            (markers_sent, flag::MARKERS_SENT),
            (markers_received, flag::MARKERS_RECEIVED),
        ];
        self.flags = all.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum();
    }

    fn say(&mut self, said: &[u8]) {
        let len = said.len().min(MAX_PRIVATE_DATA);
        self.private_data[..len].copy_from_slice(&said[..len]);
        self.private_len = len as u32;
    }
}

/// Returns the private data of the peer's startup frame.
pub(super) fn peer_private_data(cookie: u64) -> Vec<u8> {
    let endpoint = Adapter::existing().and_then(|adapter| adapter.endpoints.read().get(&cookie).cloned());
    endpoint.map(|endpoint| endpoint.with_life(|life| life.said().to_vec())).unwrap_or_default()
}

/// Returns what was counted where the kernel places; `None` where it does not.
pub(super) fn kernel_counts(cookie: u64) -> Option<KernelCounts> {
    let endpoint = Adapter::existing()?.endpoints.read().get(&cookie).cloned()?;
    endpoint.qp.kernel_counts()
}

/// Brings the settings of a socket in raw mode up to date with the state of its endpoint.
pub(super) fn describe(cookie: u64, settings: &mut Settings) {
    let Some(adapter) = Adapter::existing() else { return };
    let Some(endpoint) = adapter.endpoints.read().get(&cookie).cloned() else { return };
    let status = endpoint.with_life(|life| {
        if life.connected().is_some() && settings.mode == Mode::Starting {
            settings.mode = Mode::On;
        }
        life.over
    });
    if let Some(status) = status {
        settings.fail(status);
    }
}
