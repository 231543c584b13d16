//! Placed FPDUs, and whether they are still good when the stream reaches them.
//!
//! The program places out of order, and says of each FPDU where its payload went. Two FPDUs may be
//! for the same octets (a flag, a ring). In the end the one that is later in the stream must stay,
//! and each is delivered with its own octets or newer ones. So of two FPDUs that overlap only what
//! was placed last is good, and that becomes void when the engine places the other one: the octets
//! of both are then taken from the stream, in order.
//!
//! Positions count octets of the stream from any fixed one on, in 64 bits; [`position`] makes one
//! of a sequence number. Nothing here knows whether the octets in memory are right: that is what
//! the stream is for.

use std::collections::VecDeque;
use std::ops::Range;

/// An FPDU that the program has placed, or has begun to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T = ()> {
    /// Position of its first octet in the stream.
    pub position: u64,
    /// Place of its payload.
    pub at: Range<u64>,
    /// False if the copy failed: octets may have changed, and do not count.
    pub good: bool,
    /// Properties that the caller wants to know later.
    pub detail: T,
}

/// FPDUs that are kept at most: those of a window of 8 MiB. What is placed beyond that is taken
/// from the stream, and a peer cannot have the reader look through more.
const MOST: usize = 8192;

/// The placed FPDUs of a connection that the stream has not reached.
///
/// For each FPDU in turn the engine calls [`note`](Self::note) for everything that the program has
/// recorded; then [`placed`](Self::placed) for the FPDU at the front of the stream. If that gives
/// nothing, it places the payload itself, has the program's new records noted **after that**, and
/// calls [`placed_by_user`](Self::placed_by_user). [`pass`](Self::pass) ends the turn.
///
/// FPDUs mostly come, and go, in the order of the stream, and their places rise with it: so the two
/// lists are mostly added to at the end and taken from at the front.
#[derive(Clone, Debug)]
pub struct Records<T = ()> {
    /// By position. Those that are void stay until the stream has passed them.
    kept: VecDeque<Placed<T>>,
    /// Places of the good ones with their positions, of which no two overlap.
    places: VecDeque<(Range<u64>, u64)>,
    /// Nothing in front of this is kept.
    floor: u64,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), places: VecDeque::new(), floor: 0 }
    }
}

impl<T> Records<T> {
    /// Notes an FPDU, in the order in which the program placed them.
    pub fn note(&mut self, placed: Placed<T>) {
        self.void(&placed.at);
        if placed.position < self.floor {
            return;
        }
        let (at, position, good) = (placed.at.clone(), placed.position, placed.good);
        match self.index(position) {
            // The same FPDU again: what came last is what is in memory.
            Ok(index) => {
                let before = std::mem::replace(&mut self.kept[index], placed);
                if before.good {
                    self.forget_place(&before.at);
                }
            }
            Err(_) if self.kept.len() >= MOST => return,
            Err(index) => self.kept.insert(index, placed),
        }
        if good && !at.is_empty() {
            let index = match self.places.back() {
                Some((last, _)) if last.start > at.start => self.place(at.start),
                _ => self.places.len(),
            };
            self.places.insert(index, (at, position));
        }
    }

    /// Returns the position of the next FPDU that has been placed, at or behind `position`. No
    /// octet from there on is to be read ahead, or it would have to be copied.
    #[must_use]
    pub fn next(&self, position: u64) -> Option<u64> {
        let (Ok(first) | Err(first)) = self.index(position);
        self.kept.range(first..).find(|kept| kept.good).map(|kept| kept.position)
    }

    /// Returns the FPDU at `position`, if it has been placed, as far as is known.
    #[must_use]
    pub fn placed(&self, position: u64) -> Option<&Placed<T>> {
        self.index(position).ok().map(|index| &self.kept[index]).filter(|kept| kept.good)
    }

    /// Returns the end of the placed FPDUs that follow each other from `position` on, of at most
    /// `most` octets. `len` returns the octets of an FPDU, or `None` if the run is to end in front
    /// of it.
    #[must_use]
    pub fn run_end(&self, position: u64, most: u64, len: impl Fn(&Placed<T>) -> Option<u64>) -> u64 {
        let (Ok(first) | Err(first)) = self.index(position);
        let mut end = position;
        for kept in self.kept.range(first..) {
            let Some(len) = len(kept).filter(|_| kept.good && kept.position == end) else { break };
            if end + len - position > most {
                break;
            }
            end += len;
        }
        end
    }

