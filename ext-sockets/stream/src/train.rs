//! A train: FPDUs that reach TCP together, as pieces where they lie.

use std::io::IoSlice;

use rddp_ddp::Header;
use rddp_fault_guard::Faulted;
use rddp_mpa::{Framer, LENGTH_LEN, crc32c, fpdu_len};

use super::options::Gather;
use super::sink::Source;
use super::sys::lent;

pub(super) struct Train<'a, 'l> {
    list: &'l mut [IoSlice<'a>],
    used: usize,
    /// Room for headers, trailers and copied payload.
    arena: &'a mut [u8],
    gather: Gather,
    len: usize,
}

impl<'a, 'l> Train<'a, 'l> {
    pub(super) fn new(list: &'l mut [IoSlice<'a>], arena: &'a mut [u8], gather: Gather) -> Self {
        Self { list, used: 0, arena, gather, len: 0 }
    }

    /// Octets on the wire.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn pieces(&self) -> &[IoSlice<'a>] {
        &self.list[..self.used]
    }

    /// The octets at `from..to`.
    pub(super) fn range(&self, from: usize, to: usize) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        self.pieces().iter().filter_map(move |piece| {
            let (start, end) = (at, at + piece.len());
            at = end;
            (start < to && from < end).then(|| &piece[from.max(start) - start..to.min(end) - start])
        })
    }

    /// Adds an FPDU with the next `count` octets of `payload`. `false`, and nothing has changed: the train is full.
    ///
    /// # Errors
    /// Some of the octets are not there: the train is not to be sent.
    pub(super) fn push(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload: &mut Source<'a>,
        count: usize,
    ) -> Result<bool, Faulted> {
        let pieces = pieces_of(payload, count);
        let copies = match self.gather {
            Gather::Copy => true,
            Gather::Vectored => count <= COPY_UP_TO * pieces,
            Gather::Cork => false,
        };
        let before = *payload;
        let pushed = if framer.framing().markers {
            self.push_marked(framer, header, payload, count)
        } else if copies || !self.has_room_for(pieces) {
            self.push_copied(framer, header, payload, count)
        } else {
            self.push_pieces(framer, header, payload, count)
        };
        if pushed != Ok(true) {
            *payload = before;
        }
        pushed
    }

    /// A train of nothing takes any FPDU: one of too many pieces is copied.
    fn has_room_for(&self, pieces: usize) -> bool {
        // Header and trailer are two more.
        self.used > 0 || pieces + 2 <= self.list.len()
    }

    fn push_marked(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload: &mut Source<'a>,
        count: usize,
    ) -> Result<bool, Faulted> {
        let wire_len = framer.fpdu_len(header.len() + count);
        if self.is_full(1) || self.arena.len() < wire_len {
            return Ok(false);
        }
        let mut fpdu = Vec::with_capacity(wire_len);
        let mut copied = Ok(());
        let fill = |_, dst: &mut [u8]| copied = copied.and_then(|()| payload.copy_to(dst));
        framer.emit(header.octets().as_ref(), count, fill, &mut fpdu);
        copied?;
        let room = self.room(wire_len);
        room.copy_from_slice(&fpdu);
        self.add(room);
        Ok(true)
    }

    fn push_copied(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload: &mut Source<'a>,
        count: usize,
    ) -> Result<bool, Faulted> {
        let ulpdu_len = header.len() + count;
        let wire_len = fpdu_len(ulpdu_len);
        if self.is_full(1) || self.arena.len() < wire_len {
            return Ok(false);
        }
        // Its octets of the arena are lost to this train, should the payload not be there: it is
        // sent now, or built anew.
        let room = self.room(wire_len);
        let (covered, trailer) = room.split_at_mut(LENGTH_LEN + ulpdu_len);
        put_header(covered, header, ulpdu_len);
        payload.copy_to(&mut covered[LENGTH_LEN + header.len()..])?;
        let crc = if framer.framing().crc { crc32c(covered) } else { 0 };
        trailer.copy_from_slice(framer.trailer(ulpdu_len, crc).as_ref());
        self.add(room);
        Ok(true)
    }

    fn push_pieces(
        &mut self,
        framer: &mut Framer,
        header: &Header,
        payload: &mut Source<'a>,
        count: usize,
    ) -> Result<bool, Faulted> {
        let ulpdu_len = header.len() + count;
        let own = fpdu_len(ulpdu_len) - count;
        let used = self.used;
        if self.is_full(3) || self.arena.len() < own {
            return Ok(false);
        }
        let (head, behind) = self.room(own).split_at_mut(LENGTH_LEN + header.len());
        put_header(head, header, ulpdu_len);
        let with_crc = framer.framing().crc;
        let mut crc = if with_crc { crc32c(head) } else { 0 };
        let mut added = head.len();
        self.put(head);
        let mut rest = count;
        while rest > 0 {
            if self.is_full(2) {
                // Its octets of the arena are lost to this train, which is sent now anyway.
                self.used = used;
                return Ok(false);
            }
            let piece = payload.next(rest);
            // TCP is given no FPDU that cannot be ended.
            let summed = if with_crc { lent::sum(crc, piece) } else { lent::touch(piece).map(|()| crc) };
            if summed.is_err() {
                self.used = used;
            }
            crc = summed?;
            rest -= piece.len();
            added += piece.len();
            self.put(piece);
        }
        behind.copy_from_slice(framer.trailer(ulpdu_len, crc).as_ref());
        added += behind.len();
        self.put(behind);
        self.len += added;
        Ok(true)
    }

    fn is_full(&self, pieces: usize) -> bool {
        self.list.len() - self.used < pieces
    }

    /// The next octets of the arena, which has them.
    fn room(&mut self, count: usize) -> &'a mut [u8] {
        let (room, rest) = std::mem::take(&mut self.arena).split_at_mut(count);
        self.arena = rest;
        room
    }

    fn add(&mut self, octets: &'a [u8]) {
        self.len += octets.len();
        self.put(octets);
    }

    fn put(&mut self, octets: &'a [u8]) {
        self.list[self.used] = IoSlice::new(octets);
        self.used += 1;
    }
}

/// Of how many pieces the next `count` octets are.
fn pieces_of(payload: &Source<'_>, count: usize) -> usize {
    let mut ahead = *payload;
    let (mut pieces, mut rest) = (0, count);
    while rest > 0 {
        rest -= ahead.next(rest).len();
        pieces += 1;
    }
    pieces
}

fn put_header(out: &mut [u8], header: &Header, ulpdu_len: usize) {
    out[..LENGTH_LEN].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
    out[LENGTH_LEN..LENGTH_LEN + header.len()].copy_from_slice(&header.octets());
}

/// Pieces up to this size, on the average of an FPDU, are copied next to its header: a piece more costs as much.
const COPY_UP_TO: usize = 1024;
