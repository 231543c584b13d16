//! Octets that wait for TCP.

use std::cell::Cell;

use rddp_ddp::Header;
use rddp_iwarp::push_copied;
use rddp_mpa::Framer;

use super::arena::Arena;
use crate::mem::Faulted;

/// Octets that TCP has been promised: whole FPDUs, or the rest of one it has begun.
///
/// The memory is the thread's while nothing waits: an idle connection has none.
#[derive(Debug, Default)]
pub(super) struct OutBuffer {
    octets: Arena,
    taken: usize,
}

thread_local! {
    /// Memory that the last buffer that ran empty in this thread leaves to the next that needs
    /// some.
    static SPARE: Cell<Arena> = const { Cell::new(Arena::new()) };
}

impl OutBuffer {
    /// Returns the octets that TCP has not taken yet.
    pub(super) fn owed(&self) -> &[u8] {
        self.octets.get(self.taken..self.octets.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.octets.len()
    }

    /// Appends one FPDU: see [`push_copied`].
    ///
    /// # Errors
    /// Octets of the payload have gone bad. Nothing has been appended, and `framer` is as before.
    pub(super) fn push(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload_len: usize,
        fill: impl FnMut(usize, &mut [u8]) -> Result<(), Faulted>,
    ) -> Result<(), Faulted> {
        self.prepare();
        // There is always room.
        push_copied(&mut self.octets, framer, header, payload_len, fill).map(drop)
    }

    /// Returns room for octets that are promised now.
    #[cfg(test)]
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.prepare();
        self.octets.room(len)
    }

    fn prepare(&mut self) {
        if self.octets.capacity() == 0 {
            self.octets = SPARE.try_with(Cell::take).unwrap_or_default();
        }
    }

    /// Appends the rest of an FPDU that TCP has begun to take.
    pub(super) fn keep(&mut self, rest: Vec<u8>) {
        if self.octets.capacity() == 0 {
            self.octets = Arena::of(rest);
        } else {
            self.octets.append(&rest);
        }
    }

    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.is_empty() {
            self.taken = 0;
            std::mem::take(&mut self.octets).leave(&SPARE);
        }
    }

    /// Keeps no more memory than the octets need, since TCP may take none for long. Returns how
    /// much that is.
    pub(super) fn settle(&mut self) -> usize {
        if self.octets.capacity() > 2 * self.owed().len() {
            let rest = Arena::of(self.owed().to_vec());
            self.taken = 0;
            std::mem::replace(&mut self.octets, rest).leave(&SPARE);
        }
        self.octets.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5042 §6.4.1: what a peer that does not read makes us keep is what it has been promised.
    #[test]
    fn what_is_kept_is_as_large_as_its_octets() {
        let mut out = OutBuffer::default();
        out.room(1 << 20).fill(7);
        out.take((1 << 20) - 10);
        assert_eq!((out.settle(), out.owed()), (10, &[7; 10][..]));
        out.keep(vec![8; 3]);
        assert_eq!(out.owed(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8]);
        assert!(out.settle() < 100);
        out.take(13);
        assert_eq!((out.is_empty(), out.settle()), (true, 0));
        // The large one was left for the next.
        out.room(1);
        assert_eq!(out.octets.capacity(), 1 << 20);
    }
}
