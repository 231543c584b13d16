//! Control messages: what is owed, and in which order it goes.

use super::Machine;
use super::conn::{due, flag};
use crate::wire::{Body, Flags, Front, Message};

impl Machine<'_> {
    /// Makes the next control message that is due, if credits allow. It counts as sent.
    ///
    /// Reports go first: of Reads, as a `SendSm` or anything that the peer's next step hangs on
    /// must not overtake them; then of Writes. `DisConn` goes behind all that speaks of octets, and
    /// an update of credits only where nothing else carries it.
    pub fn next_control(&mut self) -> Option<Front> {
        let body = self.next_body()?;
        self.need_control_credits().ok()?;
        self.settle(body);
        let hint = self.core.is(flag::PREFERS_PIPELINED) && matches!(body, Body::RdmaRdCompl { .. });
        let flags = if hint { Flags::REQ_PIPE } else { Flags::empty() };
        let front = self.front(body, 0, flags);
        if body == Body::AbortConn {
            self.core.set(flag::ABORTED, true);
        }
        Some(front)
    }

    /// Returns whether a control message is due, credits or not.
    #[must_use]
    pub fn control_due(&self) -> bool {
        self.next_body().is_some()
    }

    /// Returns whether a control message is due that waits for credits.
    #[must_use]
    pub fn control_is_blocked(&self) -> bool {
        self.control_due() && self.need_control_credits().is_err()
    }

    /// Returns whether an update of credits is all that is due.
    pub(super) fn only_update_due(&self) -> bool {
        self.next_body() == Some(Body::Data)
    }

    fn next_body(&self) -> Option<Body> {
        let core = &*self.core;
        if core.is(flag::ABORTED) {
            return None;
        }
        if core.is_due(due::ABORT) {
            return Some(Body::AbortConn);
        }
        self.sink_body().or_else(|| self.source_body()).or_else(|| {
            let update = core.is_due(due::UPDATE) || self.must_poke() || self.update_due();
            update.then_some(Body::Data)
        })
    }

    /// Control messages about the half on which the peer sends.
    fn sink_body(&self) -> Option<Body> {
        let core = &*self.core;
        if let Some(octets) = self.next_report() {
            return Some(Body::RdmaRdCompl { octets });
        }
        if self.send_sm_due() {
            return Some(Body::SendSm);
        }
        if core.is_due(due::SINK_CANCEL) {
            return Some(Body::SinkAvailCancel);
        }
        (core.resizes_due > 0).then_some(Body::ChRcvBufAck { size: core.buf_size })
    }

    /// Control messages about the half on which this end sends.
    fn source_body(&self) -> Option<Body> {
        let core = &*self.core;
        if let Some(octets) = self.next_write_report() {
            return Some(Body::RdmaWrCompl { octets });
        }
        if core.is_due(due::SINK_CANCEL_ACK) {
            return Some(Body::SinkCancelAck);
        }
        if core.is_due(due::SOURCE_CANCEL) {
            return Some(Body::SrcAvailCancel);
        }
        if core.is_due(due::RESIZE) {
            return Some(Body::ChRcvBuf { size: core.wanted_size });
        }
        self.disconn_due().then_some(Body::DisConn)
    }

    /// Notes that a message goes.
    fn settle(&mut self, body: Body) {
        let core = &mut *self.core;
        match body {
            Body::RdmaRdCompl { octets } => self.reported(octets),
            Body::SendSm => self.sources_dropped(),
            Body::SinkAvailCancel => {
                core.set_due(due::SINK_CANCEL, false);
                core.set(flag::SINK_CANCEL, true);
                core.sink_cancel_mseq = core.next_mseq;
            }
            Body::SrcAvailCancel => {
                core.set_due(due::SOURCE_CANCEL, false);
                core.set(flag::SOURCE_CANCEL, true);
                core.source_cancel_mseq = core.next_mseq;
            }
            Body::ChRcvBufAck { .. } => core.resizes_due = core.resizes_due.saturating_sub(1),
            Body::RdmaWrCompl { .. } => self.write_reported(),
            Body::SinkCancelAck => core.set_due(due::SINK_CANCEL_ACK, false),
            Body::ChRcvBuf { .. } => {
                core.set_due(due::RESIZE, false);
                core.set(flag::RESIZING, true);
            }
            Body::DisConn => self.disconn_made(),
            Body::AbortConn => core.set_due(due::ABORT, false),
            _ => core.set(flag::WANTS_CREDITS, false),
        }
    }

    /// Makes the front of a message, with numbers and credits. The caller has checked that it may
    /// go.
    pub(super) fn front(&mut self, body: Body, payload: usize, flags: Flags) -> Front {
        let (ack, bufs) = (self.mseq_ack(), self.free_bufs());
        let mut message = Message::new(body, payload);
        message.header.flags = flags | self.pending_flag();
        message.header.mseq = self.core.next_mseq;
        message.header.mseq_ack = ack;
        // At most the 65535 that the configuration held.
        message.header.bufs = u16::try_from(bufs).unwrap_or(u16::MAX);
        let limit = self.limit();
        let core = &mut *self.core;
        core.next_mseq = core.next_mseq.wrapping_add(1);
        core.shown = limit;
        core.set(flag::LAST_WAS_UPDATE, false);
        core.set(flag::LAST_SENT_UPDATE, body == Body::Data && payload == 0);
        // Any message is an update.
        core.set_due(due::UPDATE, false);
        message.emit()
    }
}
