//! [`Guide`]: what the reader of a stream asks about FPDUs that have been placed.

use std::ops::Range;

use rddp_mpa::fpdu_len;

use super::connection::{Told, Untold};
use super::{Awaited, Placing};
use crate::layout::{RECORD_SUMMED, RECORDS, Record, TOLD};
use crate::records::{self, Placed, Records};
use crate::seen::Seen;

/// A connection whose segments are placed, as the thread that reads its stream sees it.
///
/// Positions count octets of the stream. The order of calls is what makes it safe: for the FPDU at
/// the front first [`enter`](Self::enter), or [`enter_run`](Self::enter_run) for several, after
/// which the program no longer places it; then [`claim`](Self::claim), or of a sure run
/// [`record`](Self::record). If that gives nothing, or its octets turn out wrong, the payload is
/// read, placed by the caller, and [`placed_by_user`](Self::placed_by_user) called *after that*.
#[derive(Debug)]
pub struct Guide {
    placing: Placing,
    records: Records<Record>,
    /// A position and its sequence number: in front of it nothing is placed by the program any
    /// more.
    known: (u64, u32),
    /// Octets that have come by; those in front of `sure_from` may have come before the program saw
    /// the connection.
    seen: Seen,
    sure_from: u64,
}

/// Octets that a run has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// The limit for FPDUs that nobody needs to look at.
    pub sure: u64,
    /// The limit for others.
    pub looked_at: u64,
}

/// FPDUs that have been placed and follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Octets of all of them, pads and CRCs included.
    pub octets: u64,
    /// TCP has the octets that were placed. If not, a look at the stream is to tell.
    pub is_sure: bool,
}

impl Guide {
    /// Guides a reader that has read `position` octets of the stream, and nothing since placement
    /// began.
    #[must_use]
    pub fn new(placing: Placing, position: u64) -> Self {
        let known = (position, placing.first_seq());
        let sure_from = position.saturating_add(placing.first_window());
        Self { placing, records: Records::default(), known, seen: Seen::default(), sure_from }
    }

    /// Returns the connection, for its counts.
    #[must_use]
    pub fn placing(&self) -> &Placing {
        &self.placing
    }

    /// Notes that `count` octets of the stream were read, up to `position`. It is the turn of all
    /// of them: nothing in front of `position` is placed by the program any more.
    pub fn note_read(&mut self, position: u64, count: usize) {
        let (known, seq) = self.known;
        let seq = seq.wrapping_add(position.wrapping_sub(known) as u32);
        self.placing.note_read(seq, count as u32);
        self.enter(position, position);
        // There is space for so much only, also where nothing is placed.
        self.drain_told();
        let unseen = self.seen.pass(position);
        self.placing.note_unseen(unseen);
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

    /// Returns whether the FPDU at `position` has been placed, as far as is known.
    pub fn is_placed(&mut self, position: u64) -> bool {
        self.drain();
        self.records.placed(position).is_some()
    }

    /// Begins the turn of the FPDUs that follow each other from `position` on and have been placed,
    /// of at most `most.sure` or `most.looked_at` octets. The program places them no more. TCP has
    /// had `there` octets from `position` on since before the call.
    pub fn enter_run(&mut self, position: u64, there: u64, most: Most) -> Run {
        // All of them are in front of what TCP has, and need no placement any more.
        self.enter(position, position + there.min(most.sure.max(most.looked_at)));
        // After the records, so that every segment that has one has been told of.
        self.drain_told();
        let end = position + there;
        let (known, seq) = self.known;
        let has_all = self.placing.has_seen(seq.wrapping_add(end.wrapping_sub(known) as u32));
        // Octets that TCP has have come another way, and these may, too.
        if !has_all || self.seen.is_missing_before(end) {
            self.seen.note_unknown();
        }
        let octets = |most: u64, sure: bool| {
            let len = |kept: &Placed<Record>| (self.is_sure(kept) == sure).then(|| len(&kept.detail));
            self.records.run_end(position, there.min(most), len) - position
        };
        match octets(most.sure, true) {
            0 => Run { octets: octets(most.looked_at, false), is_sure: false },
            octets => Run { octets, is_sure: true },
        }
    }

    /// Returns the record of the FPDU at `position`, which is one of a sure run.
    #[must_use]
    pub fn record(&self, position: u64) -> Option<&Record> {
        self.records.placed(position).map(|placed| &placed.detail)
    }

    /// Has `sum` tell of the FPDUs that have been placed whether their CRC fits the octets in their
    /// places, of those that were not known to: while the reader waits, say. Their records have
    /// [`RECORD_SUMMED`] then, and who takes them need not sum. Returns how many there are, and
    /// whether any FPDU is placed and has not had its turn.
    pub fn sum_ahead(&mut self, mut sum: impl FnMut(&Record) -> bool) -> (u64, bool) {
        self.drain();
        let (mut summed, mut is_any) = (0, false);
        for record in self.records.details_mut() {
            is_any = true;
            if record.stamp & RECORD_SUMMED == 0 && sum(record) {
                record.stamp |= RECORD_SUMMED;
                summed += 1;
            }
        }
        (summed, is_any)
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

    /// Returns whether TCP has the octets that were placed, if it has any.
    fn is_sure(&self, kept: &Placed<Record>) -> bool {
        let end = kept.position + len(&kept.detail);
        kept.position >= self.sure_from && !self.seen.has_again(&(kept.position..end))
    }

    /// Notes what has come by.
    fn drain_told(&mut self) {
        if self.seen.is_unknown() {
            return;
        }
        let known = self.known;
        let of = |seq| records::position(seq, known).unwrap_or(0);
        // No more than there can be, or a peer could keep this going.
        for _ in 0..TOLD {
            match self.placing.take_told() {
                Ok(None) => break,
                Ok(Some(Told::Again(octets))) => self.seen.note(of(octets.start)..of(octets.end)),
                Ok(Some(Told::Hole(octets))) => {
                    self.seen.note_hole(of(octets.start).max(self.sure_from)..of(octets.end));
                }
                Err(Untold) => return self.seen.note_unknown(),
            }
        }
    }

    /// Notes what the program has begun before the call.
    fn drain(&mut self) {
        // No more than there can be, or a peer could keep this going.
        for _ in 0..RECORDS {
            let Some((record, good)) = self.placing.take() else { return };
            let Some(position) = records::position(record.seq, self.known) else { continue };
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
