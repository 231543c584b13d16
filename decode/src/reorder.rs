//! One direction of a TCP connection: segments in any order become octets in order.

use core::time::Duration;
use std::collections::BTreeMap;

/// The octets of one direction, counted from the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reorder {
    /// The sequence number of octet 0, once a segment has come.
    first: Option<u32>,
    /// A SYN has told where the stream begins.
    has_beginning: bool,
    /// The next octet.
    next: u64,
    /// Octets that came too early, by their place.
    early: BTreeMap<u64, Piece>,
}

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The time at which its segment came.
    pub(crate) time: Duration,
    pub(crate) octets: Vec<u8>,
    /// Octets behind them that came and were not captured.
    pub(crate) cut: u64,
}

impl Piece {
    fn len(&self) -> u64 {
        self.octets.len() as u64 + self.cut
    }

    /// Drops octets from the front.
    fn skip(&mut self, count: u64) {
        let of_octets = usize::try_from(count).unwrap_or(usize::MAX).min(self.octets.len());
        self.octets.drain(..of_octets);
        self.cut -= count - of_octets as u64;
    }
}

/// Octets of segments that are not in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The place of the first in the stream.
    pub(crate) at: u64,
    pub(crate) octets: u64,
}

impl Reorder {
    /// A stream whose first octet has this number.
    pub(crate) fn from(first: u32) -> Self {
        Self { first: Some(first), has_beginning: true, ..Self::default() }
    }

    pub(crate) fn has_beginning(&self) -> bool {
        self.has_beginning
    }

    /// Returns whether a SYN with this number begins another connection than this.
    pub(crate) fn is_of_another(&self, seq: u32) -> bool {
        self.first.is_some_and(|first| first != seq.wrapping_add(1))
    }

    /// Takes a SYN.
    pub(crate) fn begin(&mut self, seq: u32) {
        if self.first.is_none() {
            self.first = Some(seq.wrapping_add(1));
            self.has_beginning = true;
        }
    }

    /// Takes a segment's payload, and the number of octets behind it that were not captured.
    pub(crate) fn push(&mut self, time: Duration, seq: u32, payload: &[u8], cut: usize) {
        if payload.is_empty() && cut == 0 {
            return;
        }
        let first = *self.first.get_or_insert(seq);
        // Sequence numbers wrap; the place that is nearest to the next octet is meant.
        let from_next = seq.wrapping_sub(first.wrapping_add(self.next as u32)) as i32;
        let Some(at) = self.next.checked_add_signed(from_next.into()) else { return };
        let piece = Piece { time, octets: payload.to_vec(), cut: cut as u64 };
        if at + piece.len() <= self.next {
            return;
        }
        // Of two segments that begin alike, the longer one has more.
        let more = |piece: &Piece| (piece.octets.len(), piece.cut);
        if self.early.get(&at).is_none_or(|known| more(known) < more(&piece)) {
            self.early.insert(at, piece);
        }
    }

    /// Returns the next octets, if they have come.
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        while let Some(entry) = self.early.first_entry() {
            let at = *entry.key();
            if at > self.next {
                return None;
            }
            let mut piece = entry.remove();
            let known = self.next - at;
            if known < piece.len() {
                piece.skip(known);
                self.next += piece.len();
                return Some(piece);
            }
        }
        None
    }

    /// Returns the octets that are missing in front of others, if there are any.
    pub(crate) fn gap(&self) -> Option<Gap> {
        let (at, _) = self.early.first_key_value()?;
        Some(Gap { at: self.next, octets: at - self.next })
    }
}
