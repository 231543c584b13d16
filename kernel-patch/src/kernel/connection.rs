//! [`Placing`]: a connection whose segments the program places.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::PatchError;
use super::patch::Table;
use super::waits::Waits;
use crate::layout::{
    Answer, Connection, GATE_BUSY, GATE_OPEN, Outcome, RECEIVES, RECORD_BEHIND, RECORD_PLACED, RECORD_SUMMED,
    RECORDS, Record, SINKS, Slot, TOLD, Tuple,
};
use crate::segment::is_before;

/// Settings for a connection whose segments are to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Name of the connection.
    pub tuple: Tuple,
    /// The protection domain whose STags it may use.
    pub pd: u64,
    /// The number of its QP.
    pub qp: u32,
    /// [`PLACE_ALL`](crate::layout::PLACE_ALL), [`TRUST_LINK`](crate::layout::TRUST_LINK),
    /// [`PLACE_LAST`](crate::layout::PLACE_LAST), [`NO_WRITES`](crate::layout::NO_WRITES).
    pub flags: u32,
}

/// A connection whose segments are placed until this is dropped.
///
/// One thread at a time reads the stream and calls what takes `&mut self`.
#[derive(Debug)]
pub struct Placing {
    table: Arc<Table>,
    number: u32,
    tuple: Tuple,
    first_seq: u32,
    /// Octets from there on that may have come before the program knew the connection.
    first_window: u64,
    /// Records that were taken, and those that were there at the last look.
    taken: u64,
    seen: u64,
    /// Nothing is placed any more.
    stopped: bool,
    /// Octets that were read, and that no segment has brought past the program.
    unseen: u64,
    /// Words that were taken.
    told: u64,
    /// The Read whose sink each slot has.
    pub(super) sinks: [Option<u64>; SINKS as usize],
}

/// Offsets of a connection's ranges, receives, sinks and records, and all of its octets.
const TOLD_AT: usize = size_of::<Connection>();
pub(super) const RECEIVES_AT: usize = TOLD_AT + TOLD as usize * size_of::<u64>();
pub(super) const SINKS_AT: usize = RECEIVES_AT + RECEIVES as usize * size_of::<Slot>();
const RECORDS_AT: usize = SINKS_AT + SINKS as usize * size_of::<Slot>();
pub(super) const SIZE: usize = RECORDS_AT + RECORDS as usize * size_of::<Record>();

impl Placing {
    /// Begins with the octet that the next read returns.
    pub(super) fn begin(
        table: Arc<Table>,
        number: u32,
        opening: &Opening,
        state: &Answer,
    ) -> Result<Self, PatchError> {
        let mut placing = Self {
            table,
            number,
            tuple: opening.tuple,
            first_seq: state.copied_seq,
            first_window: u64::MAX,
            taken: 0,
            seen: 0,
            stopped: false,
            unseen: 0,
            told: 0,
            sinks: [None; SINKS as usize],
        };
        for offset in (0..SIZE).step_by(8) {
            placing.u64(offset).store(0, Ordering::Relaxed);
        }
        placing.u64(offset_of!(Connection, pd)).store(opening.pd, Ordering::Relaxed);
        placing.u32(offset_of!(Connection, qp)).store(opening.qp, Ordering::Relaxed);
        placing.u32(offset_of!(Connection, flags)).store(opening.flags, Ordering::Relaxed);
        for (number, word) in words(opening.tuple).into_iter().enumerate() {
            let offset = offset_of!(Connection, tuple) + number * size_of::<u32>();
            placing.u32(offset).store(word, Ordering::Relaxed);
        }
        placing.u32(offset_of!(Connection, top)).store(state.rcv_nxt, Ordering::Relaxed);
        placing.u32(offset_of!(Connection, next)).store(state.rcv_nxt, Ordering::Relaxed);
        placing.pass(state.copied_seq);
        placing.table.name(opening.tuple, number)?;
        Ok(placing)
    }

    /// Returns the sequence number of the octet that was to be read next when placement began.
    #[must_use]
    pub fn first_seq(&self) -> u32 {
        self.first_seq
    }

    /// Returns how many octets TCP may have had, from there on, before the program saw any.
    pub(super) fn first_window(&self) -> u64 {
        self.first_window
    }

