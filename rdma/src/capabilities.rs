//! Abilities and limits of a device.

use std::fmt;

use crate::Access;

/// The abilities and limits of one device.
///
/// A limit is the largest value that the device takes. A call that asks for more is refused, but a
/// connection with larger depths is made with these limits as its depths. `None` means that the
/// device sets no limit: memory and descriptors of its host do.
///
/// ```
/// use rddp_rdma::{Atomics, Capabilities};
///
/// /// Returns whether a device can do what this program needs.
/// fn suits(device: &Capabilities) -> bool {
///     device.max_inline >= 64 && device.shared_receives && device.atomics != Atomics::None
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The protocol that the device speaks: peers speak the same.
    pub protocol: Protocol,
    /// QPs at a time.
    pub max_qps: Option<usize>,
    /// Requests that one send queue, receive queue or shared receive queue holds.
    pub max_requests: Option<usize>,
    /// Completions that one completion queue holds.
    pub max_cqes: usize,
    /// Regions and windows at a time.
    pub max_stags: usize,
    /// Elements of a gather or scatter list. A Read has one sink on every device.
    pub max_sge: usize,
    /// Octets that a request carries inline.
    pub max_inline: usize,
    /// Octets of the longest message.
    pub max_message: u64,
    /// Inbound Reads and atomics at a time (RFC 5040 §6.1: IRD).
    pub max_ird: u16,
    /// Outbound Reads and atomics at a time (RFC 5040 §6.1: ORD).
    pub max_ord: u16,
    /// Octets of private data that a Request takes, whatever the other options are.
    pub max_request_data: usize,
    /// Octets of private data that an accepting Reply takes.
    pub max_reply_data: usize,
    /// Octets of private data that a rejecting Reply takes.
    pub max_reject_data: usize,
    /// The atomic operations that the device can do.
    pub atomics: Atomics,
    /// Octets of Immediate Data: eight by RFC 7306, fewer elsewhere, none where there is no such
    /// message.
    pub immediate_len: usize,
    /// Rights that the sink of a Read needs. If a remote right is among them, whoever knows the
    /// STag of a sink may use that right, so the STag must not be shown to peers.
    pub read_sink: Access,
    /// Memory windows can be made, and bound.
    pub windows: bool,
    /// A Send may invalidate an STag of the peer's.
    pub send_invalidate: bool,
    /// Receive queues may be shared.
    pub shared_receives: bool,
    /// The Tagged Offsets of a region may begin at 0.
    pub zero_based: bool,
    /// A program that sees the last octet of a Write in memory sees all octets before it.
    pub data_in_order: bool,
}

/// The protocol of a device.
///
/// ```
/// use rddp_rdma::Protocol;
/// assert_eq!(Protocol::Roce.to_string(), "roce");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RDMA over TCP: RNICs, and software.
    Iwarp,
    /// InfiniBand's transport over UDP.
    Roce,
    /// InfiniBand, on a network of its own.
    InfiniBand,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Iwarp => "iwarp",
            Protocol::Roce => "roce",
            Protocol::InfiniBand => "infiniband",
        })
    }
}

/// The atomic operations of a device.
///
/// ```
/// use rddp_rdma::{Atomics, Capabilities};
///
/// fn counts(device: &Capabilities) -> bool {
///     matches!(device.atomics, Atomics::Plain | Atomics::Masked)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomics {
    /// No atomic operations.
    None,
    /// FetchAdd and CmpSwap of 64-bit values, without masks.
    Plain,
    /// FetchAdd and CmpSwap of 64-bit values, with the masks of RFC 7306 §5.
    Masked,
}
