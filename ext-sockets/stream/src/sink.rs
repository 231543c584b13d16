//! The program's buffers, as cursors over them.

use std::io::{IoSlice, IoSliceMut};

use rddp_fault_guard::Faulted;
use rddp_octets::Room;

use super::sys::lent;

/// The places for received octets, filled front to back.
pub(super) struct Sink<'a, 'b> {
    pieces: &'a mut [IoSliceMut<'b>],
    piece: usize,
    offset: usize,
    done: usize,
    room: usize,
    /// `MSG_TRUNC`: octets are counted and dropped.
    pub(super) drops: bool,
    /// Set when a page of the program was not mapped: from there on there is no room.
    is_bad: bool,
}

impl Room for Sink<'_, '_> {
    #[inline]
    fn free(&self) -> usize {
        self.room
    }

    #[inline]
    fn store(&mut self, octets: &[u8]) -> usize {
        self.fill(octets)
    }
}

impl<'a, 'b> Sink<'a, 'b> {
    pub(super) fn new(pieces: &'a mut [IoSliceMut<'b>], drops: bool) -> Self {
        let room = pieces.iter().map(|piece| piece.len()).sum();
        Self { pieces, piece: 0, offset: 0, done: 0, room, drops, is_bad: false }
    }

    /// Returns a sink with unlimited room, for octets that are only counted.
    pub(super) fn counter() -> Self {
        Self { pieces: &mut [], piece: 0, offset: 0, done: 0, room: usize::MAX, drops: true, is_bad: false }
    }

    /// Returns the number of octets so far.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Returns how many more octets there is room for.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Returns whether the room ended at a page that is not mapped.
    pub(super) fn is_bad(&self) -> bool {
        self.is_bad
    }

    /// Returns whether the memory of the next `count` octets of the room can be written.
    #[inline]
    pub(super) fn can_fill(&mut self, count: usize) -> bool {
        let (mut left, mut offset) = (if self.drops { 0 } else { count }, self.offset);
        for piece in &mut self.pieces[self.piece..] {
            let now = left.min(piece.len() - offset);
            if !lent::is_writable(&mut piece[offset..offset + now]) {
                return false;
            }
            (left, offset) = (left - now, 0);
            if left == 0 {
                break;
            }
        }
        true
    }

    /// Copies as much of `octets` as there is room for.
    pub(super) fn fill(&mut self, octets: &[u8]) -> usize {
        let mut count = octets.len().min(self.room);
        let mut rest = &octets[..count];
        while !rest.is_empty() && !self.drops {
            let (now, later) = rest.split_at(rest.len().min(self.pieces[self.piece].len() - self.offset));
            let filled = lent::fill(&mut self.pieces[self.piece][self.offset..], now);
            self.step(filled);
            if filled < now.len() {
                count -= rest.len() - filled;
                self.done += count;
                self.ends_here();
                return count;
            }
            rest = later;
        }
        self.done += count;
        self.room -= count;
        count
    }

    /// Ends the room here, where the program's memory is not mapped.
    pub(super) fn ends_here(&mut self) {
        (self.room, self.is_bad) = (0, true);
    }

    /// Calls `fill` with room for so many octets at most.
    pub(super) fn limited<T>(&mut self, most: usize, fill: impl FnOnce(&mut Self) -> T) -> T {
        let kept_back = self.room.saturating_sub(most);
        self.room -= kept_back;
        let filled = fill(self);
        if !self.is_bad {
            self.room += kept_back;
        }
        filled
    }

    /// Goes back to the beginning: the octets so far come once more. There is room left.
    pub(super) fn rewind(&mut self) {
        (self.piece, self.offset, self.room) = (0, 0, self.room.saturating_add(self.done));
        self.done = 0;
    }

    /// Counts octets that were dropped elsewhere.
    pub(super) fn dropped(&mut self, count: usize) {
        self.done += count;
        self.room -= count;
    }

    /// Lends room for up to `count` octets as the next pieces of `list`, which may be too short for
    /// all; returns the octets and the number of pieces.
    pub(super) fn lend<'s>(&'s mut self, count: usize, list: &mut [IoSliceMut<'s>]) -> (usize, usize) {
        let (mut octets, mut used, mut offset) = (0, 0, self.offset);
        for piece in &mut self.pieces[self.piece..] {
            if used == list.len() || octets == count {
                break;
            }
            let len = (piece.len() - offset).min(count - octets);
            if len > 0 {
                list[used] = IoSliceMut::new(&mut piece[offset..offset + len]);
                used += 1;
            }
            octets += len;
            offset = 0;
        }
        (octets, used)
    }

    /// Counts octets with which lent room has been filled.
    #[inline(always)] // a part of each large receive
    pub(super) fn filled(&mut self, count: usize) {
        let mut rest = count;
        while rest > 0 {
            let now = rest.min(self.pieces[self.piece].len() - self.offset);
            self.step(now);
            rest -= now;
        }
        self.done += count;
        self.room -= count;
    }

    /// Moves on inside a piece, and over its end.
    fn step(&mut self, count: usize) {
        self.offset += count;
        if self.offset == self.pieces[self.piece].len() {
            self.piece += 1;
            self.offset = 0;
        }
    }
}