    /// Notes that the engine has placed a payload at `at` itself, of an FPDU in front of all that
    /// are kept.
    pub fn placed_by_user(&mut self, at: &Range<u64>) {
        self.void(at);
    }

    /// Forgets everything in front of `position`, which is delivered.
    pub fn pass(&mut self, position: u64) {
        self.floor = self.floor.max(position);
        while self.kept.front().is_some_and(|kept| kept.position < position) {
            if let Some(kept) = self.kept.pop_front()
                && kept.good
            {
                self.forget_place(&kept.at);
            }
        }
    }

    /// Returns the properties of FPDUs that have been placed, as far as is known, in the order of
    /// the stream.
    pub fn details_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.kept.iter_mut().filter(|kept| kept.good).map(|kept| &mut kept.detail)
    }

    /// Returns the number of FPDUs that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether no FPDU is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Octets at `at` have just been changed: FPDUs whose payload was there are void.
    fn void(&mut self, at: &Range<u64>) {
        if self.places.back().is_none_or(|(last, _)| last.end <= at.start) {
            return;
        }
        let first = self.places.partition_point(|(place, _)| place.end <= at.start);
        let mut behind = first;
        while let Some((place, position)) = self.places.get(behind)
            && place.start < at.end
        {
            if let Ok(index) = self.index(*position) {
                self.kept[index].good = false;
            }
            behind += 1;
        }
        if behind > first {
            self.places.drain(first..behind);
        }
    }

    /// Returns where the FPDU at `position` is in the list, or would be.
    fn index(&self, position: u64) -> Result<usize, usize> {
        match (self.kept.front(), self.kept.back()) {
            (Some(first), _) if first.position == position => Ok(0),
            (_, Some(last)) if last.position < position => Err(self.kept.len()),
            _ => self.kept.binary_search_by_key(&position, |kept| kept.position),
        }
    }

    /// Returns where the place that begins there is in the list, or would be.
    fn place(&self, start: u64) -> usize {
        self.places.partition_point(|(other, _)| other.start < start)
    }

    fn forget_place(&mut self, at: &Range<u64>) {
        let is_first = self.places.front().is_some_and(|(first, _)| first == at);
        let index = if is_first { 0 } else { self.place(at.start) };
        self.places.remove(index);
    }
}

/// Returns the position that `seq` stands for, given one position and its sequence number not more
/// than 2^31 octets away. `None` for one in front of position 0.
///
/// ```
/// use rddp_kernel_patch::records::position;
/// assert_eq!(position(5, (1_000, u32::MAX)), Some(1_006));
/// assert_eq!(position(u32::MAX - 10, (1_000, u32::MAX)), Some(990));
/// ```
#[must_use]
pub const fn position(seq: u32, (known, its_seq): (u64, u32)) -> Option<u64> {
    known.checked_add_signed(seq.wrapping_sub(its_seq) as i32 as i64)
}

#[cfg(test)]
mod tests {
    use rddp_test_support::Random;

    use super::*;

    fn placed(position: u64, at: Range<u64>) -> Placed {
        Placed { position, at, good: true, detail: () }
    }

    fn has(records: &Records, position: u64, at: &Range<u64>) -> bool {
        records.placed(position).is_some_and(|kept| kept.at == *at)
    }

    #[test]
    fn the_next_placed_fpdu_is_found_and_passed() {
        let mut records = Records::default();
        records.note(placed(300, 30..40));
        records.note(placed(100, 10..20));
        assert_eq!((records.next(0), records.next(101), records.next(301)), (Some(100), Some(300), None));
        assert!(has(&records, 100, &(10..20)) && !has(&records, 100, &(10..21)));
        assert!(has(&records, 300, &(30..40)) && records.placed(200).is_none());
        records.pass(200);
        assert_eq!((records.next(0), records.len()), (Some(300), 1));
        // What the program noted late does not come back.
        records.note(placed(100, 10..20));
        assert_eq!(records.next(0), Some(300));
    }

    #[test]
    fn a_run_ends_with_what_has_not_been_placed() {
        let mut records = Records::default();
        for position in [100, 200, 300, 500] {
            records.note(placed(position, position..position + 50));
        }
        let run = |position, most| records.run_end(position, most, |_| Some(100));
        assert_eq!((run(100, 1000), run(200, 1000), run(500, 1000)), (400, 400, 600));
        assert_eq!((run(400, 1000), run(150, 1000), run(0, 1000)), (400, 150, 0));
        assert_eq!((run(100, 99), run(100, 100), run(100, 199), run(100, 200)), (100, 200, 200, 300));
        let not = |other| records.run_end(100, 1000, |kept| (kept.position != other).then_some(100));
        assert_eq!((not(100), not(200), not(500)), (100, 200, 400));
        records.placed_by_user(&(200..201));
        assert_eq!(records.run_end(100, 1000, |_| Some(100)), 200, "what is void is none");
    }

