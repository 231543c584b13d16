//! `SinkAvail`s of the peer: buffers that this end writes into.

use super::conn::flag;
use super::tables::{WriteTo, count, free, oldest, state};
use super::{Blocked, Machine, Received, SourceId, Violation};
use crate::wire::{Advert, Mode, seq_before};

/// The room into which the next octets may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSink {
    /// The `STag` of the buffer.
    pub stag: u32,
    /// The Tagged Offset of the first octet that was not written.
    pub to: u64,
    /// Octets from there to the end of the buffer.
    pub left: u32,
}

impl Machine<'_> {
    /// Returns where to write next: the rest of the oldest `SinkAvail` of the peer. While there is
    /// one, octets are written rather than sent as Data.
    #[must_use]
    pub fn peer_sink(&self) -> Option<PeerSink> {
        if self.core.is(flag::ABORTED | flag::DISCONN_SENT) {
            return None;
        }
        let entry = self.adverts().peer_sinks[self.open_sink()?];
        Some(PeerSink {
            stag: entry.stag,
            to: entry.to.wrapping_add(entry.written.into()),
            left: entry.len.saturating_sub(entry.written),
        })
    }

    /// Tells that the program's next `octets` octets were written to
    /// [`peer_sink`](Self::peer_sink): the Write is before every message that is made from now on.
    /// When less room is left than a message has, the advert completes.
    ///
    /// # Errors
    /// There is no such room, or other octets go first.
    pub fn written(&mut self, octets: u32) -> Result<(), Blocked> {
        self.may_queue_octets()?;
        self.count_written(octets)
    }

    /// Tells that the next `octets` octets of an own advert that came back, the oldest such, were
    /// written to [`peer_sink`](Self::peer_sink).
    ///
    /// # Errors
    /// There is no such room, or other octets go first.
    pub fn resend_written(&mut self, source: SourceId, octets: u32) -> Result<(), Blocked> {
        if octets as usize > self.unsent(source)? {
            return Err(Blocked::Length);
        }
        self.count_written(octets)?;
        self.resent(source, octets as usize);
        Ok(())
    }

    /// Tells that no octets wait to be sent: the `SinkAvail` of the peer that is partly written
    /// completes short, and a `RdmaWrCompl` becomes due.
    pub fn complete_peer_sink(&mut self) {
        let Some(place) = self.open_sink() else { return };
        if let Some(tables) = self.tables.as_deref_mut()
            && tables.peer_sinks[place].written > 0
        {
            tables.peer_sinks[place].state = state::DONE;
        }
    }

    fn count_written(&mut self, octets: u32) -> Result<(), Blocked> {
        let room = self.peer_sink().ok_or(Blocked::Nothing)?.left;
        let place = self.open_sink().ok_or(Blocked::Nothing)?;
        if octets == 0 || octets > room {
            return Err(Blocked::Length);
        }
        let shortest = self.core.longest_payload();
        let tables = self.tables.as_deref_mut().ok_or(Blocked::NoTables)?;
        let entry = &mut tables.peer_sinks[place];
        entry.written = entry.written.saturating_add(octets);
        if ((room - octets) as usize) < shortest {
            entry.state = state::DONE;
        }
        Ok(())
    }

    fn open_sink(&self) -> Option<usize> {
        oldest(&self.adverts().peer_sinks, self.core.received, |sink| sink.state == state::OUT)
    }

    pub(super) fn partly_written(&self) -> bool {
        self.open_sink().is_some_and(|place| self.adverts().peer_sinks[place].written > 0)
    }

    /// Returns the octets of the `RdmaWrCompl` that is due.
    pub(super) fn next_write_report(&self) -> Option<u32> {
        let sinks = &self.adverts().peer_sinks;
        let done = oldest(sinks, self.core.received, |sink| sink.state == state::DONE)?;
        Some(sinks[done].written)
    }

    pub(super) fn write_reported(&mut self) {
        let now = self.core.received;
        let Some(tables) = self.tables.as_deref_mut() else { return };
        if let Some(place) = oldest(&tables.peer_sinks, now, |sink| sink.state == state::DONE) {
            tables.peer_sinks[place] = WriteTo::default();
        }
    }

    /// Forgets the adverts that are not written, and returns whether there were any.
    pub(super) fn drop_peer_sinks(&mut self) -> bool {
        let mut any = false;
        if let Some(tables) = self.tables.as_deref_mut() {
            for sink in tables.peer_sinks.iter_mut().filter(|sink| sink.state == state::OUT) {
                (*sink, any) = (WriteTo::default(), true);
            }
        }
        any
    }

    pub(super) fn peer_sinks_here(&self) -> bool {
        count(&self.adverts().peer_sinks, state::FREE) < super::ADVERTS
    }

    pub(super) fn take_sink_avail(
        &mut self,
        advert: &Advert,
        non_discards: u32,
        payload: usize,
        ack: u32,
    ) -> Result<Received, Violation> {
        const DROPPED: Received = Received::SinkAvail { kept: false, returned: false };
        if payload > 0 {
            self.no_payload_under_source()?;
        }
        // Sent before our ModeChange to Combined was seen, who took all of them back there.
        if self.core.is(flag::CHANGE_UNSEEN) {
            self.crossed_change(non_discards);
            return Ok(DROPPED);
        }
        if self.core.is(flag::DISCONN_SENT) {
            let unseen = seq_before(ack, self.core.disconn_mseq);
            return if unseen { Ok(DROPPED) } else { Err(Violation::SinkAfterDisConn) };
        }
        if self.out_mode() != Mode::Pipelined {
            return Err(Violation::SinkMode);
        }
        self.sink_avail_form(advert)?;
        // A Data that the sink had not seen has discarded it there: it is not counted twice.
        if non_discards != self.core.sent_non_discards {
            self.core.sent_non_discards = self.core.sent_non_discards.wrapping_sub(1);
            return Ok(DROPPED);
        }
        self.keep_sink(advert)?;
        // The sink wins: it drops the SrcAvails that cross.
        let returned = self.return_sources();
        Ok(Received::SinkAvail { kept: true, returned })
    }

    /// Counts an advert that crossed our change to Combined: a Data from before the change has
    /// discarded it at the sink, or the change itself.
    fn crossed_change(&mut self, non_discards: u32) {
        let core = &mut *self.core;
        if non_discards != core.non_discards_at_change {
            core.non_discards_at_change = core.non_discards_at_change.wrapping_sub(1);
            core.sent_non_discards = core.sent_non_discards.wrapping_sub(1);
        }
    }

    fn sink_avail_form(&self, advert: &Advert) -> Result<(), Violation> {
        let (len, to) = (advert.len, advert.to);
        if (len as usize) < self.core.longest_payload() {
            return Err(Violation::SinkTooShort(len));
        }
        if to.checked_add(len.into()).is_none() {
            return Err(Violation::AdvertRange { len, to });
        }
        Ok(())
    }

    fn keep_sink(&mut self, advert: &Advert) -> Result<(), Violation> {
        if self.peer_adverts() >= self.core.max_adverts as usize {
            return Err(Violation::TooManyAdverts);
        }
        let mseq = self.core.received;
        let tables = self.tables.as_deref_mut().ok_or(Violation::TooManyAdverts)?;
        let place = free(&tables.peer_sinks).ok_or(Violation::TooManyAdverts)?;
        let Advert { len, stag, to } = *advert;
        tables.peer_sinks[place] =
            WriteTo { to, state: state::OUT, mseq, stag, len, written: 0, reserved: 0 };
        Ok(())
    }
}