/// Octets to send, front to back.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pieces: &'a [IoSlice<'a>],
    offset: usize,
    left: usize,
    /// Number of the next octets that are known to be mapped, once it is known that not all are.
    pub(super) reach: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(pieces: &'a [IoSlice<'a>]) -> Self {
        let left = pieces.iter().map(|piece| piece.len()).sum();
        Self { pieces, offset: 0, left, reach: usize::MAX }
    }

    /// Returns the number of octets that are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Returns the next octets that lie together, `count` at most. Empty only when nothing is left.
    pub(super) fn next(&mut self, count: usize) -> &'a [u8] {
        while let Some((piece, behind)) = self.pieces.split_first() {
            let piece: &'a [u8] = &piece[self.offset..];
            if piece.is_empty() {
                (self.pieces, self.offset) = (behind, 0);
                continue;
            }
            let now = &piece[..piece.len().min(count).min(self.left)];
            self.offset += now.len();
            self.left -= now.len();
            return now;
        }
        &[]
    }

    /// Returns the octets that are within reach.
    pub(super) fn within_reach(mut self) -> Self {
        self.left = self.left.min(self.reach);
        self
    }

    /// Returns the first `count` octets, or all.
    pub(super) fn first(mut self, count: usize) -> Self {
        self.left = self.left.min(count);
        self
    }

    /// Leaves out `count` octets.
    pub(super) fn skip(&mut self, count: usize) {
        let mut rest = count;
        while rest > 0 && self.left > 0 {
            rest -= self.next(rest).len();
        }
    }

    /// Copies the next octets to `out`, which they fill.
    pub(super) fn copy_to(&mut self, out: &mut [u8]) -> Result<(), Faulted> {
        let count = out.len().min(self.left);
        if self.copy_some(out) < count { Err(Faulted) } else { Ok(()) }
    }

    /// Copies the next octets to `out`, up to a page that is not mapped. Returns their number.
    pub(super) fn copy_some(&mut self, out: &mut [u8]) -> usize {
        let mut at = 0;
        while at < out.len() && self.left > 0 {
            let before = *self;
            let now = self.next(out.len() - at);
            let read = lent::read(now, &mut out[at..]);
            at += read;
            if read < now.len() {
                *self = before;
                self.skip(read);
                break;
            }
        }
        at
    }

    /// Returns how many of the next `count` octets can be read, up to a page that is not mapped.
    pub(super) fn readable(mut self, count: usize) -> usize {
        let mut good = 0;
        while good < count && self.left > 0 {
            let now = self.next(count - good);
            let read = lent::readable(now);
            good += read;
            if read < now.len() {
                break;
            }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_fills_its_pieces_in_order_and_counts() {
        let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
        let mut pieces = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let mut sink = Sink::new(&mut pieces, false);
        assert_eq!((sink.fill(&[1, 2]), sink.room()), (2, 5));
        {
            let mut room: [IoSliceMut<'_>; 4] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
            assert_eq!(sink.lend(3, &mut room), (3, 2));
            room[0].copy_from_slice(&[3]);
            room[1].copy_from_slice(&[4, 5]);
        }
        sink.filled(3);
        assert_eq!((sink.fill(&[6, 7, 8]), sink.done(), sink.room()), (2, 7, 0));
        assert_eq!((a, c), ([1, 2, 3], [4, 5, 6, 7]));
    }

    #[test]
    fn a_source_gives_its_octets_once_and_in_order() {
        let pieces = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
        let mut source = Source::new(&pieces);
        assert_eq!((source.next(2), source.next(9), source.left()), (&b"ab"[..], &b"c"[..], 4));
        source.skip(1);
        let mut out = [0; 3];
        source.copy_to(&mut out).unwrap();
        assert_eq!((&out, source.left(), source.next(1)), (b"efg", 0, &b""[..]));
    }
}
