//! Work requests: what a program posts to a queue (draft-hilland-rddp-verbs §8.1).
//!
//! A [`SendWr`] goes to a QP's send queue, a [`RecvWr`] to its receive queue or to a shared
//! one. Both name memory by [`Sge`]s, whose STag and range are checked when the request is
//! posted, and again when it is used. Requests of one queue start and complete in the order
//! in which they were posted.

use core::net::{IpAddr, SocketAddr};
use std::ops::Deref;

use rddp_ddp::Stag;
use smallvec::{SmallVec, smallvec};

use crate::{Access, QpNum};

/// A piece of registered local memory: `len` octets from `addr` on in the region `stag`.
///
/// ```
/// use rddp_rdma::{RecvWr, Sge, Stag};
/// let sge = Sge { stag: Stag(0x100), addr: 0x7000, len: 4096 };
/// assert_eq!(RecvWr::one(1, sge).capacity(), 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region's STag.
    pub stag: Stag,
    /// The Tagged Offset of the first octet: its address, or in a zero-based region its offset.
    pub addr: u64,
    /// Length in octets. A message has fewer than 4 GiB (RFC 5041 §5.2): a longer piece is memory
    /// for a receive or a window, and other requests with one are refused when they are posted.
    pub len: u64,
}

/// A list of pieces of registered local memory. A single piece is kept without an allocation.
///
/// ```
/// use rddp_rdma::{Sge, SgeList, Stag};
/// let sge = Sge { stag: Stag(0x100), addr: 0, len: 64 };
/// assert_eq!(SgeList::from(sge)[..], [sge]);
/// assert_eq!(SgeList::from(vec![sge, sge]).len(), 2);
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SgeList(SmallVec<[Sge; 1]>);

impl Clone for SgeList {
    #[inline]
    fn clone(&self) -> Self {
        // As a slice of `Copy` values: the derived `clone` would copy the pieces one by one.
        SgeList(SmallVec::from_slice(&self.0))
    }
}

impl SgeList {
    /// Returns the length of all pieces together, in octets.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().fold(0, |total, sge| total.saturating_add(sge.len))
    }
}

impl Deref for SgeList {
    type Target = [Sge];

    #[inline]
    fn deref(&self) -> &[Sge] {
        &self.0
    }
}

impl From<Sge> for SgeList {
    #[inline]
    fn from(sge: Sge) -> Self {
        SgeList(smallvec![sge])
    }
}

impl From<Vec<Sge>> for SgeList {
    fn from(list: Vec<Sge>) -> Self {
        SgeList(list.into())
    }
}

impl<const N: usize> From<[Sge; N]> for SgeList {
    fn from(list: [Sge; N]) -> Self {
        SgeList(list.into_iter().collect())
    }
}

/// The local octets of a Send or Write.
///
/// ```
/// use rddp_rdma::{Gather, Sge, Stag};
/// let sge = Sge { stag: Stag(0x100), addr: 0, len: 64 };
/// assert_eq!(Gather::from(vec![sge, sge]).total(), 128);
/// assert_eq!(Gather::Inline(b"hello".to_vec()).total(), 5);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Registered memory, in this order. It must not change until the request has completed.
    List(SgeList),
    /// A copy of octets, at most as many as the device takes inline
    /// ([`max_inline`](crate::Capabilities::max_inline)).
    Inline(Vec<u8>),
}

impl Gather {
    /// Returns the length of the message in octets.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u64 {
        match self {
            Gather::List(list) => list.total(),
            Gather::Inline(octets) => octets.len() as u64,
        }
    }
}

impl From<Sge> for Gather {
    #[inline]
    fn from(sge: Sge) -> Self {
        Gather::List(sge.into())
    }
}

impl From<Vec<Sge>> for Gather {
    fn from(list: Vec<Sge>) -> Self {
        Gather::List(list.into())
    }
}

/// A place in the peer's memory: a region or window that the peer advertised, and an offset in it.
///
/// ```
/// use rddp_rdma::{Remote, SendWr, Stag};
/// let there = Remote { stag: Stag(0x00ab_cd00), to: 0x1000 };
/// let request = SendWr::write_inline(1, b"hello", there.at(64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's STag.
    pub stag: Stag,
    /// The Tagged Offset of the first octet.
    pub to: u64,
}

impl Remote {
    /// The length of the wire form in octets.
    pub const LEN: usize = 12;

