//! [`Guide`]: what the reader of a stream asks about FPDUs that have been placed.

use std::ops::Range;

use rddp_mpa::{CRC_LEN, LENGTH_LEN, fpdu_len, pad_len};

use super::{Awaited, Placing};
use crate::layout::Record;
use crate::records::{Placed, Records, position};

/// A connection whose segments are placed, as the thread that reads its stream sees it.
///
/// Positions count octets of the stream. The order of calls is what makes it safe: for the FPDU at
/// the front first [`enter`](Self::enter), after which the program no longer places it; then
/// [`claim`](Self::claim). If that gives nothing, or its octets turn out wrong, the payload is
/// placed by the caller, and [`placed_by_user`](Self::placed_by_user) called *after that*.
#[derive(Debug)]
pub struct Guide {
    placing: Placing,
    records: Records<Record>,
    /// A position and its sequence number: in front of it nothing is placed by the program any
    /// more.
    known: (u64, u32),
}

/// An FPDU whose payload the program has put to its place, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Place of the payload, as `start` of an STag's scope.
    pub at: u64,
    tail: [u8; 8],
    pad: usize,
}

impl Claim {
    /// Returns the pad, as the program saw it.
    #[must_use]
    pub fn pad(&self) -> &[u8] {
        &self.tail[8 - CRC_LEN - self.pad..8 - CRC_LEN]
    }

    /// Returns the CRC field, as the program saw it. The stream's own, behind the payload, must be
    /// the same.
    #[must_use]
    pub fn crc_field(&self) -> [u8; CRC_LEN] {
        let [_, _, _, _, crc @ ..] = self.tail;
        crc
    }
}

impl Guide {
    /// Guides a reader that has read `position` octets of the stream, and nothing since placement
    /// began.
    #[must_use]
    pub fn new(placing: Placing, position: u64) -> Self {
        let known = (position, placing.first_seq());
        Self { placing, records: Records::default(), known }
    }

    /// Returns the connection, for its counts.
    #[must_use]
    pub fn placing(&self) -> &Placing {
        &self.placing
    }

    /// Notes that `count` octets of the stream were read, up to `position`.
    pub fn note_read(&mut self, position: u64, count: usize) {
        let (known, seq) = self.known;
        let seq = seq.wrapping_add(position.wrapping_sub(known) as u32);
        self.placing.note_read(seq, count as u32);
    }

    /// Returns how many octets may be read behind `position` before the next FPDU that has been
    /// placed; `None` if there is none as yet.
    pub fn free(&mut self, position: u64) -> Option<u64> {
        self.drain();
        self.records.next(position).map(|next| next - position)
    }

    /// Returns the first octets of the FPDU at `position` as the program has read them, up to the
    /// payload and a few that mean nothing, if it has placed it and it is still good.
    pub fn front(&mut self, position: u64) -> Option<[u8; 24]> {
        if position >= self.known.0 {
            self.drain();
        }
        Some(self.records.placed(position)?.detail.front)
    }

    /// Begins the turn of the FPDU at `position`, which ends in front of `end`: nothing in front of
    /// that is placed by the program any more.
    pub fn enter(&mut self, position: u64, end: u64) {
        let (known, seq) = self.known;
        if end > known {
            self.known = (end, seq.wrapping_add((end - known) as u32));
            self.placing.pass(self.known.1);
            self.drain();
        }
        self.records.pass(position);
    }

    /// Begins the turn of the FPDU at `position`, which the program has placed, and has the program
    /// place nothing more of those that follow it and are placed, either: about as many octets as
    /// `most`. What is placed from then on is behind them all in the stream, and makes none of them
    /// void.
    pub fn enter_run(&mut self, position: u64, most: u64) {
        let end = if position < self.known.0 { position } else { self.records.run_end(position, most, len) };
        self.enter(position, end);
    }

    /// Returns the place of the payload of the FPDU at `position`, if the program has put it there.
    /// `front` is what the stream has in front of the payload.
    #[must_use]
    pub fn claim(&self, position: u64, front: &[u8]) -> Option<Claim> {
        let record = &self.records.placed(position)?.detail;
        let pad = pad_len(front.len().checked_sub(LENGTH_LEN)? + record.len as usize);
        record.front.starts_with(front).then_some(Claim { at: record.at, tail: record.tail, pad })
    }

    /// Opens memory for the message that has this MSN, the receive for which is posted: see
    /// [`Placing::open_receive`].
    pub fn open_receive(&mut self, msn: u32, memory: &Awaited) {
        self.placing.open_receive(msn, memory);
    }

    /// Closes what was opened for that message: see [`Placing::close_receive`].
    pub fn close_receive(&mut self, msn: u32) {
        self.placing.close_receive(msn);
    }

    /// Opens the sink of a Read: see [`Placing::open_sink`].
    pub fn open_sink(&mut self, id: u64, memory: &Awaited) {
        self.placing.open_sink(id, memory);
    }

    /// Closes the sink of a Read: see [`Placing::close_sink`].
    pub fn close_sink(&mut self, id: u64) {
        self.placing.close_sink(id);
    }

    /// Ends placement: see [`Placing::stop`].
    pub fn stop(&mut self) {
        self.placing.stop();
    }

    /// Returns whether the payload of the FPDU at `position`, at `at`, need not be placed, since
    /// the program has put that of a later one over all of it.
    #[must_use]
    pub fn is_superseded(&self, position: u64, at: &Range<u64>) -> bool {
        self.records.is_superseded(position, at)
    }

    /// Notes that the caller has placed the payload of the FPDU at `position`, at `at`.
    pub fn placed_by_user(&mut self, position: u64, at: &Range<u64>) {
        // Whatever the program has begun by now may lie under what was just placed.
        self.drain();
        self.records.placed_by_user(position, at);
    }

    fn drain(&mut self) {
        while let Some((record, good)) = self.placing.take() {
            let Some(position) = position(record.seq, self.known) else { continue };
            let at = record.at..record.at + u64::from(record.len);
            self.records.note(Placed { position, at, good, detail: record });
        }
    }
}

/// Returns the octets of an FPDU.
fn len(record: &Record) -> u64 {
    let [first, second, ..] = record.front;
    fpdu_len(usize::from(u16::from_be_bytes([first, second]))) as u64
}
