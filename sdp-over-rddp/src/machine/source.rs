//! Own `SrcAvail`s: buffers that the peer reads from.

use super::conn::flag;
use super::tables::{OwnSource, count, free, oldest, state};
use super::{Blocked, Machine, Received, SourceId, Violation};
use crate::wire::{Advert, Body, Flags, Front, HEADER_LEN, Mid, Mode, seq_before};

/// An own `SrcAvail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Octets of the buffer.
    pub len: u32,
    /// Octets from its front that the peer has, or that were sent again: the first that is to be
    /// sent when it comes back.
    pub done: u32,
    /// The state of the advert.
    pub state: SourceState,
}

/// States of an own `SrcAvail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// There is none in this place.
    Free,
    /// The peer may read from it.
    Out,
    /// The peer has all of it, read or sent again.
    Done,
    /// The peer reads no more: the octets from `done` on are the head of the send queue.
    Returned,
}

impl Machine<'_> {
    /// Makes a `SrcAvail` for a buffer of `len` octets. The first `inline` of them are its payload:
    /// at least one in Combined, none in Pipelined. The advert is to be released when it is no
    /// longer out.
    ///
    /// # Errors
    /// It may not be made now, or not in this form.
    pub fn advertise_source(
        &mut self,
        len: u32,
        inline: usize,
        stag: u32,
        to: u64,
    ) -> Result<(SourceId, Front), Blocked> {
        self.source_room()?;
        self.source_form(len, inline, to)?;
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let place = free(&tables.sources).ok_or(Blocked::Adverts)?;
        // `source_form` bounds `inline` by `len`.
        let inline_len = inline as u32;
        tables.sources[place] = OwnSource {
            state: state::OUT,
            mseq: self.core.next_mseq,
            len,
            inline: inline_len,
            done: inline_len,
            queued: 0,
        };
        if inline > 0 {
            self.core.sent_non_discards = self.core.sent_non_discards.wrapping_add(1);
        }
        self.core.set(flag::WANTS_CREDITS, false);
        let body = Body::SrcAvail { advert: Advert { len, stag, to } };
        Ok((SourceId::at(place), self.front(body, inline, Flags::empty())))
    }

    /// Returns the most octets that may go inline: 0 in Pipelined.
    ///
    /// # Errors
    /// No `SrcAvail` may be made now.
    pub fn source_room(&self) -> Result<usize, Blocked> {
        self.may_queue_octets()?;
        self.not_cancelling()?;
        self.no_report_first()?;
        let tables = self.adverts();
        let out = count(tables.sources, state::OUT);
        let room = match self.out_mode() {
            Mode::Buffered => return Err(Blocked::Mode),
            Mode::Combined if out > 0 => return Err(Blocked::Source),
            Mode::Combined => {
                self.core.longest_message().saturating_sub(HEADER_LEN + Mid::SrcAvail.extension_len())
            }
            Mode::Pipelined => 0,
        };
        // One with octets inline was made in Combined, where the sink may refuse it unasked: a
        // second would be read before what is then sent again.
        if tables.sources.iter().any(|source| source.state == state::OUT && source.inline > 0) {
            return Err(Blocked::Source);
        }
        // The sink wins: a SrcAvail that meets its SinkAvail is dropped there.
        if count(tables.peer_sinks, state::OUT) > 0 {
            return Err(Blocked::PeerSink);
        }
        let full = self.tables.as_deref().is_some_and(|tables| free(&tables.sources).is_none());
        if full || self.own_adverts() >= self.core.peer_max_adverts as usize {
            return Err(Blocked::Adverts);
        }
        self.need_payload_credits()?;
        Ok(room)
    }

    fn source_form(&self, len: u32, inline: usize, to: u64) -> Result<(), Blocked> {
        let room = self.source_room()?;
        let fits = inline <= room && inline < len as usize && (room == 0) == (inline == 0);
        let wraps = to.checked_add(u64::from(len)).is_none();
        if !fits || wraps { Err(Blocked::Length) } else { Ok(()) }
    }

    /// Puts octets of the program behind own `SrcAvail`s that are out or came back, or where they
    /// wait for credits. They are sent as if they were those of an advert that came back, the
    /// newest; octets that are queued so already are joined by them.
    ///
    /// # Errors
    /// There is nothing to wait for, or no place; or the program has closed its direction.
    pub fn queue_behind(&mut self, octets: u32) -> Result<SourceId, Blocked> {
        if self.core.is(flag::ABORTED | flag::CLOSING) {
            return Err(Blocked::Closed);
        }
        let now = self.core.next_mseq;
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let sources = &mut tables.sources;
        let waits = !self.core.has_credits_for_data();
        if !waits && count(sources, state::OUT) + count(sources, state::RETURNED) == 0 {
            return Err(Blocked::Nothing);
        }
        let is_queued = |source: &OwnSource| source.state == state::RETURNED && source.queued == 1;
        let place = sources.iter().position(is_queued).or_else(|| free(sources));
        let place = place.ok_or(Blocked::Adverts)?;
        let entry = &mut sources[place];
        if entry.state == state::FREE {
            *entry = OwnSource { state: state::RETURNED, mseq: now, queued: 1, ..OwnSource::default() };
        }
        entry.len = entry.len.checked_add(octets).ok_or(Blocked::Length)?;
        Ok(SourceId::at(place))
    }

    /// Returns an own `SrcAvail`.
    #[must_use]
    pub fn source(&self, id: SourceId) -> Source {
        let entry = self.adverts().sources.get(id.place()).copied().unwrap_or_default();
        let state = match entry.state {
            state::FREE => SourceState::Free,
            state::OUT => SourceState::Out,
            state::RETURNED => SourceState::Returned,
            _ => SourceState::Done,
        };
        Source { len: entry.len, done: entry.done, state }
    }

    /// Returns the own `SrcAvail` whose octets are the head of the send queue: the oldest of those
    /// that came back. They go by [`resend`](Self::resend) or
    /// [`resend_written`](Self::resend_written), unless it is released before.
    #[must_use]
    pub fn returned(&self) -> Option<SourceId> {
        let now = self.core.next_mseq;
        oldest(self.adverts().sources, now, |source| source.state == state::RETURNED).map(SourceId::at)
    }

    /// Returns whether an own `SrcAvail` is out.
    #[must_use]
    pub fn sources_out(&self) -> bool {
        count(self.adverts().sources, state::OUT) > 0
    }

    /// Gives up the place of an own `SrcAvail`. The octets of one that came back are then not sent.
    ///
    /// # Errors
    /// It is still out, and the connection is not over.
    pub fn release_source(&mut self, id: SourceId) -> Result<(), Blocked> {
        let aborted = self.core.is(flag::ABORTED);
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let entry = tables.sources.get_mut(id.place()).ok_or(Blocked::Nothing)?;
        if entry.state == state::OUT && !aborted {
            return Err(Blocked::Source);
        }
        *entry = OwnSource::default();
        Ok(())
    }

    /// Returns the octets of an advert that are still to be sent: it came back, before all others.
    pub(super) fn unsent(&self, id: SourceId) -> Result<usize, Blocked> {
        if self.returned() != Some(id) {
            return Err(Blocked::Returned);
        }
        let source = self.source(id);
        Ok(source.len.saturating_sub(source.done) as usize)
    }

    pub(super) fn resent(&mut self, id: SourceId, octets: usize) {
        let Some(tables) = self.tables.as_deref_mut() else { return };
        let Some(entry) = tables.sources.get_mut(id.place()) else { return };
        entry.done = entry.done.saturating_add(octets as u32);
        if entry.done >= entry.len {
            entry.state = state::DONE;
        }
    }

    /// Takes back all that are out, and returns whether there were any.
    pub(super) fn return_sources(&mut self) -> bool {
        let mut any = false;
        if let Some(tables) = self.tables.as_deref_mut() {
            for source in tables.sources.iter_mut().filter(|source| source.state == state::OUT) {
                (source.state, any) = (state::RETURNED, true);
            }
        }
        self.sources_settled();
        any
    }

    pub(super) fn take_read_report(&mut self, octets: u32, ack: u32) -> Result<Received, Violation> {
        let now = self.core.next_mseq;
        let tables = self.tables.as_deref_mut().ok_or(Violation::NothingToRead)?;
        let place = oldest(&tables.sources, now, |source| source.state == state::OUT)
            .ok_or(Violation::NothingToRead)?;
        let source = &mut tables.sources[place];
        // A report whose sender had not seen the oldest advert is of an older one.
        if seq_before(ack, source.mseq) {
            return Ok(Received::Nothing);
        }
        let left = source.len.saturating_sub(source.done);
        if octets > left {
            return Err(Violation::ReadTooMuch { octets, left });
        }
        source.done = source.done.saturating_add(octets);
        let done = source.done >= source.len;
        if done {
            source.state = state::DONE;
        }
        self.sources_settled();
        Ok(Received::SourceRead { source: SourceId::at(place), done })
    }

    pub(super) fn take_send_sm(&mut self, ack: u32) -> Result<Received, Violation> {
        let sources = self.adverts().sources;
        let out = sources.iter().filter(|source| source.state == state::OUT);
        let now = self.core.next_mseq;
        let newest = out.min_by_key(|source| now.wrapping_sub(source.mseq));
        let newest = newest.ok_or(Violation::UnaskedSendSm)?;
        // It refuses what its sender had seen; a cancel ends by one that saw the newest advert, if
        // not the cancel, which then gets no answer.
        if seq_before(ack, newest.mseq) {
            return Ok(Received::Nothing);
        }
        // In Pipelined only a cancel is answered so.
        let combined = self.out_mode() == Mode::Combined || newest.inline > 0;
        if !combined && !self.core.is(flag::SOURCE_CANCEL) {
            return Err(Violation::UnaskedSendSm);
        }
        self.return_sources();
        Ok(Received::SourcesReturned)
    }
}