    /// Stops placement of everything in front of `seq`. When this returns, nothing in front of it
    /// is placed any more, nor being placed.
    pub fn pass(&mut self, seq: u32) {
        if !self.stopped {
            self.set_gate(u64::from(seq) << 32 | GATE_OPEN);
        }
    }

    /// Stops placement for good. When this returns, nothing is placed any more, nor being placed;
    /// what was placed before can still be taken.
    pub fn stop(&mut self) {
        self.stopped = true;
        // Only this thread moves the floor.
        let gate = self.u64(offset_of!(Connection, gate)).load(Ordering::Relaxed);
        self.set_gate(gate & !(GATE_OPEN | GATE_BUSY));
    }

    /// Has everything count as seen that TCP had in order when the program knew the connection. If
    /// it had more, that was in its window.
    pub(super) fn skip(&mut self, now: &Answer) {
        let top = self.u32(offset_of!(Connection, top));
        let _ = top.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |top| {
            is_before(top, now.rcv_nxt).then_some(now.rcv_nxt)
        });
        let end = if now.has_more == 0 { now.rcv_nxt } else { now.window_end };
        self.first_window = u64::from(end.wrapping_sub(self.first_seq));
    }

    /// Notes that `count` octets were read, the last of them in front of `seq`. Those that have not
    /// come past the program count as unseen: they have taken another interface.
    pub fn note_read(&mut self, seq: u32, count: u32) {
        let top = self.u32(offset_of!(Connection, top)).load(Ordering::Relaxed);
        let first = seq.wrapping_sub(count);
        let seen = if is_before(top, first) { first } else { top };
        if is_before(seen, seq) {
            self.unseen += u64::from(seq.wrapping_sub(seen));
        }
    }

    /// Waits until no segment is being placed that was begun before the call.
    pub(super) fn wait(&self) {
        fence(Ordering::SeqCst);
        let gate = self.u64(offset_of!(Connection, gate));
        let mut waits = Waits::default();
        while gate.load(Ordering::Acquire) & GATE_BUSY != 0 {
            waits.turn();
        }
    }

    fn set_gate(&self, to: u64) {
        let gate = self.u64(offset_of!(Connection, gate));
        let mut waits = Waits::default();
        loop {
            let now = gate.load(Ordering::Acquire);
            if now & GATE_BUSY == 0
                && gate.compare_exchange(now, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return;
            }
            waits.turn();
        }
    }

    /// Returns the next record, in the order of placement, and whether the payload is in its place.
    /// Waits if the program is about to copy it.
    ///
    /// If there is none, what is not in a record yet is placed after everything that this thread
    /// has stored before the call.
    pub fn take(&mut self) -> Option<(Record, bool)> {
        if self.taken == self.seen {
            fence(Ordering::SeqCst);
            self.seen = self.u64(offset_of!(Connection, head)).load(Ordering::SeqCst);
        }
        if self.taken == self.seen {
            return None;
        }
        let number = self.taken as u32;
        let at = RECORDS_AT + (number % RECORDS) as usize * size_of::<Record>();
        let done = number.wrapping_add(1) << 3;
        let mut waits = Waits::default();
        let stamp = loop {
            let stamp = self.u32(at + offset_of!(Record, stamp)).load(Ordering::Acquire);
            if stamp & !(RECORD_PLACED | RECORD_SUMMED | RECORD_BEHIND) == done {
                break stamp;
            }
            waits.turn();
        };
        let u32 = |offset| self.u32(at + offset).load(Ordering::Relaxed);
        let u64 = |offset| self.u64(at + offset).load(Ordering::Relaxed);
        let record = Record {
            seq: u32(offset_of!(Record, seq)),
            len: u32(offset_of!(Record, len)),
            stamp,
            crc: u32(offset_of!(Record, crc)).to_ne_bytes(),
            at: u64(offset_of!(Record, at)),
            front: self.front(at + offset_of!(Record, front)),
            opening: u32(offset_of!(Record, opening)),
        };
        self.taken += 1;
        self.u64(offset_of!(Connection, tail)).store(self.taken, Ordering::Release);
        Some((record, stamp & RECORD_PLACED != 0))
    }

    /// Returns the next thing to know about the octets that have come by.
    ///
    /// A segment that TCP had before the call has been told of, and so has one of which there was a
    /// record before it.
    ///
    /// # Errors
    /// The program could not tell of all: nothing is known about any octets, and nothing is told
    /// any more.
    pub fn take_told(&mut self) -> Result<Option<Told>, Untold> {
        let at = TOLD_AT + (self.told % u64::from(TOLD)) as usize * size_of::<u64>();
        let mut waits = Waits::default();
        let word = loop {
            // Once more before each look: of what is too much there is no word.
            let head = self.u64(offset_of!(Connection, told_head)).load(Ordering::SeqCst);
            if head - self.told > u64::from(TOLD) {
                return Err(Untold);
            }
            if head == self.told {
                return Ok(None);
            }
            match self.u64(at).swap(0, Ordering::AcqRel) {
                0 => waits.turn(),
                word => break word,
            }
        };
        self.told += 1;
        self.u64(offset_of!(Connection, told_tail)).store(self.told, Ordering::Release);
        let (seq, other) = ((word >> 32) as u32, word as u32);
        Ok(Some(if is_before(seq, other) { Told::Again(seq..other) } else { Told::Hole(other..seq) }))
    }

    /// Notes that so many octets of those that were read have not come past the program.
    pub(super) fn note_unseen(&mut self, octets: u64) {
        self.unseen += octets;
    }

    /// Returns whether all octets that were read have come past the program, and all in front of
    /// `seq`, up to which nobody has read yet.
    pub(super) fn has_seen(&self, seq: u32) -> bool {
        self.unseen == 0 && !is_before(self.u32(offset_of!(Connection, top)).load(Ordering::Acquire), seq)
    }

    /// Returns the segments seen, and the FPDUs and octets placed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |offset| self.u64(offset).load(Ordering::Relaxed);
        Counts {
            segments: of(offset_of!(Connection, segments)),
            fpdus: of(offset_of!(Connection, fpdus)),
            octets: of(offset_of!(Connection, octets)),
            octets_behind: of(offset_of!(Connection, octets_behind)),
            octets_unseen: self.unseen,
            interface: self.u32(offset_of!(Connection, interface)).load(Ordering::Relaxed),
        }
    }

    /// Returns how many segments, or FPDUs in them, were left to user level for this reason.
    #[must_use]
    pub fn left(&self, outcome: Outcome) -> u64 {
        self.u64(offset_of!(Connection, outcomes) + 8 * outcome as usize).load(Ordering::Relaxed)
    }

    /// Reads the octets of a front.
    fn front(&self, at: usize) -> [u8; 20] {
        let mut octets = [0; 20];
        for (word, to) in octets.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *to = self.u32(at + 4 * word).load(Ordering::Relaxed).to_ne_bytes();
        }
        octets
    }

    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        self.table.shared.u64(self.number as usize * SIZE + offset)
    }

    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        self.table.shared.u32(self.number as usize * SIZE + offset)
    }
}

/// Returns the octets of a name as they lie in memory.
fn words(tuple: Tuple) -> Vec<u32> {
    let Tuple { peer_addr, own_addr, peer_port, own_port } = tuple;
    let octets = [&peer_addr[..], &own_addr, &peer_port, &own_port].concat();
    octets.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

impl Drop for Placing {
    fn drop(&mut self) {
        // No segment that comes from here on passes the gate, and none is inside.
        self.set_gate(0);
        self.table.forget(self.tuple, self.number);
    }
}

/// A thing to know about octets that have come by, or have not, by their sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Octets that have come by in front of the last one that has: again, or into a hole.
    Again(Range<u32>),
    /// Octets that have not come by, while others behind them have.
    Hole(Range<u32>),
}

/// Octets have come by of which the program could not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untold;

/// Counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that the program has seen.
    pub segments: u64,
    /// FPDUs that it has placed.
    pub fpdus: u64,
    /// Octets of payload that it has placed.
    pub octets: u64,
    /// Octets of these that lay behind a hole in the stream.
    pub octets_behind: u64,
    /// Octets of the stream that were read and that no segment has brought past the program.
    pub octets_unseen: u64,
    /// The interface on which the last segment came, by its index; 0 if there was none.
    pub interface: u32,
}
