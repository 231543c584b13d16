//! Memory of the program that is lent for the length of an operation.

use std::ffi::c_void;
use std::ptr::null_mut;

use libc::{iovec, pollfd};

/// The rest of the pieces that octets come from or go to.
#[derive(Debug)]
pub struct Pieces {
    list: Vec<iovec>,
    next: usize,
    left: usize,
    start: *mut c_void,
}

// SAFETY: the memory stays for whichever thread uses it, as `new` requires.
unsafe impl Send for Pieces {}

impl Pieces {
    /// Takes pieces; `None` when their lengths add up to more than a call can move.
    ///
    /// # Safety
    /// Until this is dropped the memory is there, and nothing else writes it (or, when octets are
    /// received, reads it).
    pub unsafe fn new(list: Vec<iovec>) -> Option<Self> {
        let left = list.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.iov_len))?;
        isize::try_from(left).ok()?;
        let start = list.first().map_or(null_mut(), |piece| piece.iov_base);
        Some(Pieces { list, next: 0, left, start })
    }

    /// Returns the number of octets that are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns the address of the first piece.
    pub fn start(&self) -> *mut c_void {
        self.start
    }

    /// Counts off octets that have been moved.
    pub fn pass(&mut self, count: usize) {
        let mut count = count.min(self.left);
        self.left -= count;
        while let Some(piece) = self.list.get_mut(self.next) {
            if count < piece.iov_len {
                piece.iov_base = piece.iov_base.wrapping_byte_add(count);
                piece.iov_len -= count;
                return;
            }
            count -= piece.iov_len;
            self.next += 1;
        }
    }

    pub(super) fn rest(&self) -> &[iovec] {
        &self.list[self.next..]
    }
}

/// The descriptors of a poll, with the places for the answers.
#[derive(Debug)]
pub struct PollPlaces {
    at: *mut pollfd,
    count: usize,
}

// SAFETY: the memory stays for whichever thread uses it, as `new` requires.
unsafe impl Send for PollPlaces {}

impl PollPlaces {
    /// Takes `count` entries.
    ///
    /// # Safety
    /// Until this is dropped they are there, and nothing else reads or writes them.
    pub unsafe fn new(at: *mut pollfd, count: usize) -> Self {
        PollPlaces { at, count }
    }

    /// Returns a copy of the entries.
    pub fn copy(&self) -> Vec<pollfd> {
        // SAFETY: the index is below `count`, and so many entries are there until this is dropped
        // (`new`).
        (0..self.count).map(|index| unsafe { self.at.add(index).read() }).collect()
    }

    /// Sets the events of each entry.
    pub fn answer(&mut self, answers: &[pollfd]) {
        for (index, answer) in answers.iter().enumerate().take(self.count) {
            // SAFETY: the index is below `count`, and so many entries are left to this value alone
            // (`new`).
            unsafe { (*self.at.add(index)).revents = answer.revents };
        }
    }

    /// Returns the address of the entries.
    pub fn start(&self) -> *mut c_void {
        self.at.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(octets: &mut [u8]) -> iovec {
        iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() }
    }

    #[test]
    fn octets_that_were_moved_are_counted_off_across_pieces_of_any_length() {
        let (mut one, mut two) = ([0; 3], [0; 5]);
        let list = vec![piece(&mut one), piece(&mut []), piece(&mut two)];
        // SAFETY: the arrays live longer than the pieces.
        let mut pieces = unsafe { Pieces::new(list) }.unwrap();
        assert_eq!(pieces.left(), 8);
        pieces.pass(2);
        assert_eq!((pieces.left(), pieces.rest()[0].iov_len), (6, 1));
        pieces.pass(4);
        assert_eq!((pieces.left(), pieces.rest().len(), pieces.rest()[0].iov_len), (2, 1, 2));
        assert_eq!(pieces.rest()[0].iov_base, two[3..].as_mut_ptr().cast());
        pieces.pass(9);
        assert_eq!((pieces.left(), pieces.rest().len()), (0, 0));
    }

    #[test]
    fn pieces_longer_than_a_call_can_move_are_refused() {
        let endless = iovec { iov_base: null_mut(), iov_len: isize::MAX as usize };
        // SAFETY: the memory is never used.
        let made = |count| unsafe { Pieces::new(vec![endless; count]) };
        assert!(made(1).is_some());
        assert!(made(2).is_none());
        assert!(made(3).is_none());
    }
}
