//! [`Guide`]: what the reader of a stream asks about FPDUs that have been placed.

use std::ops::Range;

use rddp_mpa::fpdu_len;

use super::{Awaited, Placing};
use crate::layout::{RECORDS, Record};
use crate::records::{Placed, Records, position};

/// A connection whose segments are placed, as the thread that reads its stream sees it.
///
/// Positions count octets of the stream. The order of calls is what makes it safe: for the FPDU at
/// the front first [`enter`](Self::enter), or [`enter_run`](Self::enter_run) for several, after
/// which the program no longer places it; then [`claim`](Self::claim). If that gives nothing, or
/// its octets turn out wrong, the payload is placed by the caller, and
/// [`placed_by_user`](Self::placed_by_user) called *after that*.
#[derive(Debug)]
pub struct Guide {
    placing: Placing,
    records: Records<Record>,
    /// A position and its sequence number: in front of it nothing is placed by the program any
    /// more.
    known: (u64, u32),
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

    /// Begins the turn of the FPDUs that follow each other from `position` on and have been placed:
    /// about as many octets as `most`. The program places them no more. Returns their octets.
    pub fn enter_run(&mut self, position: u64, most: u64) -> u64 {
        self.drain();
        let end = self.records.run_end(position, most, len);
        self.enter(position, end);
        end - position
    }

    /// Returns the place of the payload of the FPDU at `position`, if the program has put it there.
    /// `front` is what the stream has in front of the payload.
    #[must_use]
    pub fn claim(&self, position: u64, front: &[u8]) -> Option<Range<u64>> {
        let Record { len, at, front: seen, .. } = &self.records.placed(position)?.detail;
        seen.starts_with(front).then(|| *at..at + u64::from(*len))
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

    /// Notes that the caller has placed the payload of the FPDU whose turn it is, at `at`.
    pub fn placed_by_user(&mut self, at: &Range<u64>) {
        // Whatever the program has begun by now may lie under what was just placed.
        self.drain();
        self.records.placed_by_user(at);
    }

    /// Notes what the program has begun before the call.
    fn drain(&mut self) {
        // There are no more of those, and others may come without end.
        for _ in 0..RECORDS {
            let Some((record, good)) = self.placing.take() else { return };
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
