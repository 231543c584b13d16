//! Reading ahead in files: short segments of a message are copied out of one long read.
//!
//! What is read belongs to one message and is forgotten behind it: the next one finds the file as
//! it is then. Long segments are read straight into their FPDUs.

use std::cell::Cell;

use super::arena::Arena;
use crate::mem::{Faulted, Grant};

/// Octets from which on a piece of payload is read straight into its place.
const LONG: usize = 16 * 1024;

/// Octets of one read that is shared by shorter pieces.
pub(super) const READ: usize = 64 * 1024;

thread_local! {
    /// Memory that the last message which ended in this thread leaves to the next.
    static SPARE: Cell<Arena> = const { Cell::new(Arena::new()) };
}

/// Octets that were read out of a file for the message at hand.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    octets: Arena,
    /// The address that is reserved for the first of them.
    start: u64,
}

impl Ahead {
    /// Copies octets of a file. `source` goes no further than the message.
    pub(super) fn copy_to(&mut self, source: &Grant, offset: usize, out: &mut [u8]) -> Result<(), Faulted> {
        let (at, left) = (source.octets().start + offset as u64, source.len() - offset);
        if self.copy_known(at, out) {
            return Ok(());
        }
        if out.len() >= LONG || out.len() == left {
            return source.copy_to(offset, out);
        }
        self.read(source, offset, left.min(READ))?;
        self.copy_known(at, out);
        Ok(())
    }

    /// Copies octets that have been read. Returns whether they have.
    fn copy_known(&self, at: u64, out: &mut [u8]) -> bool {
        let skip = at.wrapping_sub(self.start);
        let known = self.octets.len() as u64;
        let is_known = skip <= known && out.len() as u64 <= known - skip;
        if is_known {
            out.copy_from_slice(self.octets.get(skip as usize..skip as usize + out.len()));
        }
        is_known
    }

    fn read(&mut self, source: &Grant, offset: usize, len: usize) -> Result<(), Faulted> {
        if self.octets.capacity() == 0 {
            self.octets = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.octets.clear();
        let read = source.copy_to(offset, self.octets.room(len));
        if read.is_err() {
            self.octets.clear();
        }
        self.start = source.octets().start + offset as u64;
        read
    }

    /// Forgets what was read, at the end of its message.
    #[inline]
    pub(super) fn forget(&mut self) {
        if self.octets.capacity() > 0 {
            std::mem::take(&mut self.octets).leave(&SPARE);
        }
    }

    /// Returns how much memory is kept.
    #[inline]
    pub(super) fn kept(&self) -> usize {
        self.octets.capacity()
    }
}
