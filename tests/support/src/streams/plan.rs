//! Operations of one end, and their outcome.
//!
//! Every Write has its own place and every Read its own sink, so that the outcome does not depend
//! on how the two directions are interleaved. A Read may ask for octets of an earlier Write, and
//! must get them.

use std::collections::VecDeque;

use rddp_ddp::{Header, Msn, Stag};
use rddp_rdmap::{AtomicOp, Event, Opcode, tagged_header, untagged_header};

use super::memory::Memory;
use super::{End, RECEIVE};
use crate::pattern;

/// Target of Writes, one octet after the other.
pub(super) const WRITTEN: Stag = Stag(0x0101_0101);
/// Source of Reads, which nobody changes.
const PATTERN: Stag = Stag(0x0202_0202);
/// Target of atomics.
pub(super) const COUNTERS: Stag = Stag(0x0303_0303);
/// Sink of an end's own Reads. No peer may write there.
pub(super) const SINK: Stag = Stag(0x0404_0404);

/// The TO of every region: sums with it pass 2^32, and come near 2^64.
pub(super) const BASE: u64 = 0xffff_ffff_0000_0000;

const PATTERN_LEN: usize = 4096;
const COUNT: usize = 8;

/// An operation, as a test asks for it. What does not fit is cut.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants say what the fields are")]
pub enum Work {
    /// A Send of any of the four kinds. One that invalidates does so with a region made for it.
    Send { opcode: Opcode, data: Vec<u8> },
    /// A Write behind what was written before.
    Write { data: Vec<u8> },
    /// A Read of a pattern, or of what was written before.
    Read { written: bool, at: usize, len: usize },
    /// An atomic on one of eight counters.
    Atomic { at: usize, op: AtomicOp },
    /// Immediate Data, with or without an event.
    Immediate { opcode: Opcode, data: [u8; 8] },
}

/// An operation that waits to be sent, with its expected outcome.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A Send, a Write or Immediate Data. The MSN of an untagged one is given when it begins.
    Message {
        first: Header,
        data: Vec<u8>,
    },
    Read {
        id: u64,
        sink_to: u64,
        src: (Stag, u64),
        want: Vec<u8>,
    },
    Atomic {
        id: u64,
        to: u64,
        op: AtomicOp,
        want: u64,
    },
}

/// A message of queue 0 as its receiver must get it.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) event: Event,
    pub(super) data: Vec<u8>,
    /// Octets of the region that Writes before it have filled.
    pub(super) written: usize,
}

/// Outcomes at one end of all that was submitted: by its peer, but for the sink of its own Reads.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) deliveries: VecDeque<Delivery>,
    /// Receives that the deliveries take.
    pub(super) receives: usize,
    pub(super) written: Vec<u8>,
    pub(super) counters: [u64; COUNT],
    pub(super) invalidated: Vec<Stag>,
    pub(super) sunk: usize,
}

/// Returns the memory of an end, with regions of so many octets for Writes and for its own Reads.
pub(super) fn memory(region: usize) -> Memory {
    let mut memory = Memory::default();
    memory.add(WRITTEN, BASE, region);
    let source = memory.add(PATTERN, BASE, PATTERN_LEN);
    source.write = false;
    source.memory.place(0, &pattern(PATTERN_LEN, 0));
    memory.add(COUNTERS, BASE, 8 * COUNT);
    let sink = memory.add(SINK, BASE, region);
    (sink.read, sink.write) = (false, false);
    memory
}

impl End {
    /// Queues an operation, and its outcome at both ends.
    pub(super) fn submit(&mut self, peer: &mut End, work: Work) {
        let op = match work {
            Work::Send { opcode, data } => peer.expect_send(opcode, data),
            Work::Write { data } => peer.expect_write(data),
            Work::Read { written, at, len } => self.expect_read(peer, written, at, len),
            Work::Atomic { at, op } => peer.expect_atomic(self.next_id(), at, op),
            Work::Immediate { opcode, data } => peer.expect_immediate(opcode, data),
        };
        self.queue.push_back(op);
    }

    /// Returns what a counter of this end is once all atomics so far have been carried out.
    #[must_use]
    pub fn counter(&self, at: usize) -> u64 {
        self.outcome.counters[at % COUNT]
    }

    fn expect_send(&mut self, opcode: Opcode, mut data: Vec<u8>) -> Op {
        data.truncate(RECEIVE);
        let mut stag = Stag(0);
        if opcode.invalidates() {
            stag = Stag(0x1000_0000 | (self.outcome.invalidated.len() as u32) << 8);
            self.memory.add(stag, BASE, 16);
            self.outcome.invalidated.push(stag);
        }
        let event = Event::Received {
            length: data.len() as u32,
            invalidate: opcode.invalidates().then_some(stag),
            solicited: opcode.is_solicited(),
        };
        self.expect_delivery(event, data.clone());
        Op::Message { first: untagged_header(opcode, stag, Msn::FIRST, 0, false), data }
    }

    fn expect_immediate(&mut self, opcode: Opcode, data: [u8; 8]) -> Op {
        self.expect_delivery(Event::Immediate { data, solicited: opcode.is_solicited() }, Vec::new());
        Op::Message { first: untagged_header(opcode, Stag(0), Msn::FIRST, 0, false), data: data.to_vec() }
    }

    fn expect_delivery(&mut self, event: Event, data: Vec<u8>) {
        let written = self.outcome.written.len();
        self.outcome.deliveries.push_back(Delivery { event, data, written });
        self.outcome.receives += 1;
    }

    fn expect_write(&mut self, mut data: Vec<u8>) -> Op {
        data.truncate(self.region - self.outcome.written.len());
        let to = BASE + self.outcome.written.len() as u64;
        self.outcome.written.extend(&data);
        Op::Message { first: tagged_header(Opcode::Write, WRITTEN, to, false), data }
    }

    fn expect_read(&mut self, peer: &End, written: bool, at: usize, len: usize) -> Op {
        let pattern = pattern(PATTERN_LEN, 0);
        let (stag, source) = if written { (WRITTEN, &peer.outcome.written) } else { (PATTERN, &pattern) };
        let at = at.min(source.len());
        let len = len.min(source.len() - at).min(self.region - self.outcome.sunk);
        let want = source[at..at + len].to_vec();
        // A Read without octets may name anything (RFC 5040 §5.2.1).
        let stag = if len == 0 { Stag(0xdead_beef) } else { stag };
        let sink_to = BASE + self.outcome.sunk as u64;
        self.outcome.sunk += len;
        Op::Read { id: self.next_id(), sink_to, src: (stag, BASE + at as u64), want }
    }

    fn expect_atomic(&mut self, id: u64, at: usize, op: AtomicOp) -> Op {
        let at = at % COUNT;
        let counter = &mut self.outcome.counters[at];
        let want = *counter;
        *counter = op.apply(want).unwrap_or(want);
        Op::Atomic { id, to: BASE + 8 * at as u64, op, want }
    }
}
