//! A part of registered memory: octets on their way from a file to the other end, or back.
//!
//! They go from the file into the memory and out of it without a copy in between. A copy is made
//! only for what has to see them while nobody can change them: SHA-256, and streams.

use std::ops::Range;

use rddp_rnic::{MemError, MemoryRegion};

use super::protocol::SLOT;

#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    pub(super) memory: &'a MemoryRegion,
    pub(super) range: Range<usize>,
}

impl<'a> Part<'a> {
    /// Returns the first `len` octets of a slot.
    pub(super) fn of_slot(memory: &'a MemoryRegion, slot: usize, len: usize) -> Self {
        Part { memory, range: slot * SLOT..slot * SLOT + len }
    }

    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns the first `len` octets, or all if they are fewer.
    pub(super) fn first(&self, len: usize) -> Self {
        let start = self.range.start;
        Part { memory: self.memory, range: start..start + len.min(self.len()) }
    }

    /// Returns the octets from `at` on.
    pub(super) fn behind(&self, at: usize) -> Self {
        Part { memory: self.memory, range: self.range.start + at..self.range.end }
    }

    /// Returns the first `at` octets, and those behind them.
    pub(super) fn split(&self, at: usize) -> (Self, Self) {
        (self.first(at), self.behind(at))
    }

    /// Copies octets to the beginning.
    pub(super) fn fill(&self, octets: &[u8]) -> Result<(), MemError> {
        self.memory.write(self.range.start, octets)
    }

    /// Returns the CRC-32C of the octets.
    pub(super) fn crc(&self) -> Result<u32, MemError> {
        self.memory.crc32c(self.range.clone())
    }

    /// Copies the octets into a buffer, which is kept for the next ones, and returns them there.
    pub(super) fn copied<'b>(&self, kept: &'b mut Vec<u8>) -> Result<&'b [u8], MemError> {
        if kept.len() < self.len() {
            kept.resize(self.len(), 0);
        }
        let octets = &mut kept[..self.len()];
        self.memory.read_into(self.range.start, octets)?;
        Ok(octets)
    }
}
