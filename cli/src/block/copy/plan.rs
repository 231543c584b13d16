//! The pieces of a copy, in order: data to read and write, and holes.

use std::collections::VecDeque;

use rddp_block::export::Extent;

/// Octets that a question for holes is about: as many as 32 bits count, in whole blocks.
const ASKED: u64 = 1 << 30;

/// Octets of a hole that are one request. A server takes long for very many.
const HOLE: u64 = 64 << 20;

/// Octets ahead of the next piece for which holes are known before they are asked for.
const AHEAD: u64 = 64 << 20;

/// A part of the disk to be copied by one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) hole: bool,
}

/// The way through a disk.
pub(super) struct Plan {
    size: u64,
    /// Octets of the longest piece of data, and those of which every piece is a multiple.
    longest: u64,
    block: u64,
    /// The next piece begins here, at a block.
    at: u64,
    /// Parts that are known, by their ends.
    known: VecDeque<(u64, bool)>,
    /// The end of those.
    told: u64,
    asking: bool,
}

impl Plan {
    /// Plans the copy of a disk. `longest` has room for a block.
    pub(super) fn new(size: u64, longest: u32, block: u32) -> Self {
        let block = u64::from(block);
        let longest = u64::from(longest) / block * block;
        Plan { size, longest, block, at: 0, known: VecDeque::new(), told: 0, asking: false }
    }

    /// Returns the part for which holes are to be asked now: where it begins, and how long it is.
    pub(super) fn question(&mut self) -> Option<(u64, u32)> {
        if self.asking || self.told >= self.size || self.told > self.at.saturating_add(AHEAD) {
            return None;
        }
        self.asking = true;
        Some((self.told, (self.size - self.told).min(ASKED) as u32))
    }

    /// Notes the answer. Returns false if it tells nothing: then there is no way on.
    pub(super) fn told(&mut self, extents: &[Extent]) -> bool {
        self.asking = false;
        let before = self.told;
        for extent in extents {
            self.told = self.told.saturating_add(extent.len).min(self.size);
            self.known.push_back((self.told, extent.hole));
        }
        self.told > before
    }

    /// Returns the next piece; `None` until more is known, or at the end.
    pub(super) fn next(&mut self) -> Option<Piece> {
        while let Some(&(end, hole)) = self.known.front() {
            // A block of which a part is data is data.
            let end = if end == self.size {
                end
            } else if hole {
                end / self.block * self.block
            } else {
                end
            };
            if end <= self.at {
                self.known.pop_front();
                continue;
            }
            let (longest, whole) = if hole { (HOLE, end) } else { (self.longest, self.up(end)) };
            let to = whole.min(self.at + longest);
            // What is behind may not be known yet, and belongs to the same block.
            let piece = Piece { offset: self.at, len: (to - self.at) as u32, hole };
            self.at = to;
            return Some(piece);
        }
        None
    }

    /// Returns the end of the block to which what is in front of an offset belongs.
    fn up(&self, offset: u64) -> u64 {
        offset.next_multiple_of(self.block).min(self.size)
    }

    /// Returns whether there is no piece left.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for and tells all extents, a few an answer, and returns the pieces.
    fn pieces(
        size: u64,
        longest: u32,
        block: u32,
        extents: &[(u64, bool)],
        each: usize,
    ) -> Vec<(u64, u32, bool)> {
        let extents: Vec<Extent> = extents.iter().map(|&(len, hole)| Extent { len, hole }).collect();
        let (mut plan, mut pieces, mut answers) =
            (Plan::new(size, longest, block), Vec::new(), extents.chunks(each));
        while !plan.is_over() {
            if let Some((from, len)) = plan.question() {
                assert!(from + u64::from(len) <= size && plan.question().is_none());
                assert!(plan.told(answers.next().unwrap()));
            }
            pieces.extend(
                std::iter::from_fn(|| plan.next()).map(|piece| (piece.offset, piece.len, piece.hole)),
            );
        }
        pieces
    }

    #[test]
    fn data_are_cut_and_holes_are_kept() {
        let extents = [(100, false), (1000, true), (50, false)];
        let wanted = [(0, 64, false), (64, 36, false), (100, 1000, true), (1100, 50, false)];
        assert_eq!(pieces(1150, 64, 1, &extents, 3), wanted);
        assert_eq!(pieces(1150, 64, 1, &extents, 1), wanted);
        let long = HOLE as u32;
        assert_eq!(pieces(HOLE + 5, 64, 1, &[(HOLE + 5, true)], 1), [(0, long, true), (HOLE, 5, true)]);
        assert_eq!(pieces(0, 64, 1, &[], 1), []);
    }

    /// A block that is part data and part hole is all data.
    #[test]
    fn pieces_are_whole_blocks_and_leave_out_no_data() {
        for each in 1..4 {
            let extents = [(100, false), (300, true), (10, false), (590, true)];
            let pieces = pieces(1000, 128, 64, &extents, each);
            assert_eq!(pieces, [(0, 128, false), (128, 256, true), (384, 64, false), (448, 552, true)]);
            let extents = [(10, true), (20, false), (970, true)];
            assert_eq!(super::tests::pieces(1000, 128, 64, &extents, each)[0], (0, 64, false));
        }
    }

    #[test]
    fn an_answer_that_tells_nothing_is_noticed() {
        let mut plan = Plan::new(1000, 64, 1);
        assert_eq!(plan.question(), Some((0, 1000)));
        assert!(!plan.told(&[]));
        assert!(plan.told(&[Extent { len: u64::MAX, hole: false }, Extent { len: 9, hole: true }]));
        assert_eq!(plan.question(), None);
        assert_eq!(std::iter::from_fn(|| plan.next()).map(|piece| u64::from(piece.len)).sum::<u64>(), 1000);
    }
}
