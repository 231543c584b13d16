//! Adverts of this end: memory of receives into which the peer writes.
//!
//! The peer is through with them in their order, and for each it has written octets or sent a Data
//! in its place. What a message says of an advert is done when it is taken, and not later, so that
//! the octets of receives one behind the other are in the order of the stream.

use super::{Error, Piece, Socket, Storage};
use crate::machine::{Machine, SinkId, SinkState};
use crate::transport::{Remote, Transport};
use crate::wire::Mode;

impl<T: Transport> Socket<T> {
    /// Advertises the memory of receives that wait, in order.
    pub(super) fn advertise_sinks(&mut self) -> bool {
        let mut moved = false;
        if self.is_mute || !self.config.sink_adverts || !self.inbox.is_empty() || !self.ahead.is_empty() {
            return false;
        }
        // The longer messages that the peer is about to send would not fit.
        if self.is_growing {
            return false;
        }
        for at in 0..self.receives.len() {
            let op = &self.receives[at];
            // The octets behind a short Write, or behind this advert, are this receive's, too.
            let is_last = op.options.wait_all || self.low_water > 1;
            if op.sink.is_some() && !is_last {
                continue;
            }
            let lends = !op.options.non_blocking && !op.options.peek && !op.is_stopped && !op.is_lent();
            let long = self.config.sink_threshold.is_some_and(|least| op.room() >= least.max(1));
            if !lends || !long || self.transport.room() == 0 || !self.advertise_sink(at) {
                break;
            }
            moved = true;
            if is_last {
                break;
            }
        }
        moved
    }

    fn advertise_sink(&mut self, at: usize) -> bool {
        let op = &self.receives[at];
        let len = op.room().min(self.longest_advert());
        let machine = Machine::new(&mut self.core, Some(&mut self.tables));
        // Looked at first, so that no registration is made in vain.
        let fits = machine.in_mode() == Mode::Pipelined && len >= machine.shortest_sink() as usize;
        if !fits || machine.peer_sources_pending() || machine.cancelling() {
            return false;
        }
        let part = op.filled..op.filled + len;
        let Ok(region) = self.transport.register_sink(&op.memory, part) else { return false };
        let Remote { stag, to } = self.transport.remote(&region);
        let Ok((id, front)) = self.machine().advertise_sink(len as u32, stag, to) else {
            self.transport.release(region);
            return false;
        };
        self.receives[at].sink = Some((id, region));
        self.post(|transport| transport.send(&front, None))
    }

    /// Takes back the registrations of adverts that the peer is through with.
    pub(super) fn settle_sinks(&mut self) {
        for at in 0..self.receives.len() {
            let Some(id) = self.receives[at].sink.as_ref().map(|(id, _)| *id) else { continue };
            let sink = self.machine().sink(id);
            if sink.state == SinkState::Out {
                continue;
            }
            let op = &mut self.receives[at];
            if let SinkState::Written(octets) = sink.state {
                op.filled += octets as usize;
                Machine::new(&mut self.core, Some(&mut self.tables)).octets_taken(octets.into());
            }
            let Some((_, region)) = op.sink.take() else { continue };
            self.transport.release(region);
            // It is no longer out, so that nothing refuses this.
            let _ = self.machine().release_sink(id);
            self.has_changed = true;
        }
    }

    /// Returns whether a receive behind this one has octets, or an advert out that brings some.
    pub(super) fn is_followed(&self, at: usize) -> bool {
        self.receives.iter().skip(at + 1).any(|op| op.filled > 0 || op.sink.is_some())
    }

    /// Takes the report of a Write: the octets are the next ones of the stream.
    ///
    /// # Errors
    /// Octets came in front of it, with a `SinkAvail` of the peer, that the receive has no room for
    /// any more.
    pub(super) fn sink_was_written(&mut self) -> Result<(), Error> {
        self.settle_sinks();
        if self.inbox.is_empty() { Ok(()) } else { Err(Error::Aborted) }
    }

    /// Takes the Data that came in the place of an advert. With others behind it, its octets are
    /// put into the receive of that advert at once: what comes next is theirs.
    ///
    /// # Errors
    /// They have no place there.
    pub(super) fn data_instead_of_write(&mut self, sink: SinkId, piece: Piece<T>) -> Result<(), Error> {
        let is_this = |op: &super::Receiving<T>| op.sink.as_ref().is_some_and(|(id, _)| *id == sink);
        let at = self.receives.iter().position(is_this);
        self.settle_sinks();
        let Some(at) = at.filter(|at| self.is_followed(*at)) else {
            self.inbox.push_back(piece);
            return Ok(());
        };
        if !self.inbox.is_empty() {
            return Err(Error::Aborted);
        }
        let op = &mut self.receives[at];
        // An urgent octet that is no part of the stream was noted when it came.
        let skipped = usize::from(piece.urgent && !self.urgent.is_inline);
        let part = piece.from..piece.to - skipped;
        let len = part.len();
        if len > op.room() {
            return Err(Error::Aborted);
        }
        if let Storage::Buffer(buffer) = &piece.storage {
            let copied = self.transport.deliver(*buffer, part, &op.memory, op.filled);
            copied.map_err(|_| Error::Address)?;
        }
        op.filled += len;
        self.machine().octets_taken((piece.to - piece.from) as u64);
        self.free(piece);
        Ok(())
    }
}
