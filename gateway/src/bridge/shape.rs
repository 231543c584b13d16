//! Memory and its places, terms and requests: common to the parts of a bridge.

use rddp_ddp::Header;
use rddp_iwarp::OwnMessage;
use rddp_mpa::Framing;
use rddp_rdma::{Completed, RecvWr, Sge, Stag};
use rddp_rdmap::{Fault, Offending, Opcode};
use rddp_verbs_device::Registration;

/// Requests of the send queue that a connection has at a time.
pub(crate) const SENDS: usize = 64;
/// Receives that a connection has posted.
pub(crate) const RECEIVES: usize = 16;
/// Octets of the longest payload of an FPDU, and of a piece of a Read.
pub(super) const PIECE: usize = 1 << 16;
/// Octets of what Reads and atomics bring at a time.
pub(super) const SINKS: usize = 4 * PIECE;

/// Memory that the device reads and writes.
pub(crate) trait Memory {
    /// Copies octets into the memory.
    fn write(&self, at: usize, octets: &[u8]);
    /// Copies octets out of the memory.
    fn read(&self, at: usize, into: &mut [u8]);
}

impl Memory for Registration {
    fn write(&self, at: usize, octets: &[u8]) {
        Registration::write(self, at, octets);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        Registration::read(self, at, into);
    }
}

/// The parts of a connection's memory, and its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Octets of the longest Send, of either side.
    pub(crate) max_message: usize,
    /// Address of the first octet.
    pub(crate) start: u64,
    pub(crate) local: Stag,
    /// Key for what Reads bring: RNICs want other rights for that.
    pub(crate) sink: Stag,
}

impl Shape {
    /// Returns the octets of a connection's memory.
    pub(crate) const fn len_for(max_message: usize) -> usize {
        4 * longest(max_message) + SINKS + RECEIVES * max_message
    }

    /// Octets of what is on its way to the device. Around one Send that is still arriving, there is
    /// room for another FPDU, wherever it lies.
    pub(super) fn outgoing(&self) -> usize {
        4 * longest(self.max_message)
    }

    /// Offset of a receive.
    pub(super) fn receive_at(&self, slot: u64) -> usize {
        self.outgoing() + SINKS + slot as usize * self.max_message
    }

    /// Returns a receive.
    pub(crate) fn receive(&self, slot: u64) -> RecvWr {
        RecvWr::one(slot, self.piece(self.receive_at(slot), self.max_message))
    }

    pub(super) fn piece(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.local, addr: self.start + at as u64, len: len as u64 }
    }

    pub(super) fn sink(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.sink, ..self.piece(at, len) }
    }
}

/// Octets of the longest thing that is on its way to the device.
pub(super) const fn longest(max_message: usize) -> usize {
    if max_message > PIECE { max_message } else { PIECE }
}

/// The terms of the plain host's leg.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) rx: Framing,
    pub(crate) tx: Framing,
    /// Reads and atomics that the plain host may have outstanding.
    pub(crate) ird: u32,
    /// Octets of the plain leg's TCP segments.
    pub(crate) emss: usize,
    /// The first FPDU of this end, where it is the initiator.
    pub(crate) first: Option<OwnMessage>,
}

/// A request that the device has.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) kind: Completed,
    /// The place of its octets.
    pub(super) place: Option<(usize, usize)>,
    /// The segment that it came from, for a Terminate.
    pub(super) offending: Offending,
}

/// Returns the opcode of a segment.
pub(super) fn opcode_of(header: &Header) -> Option<Opcode> {
    Opcode::from_number(header.control() & OPCODE)
}

/// The bits of a segment's control octet that have the opcode (RFC 5040 §4.1).
const OPCODE: u8 = 0x0f;

/// Returns the fault of an operation that cannot go on to the device.
pub(super) fn unknown(opcode: Opcode) -> Fault {
    Fault::UnknownOpcode { opcode: opcode as u8 }
}