    /// Returns the wire form, by which programs advertise memory to each other, in private data or
    /// a message. No RFC has one; this is `rping`'s, without the length that follows there:
    ///
    /// | octets | big-endian |
    /// |---|---|
    /// | 0 to 7 | Tagged Offset |
    /// | 8 to 11 | STag |
    ///
    /// ```
    /// use rddp_rdma::{Remote, Stag};
    /// let advert = Remote { stag: Stag(0x00ab_cd01), to: 0x1000 };
    /// let octets = advert.to_octets();
    /// assert_eq!(octets, [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0xab, 0xcd, 1]);
    ///
    /// let private_data = [&octets[..], b"and more"].concat();
    /// let (first, more) = private_data.split_first_chunk().ok_or("too short for an advert")?;
    /// assert_eq!((Remote::from_octets(first), more), (advert, &b"and more"[..]));
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn to_octets(self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[..8].copy_from_slice(&self.to.to_be_bytes());
        octets[8..].copy_from_slice(&self.stag.0.to_be_bytes());
        octets
    }

    /// Returns the place of a wire form: see [`to_octets`](Self::to_octets). All octets are some
    /// place; whether it exists, the peer that has it decides.
    #[must_use]
    pub fn from_octets(octets: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *octets;
        let stag = Stag(u32::from_be_bytes([i, j, k, l]));
        Remote { stag, to: u64::from_be_bytes([a, b, c, d, e, f, g, h]) }
    }

    /// Returns the place that is `offset` octets further.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        Remote { to: self.to.wrapping_add(offset), ..self }
    }
}

/// An unreliable datagram QP, as its peers know it.
///
/// ```
/// use rddp_rdma::{QpNum, UdPeer};
/// let peer = UdPeer { addr: "192.0.2.1".parse()?, qp: QpNum(0x12_3456), qkey: 0x1111_1111 };
/// assert_eq!(peer.socket_addr(), "192.0.2.1:4660".parse()?);
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdPeer {
    /// The address of the QP's host.
    pub addr: IpAddr,
    /// A number of 24 bits: the UDP port that the QP is bound to, and below that eight bits by
    /// which it differs from others that have had the port.
    pub qp: QpNum,
    /// The `Q_Key` that the message carries. One whose highest bit is set stands for the sender's
    /// own (InfiniBand Architecture §10.2.5).
    pub qkey: u32,
}

impl UdPeer {
    /// Returns the address of UDP that a QP with such a number is bound to.
    #[must_use]
    pub fn socket_addr(&self) -> SocketAddr {
        SocketAddr::new(self.addr, (self.qp.0 >> 8) as u16)
    }
}

/// The operation of a send-queue request.
///
/// ```
/// use rddp_rdma::{Operation, Remote, SendWr, Sge, Stag};
/// let sink = Sge { stag: Stag(0x100), addr: 0, len: 64 };
/// let remote = Remote { stag: Stag(0x200), to: 0 };
/// // What has no function of its own is made of the operation:
/// let read = SendWr::new(1, Operation::Read { sink, remote, invalidate_sink: true });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// RFC 5040 Send, with or without Invalidate.
    Send {
        /// The message.
        gather: Gather,
        /// The peer's STag that the peer invalidates before it completes its receive.
        invalidate: Option<Stag>,
    },
    /// A Send with a value that the completion of the peer's receive carries. Only connections
    /// whose requests are acknowledged have it: of RFC 7306 no message has both.
    SendImmediate {
        /// The message.
        gather: Gather,
        /// The value.
        data: [u8; 8],
    },
    /// A message of its own to this address, by UDP: whoever is there gets it once, or not at all.
    Datagram {
        /// The message.
        gather: Gather,
        /// The address of the peer.
        to: SocketAddr,
    },
    /// A message to an unreliable datagram QP, by UDP: it gets it once, or not at all.
    Unreliable {
        /// The message.
        gather: Gather,
        /// The QP that it is for.
        to: UdPeer,
        /// An immediate value, which the completion of the peer's receive carries.
        immediate: Option<[u8; 4]>,
    },
    /// RFC 7306 Immediate Data: eight octets that complete one receive at the peer.
    Immediate {
        /// The octets.
        data: [u8; 8],
    },
    /// RFC 5040 RDMA Write.
    Write {
        /// The local octets.
        gather: Gather,
        /// Place of the octets at the peer.
        remote: Remote,
    },
    /// An RDMA Write with Immediate Data right behind it, as one request.
    WriteImmediate {
        /// The local octets.
        gather: Gather,
        /// Place of the octets at the peer.
        remote: Remote,
        /// Immediate Data, which the completion of the peer's receive carries.
        data: [u8; 8],
    },
    /// RFC 5040 RDMA Read into one piece of local memory, which needs the rights that
    /// [`read_sink`](crate::Capabilities::read_sink) names.
    Read {
        /// Local memory for the octets; its length is the Read's.
        sink: Sge,
        /// Source of the octets at the peer.
        remote: Remote,
        /// Invalidates the sink's STag locally once the Read is done.
        invalidate_sink: bool,
    },
    /// RFC 7306 FetchAdd. The original value goes to `sink`, in native byte order.
    FetchAdd {
        /// Place of eight octets for the original value.
        sink: Sge,
        /// The 64-bit value, aligned to eight octets.
        remote: Remote,
        /// The value that is added.
        add: u64,
        /// The top bit of each field of the sum; 0 for a plain 64-bit add.
        mask: u64,
    },
    /// RFC 7306 CmpSwap. The original value goes to `sink`, in native byte order.
    CmpSwap {
        /// Place of eight octets for the original value.
        sink: Sge,
        /// The 64-bit value, aligned to eight octets.
        remote: Remote,
        /// The value to compare with, under `compare_mask` (0: always equal, a swap).
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The value to store, under `swap_mask`.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
    /// Binds a memory window to a part of a region (draft-hilland-rddp-verbs §7.10.2).
    Bind {
        /// The window's STag.
        window: Stag,
        /// The range; its STag is the region's.
        range: Sge,
        /// Rights that the peer has through the window.
        access: Access,
        /// The key of the window's new STag, its low octet; `None` for one that the device draws,
        /// which the peer cannot guess (RFC 5042 §6.1.1).
        key: Option<u8>,
    },
    /// Invalidates the STag of a local region or window.
    Invalidate {
        /// The STag of a region or window.
        stag: Stag,
    },
}

