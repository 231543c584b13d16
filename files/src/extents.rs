//! The extents of a file that is Read as one range: what is between them are holes.

use std::collections::VecDeque;

use rddp_command::failure::Failure;

use super::protocol::{Extent, out_of_step};

/// The extents that are known and not Read yet.
pub(super) struct Extents {
    list: VecDeque<Extent>,
    /// The offset up to which they are known.
    known: u64,
    size: u64,
}

impl Extents {
    /// Returns the one extent of a file without holes from `from` on.
    pub(super) fn whole(from: u64, size: u64) -> Self {
        let list = if from < size { [Extent(from, size - from)].into() } else { VecDeque::new() };
        Extents { list, known: size, size }
    }

    /// Returns those of a file with holes, of which none is known.
    pub(super) fn unknown(from: u64, size: u64) -> Self {
        Extents { list: VecDeque::new(), known: from, size }
    }

    /// Returns the offset from which on the server has to name more, if there is one.
    pub(super) fn wanted(&self) -> Option<u64> {
        (self.list.is_empty() && self.known < self.size).then_some(self.known)
    }

    /// Adds those that the server has named, up to an offset.
    pub(super) fn add(&mut self, list: Vec<Extent>, to: u64) -> Result<(), Failure> {
        if to <= self.known || to > self.size {
            return Err(out_of_step());
        }
        let mut behind = self.known;
        for &Extent(offset, len) in &list {
            if offset < behind || offset > to || len == 0 || len > to - offset {
                return Err(out_of_step());
            }
            behind = offset + len;
        }
        self.list.extend(list);
        self.known = to;
        Ok(())
    }

    /// Returns the offset and number of the next octets, at most `most`.
    pub(super) fn next(&mut self, most: usize) -> Option<(u64, usize)> {
        let Extent(offset, len) = self.list.pop_front()?;
        let taken = len.min(most as u64);
        if taken < len {
            self.list.push_front(Extent(offset + taken, len - taken));
        }
        // At most `most`.
        Some((offset, taken as usize))
    }

    /// Returns whether all have been taken.
    pub(super) fn is_over(&self) -> bool {
        self.list.is_empty() && self.known == self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_taken_in_pieces_and_asked_for_when_none_are_left() {
        let mut extents = Extents::unknown(10, 100);
        assert_eq!((extents.wanted(), extents.next(7), extents.is_over()), (Some(10), None, false));
        extents.add(vec![Extent(20, 8), Extent(28, 2)], 50).unwrap();
        assert_eq!(
            (extents.wanted(), extents.next(7), extents.next(7)),
            (None, Some((20, 7)), Some((27, 1)))
        );
        assert_eq!((extents.next(7), extents.wanted(), extents.is_over()), (Some((28, 2)), Some(50), false));
        extents.add(Vec::new(), 100).unwrap();
        assert_eq!((extents.wanted(), extents.is_over()), (None, true));
        let mut whole = Extents::whole(10, 12);
        assert_eq!((whole.next(7), whole.next(7), whole.is_over()), (Some((10, 2)), None, true));
        assert!(Extents::whole(12, 12).is_over());
    }

    #[test]
    fn extents_that_make_no_sense_are_refused() {
        for (list, to) in [
            (vec![], 10),
            (vec![], 101),
            (vec![Extent(9, 2)], 50),
            (vec![Extent(20, 0)], 50),
            (vec![Extent(20, 31)], 50),
            (vec![Extent(20, u64::MAX)], 50),
            (vec![Extent(u64::MAX, 1)], 50),
            (vec![Extent(20, 5), Extent(24, 5)], 50),
        ] {
            assert!(Extents::unknown(10, 100).add(list.clone(), to).is_err(), "{list:?} {to}");
        }
    }
}
