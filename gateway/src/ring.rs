//! Places in a part of the registered memory, given in turn and freed in any order.

use std::collections::VecDeque;

/// A part of the memory, whose places lie one behind the other.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Offset of the part in the memory.
    start: usize,
    len: usize,
    pieces: VecDeque<Piece>,
}

/// A place that was given, by its offset in the part.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: usize,
    len: usize,
    is_free: bool,
}

impl Ring {
    pub(crate) fn new(start: usize, len: usize) -> Self {
        Ring { start, len, pieces: VecDeque::new() }
    }

    /// Returns whether there is a place of this length, which is not 0.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.next(len).is_some()
    }

    /// Takes a place, and returns its offset in the memory.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let at = self.next(len)?;
        self.pieces.push_back(Piece { at, len, is_free: false });
        Some(self.start + at)
    }

    fn next(&self, len: usize) -> Option<usize> {
        let (Some(first), Some(last)) = (self.pieces.front(), self.pieces.back()) else {
            return (len <= self.len).then_some(0);
        };
        let end = last.at + last.len;
        if end <= first.at {
            return (len <= first.at - end).then_some(end);
        }
        if len <= self.len - end { Some(end) } else { (len <= first.at).then_some(0) }
    }

    /// Lengthens the place at an offset, if it is the last one and there is room behind it.
    pub(crate) fn grow(&mut self, at: usize, more: usize) -> bool {
        let (first, all) = (self.pieces.front().map_or(0, |first| first.at), self.len);
        let Some(last) = self.pieces.back_mut().filter(|last| self.start + last.at == at) else {
            return false;
        };
        let limit = if last.at < first { first } else { all };
        let grows = more <= limit - (last.at + last.len);
        last.len += if grows { more } else { 0 };
        grows
    }

    /// Shortens the place at an offset to the octets that it was needed for, if it is the last one.
    pub(crate) fn shrink(&mut self, at: usize, len: usize) {
        if let Some(last) = self.pieces.back_mut().filter(|last| self.start + last.at == at) {
            // One without octets could not be told from none.
            last.len = last.len.min(len.max(1));
        }
    }

    /// Frees the place at an offset. Its octets are given anew when all older places are free, too,
    /// or all newer ones: one that stays long, as that of a Send whose end is late, keeps no other.
    pub(crate) fn free(&mut self, at: usize) {
        let start = self.start;
        if let Some(piece) = self.pieces.iter_mut().find(|piece| start + piece.at == at && !piece.is_free) {
            piece.is_free = true;
        }
        while self.pieces.front().is_some_and(|piece| piece.is_free) {
            self.pieces.pop_front();
        }
        while self.pieces.back().is_some_and(|piece| piece.is_free) {
            self.pieces.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::Random;

    use super::*;

    #[test]
    fn places_never_overlap_and_an_empty_ring_has_all_its_octets() {
        let (start, len, mut random) = (50, 1000, Random::new(1));
        let mut ring = Ring::new(start, len);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            let more = 1 + random.below(400);
            match random.below(4) {
                0 | 1 => {
                    if let Some(at) = ring.take(more) {
                        taken.push((at, more));
                    }
                }
                2 if !taken.is_empty() => {
                    let (at, _) = taken.swap_remove(random.below(taken.len()));
                    ring.free(at);
                }
                _ => {
                    let Some(last) = taken.last_mut() else { continue };
                    if random.below(2) == 0 && ring.grow(last.0, more) {
                        last.1 += more;
                    }
                }
            }
            let mut sorted = taken.clone();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{sorted:?}");
            assert!(sorted.iter().all(|(at, len_of)| *at >= start && at + len_of <= start + len));
        }
        for (at, _) in taken {
            ring.free(at);
        }
        assert_eq!(ring.take(len), Some(start));
        assert!(!ring.fits(1));
    }

    #[test]
    fn what_a_message_did_not_need_is_given_to_the_next() {
        let mut ring = Ring::new(0, 100);
        let first = ring.take(80).unwrap();
        assert!(!ring.fits(30));
        ring.shrink(first, 10);
        assert_eq!(ring.take(90), Some(10));
        ring.shrink(first, 1);
        ring.free(first);
        assert_eq!(ring.take(10), Some(0), "only the last place can be shortened");
    }

    #[test]
    fn a_message_without_octets_has_a_place() {
        let mut ring = Ring::new(0, 8);
        let at = ring.take(8).unwrap();
        ring.shrink(at, 0);
        assert_eq!(ring.take(7), Some(1));
        ring.free(1);
        ring.free(at);
        assert!(ring.fits(8));
    }
}