/// A request for the send queue. Built with the functions named after the operations.
///
/// ```
/// use rddp_rdma::SendWr;
/// let wr = SendWr::send_inline(7, b"hello").solicited().unsignaled();
/// assert_eq!(wr.wr_id, 7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// A value of the program's own, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub operation: Operation,
    /// True if success makes a completion. (Failure always does.)
    pub signaled: bool,
    /// Send and Immediate: the completion at the peer is solicited, so it wakes a program that
    /// waits for solicited ones only.
    pub solicited: bool,
    /// The request waits until all earlier Reads and atomics of this queue are done.
    pub read_fence: bool,
    /// The request waits until all earlier requests of this queue are done.
    pub local_fence: bool,
}

impl SendWr {
    /// Makes a request with no flags but `signaled`.
    pub fn new(wr_id: u64, operation: Operation) -> Self {
        SendWr { wr_id, operation, signaled: true, solicited: false, read_fence: false, local_fence: false }
    }

    /// Makes a Send of registered memory.
    pub fn send(wr_id: u64, gather: impl Into<Gather>) -> Self {
        Self::new(wr_id, Operation::Send { gather: gather.into(), invalidate: None })
    }

    /// Makes a Send of octets that are copied now.
    pub fn send_inline(wr_id: u64, octets: &[u8]) -> Self {
        Self::new(wr_id, Operation::Send { gather: Gather::Inline(octets.to_vec()), invalidate: None })
    }

    /// Makes a Send that has the peer invalidate one of its STags.
    pub fn send_invalidate(wr_id: u64, gather: impl Into<Gather>, stag: Stag) -> Self {
        Self::new(wr_id, Operation::Send { gather: gather.into(), invalidate: Some(stag) })
    }

    /// Makes a Send with a value.
    pub fn send_immediate(wr_id: u64, gather: impl Into<Gather>, data: [u8; 8]) -> Self {
        Self::new(wr_id, Operation::SendImmediate { gather: gather.into(), data })
    }

    /// Makes a request that sends a datagram.
    pub fn datagram(wr_id: u64, gather: impl Into<Gather>, to: SocketAddr) -> Self {
        Self::new(wr_id, Operation::Datagram { gather: gather.into(), to })
    }

    /// Makes a request that sends a message to an unreliable datagram QP.
    pub fn unreliable(wr_id: u64, gather: impl Into<Gather>, to: UdPeer) -> Self {
        Self::new(wr_id, Operation::Unreliable { gather: gather.into(), to, immediate: None })
    }

    /// Makes a request that sends Immediate Data.
    pub fn immediate(wr_id: u64, data: [u8; 8]) -> Self {
        Self::new(wr_id, Operation::Immediate { data })
    }

    /// Makes an RDMA Write.
    pub fn write(wr_id: u64, gather: impl Into<Gather>, remote: Remote) -> Self {
        Self::new(wr_id, Operation::Write { gather: gather.into(), remote })
    }

    /// Makes an RDMA Write of octets that are copied now.
    pub fn write_inline(wr_id: u64, octets: &[u8], remote: Remote) -> Self {
        Self::new(wr_id, Operation::Write { gather: Gather::Inline(octets.to_vec()), remote })
    }

    /// Makes an RDMA Write followed by Immediate Data.
    pub fn write_immediate(wr_id: u64, gather: impl Into<Gather>, remote: Remote, data: [u8; 8]) -> Self {
        Self::new(wr_id, Operation::WriteImmediate { gather: gather.into(), remote, data })
    }

