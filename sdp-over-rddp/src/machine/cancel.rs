//! Cancels: an end takes back all its adverts of a kind.

use super::conn::{due, flag};
use super::tables::{count, state};
use super::{Blocked, Machine, Received, Violation};
use crate::wire::seq_before;

impl Machine<'_> {
    /// Takes back all own `SrcAvail`s: a `SrcAvailCancel` becomes due. It has ended when none is
    /// out any more; each is then done, or has come back.
    ///
    /// # Errors
    /// None is out.
    pub fn cancel_sources(&mut self) -> Result<(), Blocked> {
        if !self.sources_out() {
            return Err(Blocked::Nothing);
        }
        let sent = self.core.is(flag::SOURCE_CANCEL);
        self.core.set_due(due::SOURCE_CANCEL, !sent);
        Ok(())
    }

    /// Takes back all own `SinkAvail`s: a `SinkAvailCancel` becomes due. It has ended when none is
    /// out any more; each is then written, discarded by a Data, or has come back.
    ///
    /// # Errors
    /// None is out.
    pub fn cancel_sinks(&mut self) -> Result<(), Blocked> {
        if count(self.adverts().sinks, state::OUT) == 0 {
            return Err(Blocked::Nothing);
        }
        let sent = self.core.is(flag::SINK_CANCEL);
        self.core.set_due(due::SINK_CANCEL, !sent);
        Ok(())
    }

    /// Returns whether an own cancel is due or unanswered: a peer that never answers is to be
    /// given up after a while.
    #[must_use]
    pub fn cancelling(&self) -> bool {
        self.core.is(flag::SOURCE_CANCEL | flag::SINK_CANCEL)
            || self.core.is_due(due::SOURCE_CANCEL | due::SINK_CANCEL)
    }

    /// Ends an own cancel when no `SrcAvail` is out: all came back, or all was read.
    pub(super) fn sources_settled(&mut self) {
        if !self.sources_out() {
            self.core.set(flag::SOURCE_CANCEL, false);
            self.core.set_due(due::SOURCE_CANCEL, false);
        }
    }

    pub(super) fn take_source_cancel(&mut self) -> Received {
        // Nothing is left that it could be for: it crossed our report.
        if !self.peer_sources_pending() {
            return Received::Nothing;
        }
        // The Reads in progress are finished first; until then it is not acknowledged.
        if self.reads_open() && !self.core.is(flag::ACK_HELD) {
            self.core.held_ack = self.core.received.wrapping_sub(1);
            self.core.set(flag::ACK_HELD, true);
        }
        self.core.set(flag::NO_READS | flag::CANCELLED, true);
        Received::SourcesCancelled
    }

    pub(super) fn take_sink_cancel(&mut self) -> Received {
        self.complete_peer_sink();
        // Those that were written are reported, others are acknowledged as dropped: if there are
        // none, the reports alone end the cancel.
        if self.drop_peer_sinks() {
            self.core.set_due(due::SINK_CANCEL_ACK, true);
        }
        Received::SinksCancelled
    }

    pub(super) fn take_sink_cancel_ack(&mut self, ack: u32) -> Result<Received, Violation> {
        let core = &*self.core;
        // A peer that serves a SrcAvailCancel of ours acknowledges nothing behind that.
        let held = core.is(flag::SOURCE_CANCEL) && ack.wrapping_add(1) == core.source_cancel_mseq;
        let answers = held || !seq_before(ack, core.sink_cancel_mseq);
        if core.is(flag::SINK_CANCEL) && answers {
            self.core.set(flag::SINK_CANCEL, false);
            self.return_sinks();
            return Ok(Received::SinksReturned);
        }
        // The answer to a cancel that ended with the last advert it was for.
        if core.is(flag::SINK_CANCEL_LATE) {
            return Ok(Received::Nothing);
        }
        Err(Violation::UnaskedSinkCancelAck)
    }
}
