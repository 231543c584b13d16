//! Receives: octets out of private buffers, and Reads of the peer's adverts.

use super::{Piece, ReadAhead, Socket, Storage};
use crate::machine::Machine;
use crate::transport::{Memory, Remote, Transport};

impl<T: Transport> Socket<T> {
    /// Hands octets in private memory to the receives that wait for them, and ends those that have
    /// what they wait for.
    pub(super) fn deliver(&mut self) -> bool {
        let mut moved = false;
        if self.closing.discards {
            moved |= !self.inbox.is_empty();
            while let Some(piece) = self.inbox.pop_front() {
                self.free(piece);
            }
        }
        while let Some(op) = self.receives.front().filter(|op| !op.is_lent()) {
            // A receive that begins at the mark goes on behind it.
            if op.filled == 0 && !op.is_stopped && !op.options.peek {
                moved |= self.skip_urgent();
            }
            // The octets of a later receive are behind those that it has, so that it gets no more.
            let is_overtaken = self.is_followed(0);
            moved |= !is_overtaken && self.fill_first();
            if !is_overtaken && !self.first_is_done() {
                break;
            }
            if let Some(op) = self.receives.pop_front() {
                let error = op.error.or(is_overtaken.then_some(super::Error::Cancelled));
                self.end(op.id, op.filled, error.filter(|_| op.filled == 0));
            }
            moved = true;
        }
        moved
    }

    fn fill_first(&mut self) -> bool {
        let is_inline = self.urgent.is_inline;
        let Some(op) = self.receives.front_mut() else { return false };
        let (mut moved, mut n) = (false, 0);
        while let Some(piece) = self.inbox.get_mut(n) {
            // A look from the mark on sees what is behind it.
            if piece.urgent && piece.to - piece.from == 1 && op.options.peek && !is_inline && op.filled == 0 {
                n += 1;
                continue;
            }
            // A receive ends in front of an urgent octet, and takes that alone.
            let whole = piece.to - piece.from;
            let here = if piece.urgent && whole > 1 { whole - 1 } else { whole };
            let len = here.min(op.room());
            if len == 0 || op.is_stopped || (piece.urgent && whole == 1 && op.filled > 0) {
                break;
            }
            let part = piece.from..piece.from + len;
            let copied = match &piece.storage {
                Storage::Buffer(buffer) => self.transport.deliver(*buffer, part, &op.memory, op.filled),
                Storage::Read(memory) => self.transport.copy(memory, part, &op.memory, op.filled),
            };
            if copied.is_err() {
                (op.error, op.is_stopped) = (Some(super::Error::Address), true);
                break;
            }
            (op.filled, moved) = (op.filled + len, true);
            if op.options.peek {
                if len < whole {
                    break;
                }
                n += 1;
                continue;
            }
            piece.from += len;
            Machine::new(&mut self.core, Some(&mut self.tables)).octets_taken(len as u64);
            if piece.from < piece.to {
                break;
            }
            if let Some(piece) = self.inbox.pop_front() {
                free(&mut self.transport, &mut self.core, &mut self.tables, &mut self.ahead_octets, piece);
            }
        }
        moved
    }

    /// Returns whether the first receive ends now.
    fn first_is_done(&mut self) -> bool {
        let at_end = self.at_end();
        let Some(op) = self.receives.front() else { return false };
        let (some, full) = (op.filled > 0, op.room() == 0);
        if op.is_stopped || full || (some && op.options.peek) || at_end {
            return true;
        }
        let is_short = op.options.wait_all || op.filled < self.low_water;
        let waits = is_short && !self.inbox.front().is_some_and(|piece| piece.urgent);
        some && !waits && !self.reads_into_first()
    }

    /// Returns whether the stream of the peer is over, and all of it delivered.
    pub(super) fn at_end(&mut self) -> bool {
        let is_empty = self.inbox.is_empty() && self.ahead.is_empty();
        is_empty && self.closing.peer_has_closed && !self.machine().peer_sources_pending()
    }

    /// Returns whether the rest of the first receive can be Read into its memory.
    fn reads_into_first(&mut self) -> bool {
        let Some(op) = self.receives.front() else { return false };
        let lends = !op.options.non_blocking && !op.options.peek && !op.is_stopped && !op.is_lent();
        let room = op.room();
        let in_order = self.inbox.is_empty() && self.ahead.is_empty();
        let long = self.config.sink_threshold.is_some_and(|least| room >= least.max(1));
        lends && in_order && long && !self.is_followed(0) && self.unread().is_some()
    }

    /// Returns what of the peer's oldest advert no Read was begun for: where, and how many octets.
    pub(super) fn unread(&mut self) -> Option<(Remote, u32)> {
        let source = self.machine().next_read()?;
        Some((Remote { stag: source.stag, to: source.to }, source.left))
    }

