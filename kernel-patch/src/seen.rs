//! Octets of the stream that have come by once, more than once, or not at all.
//!
//! Octets that have come by once TCP has from there, if it has them. If others of the same place
//! come by a second time, it may be that something behind the program has dropped the first ones
//! (IP, TCP, a filter), so that what was placed of them is not what TCP has: the engine looks. If
//! TCP has octets that have not come by at all, there is another way to it, and nothing is certain.

use std::collections::VecDeque;
use std::ops::Range;

/// The octets that have come by again or are missing, as far as the stream has not passed them, by
/// position (see [`records`](crate::records)). All others have come once, or are yet to come.
///
/// ```
/// use rddp_kernel_patch::seen::Seen;
/// let mut seen = Seen::default();
/// seen.note_hole(100..200);
/// assert!(seen.is_missing_before(101) && !seen.is_missing_before(100));
/// // The hole is filled, by a segment with octets that have come before.
/// seen.note(100..210);
/// assert!(!seen.is_missing_before(300));
/// assert!(seen.has_again(&(209..300)) && !seen.has_again(&(100..200)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    again: Ranges,
    holes: Ranges,
    /// Set once it is not known which octets have come how often.
    is_unknown: bool,
    /// Nothing in front of this is noted any more.
    passed: u64,
}

/// Ranges of either kind that are kept at most. With more, nothing is known any more.
const MOST: usize = 1024;

impl Seen {
    /// Notes octets in front of the last that has come by: they fill holes, or come again.
    pub fn note(&mut self, octets: Range<u64>) {
        let mut rest = octets.start.max(self.passed);
        for filled in self.holes.take(&octets) {
            self.again.add(rest..filled.start);
            rest = filled.end;
        }
        self.again.add(rest..octets.end);
        self.limit();
    }

    /// Notes octets that have not come by, while others behind them have.
    pub fn note_hole(&mut self, octets: Range<u64>) {
        self.holes.add(octets.start.max(self.passed)..octets.end);
        self.limit();
    }

    /// Notes that any octets may have come by again, also those that follow.
    pub fn note_unknown(&mut self) {
        *self = Self { is_unknown: true, ..Self::default() };
    }

    /// Returns whether nothing is known.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Returns whether one of these octets may have come by again.
    #[must_use]
    pub fn has_again(&self, octets: &Range<u64>) -> bool {
        self.is_unknown || self.again.has(octets)
    }

    /// Returns whether there is a hole in front of `position`.
    #[must_use]
    pub fn is_missing_before(&self, position: u64) -> bool {
        self.holes.0.front().is_some_and(|hole| hole.start < position)
    }

    /// Forgets octets in front of `position`, which the stream has passed. Returns how many of them
    /// have not come by.
    pub fn pass(&mut self, position: u64) -> u64 {
        self.passed = self.passed.max(position);
        self.again.take(&(0..position));
        self.holes.take(&(0..position)).iter().map(|hole| hole.end - hole.start).sum()
    }

    fn limit(&mut self) {
        if self.is_unknown || self.again.0.len().max(self.holes.0.len()) > MOST {
            self.note_unknown();
        }
    }
}

/// Ranges in order, with octets between any two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(VecDeque<Range<u64>>);

impl Ranges {
    /// Adds octets. Those that touch them become one range with them.
    fn add(&mut self, octets: Range<u64>) {
        if octets.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end < octets.start);
        let behind = self.0.partition_point(|range| range.start <= octets.end);
        let mut whole = octets;
        for range in self.0.drain(first..behind) {
            whole = whole.start.min(range.start)..whole.end.max(range.end);
        }
        self.0.insert(first, whole);
    }

    /// Takes octets out, and returns the ranges of them that were in it.
    fn take(&mut self, octets: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.partition_point(|range| range.end <= octets.start);
        let behind = self.0.partition_point(|range| range.start < octets.end).max(first);
        let mut taken: Vec<_> = self.0.drain(first..behind).collect();
        let (start, end) = (octets.start, octets.end);
        // What of the last one and of the first one lies outside stays.
        if let Some(last) = taken.last_mut().filter(|last| last.end > end) {
            self.0.insert(first, end..last.end);
            last.end = end;
        }
        if let Some(range) = taken.first_mut().filter(|range| range.start < start) {
            self.0.insert(first, range.start..start);
            range.start = start;
        }
        taken
    }

    /// Returns whether one of these octets is in it.
    fn has(&self, octets: &Range<u64>) -> bool {
        let next = self.0.partition_point(|range| range.end <= octets.start);
        self.0.get(next).is_some_and(|range| range.start < octets.end)
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::Random;

    use super::*;

    /// The model counts how often each octet has come.
    #[test]
    fn octets_are_as_often_there_as_segments_have_brought_them() {
        let mut random = Random::new(7);
        for _ in 0..300 {
            let (mut seen, mut count, mut top, mut passed) = (Seen::default(), [0; 400], 0, 0);
            for _ in 0..60 {
                let start = (top + random.below(40)).saturating_sub(random.below(80)).min(370);
                let end = start + 1 + random.below(20);
                count[start..end].iter_mut().for_each(|count| *count += 1);
                if start > top {
                    seen.note_hole(top as u64..start as u64);
                } else if start < top {
                    seen.note(start as u64..end.min(top) as u64);
                }
                top = top.max(end);
                if random.below(10) == 0 {
                    let to = (passed + random.below(20)).min(top);
                    let missing = count[passed..to].iter().filter(|count| **count == 0).count();
                    assert_eq!(seen.pass(to as u64), missing as u64);
                    count[passed..to].fill(1);
                    passed = to;
                }
                let from = passed + random.below(390 - passed);
                let to = from + 1 + random.below(9);
                let wanted = count[from..to].iter().any(|count| *count > 1);
                let before = |end: usize| count[passed..end.min(top)].contains(&0);
                // Octets in front of what the stream has passed have been there once at least.
                if start >= passed {
                    assert_eq!(seen.has_again(&(from as u64..to as u64)), wanted, "{from}..{to}: {seen:?}");
                    assert_eq!(seen.is_missing_before(to as u64), before(to), "{to}: {seen:?}");
                } else {
                    break;
                }
            }
            for ranges in [seen.again.0, seen.holes.0] {
                let ranges = Vec::from(ranges);
                assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            }
        }
    }

    #[test]
    fn what_is_too_much_to_keep_is_not_known() {
        for note in [Seen::note, Seen::note_hole] {
            let mut seen = Seen::default();
            for number in 0..MOST as u64 {
                note(&mut seen, 2 * number..2 * number + 1);
            }
            assert!(!seen.has_again(&(1..2)) && !seen.is_unknown());
            note(&mut seen, 1 << 40..(1 << 40) + 1);
            assert!(seen.has_again(&(1..2)) && seen.is_unknown());
            seen.pass(u64::MAX);
            seen.note(5..6);
            assert!(seen.has_again(&(8..9)), "what comes later, too");
        }
    }
}
