//! Layout of what the program and user space share: `bpf/shared.h` in Rust.
//!
//! The structures live in memory that both change, so that they are never made into Rust values
//! there: what counts are the offsets of their fields.

use std::net::{IpAddr, SocketAddr};

/// Octets of memory in one block.
pub const BLOCK_LEN: usize = 1 << 20;
/// Octets behind a block that nobody uses. The verifier bounds offset and length of a copy apart,
/// and so must the space be for the sum of both maxima.
pub const BLOCK_PADDING: usize = 64 << 10;
/// Octets of memory in one piece at most: it has as many blocks as are needed.
pub const PIECE_LEN: usize = 64 * BLOCK_LEN;
/// Number of pieces that there can be.
pub const PIECES: u32 = 1024;
/// Entries of the STag mirror.
pub const STAGS: u32 = 4096;
/// Connections at one time.
pub const CONNECTIONS: u32 = 64;
/// Records that a connection keeps.
pub const RECORDS: u32 = 1024;
/// Receives of a connection that the program knows of.
pub const RECEIVES: u32 = 256;
/// Sinks of a connection's Reads that the program knows of.
pub const SINKS: u32 = 32;
/// Words on octets that have come again, and on holes, that user space has not taken.
pub const TOLD: u32 = 1024;

/// Bit of an entry's state: the STag may be used.
pub const STAG_OPEN: u64 = 1 << 31;
/// Bit of an entry's state: the entry is being written.
pub const STAG_WRITING: u64 = 1 << 30;
/// Bits of an entry's state that count its holders.
pub const STAG_PINS: u64 = STAG_WRITING - 1;
/// Right of an entry: peers may write.
pub const RIGHT_WRITE: u32 = 1;
/// Right of an entry: receives and sinks of this end may lie there.
pub const RIGHT_OWN: u32 = 2;

/// Bit of a record's stamp: the payload is in its place.
pub const RECORD_PLACED: u32 = 1;
/// Bit of a record's stamp, set by user space: the CRC fits the FPDU, with the payload as it was in
/// its place then.
pub const RECORD_SUMMED: u32 = 2;
/// Bit of a record's stamp: the segment lay behind a hole.
pub const RECORD_BEHIND: u32 = 4;

/// Bit of a slot's name: there is memory for a message.
pub const SLOT_OPEN: u64 = 1;

/// Bit of a gate: segments may be placed.
pub const GATE_OPEN: u64 = 1;
/// Bit of a gate: a segment is being placed.
pub const GATE_BUSY: u64 = 2;

/// Flag of a connection: all segments are placed, and not only those behind a hole.
pub const PLACE_ALL: u32 = 1;
/// Flag of a connection: partial checksums are taken for right ones.
pub const TRUST_LINK: u32 = 2;
/// Flag of a connection: last segments of Writes are placed, too. A program that polls the last
/// octets of a Write then sees them before octets of earlier segments, which may still be missing.
pub const PLACE_LAST: u32 = 4;
/// Flag of a connection: the peer may not write at all.
pub const NO_WRITES: u32 = 8;

/// An STag that is open, and the memory behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// STag in the high half, then [`STAG_OPEN`], [`STAG_WRITING`] and the number of holders.
    pub state: u64,
    /// The first Tagged Offset.
    pub base: u64,
    /// Number of octets.
    pub len: u64,
    /// Place of the first octet, counted from the first octet of piece 0.
    pub start: u64,
    /// Protection domain.
    pub pd: u64,
    /// The only QP that may use it; 0 for all of the protection domain.
    pub qp: u32,
    /// Rights.
    pub rights: u32,
    /// Number of the time that it was opened.
    pub opening: u32,
    /// Fills the entry up to a cache line.
    pub unused: [u32; 3],
}

/// An FPDU whose payload has been placed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// TCP sequence number of the first octet.
    pub seq: u32,
    /// Octets of payload.
    pub len: u32,
    /// Number of the record plus one, shifted left by three; [`RECORD_PLACED`], [`RECORD_SUMMED`]
    /// and [`RECORD_BEHIND`].
    pub stamp: u32,
    /// The CRC field, the first octet in front.
    pub crc: [u8; 4],
    /// Place of the payload, as `start` of an entry.
    pub at: u64,
    /// The first octets of the FPDU, up to the payload; the rest means nothing.
    pub front: [u8; 20],
    /// The opening of the STag by which it was placed.
    pub opening: u32,
}

/// Memory for a message that this end waits for: a posted receive, or the sink of a Read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// 0 if there is none; else [`SLOT_OPEN`], and of a receive its MSN in the high half.
    pub name: u64,
    /// Tagged Offset of the first octet.
    pub to: u64,
    /// STag.
    pub stag: u32,
    /// Number of octets.
    pub len: u32,
}