    /// Begins a Read of the peer's oldest advert, if somebody wants its octets.
    pub(super) fn begin_reads(&mut self) -> bool {
        if self.is_mute || self.transport.room() == 0 {
            return false;
        }
        let Some((remote, left)) = self.unread() else { return false };
        if self.transport.facts().reads == 0 {
            return self.machine().refuse_source().is_ok();
        }
        let under_way = self.ahead.len() + self.receives.iter().filter(|op| op.reading.is_some()).count();
        if under_way >= usize::from(self.transport.facts().reads) {
            return false;
        }
        let left = left.min(self.transport.facts().longest);
        if self.reads_into_first() && self.read_into_first(remote, left) {
            return true;
        }
        self.over.is_none() && self.wants_ahead() && self.read_ahead(remote, left)
    }

    fn read_into_first(&mut self, remote: Remote, left: u32) -> bool {
        let Some(op) = self.receives.front() else { return false };
        let (at, len) = (op.filled, op.room().min(left as usize));
        // Without a registration the octets go through private memory.
        let Ok(region) = self.transport.register_sink(&op.memory, at..at + len) else { return false };
        let id = self.new_number();
        if self.machine().reading(len as u32).is_err() {
            self.transport.release(region);
            return false;
        }
        let posted = self.transport.read(id, &region, 0, remote, len);
        if let Some(op) = self.receives.front_mut() {
            op.reading = Some((id, len, region));
        }
        self.post(|_| posted)
    }

    /// Returns whether octets of the peer's advert are wanted in private memory: by a receive that
    /// is short, peeks or may not wait, by nobody but a sender that the peer waits for, or to be
    /// dropped.
    fn wants_ahead(&mut self) -> bool {
        let waiting = self.receives.front().is_some_and(|op| !op.is_lent() && !op.is_stopped);
        let peeks = self.receives.front().is_some_and(|op| op.options.peek);
        let for_receive = waiting && self.ahead.is_empty() && (self.inbox.is_empty() || peeks);
        for_receive || self.closing.discards || self.absorbs()
    }

    fn read_ahead(&mut self, remote: Remote, left: u32) -> bool {
        let room = self.config.read_ahead.saturating_sub(self.ahead_octets);
        let len = room.min(left as usize);
        if len == 0 {
            return false;
        }
        let memory = self.transport.allocate(len);
        let region = memory.and_then(|memory| {
            let region = self.transport.register_sink(&memory, 0..len).ok()?;
            Some((memory, region))
        });
        let Some((memory, region)) = region else {
            return self.machine().refuse_source().is_ok();
        };
        if self.machine().reading(len as u32).is_err() {
            self.transport.release(region);
            return false;
        }
        let id = self.new_number();
        let posted = self.transport.read(id, &region, 0, remote, len);
        self.ahead_octets += len;
        self.ahead.push_back(ReadAhead { id, len, memory, region });
        self.post(|_| posted)
    }

    /// Takes the end of a Read, of which the peer is told now and not before.
    pub(super) fn read(&mut self, id: u64) {
        let is_this = |op: &super::Receiving<T>| op.reading.as_ref().is_some_and(|&(of, ..)| of == id);
        let mut direct = false;
        let len = if let Some(op) = self.receives.iter_mut().find(|op| is_this(op)) {
            let Some((_, len, region)) = op.reading.take() else { return };
            op.filled += len;
            self.transport.release(region);
            direct = true;
            len
        } else {
            let Some(at) = self.ahead.iter().position(|read| read.id == id) else { return };
            let Some(ReadAhead { len, memory, region, .. }) = self.ahead.remove(at) else { return };
            self.transport.release(region);
            self.inbox.push_back(Piece { storage: Storage::Read(memory), from: 0, to: len, urgent: false });
            len
        };
        self.has_changed = true;
        if self.machine().read_done(len as u32).is_err() {
            self.fail(super::Error::Aborted);
        }
        if direct {
            self.machine().octets_taken(len as u64);
        }
    }

    /// Gives the storage of a piece back that was delivered.
    pub(super) fn free(&mut self, piece: Piece<T>) {
        free(&mut self.transport, &mut self.core, &mut self.tables, &mut self.ahead_octets, piece);
    }
}

/// Posts the buffer of a piece again before the peer may hear of it, or forgets private memory.
fn free<T: Transport>(
    transport: &mut T,
    core: &mut crate::machine::Core,
    tables: &mut crate::machine::Tables,
    ahead_octets: &mut usize,
    piece: Piece<T>,
) {
    match piece.storage {
        Storage::Buffer(buffer) => {
            // A connection that takes no more buffers says so by its end.
            if transport.repost(buffer).is_ok() {
                crate::machine::Machine::new(core, Some(tables)).buffer_freed();
            }
        }
        Storage::Read(memory) => *ahead_octets = ahead_octets.saturating_sub(memory.len()),
    }
}