    /// Makes an RDMA Read.
    pub fn read(wr_id: u64, sink: Sge, remote: Remote) -> Self {
        Self::new(wr_id, Operation::Read { sink, remote, invalidate_sink: false })
    }

    /// Makes an unmasked FetchAdd.
    pub fn fetch_add(wr_id: u64, sink: Sge, remote: Remote, add: u64) -> Self {
        Self::new(wr_id, Operation::FetchAdd { sink, remote, add, mask: 0 })
    }

    /// Makes an unmasked CmpSwap.
    pub fn cmp_swap(wr_id: u64, sink: Sge, remote: Remote, compare: u64, swap: u64) -> Self {
        let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
        Self::new(wr_id, Operation::CmpSwap { sink, remote, compare, compare_mask, swap, swap_mask })
    }

    /// Makes a request that binds a window to `range`.
    pub fn bind(wr_id: u64, window: Stag, range: Sge, access: Access) -> Self {
        Self::new(wr_id, Operation::Bind { window, range, access, key: None })
    }

    /// Makes a request that binds a window to `range` under an STag with this key, its low octet.
    /// So the program can tell the peer before the request has completed.
    pub fn bind_with_key(wr_id: u64, window: Stag, range: Sge, access: Access, key: u8) -> Self {
        Self::new(wr_id, Operation::Bind { window, range, access, key: Some(key) })
    }

    /// Makes a request that invalidates a local STag.
    pub fn invalidate(wr_id: u64, stag: Stag) -> Self {
        Self::new(wr_id, Operation::Invalidate { stag })
    }

    /// Sets the solicited-event flag.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// Clears `signaled`: success makes no completion.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// Sets the Read fence.
    #[must_use]
    pub fn read_fence(mut self) -> Self {
        self.read_fence = true;
        self
    }

    /// Sets the local fence.
    #[must_use]
    pub fn local_fence(mut self) -> Self {
        self.local_fence = true;
        self
    }
}

/// A request for a receive queue: memory for one message.
///
/// ```
/// use rddp_rdma::{RecvWr, Sge, Stag};
/// let piece = |addr, len| Sge { stag: Stag(0x100), addr, len };
/// let (header, rest) = (piece(0, 16), piece(4096, 1024));
/// assert_eq!(RecvWr::new(7, [header, rest]).capacity(), 1040);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// A value of the program's own, returned in the completion.
    pub wr_id: u64,
    /// Memory for the message, in this order. It may be empty for messages of no octets and
    /// Immediate Data.
    pub scatter: SgeList,
    /// Completes only when it is full, on a wire whose octets have no messages: else with whatever
    /// comes.
    pub full: bool,
}

impl RecvWr {
    /// Makes a receive into `scatter`.
    pub fn new(wr_id: u64, scatter: impl Into<SgeList>) -> Self {
        RecvWr { wr_id, scatter: scatter.into(), full: false }
    }

    /// Makes a receive into one piece of memory.
    pub fn one(wr_id: u64, sge: Sge) -> Self {
        RecvWr { wr_id, scatter: sge.into(), full: false }
    }

    /// Has the receive complete only when it is full ([`full`](Self::full)).
    #[must_use]
    pub fn until_full(self) -> Self {
        RecvWr { full: true, ..self }
    }

    /// Returns the length of the longest message that fits, in octets.
    pub fn capacity(&self) -> u64 {
        self.scatter.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(len: u64) -> Sge {
        Sge { stag: Stag(0x100), addr: 0, len }
    }

    #[test]
    fn the_length_of_a_list_is_the_sum_of_its_pieces() {
        assert_eq!(SgeList::default().total(), 0);
        assert_eq!(RecvWr::new(1, [sge(3), sge(4)]).capacity(), 7);
        assert_eq!(Gather::from(vec![sge(3), sge(0), sge(5)]).total(), 8);
        assert_eq!(Gather::Inline(vec![0; 9]).total(), 9);
    }

    #[test]
    fn the_wire_form_of_a_place_is_reversible() {
        let place = Remote { stag: Stag(0x0102_0304), to: 0x1112_1314_1516_1718 };
        let octets = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 1, 2, 3, 4];
        assert_eq!((place.to_octets(), Remote::from_octets(&octets)), (octets, place));
        assert_eq!(place.at(u64::MAX), Remote { to: place.to - 1, ..place });
    }

    /// Requests and completions are copied at each call, on all wires.
    #[test]
    fn requests_and_completions_are_no_larger_than_they_have_to_be() {
        assert_eq!(size_of::<SendWr>(), 96);
        assert_eq!(size_of::<crate::Completion>(), 40);
    }

    /// RFC 5041 §5.2: a list that is longer than any message must not look like a short one.
    #[test]
    fn the_length_of_a_list_does_not_wrap() {
        assert_eq!(SgeList::from([sge(u64::MAX), sge(2)]).total(), u64::MAX);
    }
}