/// A connection, up to what was told ([`TOLD`] words, each the sequence number of a segment, and in
/// the low half that up to which it tells), receives ([`RECEIVES`] slots), sinks ([`SINKS`] slots)
/// and records.
///
/// What user space writes for every read, and the program for every segment, lies in cache lines of
/// their own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// In the high half the sequence number in front of which nothing is placed any more; then
    /// [`GATE_OPEN`] and [`GATE_BUSY`].
    pub gate: u64,
    /// Records that user space is done with.
    pub tail: u64,
    /// Words that user space has taken.
    pub told_tail: u64,
    /// Fills up the cache line.
    pub unused: [u64; 5],
    /// Records made.
    pub head: u64,
    /// Words on octets that have come again, and on holes.
    pub told_head: u64,
    /// Protection domain.
    pub pd: u64,
    /// QP.
    pub qp: u32,
    /// [`PLACE_ALL`], [`TRUST_LINK`], [`PLACE_LAST`] and [`NO_WRITES`].
    pub flags: u32,
    /// Segments seen.
    pub segments: u64,
    /// Sequence number behind the last segment that came in order.
    pub next: u32,
    /// Sequence number behind the last octet that has come by.
    pub top: u32,
    /// The interface on which the last segment came, by its index.
    pub interface: u32,
    /// Fills up to the next field.
    pub unused_too: u32,
    /// FPDUs placed.
    pub fpdus: u64,
    /// Octets of payload placed.
    pub octets: u64,
    /// Octets of these that lay behind a hole.
    pub octets_behind: u64,
    /// Segments and FPDUs left to user level, by [`Outcome`].
    pub outcomes: [u64; 16],
    /// Name.
    pub tuple: Tuple,
    /// Fills up the cache line.
    pub unused_at_last: [u32; 3],
}

/// A connection's name: addresses and ports in network order. An IPv4 address is written as IPv6
/// has it (RFC 4291 §2.5.5.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    /// The peer's address.
    pub peer_addr: [u8; 16],
    /// This end's address.
    pub own_addr: [u8; 16],
    /// The peer's port.
    pub peer_port: [u8; 2],
    /// This end's port.
    pub own_port: [u8; 2],
}

impl Tuple {
    /// Returns the name of the connection between these ends.
    ///
    /// ```
    /// use rddp_kernel_patch::layout::Tuple;
    /// let name = |ends: [&str; 2]| Tuple::new(ends[0].parse().unwrap(), ends[1].parse().unwrap());
    /// let tuple = name(["192.0.2.1:4", "[2001:db8::1]:260"]);
    /// assert_eq!(tuple.own_port, [1, 4]);
    /// assert_eq!(name(["[::ffff:192.0.2.1]:4", "[2001:db8::1]:260"]), tuple);
    /// ```
    #[must_use]
    pub const fn new(peer: SocketAddr, own: SocketAddr) -> Self {
        Self {
            peer_addr: octets(peer.ip()),
            own_addr: octets(own.ip()),
            peer_port: peer.port().to_be_bytes(),
            own_port: own.port().to_be_bytes(),
        }
    }
}

const fn octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// State of a connection, as TCP knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 1 if there is such a connection in state ESTABLISHED.
    pub found: u32,
    /// Sequence number of the octet with which the next read begins.
    pub copied_seq: u32,
    /// Sequence number of the next octet that is to come in order.
    pub rcv_nxt: u32,
    /// Sequence number behind the receive window.
    pub window_end: u32,
    /// The peer's last timestamp, 0 without (RFC 7323 §3).
    pub ts_recent: u32,
    /// Sequence number up to which the peer may acknowledge.
    pub last_ack: u32,
    /// 0 if TCP has no segment behind `rcv_nxt`.
    pub has_more: u32,
}

/// The reason why a segment of a known connection, or an FPDU in it, was left to user level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Outcome {
    /// A fragment, other headers in front of TCP's, a VLAN tag, no payload, or not all of it.
    NotWhole,
    /// SYN, FIN, RST or URG.
    Flags,
    /// TCP has no such connection in state ESTABLISHED.
    NoSocket,
    /// By its numbers TCP would not take all of it, or has it already.
    OutOfWindow,
    /// PAWS (RFC 7323 §5), or options in which no timestamp is where it usually is.
    OldTimestamp,
    /// Nothing is missing in front of it.
    InOrder,
    /// No chain of FPDUs from its first octet to its last.
    Unaligned,
    /// The TCP checksum is wrong, or nobody can tell.
    BadChecksum,
    /// In front of what user space has delivered.
    Stale,
    /// Another processor, or user space, had the gate.
    Contended,
    /// User space has not taken the records of before.
    Full,
    /// An FPDU, but none with payload for registered memory.
    NoPayload,
    /// The STag, protection domain, right or bounds.
    Refused,
    /// The payload would lie in two blocks.
    AcrossBlocks,
    /// The last segment of a Write, without [`PLACE_LAST`].
    LastOfWrite,
    /// A Send or a Read Response, without a receive or a sink that the program knows of.
    NotAwaited,
}

const _: () = {
    assert!(size_of::<Entry>() == 64);
    assert!(size_of::<Record>() == 48);
    assert!(size_of::<Connection>() == 320);
    assert!(size_of::<Slot>() == 24);
    assert!(size_of::<Tuple>() == 36);
    assert!(size_of::<Answer>() == 28);
};
