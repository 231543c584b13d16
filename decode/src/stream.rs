//! Octets of a direction that are in order and were not used yet, some of which were not captured.

use std::collections::VecDeque;

/// Octets, and holes between them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// The octets that were captured.
    octets: Vec<u8>,
    /// The places of octets that were not captured, in order.
    holes: VecDeque<Hole>,
    /// Octets in all holes.
    hidden: u64,
    /// The place of the front in the TCP stream.
    at: u64,
}

/// Octets that were not captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// The place of the first in the TCP stream.
    pub(crate) at: u64,
    /// The number of octets.
    pub(crate) octets: u64,
}

impl Stream {
    /// Appends octets, and a number of those that were not captured.
    pub(crate) fn push(&mut self, octets: &[u8], cut: u64) {
        self.octets.extend_from_slice(octets);
        if cut > 0 {
            self.holes.push_back(Hole { at: self.at + self.len(), octets: cut });
            self.hidden += cut;
        }
    }

    /// Returns the number of octets, captured or not.
    pub(crate) fn len(&self) -> u64 {
        self.octets.len() as u64 + self.hidden
    }

    /// Returns the octets at the front, up to the first hole.
    pub(crate) fn front(&mut self) -> &mut [u8] {
        let len = self.holes.front().map_or(self.octets.len(), |hole| (hole.at - self.at) as usize);
        &mut self.octets[..len]
    }

    /// Returns the first hole, if it lies within the first `len` octets.
    pub(crate) fn hole(&self, len: usize) -> Option<Hole> {
        self.holes.front().copied().filter(|hole| hole.at - self.at < len as u64)
    }

    /// Drops octets, captured or not, from the front.
    pub(crate) fn skip(&mut self, count: u64) {
        let end = self.at + count;
        let mut captured = count;
        while let Some(hole) = self.holes.front_mut().filter(|hole| hole.at < end) {
            let part = hole.octets.min(end - hole.at);
            (captured, self.hidden) = (captured - part, self.hidden - part);
            *hole = Hole { at: hole.at + part, octets: hole.octets - part };
            if hole.octets > 0 {
                break;
            }
            self.holes.pop_front();
        }
        self.octets.drain(..captured as usize);
        self.at = end;
    }
}
