//! Two RDMAP streams over MPA, joined by octets that a test moves: operations with their outcome at
//! the other end (RFC 5040 §5.5, RFC 5041 §5.4, RFC 5044 §6).
//!
//! A test [submits](Pair::submit) operations, has an end [send](Pair::send) a segment and has
//! octets [arrive](Pair::deliver), in whatever order it likes. Both ends keep to the protocols, so
//! each message has to arrive: in order, whole, and in its place; and no fault may be found.

mod end;
mod memory;
mod plan;

pub use self::end::End;
pub use self::memory::{Guarded, Memory, Region};
pub use self::plan::Work;

use rddp_mpa::Framing;
use rddp_rdmap::{StreamConfig, TerminateCode, TerminateRepr};

/// Octets of the longest Send.
pub const RECEIVE: usize = 5000;

/// A connection: two ends, and the octets between them.
pub struct Pair {
    /// The ends.
    pub ends: [End; 2],
    /// The octets on their way to each end.
    pub wires: [Vec<u8>; 2],
}

impl Pair {
    /// Ends with regions of so many octets. `framing` and `depth` are those of each end: how it
    /// sends, and how many Reads and atomics it may have outstanding.
    #[must_use]
    pub fn new(framing: [Framing; 2], depth: [u32; 2], extensions: bool, region: usize) -> Self {
        let end = |number: usize| {
            let config = StreamConfig { ord: depth[number], ird: depth[1 - number], extensions };
            End::new(config, framing[number], framing[1 - number], region)
        };
        Pair { ends: [end(0), end(1)], wires: [Vec::new(), Vec::new()] }
    }

    /// Queues an operation at one end, and its outcome at both.
    pub fn submit(&mut self, end: usize, work: Work) {
        let [first, second] = &mut self.ends;
        let (end, peer) = if end == 0 { (first, second) } else { (second, first) };
        end.submit(peer, work);
    }

    /// Has an end send a segment, if there is one: of a Response if `answers`, else of a message of
    /// its own, where it may choose.
    pub fn send(&mut self, end: usize, answers: bool, mulpdu: usize) {
        self.ends[end].send(answers, mulpdu, &mut self.wires[1 - end]);
    }

    /// Has at most so many octets arrive at an end.
    pub fn deliver(&mut self, end: usize, octets: usize) {
        let count = octets.min(self.wires[end].len());
        let octets: Vec<u8> = self.wires[end].drain(..count).collect();
        self.ends[end].receive(&octets);
    }

    /// Returns whether all that was submitted has been carried out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.wires.iter().all(Vec::is_empty) && self.ends.iter().all(End::is_done)
    }

    /// Checks what has arrived at both ends, once all is done.
    pub fn check(&mut self) {
        self.ends.iter_mut().for_each(End::check);
    }

    /// Has an end terminate the stream. The other end has to hear that, and nothing that is sent
    /// behind it (RFC 5040 §5.4). Returns how many octets were.
    pub fn terminate(&mut self, end: usize) -> usize {
        let other = 1 - end;
        let terminate = TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC);
        self.ends[end].terminate(&terminate, &mut self.wires[other]);
        self.deliver(other, usize::MAX);
        assert_eq!(self.ends[other].terminated, Some(terminate));
        let before = (self.ends[other].memory.clone(), self.ends[other].heard);
        (0..50).for_each(|at| self.send(end, at % 2 == 0, 1000));
        let behind = self.wires[other].len();
        self.deliver(other, usize::MAX);
        assert_eq!(before, (self.ends[other].memory.clone(), self.ends[other].heard));
        behind
    }
}
