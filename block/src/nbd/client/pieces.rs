//! The parts of a read that have come.

use std::ops::Range;

/// Parts that lie apart from each other: more make a list that a server could fill.
const MOST: usize = 1024;

/// Parts, in order, none of which touches another.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Range<u32>>);

impl Pieces {
    /// Adds a part. Returns false, and adds nothing, if some of it is there, or it is one too many.
    pub(super) fn add(&mut self, part: Range<u32>) -> bool {
        let at = self.0.partition_point(|piece| piece.end < part.start);
        match self.0.get(at) {
            Some(piece) if piece.end == part.start => {
                if self.0.get(at + 1).is_some_and(|next| next.start < part.end) {
                    return false;
                }
                self.0[at].end = part.end;
                if self.0.get(at + 1).is_some_and(|next| next.start == part.end) {
                    self.0[at].end = self.0.remove(at + 1).end;
                }
            }
            Some(piece) if piece.start < part.end => return false,
            Some(piece) if piece.start == part.end => self.0[at].start = part.start,
            _ if self.0.len() == MOST => return false,
            _ => self.0.insert(at, part),
        }
        true
    }

    /// Returns whether these are the octets from the first to `len`.
    pub(super) fn is_all_of(&self, len: u32) -> bool {
        len == 0 || matches!(&self.0[..], [whole] if *whole == (0..len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Expands the pieces to a list of octets that are there or not.
        #[test]
        fn parts_are_those_of_a_model(parts in prop::collection::vec((0..64u32, 1..16u32), 0..40)) {
            let (mut pieces, mut there) = (Pieces::default(), [false; 80]);
            for (from, len) in parts {
                let part = &mut there[from as usize..(from + len) as usize];
                let is_new = part.iter().all(|octet| !octet);
                prop_assert_eq!(pieces.add(from..from + len), is_new);
                if is_new {
                    part.fill(true);
                }
                let count = there.iter().take_while(|octet| **octet).count();
                let is_all = count > 0 && !there[count..].contains(&true);
                prop_assert_eq!(pieces.is_all_of(count as u32), is_all || count == 0);
            }
        }
    }

    #[test]
    fn parts_that_lie_apart_have_a_limit() {
        let mut pieces = Pieces::default();
        let parts: Vec<bool> = (0..=MOST as u32).map(|at| pieces.add(2 * at..2 * at + 1)).collect();
        assert!(parts[..MOST].iter().all(|added| *added) && !parts[MOST]);
        // One that closes a gap is no more.
        assert!(pieces.add(1..2));
    }
}
