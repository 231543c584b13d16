//! A train: FPDUs that reach TCP together, as a list of pieces in place.

use std::io::IoSlice;
use std::ops::Range;

use rddp_fault_guard::Faulted;
use rddp_octets::Payload;

use super::sink::Source;
use super::sys::lent;

/// FPDUs that are gathered for one write.
pub(super) struct Train<'a, 'l> {
    list: &'l mut [IoSlice<'a>],
    used: usize,
    /// Room for headers, trailers and copied payload.
    arena: &'a mut [u8],
    /// Average size of pieces up to which an FPDU is copied next to its header.
    copies_up_to: usize,
    len: usize,
}

impl<'a, 'l> Train<'a, 'l> {
    pub(super) fn new(list: &'l mut [IoSlice<'a>], arena: &'a mut [u8], copies_up_to: usize) -> Self {
        Self { list, used: 0, arena, copies_up_to, len: 0 }
    }

    /// Returns the number of octets on the wire.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether each piece is a write of its own.
    pub(super) fn is_apart(&self) -> bool {
        self.copies_up_to == 0
    }

    pub(super) fn pieces(&self) -> &[IoSlice<'a>] {
        &self.list[..self.used]
    }

    /// Returns the octets of `range`.
    pub(super) fn range(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let Range { start: from, end: to } = range;
        let mut at = 0;
        self.pieces().iter().filter_map(move |piece| {
            let (start, end) = (at, at + piece.len());
            at = end;
            (start < to && from < end).then(|| &piece[from.max(start) - start..to.min(end) - start])
        })
    }

    /// Returns whether the next `count` octets of `payload` are copied next to their header.
    fn copies(&self, payload: &Source<'_>, count: usize) -> bool {
        let pieces = pieces_of(payload, count);
        // An empty train takes any FPDU: one of too many pieces is copied. Header, front
        // and trailer are three more pieces.
        let too_many = self.used == 0 && pieces + 3 > self.list.len();
        too_many || count <= self.copies_up_to.saturating_mul(pieces)
    }

    fn is_full(&self) -> bool {
        self.used == self.list.len()
    }

    fn add(&mut self, octets: &'a [u8]) {
        self.list[self.used] = IoSlice::new(octets);
        self.used += 1;
        self.len += octets.len();
    }
}

impl rddp_iwarp::Gather for Train<'_, '_> {
    /// Numbers of pieces and octets. Room that was taken from the arena stays taken: the train is
    /// sent as it is, or built anew.
    type Mark = (usize, usize);

    fn mark(&self) -> Self::Mark {
        (self.used, self.len)
    }

    fn cut_back(&mut self, (used, len): Self::Mark) {
        (self.used, self.len) = (used, len);
    }

    #[inline]
    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        if self.is_full() || self.arena.len() < len {
            return None;
        }
        let (room, rest) = std::mem::take(&mut self.arena).split_at_mut(len);
        self.arena = rest;
        let written = write(room);
        self.add(room);
        Some(written)
    }
}

impl<'a> Payload<Train<'a, '_>> for Source<'a> {
    /// Some of the octets are not mapped.
    type Error = Faulted;

    #[inline(always)]
    fn left(&self) -> usize {
        self.left()
    }

    #[inline(always)]
    fn copy(&mut self, out: &mut [u8]) -> Result<(), Faulted> {
        self.copy_to(out)
    }

    #[inline(always)]
    fn copies(&self, train: &Train<'a, '_>, count: usize) -> bool {
        train.copies(self, count)
    }

    fn lend(
        &mut self,
        train: &mut Train<'a, '_>,
        count: usize,
        mut crc: Option<&mut u32>,
    ) -> Result<bool, Faulted> {
        let mut rest = count;
        while rest > 0 {
            if train.is_full() {
                return Ok(false);
            }
            let piece = self.next(rest);
            // TCP must not get the front of an FPDU that cannot be completed.
            match &mut crc {
                Some(crc) => **crc = lent::sum(**crc, piece)?,
                None => lent::touch(piece)?,
            }
            rest -= piece.len();
            train.add(piece);
        }
        Ok(true)
    }
}

/// Returns the number of pieces that the next `count` octets lie in.
fn pieces_of(payload: &Source<'_>, count: usize) -> usize {
    let mut ahead = *payload;
    let (mut pieces, mut rest) = (0, count);
    while rest > 0 {
        rest -= ahead.next(rest).len();
        pieces += 1;
    }
    pieces
}
