//! Memory for octets that are made, sent and forgotten, again and again: it is not zeroed each
//! time.

use std::cell::Cell;
use std::ops::Range;
use std::thread::LocalKey;

use rddp_iwarp::Gather;

/// Octets from the front on are in use; those behind are of earlier uses.
#[derive(Debug, Default)]
pub(super) struct Arena {
    octets: Vec<u8>,
    used: usize,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Arena { octets: Vec::new(), used: 0 }
    }

    /// Makes an arena that holds these octets.
    pub(super) fn of(octets: Vec<u8>) -> Self {
        Arena { used: octets.len(), octets }
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Forgets all but the first `len` octets.
    pub(super) fn truncate(&mut self, len: usize) {
        self.used = self.used.min(len);
    }

    /// Octets that it can take before it grows.
    pub(super) fn capacity(&self) -> usize {
        self.octets.len()
    }

    /// Returns room for `len` octets more; what stands there is of an earlier use, and is to be
    /// written over.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.used;
        self.used += len;
        if self.used > self.octets.len() {
            // Doubled, so that growing costs little in all; and zeroed once.
            let grown = self.used.max(2 * self.octets.len());
            self.octets.resize(grown, 0);
        }
        &mut self.octets[start..self.used]
    }

    pub(super) fn append(&mut self, octets: &[u8]) {
        self.room(octets.len()).copy_from_slice(octets);
    }

    /// Leaves the memory to the next that needs some in this thread, if it is more than what is
    /// there.
    pub(super) fn leave(mut self, place: &'static LocalKey<Cell<Arena>>) {
        self.clear();
        // A thread that ends leaves nothing.
        let _ = place.try_with(|place| {
            let spare = place.take();
            place.set(if self.capacity() > spare.capacity() { self } else { spare });
        });
    }

    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        &self.octets[..self.used][range]
    }
}

impl Gather for Arena {
    type Mark = usize;

    #[inline]
    fn mark(&self) -> usize {
        self.len()
    }

    #[inline]
    fn cut_back(&mut self, mark: usize) {
        self.truncate(mark);
    }

    #[inline]
    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        Some(write(self.room(len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_before_is_out_of_reach_until_it_is_written_over() {
        let mut arena = Arena::new();
        arena.append(b"0123456789");
        arena.clear();
        arena.append(b"ab");
        assert_eq!((arena.len(), arena.get(0..2)), (2, &b"ab"[..]));
        assert!(std::panic::catch_unwind(|| arena.get(0..3).len()).is_err());
        arena.room(3).copy_from_slice(b"cde");
        assert_eq!(arena.get(1..5), b"bcde");
    }
}
