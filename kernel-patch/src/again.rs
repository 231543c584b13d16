//! Octets of the stream that have come by again, of which TCP may have others than were placed.
//!
//! Octets that have come by once TCP has taken from there, if it has them at all. If a segment
//! comes by a second time, it may be that something behind the program has dropped the first one
//! (IP, TCP, a filter), so that what was placed of it is not what TCP has: the engine looks.

use std::collections::VecDeque;
use std::ops::Range;

/// The octets that have come by again, as far as the stream has not passed them, by position (see
/// [`records`](crate::records)).
///
/// ```
/// use rddp_kernel_patch::again::Again;
/// let mut again = Again::default();
/// again.note(100..200);
/// assert!(again.has(&(0..101)) && !again.has(&(200..300)) && !again.has(&(0..100)));
/// again.note_all();
/// assert!(again.has(&(200..300)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// In order, with octets between any two.
    ranges: VecDeque<Range<u64>>,
    /// Nobody knows which ones have not.
    all: bool,
}

/// Ranges that are kept at most. With more, all octets count as having come again.
const MOST: usize = 1024;

impl Again {
    /// Notes octets that have come by again.
    pub fn note(&mut self, octets: Range<u64>) {
        if octets.is_empty() || self.all {
            return;
        }
        // Those that touch the new one become one with it.
        let first = self.ranges.partition_point(|range| range.end < octets.start);
        let behind = self.ranges.partition_point(|range| range.start <= octets.end);
        let mut whole = octets;
        for range in self.ranges.drain(first..behind) {
            whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
        self.ranges.insert(first, whole);
        if self.ranges.len() > MOST {
            self.note_all();
        }
    }

    /// Notes that any octets may have come by again, also those that follow.
    pub fn note_all(&mut self) {
        self.all = true;
        self.ranges.clear();
    }

    /// Returns whether any octets may have.
    #[must_use]
    pub const fn has_all(&self) -> bool {
        self.all
    }

    /// Returns whether one of these octets has come by again.
    #[must_use]
    pub fn has(&self, octets: &Range<u64>) -> bool {
        let next = self.ranges.partition_point(|range| range.end <= octets.start);
        self.all || self.ranges.get(next).is_some_and(|range| range.start < octets.end)
    }

    /// Forgets octets in front of `position`, which the stream has passed.
    pub fn pass(&mut self, position: u64) {
        while self.ranges.front().is_some_and(|range| range.end <= position) {
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::Random;

    use super::*;

    #[test]
    fn ranges_are_as_their_octets_say() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let (mut again, mut octets) = (Again::default(), [false; 300]);
            let mut passed = 0;
            for _ in 0..40 {
                let start = random.below(280);
                let range = start..start + random.below(20);
                octets[range.start..range.end].fill(true);
                again.note(range.start as u64..range.end as u64);
                if random.below(10) == 0 {
                    passed += random.below(20);
                    again.pass(passed as u64);
                }
                let start = random.below(290);
                let end = start + 1 + random.below(9);
                if start >= passed {
                    let wanted = octets[start..end].contains(&true);
                    assert_eq!(again.has(&(start as u64..end as u64)), wanted, "{start}..{end}: {again:?}");
                }
            }
            let ranges = again.ranges.make_contiguous();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        }
    }

    #[test]
    fn what_is_too_much_to_keep_is_all() {
        let mut again = Again::default();
        for number in 0..MOST as u64 {
            again.note(2 * number..2 * number + 1);
        }
        assert!(again.has(&(0..1)) && !again.has(&(1..2)) && !again.has_all());
        again.note(1 << 40..(1 << 40) + 1);
        assert!(again.has(&(1..2)) && again.has_all());
        again.pass(u64::MAX);
        again.note(5..6);
        assert!(again.has(&(8..9)), "what comes later, too");
    }
}
