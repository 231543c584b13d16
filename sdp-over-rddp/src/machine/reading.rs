//! `SrcAvail`s of the peer: buffers that this end reads from.
//!
//! They are consumed oldest first and whole. Each Read is told when it begins and when it has
//! completed here; only then its octets are reported.

use super::conn::flag;
use super::tables::{ReadFrom, count, free, oldest, state};
use super::{Blocked, Machine, Received, Violation};
use crate::wire::{Advert, Mode, seq_before};

/// The octets that the next Read may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSource {
    /// The `STag` of the buffer.
    pub stag: u32,
    /// The Tagged Offset of the first octet that no Read has asked for.
    pub to: u64,
    /// Octets from there to the end of the buffer.
    pub left: u32,
}

impl Machine<'_> {
    /// Returns what to read next: the rest of the oldest `SrcAvail` of the peer that has octets for
    /// which no Read was begun.
    #[must_use]
    pub fn next_read(&self) -> Option<PeerSource> {
        let entry = self.adverts().peer_sources[self.next_asked()?];
        Some(PeerSource {
            stag: entry.stag,
            to: entry.to.wrapping_add(entry.asked.into()),
            left: entry.len.saturating_sub(entry.asked),
        })
    }

    /// Tells that a Read of the next `octets` octets of [`next_read`](Self::next_read) has begun.
    ///
    /// # Errors
    /// There are not so many.
    pub fn reading(&mut self, octets: u32) -> Result<(), Blocked> {
        let place = self.next_asked().ok_or(Blocked::Nothing)?;
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let entry = &mut tables.peer_sources[place];
        if octets > entry.len.saturating_sub(entry.asked) {
            return Err(Blocked::Length);
        }
        entry.asked = entry.asked.saturating_add(octets);
        Ok(())
    }

    /// Tells that the next `octets` octets for which a Read was begun are here; of one advert, so
    /// that a Read is told once or in parts. They are the next octets of the stream, and a
    /// `RdmaRdCompl` becomes due.
    ///
    /// # Errors
    /// No Read asked for so many.
    pub fn read_done(&mut self, octets: u32) -> Result<(), Blocked> {
        let now = self.core.received;
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let place = oldest(&tables.peer_sources, now, |entry| entry.read < entry.asked);
        let entry = &mut tables.peer_sources[place.ok_or(Blocked::Nothing)?];
        if octets > entry.asked.saturating_sub(entry.read) {
            return Err(Blocked::Length);
        }
        entry.read = entry.read.saturating_add(octets);
        self.core.in_octets = self.core.in_octets.wrapping_add(octets.into());
        self.reads_settled();
        Ok(())
    }

    /// Refuses the advert of the peer: what was not read comes as Data. A `SendSm` becomes due.
    /// Only in Combined: in Pipelined a second advert under way would be read before that Data.
    ///
    /// # Errors
    /// There is none, or the mode is another.
    pub fn refuse_source(&mut self) -> Result<(), Blocked> {
        if self.in_mode() != Mode::Combined {
            return Err(Blocked::Mode);
        }
        if !self.peer_sources_pending() {
            return Err(Blocked::Nothing);
        }
        self.core.set(flag::NO_READS, true);
        Ok(())
    }

    /// Returns whether a `SrcAvail` of the peer is not all read and reported.
    #[must_use]
    pub fn peer_sources_pending(&self) -> bool {
        count(&self.adverts().peer_sources, state::OUT) > 0
    }

    /// Returns whether a Read was begun and is not done.
    #[must_use]
    pub fn reads_open(&self) -> bool {
        self.adverts().peer_sources.iter().any(|entry| entry.read < entry.asked)
    }

    fn next_asked(&self) -> Option<usize> {
        if self.core.is(flag::NO_READS | flag::ABORTED) {
            return None;
        }
        let now = self.core.received;
        oldest(&self.adverts().peer_sources, now, |entry| {
            entry.state == state::OUT && entry.asked < entry.len
        })
    }

    /// Returns the octets of the `RdmaRdCompl` that is due: of the oldest advert alone.
    pub(super) fn next_report(&self) -> Option<u32> {
        let sources = &self.adverts().peer_sources;
        let entry = sources[oldest(sources, self.core.received, |entry| entry.state == state::OUT)?];
        let new = entry.read.saturating_sub(entry.reported);
        (new > 0).then_some(new)
    }

    pub(super) fn reported(&mut self, octets: u32) {
        let now = self.core.received;
        let Some(tables) = self.tables.as_deref_mut() else { return };
        let sources = &mut tables.peer_sources;
        let Some(place) = oldest(sources, now, |entry| entry.state == state::OUT) else { return };
        sources[place].reported = sources[place].reported.saturating_add(octets);
        if sources[place].reported >= sources[place].len {
            sources[place] = ReadFrom::default();
        }
        self.reads_settled();
    }

    /// Returns whether `SendSm` is due: the advert was refused or cancelled, no Read of it is open,
    /// what was read is reported, and something is left.
    pub(super) fn send_sm_due(&self) -> bool {
        self.core.is(flag::NO_READS)
            && !self.reads_open()
            && self.next_report().is_none()
            && self.peer_sources_pending()
    }

    pub(super) fn sources_dropped(&mut self) {
        if let Some(tables) = self.tables.as_deref_mut() {
            tables.peer_sources = Default::default();
        }
        self.reads_settled();
    }

    pub(super) fn reads_settled(&mut self) {
        if !self.reads_open() {
            self.core.set(flag::ACK_HELD, false);
        }
        if !self.peer_sources_pending() {
            self.core.set(flag::NO_READS | flag::CANCELLED, false);
        }
    }

    pub(super) fn take_src_avail(
        &mut self,
        advert: &Advert,
        payload: usize,
        ack: u32,
    ) -> Result<Received, Violation> {
        self.src_avail_form(advert, payload)?;
        if self.core.is(flag::DISCONN_RECEIVED) {
            return Err(Violation::AfterDisConn);
        }
        if self.core.is(flag::CANCELLED) {
            return Err(Violation::SourceDuringCancel);
        }
        if self.crosses_sink(ack)? {
            return Ok(Received::Nothing);
        }
        let pending = count(&self.adverts().peer_sources, state::OUT);
        let one_at_a_time = self.in_mode() == Mode::Combined && pending > 0;
        if one_at_a_time || self.peer_adverts() >= self.core.max_adverts as usize {
            return Err(Violation::TooManyAdverts);
        }
        self.keep_source(advert, payload as u32)?;
        Ok(Received::SrcAvail)
    }

    /// The form of a `SrcAvail` in this mode.
    fn src_avail_form(&self, advert: &Advert, inline: usize) -> Result<(), Violation> {
        let (len, to) = (advert.len, advert.to);
        let fits = match self.in_mode() {
            Mode::Buffered => return Err(Violation::SourceMode),
            Mode::Combined => inline >= 1 && inline < len as usize,
            Mode::Pipelined => inline == 0,
        };
        if !fits {
            return Err(Violation::SourceInline { len, inline });
        }
        if len == 0 || to.checked_add(len.into()).is_none() {
            return Err(Violation::AdvertRange { len, to });
        }
        Ok(())
    }

    /// Returns whether a `SrcAvail` crossed an own `SinkAvail`: then it is dropped, the sink wins.
    fn crosses_sink(&self, ack: u32) -> Result<bool, Violation> {
        let sinks = &self.adverts().sinks;
        let out = oldest(sinks, self.core.next_mseq, |sink| sink.state == state::OUT);
        match out {
            None => Ok(false),
            Some(place) if seq_before(ack, sinks[place].mseq) => Ok(true),
            Some(_) => Err(Violation::SourceUnderSink),
        }
    }

    fn keep_source(&mut self, advert: &Advert, inline: u32) -> Result<(), Violation> {
        let tables = self.tables.as_deref_mut().ok_or(Violation::TooManyAdverts)?;
        let place = free(&tables.peer_sources).ok_or(Violation::TooManyAdverts)?;
        tables.peer_sources[place] = ReadFrom {
            // The inline octets are here; what is read begins behind them.
            to: advert.to.wrapping_add(inline.into()),
            len: advert.len.saturating_sub(inline),
            stag: advert.stag,
            state: state::OUT,
            mseq: self.core.received,
            ..ReadFrom::default()
        };
        if inline > 0 {
            self.core.received_non_discards = self.core.received_non_discards.wrapping_add(1);
        }
        Ok(())
    }
}
