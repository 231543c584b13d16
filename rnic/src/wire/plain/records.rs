//! Records: messages over a stream of octets, each with its length in front.
//!
//! | octets | big-endian |
//! |---|---|
//! | 0 to 3 | the length of what follows |
//!
//! Erlang's `{packet, 4}` and the `LengthDelimitedCodec` of tokio-util speak the same.

use crate::queues::options::RecordOptions;

/// Octets in front of each record.
pub(super) const HEADER: usize = 4;

/// The record that is arriving, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) options: RecordOptions,
    header: [u8; HEADER],
    /// Octets of the header that have come.
    have: usize,
    /// Octets of the record behind those that fit into its receive, as far as they have come.
    pub(super) discarded: u64,
}

impl Records {
    pub(super) fn new(options: RecordOptions) -> Self {
        Records { options, ..Records::default() }
    }

    /// Returns how many octets of the header are missing.
    pub(super) fn missing(&self) -> usize {
        HEADER - self.have
    }

    /// Returns whether a record has begun.
    pub(super) fn is_inside(&self) -> bool {
        self.have > 0
    }

    /// Takes what there is of the header from the front of `octets`, and returns how much that is.
    pub(super) fn take_header(&mut self, octets: &[u8]) -> usize {
        let count = self.missing().min(octets.len());
        self.header[self.have..self.have + count].copy_from_slice(&octets[..count]);
        self.have += count;
        count
    }

    /// Returns the length of the record whose header has come.
    pub(super) fn len(&self) -> u32 {
        u32::from_be_bytes(self.header)
    }

    /// Prepares for the next record.
    pub(super) fn end(&mut self) {
        (self.have, self.discarded) = (0, 0);
    }
}
