//! Own `SinkAvail`s: buffers that the peer writes into.

use super::conn::{due, flag};
use super::tables::{OwnSink, count, free, oldest, state};
use super::{Blocked, Machine, Received, SinkId, Violation};
use crate::wire::{Advert, Body, Flags, Front, HEADER_LEN, Mode};

/// An own `SinkAvail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Octets of the buffer.
    pub len: u32,
    /// The state of the advert.
    pub state: SinkState,
}

/// States of an own `SinkAvail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// There is none in this place.
    Free,
    /// The peer may write into it.
    Out,
    /// The peer has written so many octets, and is through with it.
    Written(u32),
    /// A Data came for it; nothing was written.
    Discarded,
    /// The advert came back; nothing was written.
    Returned,
}

impl Machine<'_> {
    /// Makes a `SinkAvail` for a buffer of `len` octets. The advert is to be released when it is no
    /// longer out.
    ///
    /// # Errors
    /// It may not be made now.
    pub fn advertise_sink(&mut self, len: u32, stag: u32, to: u64) -> Result<(SinkId, Front), Blocked> {
        self.sink_room(len, to)?;
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let place = free(&tables.sinks).ok_or(Blocked::Adverts)?;
        tables.sinks[place] = OwnSink { state: state::OUT, mseq: self.core.next_mseq, len, done: 0 };
        let non_discards = self.core.received_non_discards;
        let body = Body::SinkAvail { advert: Advert { len, stag, to }, non_discards };
        Ok((SinkId::at(place), self.front(body, 0, Flags::empty())))
    }

    fn sink_room(&self, len: u32, to: u64) -> Result<(), Blocked> {
        if self.core.is(flag::ABORTED | flag::DISCONN_RECEIVED) {
            return Err(Blocked::Closed);
        }
        if self.in_mode() != Mode::Pipelined {
            return Err(Blocked::Mode);
        }
        // None while an advert of the peer is pending or being read, nor while an own cancel is
        // unanswered.
        if self.peer_sources_pending() {
            return Err(Blocked::PeerSource);
        }
        if self.core.is(flag::SINK_CANCEL) || self.core.is_due(due::SINK_CANCEL) {
            return Err(Blocked::Cancelling);
        }
        // It holds what any one message does.
        if len < self.shortest_sink() || to.checked_add(len.into()).is_none() {
            return Err(Blocked::Length);
        }
        let full = self.tables.as_deref().is_some_and(|tables| free(&tables.sinks).is_none());
        if full || self.own_adverts() >= self.core.peer_max_adverts as usize {
            return Err(Blocked::Adverts);
        }
        self.need_control_credits()
    }

    /// Returns the octets of the shortest `SinkAvail` that is allowed.
    #[must_use]
    pub fn shortest_sink(&self) -> u32 {
        self.core.buf_size.saturating_sub(HEADER_LEN as u32)
    }

    /// Returns an own `SinkAvail`.
    #[must_use]
    pub fn sink(&self, id: SinkId) -> Sink {
        let entry = self.adverts().sinks.get(id.place()).copied().unwrap_or_default();
        let state = match entry.state {
            state::FREE => SinkState::Free,
            state::OUT => SinkState::Out,
            state::DONE => SinkState::Written(entry.done),
            state::DISCARDED => SinkState::Discarded,
            _ => SinkState::Returned,
        };
        Sink { len: entry.len, state }
    }

    /// Returns the own `SinkAvail` that is the next to be written or discarded.
    #[must_use]
    pub fn oldest_sink(&self) -> Option<SinkId> {
        let now = self.core.next_mseq;
        oldest(self.adverts().sinks, now, |sink| sink.state == state::OUT).map(SinkId::at)
    }

    /// Gives up the place of an own `SinkAvail`.
    ///
    /// # Errors
    /// It is still out, and the connection is not over.
    pub fn release_sink(&mut self, id: SinkId) -> Result<(), Blocked> {
        let aborted = self.core.is(flag::ABORTED);
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let entry = tables.sinks.get_mut(id.place()).ok_or(Blocked::Nothing)?;
        if entry.state == state::OUT && !aborted {
            return Err(Blocked::Sink);
        }
        *entry = OwnSink::default();
        Ok(())
    }

    pub(super) fn take_write_report(&mut self, octets: u32) -> Result<Received, Violation> {
        let now = self.core.next_mseq;
        let tables = self.tables.as_deref_mut().ok_or(Violation::NothingToWrite)?;
        let place =
            oldest(&tables.sinks, now, |sink| sink.state == state::OUT).ok_or(Violation::NothingToWrite)?;
        let sink = &mut tables.sinks[place];
        if octets > sink.len {
            return Err(Violation::WroteTooMuch { octets, len: sink.len });
        }
        (sink.state, sink.done) = (state::DONE, octets);
        self.core.in_octets = self.core.in_octets.wrapping_add(octets.into());
        self.sinks_settled();
        Ok(Received::SinkWritten { sink: SinkId::at(place), octets })
    }

    /// Takes back all that are out.
    pub(super) fn return_sinks(&mut self) {
        if let Some(tables) = self.tables.as_deref_mut() {
            for sink in tables.sinks.iter_mut().filter(|sink| sink.state == state::OUT) {
                sink.state = state::RETURNED;
            }
        }
        self.sinks_settled();
    }

    /// Ends an own cancel with the last advert that it was for, answered or not.
    pub(super) fn sinks_settled(&mut self) {
        if count(self.adverts().sinks, state::OUT) > 0 {
            return;
        }
        if self.core.is(flag::SINK_CANCEL) {
            self.core.set(flag::SINK_CANCEL_LATE, true);
        }
        self.core.set(flag::SINK_CANCEL, false);
        self.core.set_due(due::SINK_CANCEL, false);
    }
}
