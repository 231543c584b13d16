//! Operations of one end, and their effects at the other.
//!
//! Every Write has its own place and every Read its own sink, so that the outcome does not depend
//! on how the two directions are interleaved. A Read may ask for octets of an earlier Write, and
//! must get them.

use rddp_ddp::Stag;
use rddp_rdmap::{AtomicOp, Event, Opcode};
use rddp_test_support::{Random, pattern};

use crate::support::Memory;

/// Target of Writes, one octet after the other.
pub(crate) const WRITTEN: Stag = Stag(0x0101_0101);
/// Source of Reads, which nobody changes.
pub(crate) const PATTERN: Stag = Stag(0x0202_0202);
/// Target of atomics.
pub(crate) const COUNTERS: Stag = Stag(0x0303_0303);
/// Sink of this end's own Reads. No peer may write there.
pub(crate) const SINK: Stag = Stag(0x0404_0404);

pub(crate) const BASE: u64 = 0xffff_ffff_0000_0000;
pub(crate) const RECEIVE: usize = 5000;
const REGION: usize = 1 << 18;
const PATTERN_LEN: usize = 4096;
const COUNTERS_LEN: usize = 64;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Send { op: Opcode, invalidate: Stag, data: Vec<u8> },
    Immediate { op: Opcode, data: [u8; 8] },
    Write { to: u64, data: Vec<u8> },
    Read { id: u64, sink_to: u64, src_stag: Stag, src_to: u64, want: Vec<u8> },
    Atomic { id: u64, to: u64, op: AtomicOp, want: u64 },
}

/// A message of queue 0 as the peer must receive it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) event: Event,
    pub(crate) data: Vec<u8>,
    /// Octets of the region that Writes before it have filled.
    pub(crate) written: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) ops: Vec<Op>,
    pub(crate) deliveries: Vec<Delivery>,
    /// The peer's region of Writes, at the end.
    pub(crate) written: Vec<u8>,
    /// The peer's counters, at the end.
    pub(crate) counters: [u64; COUNTERS_LEN / 8],
    /// STags that are invalidated.
    pub(crate) invalidated: Vec<Stag>,
    sunk: usize,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, operations: usize, extensions: bool) -> Self {
        let mut plan = Plan {
            ops: Vec::new(),
            deliveries: Vec::new(),
            written: Vec::new(),
            counters: [0; COUNTERS_LEN / 8],
            invalidated: Vec::new(),
            sunk: 0,
        };
        for _ in 0..operations {
            let op = match random.below(if extensions { 10 } else { 7 }) {
                0..=2 => plan.send(random),
                3 | 4 => plan.write(random),
                5 | 6 => plan.read(random),
                7 => plan.immediate(random),
                _ => plan.atomic(random),
            };
            plan.ops.push(op);
        }
        plan
    }

    fn send(&mut self, random: &mut Random) -> Op {
        let ops =
            [Opcode::Send, Opcode::SendInvalidate, Opcode::SendSolicited, Opcode::SendSolicitedInvalidate];
        let op = ops[random.below(4)];
        let data = data(random, RECEIVE);
        let mut invalidate = Stag(0);
        if op.invalidates() {
            invalidate = Stag(0x1000_0000 | (self.invalidated.len() as u32) << 8);
            self.invalidated.push(invalidate);
        }
        let event = Event::Received {
            length: data.len() as u32,
            invalidate: op.invalidates().then_some(invalidate),
            solicited: op.is_solicited(),
        };
        self.deliveries.push(Delivery { event, data: data.clone(), written: self.written.len() });
        Op::Send { op, invalidate, data }
    }

    fn immediate(&mut self, random: &mut Random) -> Op {
        let op = [Opcode::Immediate, Opcode::ImmediateSolicited][random.below(2)];
        let data = random.number().to_be_bytes();
        let event = Event::Immediate { data, solicited: op.is_solicited() };
        self.deliveries.push(Delivery { event, data: Vec::new(), written: self.written.len() });
        Op::Immediate { op, data }
    }

    fn write(&mut self, random: &mut Random) -> Op {
        let data = data(random, 6000);
        let to = BASE + self.written.len() as u64;
        self.written.extend(&data);
        assert!(self.written.len() <= REGION);
        Op::Write { to, data }
    }

    /// Makes a Read of the pattern, or of octets written before.
    fn read(&mut self, random: &mut Random) -> Op {
        let pattern = pattern(PATTERN_LEN, 0);
        let (src_stag, source) =
            if random.below(2) == 0 { (PATTERN, &pattern) } else { (WRITTEN, &self.written) };
        let at = random.below(source.len() + 1);
        let len = data(random, PATTERN_LEN).len().min(source.len() - at);
        let want = source[at..at + len].to_vec();
        // A Read without octets may name anything (RFC 5040 §5.2.1).
        let src_stag = if len == 0 { Stag(0xdead_beef) } else { src_stag };
        let sink_to = BASE + self.sunk as u64;
        self.sunk += len;
        assert!(self.sunk <= REGION);
        Op::Read { id: self.ops.len() as u64, sink_to, src_stag, src_to: BASE + at as u64, want }
    }

    fn atomic(&mut self, random: &mut Random) -> Op {
        let at = random.below(self.counters.len());
        let want = self.counters[at];
        let op = match random.below(2) {
            0 => AtomicOp::FetchAdd { add: random.number(), mask: random.number() & random.number() },
            _ => AtomicOp::CmpSwap {
                swap: random.number(),
                swap_mask: random.number(),
                compare: want ^ random.below(2) as u64,
                compare_mask: u64::MAX,
            },
        };
        self.counters[at] = op.apply(want).unwrap_or(want);
        Op::Atomic { id: self.ops.len() as u64, to: BASE + 8 * at as u64, op, want }
    }

    /// Returns the memory that the peer of this plan needs for its operations.
    pub(crate) fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        memory.add(WRITTEN, BASE, self.written.len());
        let source = memory.add(PATTERN, BASE, PATTERN_LEN);
        source.write = false;
        source.memory.place(0, &pattern(PATTERN_LEN, 0));
        memory.add(COUNTERS, BASE, COUNTERS_LEN);
        for stag in &self.invalidated {
            memory.add(*stag, BASE, 16);
        }
        memory
    }

    /// Returns the octets of the sink that this plan's own Reads fill.
    pub(crate) fn sink_len(&self) -> usize {
        self.sunk
    }
}

/// Returns some octets: often none or a few, at most `max`.
fn data(random: &mut Random, max: usize) -> Vec<u8> {
    let len = match random.below(4) {
        0 => random.below(3),
        1 => random.below(200),
        _ => random.below(max + 1),
    };
    (0..len.min(max)).map(|_| random.number() as u8).collect()
}
