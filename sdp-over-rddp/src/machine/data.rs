//! Data: octets copied through private buffers.

use super::conn::{due, flag};
use super::tables::{WriteTo, count, oldest, state};
use super::{Blocked, Machine, Received, SinkId, SourceId, Violation};
use crate::wire::{Body, Flags, Front};

impl Machine<'_> {
    /// Returns the octets of the longest Data that may be sent now.
    ///
    /// # Errors
    /// None may.
    pub fn data_room(&self) -> Result<usize, Blocked> {
        self.may_queue_octets()?;
        self.payload_room()
    }

    /// Makes a Data of `octets` octets, the last of which may be urgent. It takes the place of a
    /// write into the oldest `SinkAvail` of the peer, if it has one out.
    ///
    /// # Errors
    /// See [`data_room`](Self::data_room); or it has no octets, or too many.
    pub fn data(&mut self, octets: usize, urgent: bool) -> Result<Front, Blocked> {
        let room = self.data_room()?;
        self.data_front(octets, urgent, room)
    }

    /// Makes a Data of the next `octets` octets of an own advert that came back, the oldest such:
    /// the octets at [`Source::done`](super::Source::done).
    ///
    /// # Errors
    /// See [`data_room`](Self::data_room); or it has no octets, or too many.
    pub fn resend(&mut self, source: SourceId, octets: usize) -> Result<Front, Blocked> {
        let room = self.payload_room()?.min(self.unsent(source)?);
        let front = self.data_front(octets, false, room)?;
        self.resent(source, octets);
        Ok(front)
    }

    /// Returns the octets of the longest Data that octets of an own advert may go in.
    ///
    /// # Errors
    /// None may.
    pub fn resend_room(&self) -> Result<usize, Blocked> {
        self.payload_room()
    }

    fn data_front(&mut self, octets: usize, urgent: bool, room: usize) -> Result<Front, Blocked> {
        if octets == 0 || octets > room {
            return Err(Blocked::Length);
        }
        self.discard_or_count();
        let mut flags = Flags::empty();
        if urgent {
            self.core.set(flag::ANNOUNCING, false);
            flags = Flags::OOB_PRES | Flags::OOB_PEND;
        }
        self.core.set(flag::WANTS_CREDITS, false);
        Ok(self.front(Body::Data, octets, flags))
    }

    /// Counts a message with payload: it discards exactly the oldest advert of the sink, or is one
    /// of those that the sink's `NonDiscards` counts.
    fn discard_or_count(&mut self) {
        let now = self.core.received;
        if let Some(tables) = self.tables.as_deref_mut()
            && let Some(place) = oldest(&tables.peer_sinks, now, |sink| sink.state == state::OUT)
        {
            tables.peer_sinks[place] = WriteTo::default();
            return;
        }
        self.core.sent_non_discards = self.core.sent_non_discards.wrapping_add(1);
    }

    /// Checks that the program's next octets may go, by whatever way.
    pub(super) fn may_queue_octets(&self) -> Result<(), Blocked> {
        if self.core.is(flag::ABORTED | flag::CLOSING) {
            return Err(Blocked::Closed);
        }
        // What came back from an advert is the head of the send queue.
        if count(self.adverts().sources, state::RETURNED) > 0 { Err(Blocked::Returned) } else { Ok(()) }
    }

    /// Checks that a message with payload may go, of octets that may.
    pub(super) fn payload_room(&self) -> Result<usize, Blocked> {
        if self.core.is(flag::ABORTED | flag::DISCONN_SENT) {
            return Err(Blocked::Closed);
        }
        // No payload while a cancel is unanswered, or an own SrcAvail is out.
        self.not_cancelling()?;
        if count(self.adverts().sources, state::OUT) > 0 {
            return Err(Blocked::Source);
        }
        self.no_report_first()?;
        // A partly written advert is reported first.
        if self.partly_written() {
            return Err(Blocked::PartlyWritten);
        }
        self.need_payload_credits()?;
        Ok(self.core.longest_payload())
    }

    pub(super) fn not_cancelling(&self) -> Result<(), Blocked> {
        let cancelling = self.core.is(flag::SOURCE_CANCEL) || self.core.is_due(due::SOURCE_CANCEL);
        if cancelling { Err(Blocked::Cancelling) } else { Ok(()) }
    }

    /// Checks that no `RdmaWrCompl` or `SinkCancelAck` is due: payload that overtook it would
    /// discard an advert of the sink that is none any more here, and the counts would part.
    pub(super) fn no_report_first(&self) -> Result<(), Blocked> {
        let writes = count(self.adverts().peer_sinks, state::DONE);
        if writes > 0 || self.core.is_due(due::SINK_CANCEL_ACK) { Err(Blocked::Control) } else { Ok(()) }
    }

    pub(super) fn take_data(&mut self, payload: usize, urgent: bool) -> Result<Received, Violation> {
        // An update of credits is legal at any time.
        if payload == 0 {
            return Ok(Received::Nothing);
        }
        self.no_payload_under_source()?;
        let now = self.core.next_mseq;
        let tables = self.tables.as_deref_mut();
        let sinks = tables.map(|tables| &mut tables.sinks);
        let place = sinks.as_ref().and_then(|sinks| oldest(*sinks, now, |sink| sink.state == state::OUT));
        if let (Some(sinks), Some(place)) = (sinks, place) {
            sinks[place].state = state::DISCARDED;
            self.sinks_settled();
            return Ok(Received::DataIntoSink { sink: SinkId::at(place), urgent });
        }
        self.core.received_non_discards = self.core.received_non_discards.wrapping_add(1);
        Ok(Received::Data { urgent })
    }

    /// Octets keep their order: none are copied past an advert that is not all read.
    pub(super) fn no_payload_under_source(&self) -> Result<(), Violation> {
        let sources = count(self.adverts().peer_sources, state::OUT);
        if sources > 0 { Err(Violation::PayloadUnderSource) } else { Ok(()) }
    }
}
