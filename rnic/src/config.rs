//! Settings: of the device, of a QP, of a connection. None is process-wide.

use std::sync::Arc;
use std::time::Duration;

use rddp_mpa::{Revision, RtrSet, StartupConfig};

use crate::cq::CompletionQueue;
use crate::event::{EventQueue, Sink};
use crate::mem::Access;
use crate::srq::SharedReceiveQueue;

/// Largest IRD and ORD that the device offers.
pub const MAX_DEPTH: u16 = 1024;

/// Limits of a device.
#[derive(Clone, Debug)]
pub struct RnicConfig {
    /// Connections of all listeners together that have not finished the MPA startup.
    pub max_half_open: usize,
    /// Connections of that kind from one IPv4 address, or from one /64 of IPv6 addresses.
    pub max_half_open_per_peer: usize,
    /// Octets of partly received FPDUs of all QPs together; a QP beyond it is not read until others have finished, and
    /// one that keeps others waiting for seconds is reset.
    pub max_partial: usize,
}

impl Default for RnicConfig {
    fn default() -> Self {
        RnicConfig { max_half_open: 1024, max_half_open_per_peer: 512, max_partial: 256 << 20 }
    }
}

/// How a QP is made.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// Where requests of the send queue complete.
    pub send_cq: CompletionQueue,
    /// Where receives complete.
    pub recv_cq: CompletionQueue,
    /// Receives come from here rather than from a queue of the QP's own.
    pub srq: Option<SharedReceiveQueue>,
    /// Requests that the send queue can hold.
    pub max_send: usize,
    /// Receives that the receive queue can hold.
    pub max_recv: usize,
    /// The peer may Read (and use atomics) where regions allow it.
    pub inbound_read: bool,
    /// The peer may Write where regions allow it.
    pub inbound_write: bool,
    /// What becomes of a Send for which no receive is posted.
    pub no_receive: NoReceive,
    /// Where asynchronous events go; the device's own queue when `None`.
    pub events: Option<EventQueue>,
    /// Takes each asynchronous event as it happens, besides that queue.
    pub sink: Option<Arc<dyn Sink>>,
}

/// What becomes of a Send, or Immediate Data, for which no receive is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoReceive {
    /// It ends the connection with a Terminate (RFC 5041 §7.2).
    #[default]
    Terminate,
    /// It waits until one is posted. Nothing more is read meanwhile, so TCP's window holds the peer.
    ///
    /// Everything else waits behind it. So such a QP has no Reads and atomics either way, whose Responses would: IRD and
    /// ORD are 0, `inbound_read` has to be off, and its receives are its own. What was read behind it counts as partial FPDUs
    /// do ([`RnicConfig::max_partial`]): when memory for those is short, a QP that has kept some for seconds is reset.
    Wait,
}

impl QpConfig {
    /// A QP with one completion queue for both directions.
    pub fn new(cq: &CompletionQueue) -> Self {
        QpConfig {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            max_send: 128,
            max_recv: 128,
            inbound_read: true,
            inbound_write: true,
            no_receive: NoReceive::Terminate,
            events: None,
            sink: None,
        }
    }
}

impl QpConfig {
    /// What the switches let the peer do.
    pub(crate) fn inbound(&self) -> Access {
        let mut rights = Access::empty();
        rights.set(Access::REMOTE_WRITE, self.inbound_write);
        rights.set(Access::REMOTE_READ | Access::REMOTE_ATOMIC, self.inbound_read);
        rights
    }
}

/// Whether a connecting side asks the peer's iWARP port mapper first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMapper {
    /// Not on loopback; elsewhere with a short timeout, then the port as given.
    Auto,
    /// Never.
    Off,
}

/// TCP's keepalive, in whole seconds from 1 to 32767, with 1 to 127 probes: a peer whose host has
/// vanished is noticed after `idle` and `probes` intervals, two minutes by default. A connection on
/// which nothing is sent would else last for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Probes without an answer, after which the connection is lost.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

/// How a connection is made, by either side.
///
/// ```
/// let options = rddp_rnic::ConnectOptions { markers: true, ird: 8, ..Default::default() };
/// assert!(options.crc);
/// ```
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Active side: the MPA revision to begin with.
    pub revision: Revision,
    /// Active side: try again with revision 1 when the peer refuses 2.
    pub fall_back: bool,
    /// Ask for CRC. It is used when either side asks (RFC 5044 §7.1).
    pub crc: bool,
    /// Ask the peer to send markers. They are always sent when the peer asks.
    pub markers: bool,
    /// Inbound Reads and atomics at a time.
    pub ird: u16,
    /// Outbound Reads and atomics at a time.
    pub ord: u16,
    /// Outbound Reads and atomics at a time where the startup agrees on none, which is in
    /// revision 1; `ord` is the limit there, too. One too many ends the connection
    /// (RFC 5040 §6.1), and what peers of that revision take is up to their programs: 1,
    /// unless it is known to be more.
    pub assumed_ird: u16,
    /// Active side: a peer-to-peer connection (RFC 6581 §9.2).
    pub peer_to_peer: bool,
    /// The kinds of RTR that are offered, or accepted.
    pub rtr: RtrSet,
    /// Handed to the peer's program with the Request or Reply.
    pub private_data: Vec<u8>,
    /// For TCP and the MPA startup together. A time that the clock cannot tell,
    /// as `Duration::MAX`, is without end.
    pub timeout: Duration,
    /// Places Writes before their CRC was checked: faster, and a corrupted header may overwrite live memory.
    pub place_before_crc: bool,
    /// Limits TCP's segment size.
    pub mss: Option<u16>,
    /// When TCP asks whether a silent peer is still there; never when `None`.
    /// For sockets that this crate makes.
    pub keepalive: Option<Keepalive>,
    /// Active side.
    pub port_mapper: PortMapper,
    /// Immediate Data and atomics (RFC 7306) are accepted from the peer.
    pub extensions: bool,
    /// Active side: while nothing has come from the peer, up to five Writes of no octets follow the first FPDU. A passive
    /// siw may leave that one unread until more arrives, and would wait for ever; to others they mean nothing.
    pub nudge: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            revision: Revision::Two,
            fall_back: true,
            crc: true,
            markers: false,
            ird: 32,
            ord: 32,
            assumed_ird: 1,
            peer_to_peer: true,
            rtr: RtrSet { send: false, write: true, read: true },
            private_data: Vec::new(),
            timeout: Duration::from_secs(5),
            place_before_crc: false,
            mss: None,
            keepalive: Some(Keepalive::default()),
            port_mapper: PortMapper::Auto,
            extensions: true,
            nudge: true,
        }
    }
}

impl ConnectOptions {
    pub(crate) fn startup(&self) -> StartupConfig {
        StartupConfig {
            revision: self.revision,
            crc: self.crc,
            markers: self.markers,
            ird: self.ird.min(MAX_DEPTH),
            ord: self.ord.min(MAX_DEPTH),
            max_ird: MAX_DEPTH,
            assumed_ird: self.assumed_ird,
            peer_to_peer: self.peer_to_peer,
            rtr: self.rtr,
        }
    }
}