    /// RFC 5041 §5.3: two Writes to the same octets, the first lost, its retransmission placed over
    /// the second.
    #[test]
    fn a_write_that_is_placed_over_a_later_one_voids_it() {
        let mut records = Records::default();
        records.note(placed(200, 10..20));
        records.note(placed(100, 19..30));
        assert!(!has(&records, 200, &(10..20)) && has(&records, 100, &(19..30)));
        assert_eq!(records.next(101), None);
    }

    /// The octets of the earlier one are gone, whatever the later one turns out to be.
    #[test]
    fn a_write_that_is_placed_over_an_earlier_one_voids_it_too() {
        let mut records = Records::default();
        records.note(placed(100, 10..20));
        records.note(placed(200, 15..25));
        assert!(has(&records, 200, &(15..25)) && !has(&records, 100, &(10..20)));
        records.placed_by_user(&(10..20));
        assert!(!has(&records, 200, &(15..25)), "the engine has placed the earlier one over it");
    }

    #[test]
    fn octets_placed_by_the_engine_void_what_overlaps_only() {
        let mut records = Records::default();
        records.note(placed(200, 10..20));
        records.note(placed(300, 20..30));
        records.placed_by_user(&(5..10));
        assert!(has(&records, 200, &(10..20)));
        records.placed_by_user(&(20..21));
        assert!(has(&records, 200, &(10..20)) && !has(&records, 300, &(20..30)));
    }

    /// A peer may have the same octets placed again and again.
    #[test]
    fn as_many_are_kept_as_a_window_has() {
        let mut records = Records::default();
        for number in 0..2 * MOST as u64 {
            records.note(placed(100 * number, 0..1));
        }
        assert_eq!((records.len(), records.places.len()), (MOST, 0), "the last one was not kept");
        records.pass(100 * MOST as u64);
        assert!(records.is_empty() && records.places.is_empty());
    }

    #[test]
    fn a_failed_copy_counts_as_a_change_and_not_as_a_placement() {
        let mut records = Records::default();
        records.note(placed(200, 10..20));
        records.note(Placed { good: false, ..placed(100, 12..13) });
        assert_eq!(records.next(0), None);
    }

    #[test]
    fn positions_follow_sequence_numbers_round_the_wrap() {
        assert_eq!(position(0, (u64::from(u32::MAX), u32::MAX)), Some(1 << 32));
        assert_eq!(position(7, (5, 7)), Some(5));
        assert_eq!(position(1, (5, 7)), None);
    }

    /// In any order of arrival, with retransmissions that the program sees twice, each FPDU is
    /// delivered with its own octets, or newer ones that were placed meanwhile, and in the end
    /// those of placement in order are there.
    #[test]
    fn memory_ends_as_if_all_had_been_placed_in_order() {
        let mut rng = Random::new(7);
        for _ in 0..4_000 {
            one_run(&mut rng);
        }
    }

    fn one_run(rng: &mut Random) {
        const FPDUS: usize = 12;
        let ranges: Vec<Range<u64>> = (0..FPDUS)
            .map(|_| {
                let start = rng.below(16) as u64;
                start..start + 1 + rng.below(6) as u64
            })
            .collect();
        let (mut memory, mut wanted) = ([0; 32], [0; 32]);
        let mut records = Records::default();
        let mut next = 0;
        while next < FPDUS {
            // The program places anything that the engine has not passed, once or more.
            for _ in 0..rng.below(4) {
                let of = next + rng.below(FPDUS - next);
                fill(&mut memory, &ranges[of], of);
                records.note(placed(of as u64 * 100, ranges[of].clone()));
            }
            let (position, range) = (next as u64 * 100, &ranges[next]);
            if has(&records, position, range) {
                let start = range.start as usize;
                assert!(memory[start..range.end as usize].iter().all(|octet| *octet == next + 1));
            } else {
                fill(&mut memory, range, next);
                records.placed_by_user(range);
            }
            fill(&mut wanted, range, next);
            records.pass(position + 100);
            next += 1;
        }
        assert_eq!(memory, wanted);
    }

    fn fill(memory: &mut [usize], range: &Range<u64>, with: usize) {
        memory[range.start as usize..range.end as usize].fill(with + 1);
    }
}
