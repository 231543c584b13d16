//! `rdmap_pair`: two streams with their framers and deframers, joined by octet streams that the
//! input cuts (RFC 5040 §5.5, RFC 5041 §5.4, RFC 5044 §6).
//!
//! The input says what the ends submit, when they send and how much of the wire is delivered. What
//! has to come of that, [`streams`](rddp_test_support::streams) checks.

use arbitrary::{Arbitrary, Unstructured};
use rddp_mpa::Framing;
use rddp_rdmap::{AtomicOp, Opcode};
use rddp_test_support::pattern;
use rddp_test_support::streams::{Pair, RECEIVE, Work as Operation};

use crate::input::{Tail, choice, inputs};

inputs! {
    /// A connection, and the events on it.
    pub struct Input {
        /// CRC and markers of each direction.
        framing: u8,
        /// Reads and atomics at a time, four bits for each end.
        depth: u8,
        /// The events.
        steps: Tail<Step, 150>,
    }
}

choice! {
    /// An event.
    pub enum Step {
        /// An end submits an operation.
        Submit { end: bool, work: Work },
        /// An end sends a segment, of a message of its own or of a Response.
        Send { end: bool, answers: bool, mulpdu: u16 },
        /// Octets arrive at an end.
        Deliver { end: bool, octets: u16 },
        /// An end ends the connection by a Terminate.
        Terminate { end: bool },
    }
}

choice! {
    /// An operation.
    pub enum Work {
        /// Any of the four Sends.
        Send { variant: u8, len: u16 },
        /// A Write behind what was written before.
        Write { len: u16 },
        /// A Read of a pattern, or of what was written before.
        Read { written: bool, at: u16, len: u16 },
        /// A FetchAdd on one of eight counters.
        FetchAdd { at: u8, add: u64, mask: u64 },
        /// A CmpSwap whose comparison succeeds or fails as chosen.
        CmpSwap { at: u8, equal: bool, swap: u64, swap_mask: u64 },
        /// Immediate Data, with or without an event.
        Immediate { solicited: bool, data: u64 },
    }
}

/// Octets of an end's region for Writes, and of the one for its Reads.
const REGION: usize = 1 << 14;

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let bit = |at: u8| input.framing >> at & 1 == 1;
    let framing = [Framing { crc: bit(0), markers: bit(1) }, Framing { crc: bit(2), markers: bit(3) }];
    let depth = [u32::from(input.depth & 3) + 1, u32::from(input.depth >> 4 & 3) + 1];
    let mut pair = Pair::new(framing, depth, true, REGION);
    for step in &input.steps.0 {
        match step {
            Step::Submit { end, work } => {
                let end = usize::from(*end);
                let work = work.operation(|at| pair.ends[1 - end].counter(at));
                pair.submit(end, work);
            }
            Step::Send { end, answers, mulpdu } => {
                pair.send(usize::from(*end), *answers, 128 + usize::from(mulpdu % 1400));
            }
            Step::Deliver { end, octets } => pair.deliver(usize::from(*end), (*octets).into()),
            Step::Terminate { end } => {
                pair.terminate(usize::from(*end));
                return;
            }
        }
    }
    finish(&mut pair);
}

/// Sends and delivers everything.
fn finish(pair: &mut Pair) {
    for round in 0..20_000 {
        for end in 0..2 {
            pair.send(end, round % 2 == 0, 1456);
            pair.deliver(end, usize::MAX);
        }
        if pair.is_done() {
            return pair.check();
        }
    }
    panic!("the two never come to an end");
}

impl Work {
    /// Returns the operation. `counter` says what a counter of the peer will be.
    fn operation(&self, counter: impl Fn(usize) -> u64) -> Operation {
        let data = |len: u16, seed: u8| pattern(usize::from(len), seed);
        match *self {
            Work::Send { variant, len } => {
                let opcodes = [
                    Opcode::Send,
                    Opcode::SendInvalidate,
                    Opcode::SendSolicited,
                    Opcode::SendSolicitedInvalidate,
                ];
                let len = len % (RECEIVE as u16 + 1);
                Operation::Send { opcode: opcodes[usize::from(variant % 4)], data: data(len, variant) }
            }
            Work::Write { len } => Operation::Write { data: data(len, 0) },
            Work::Read { written, at, len } => Operation::Read { written, at: at.into(), len: len.into() },
            Work::FetchAdd { at, add, mask } => {
                Operation::Atomic { at: at.into(), op: AtomicOp::FetchAdd { add, mask } }
            }
            Work::CmpSwap { at, equal, swap, swap_mask } => {
                let compare = counter(at.into()) ^ u64::from(!equal);
                let op = AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask: u64::MAX };
                Operation::Atomic { at: at.into(), op }
            }
            Work::Immediate { solicited, data } => {
                let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                Operation::Immediate { opcode, data: data.to_be_bytes() }
            }
        }
    }
}
