//! The end of a connection: with a Terminate, in order, by a reset, or after the QP was dropped
//! (RFC 5040 §5.4, §6.2, §7).
//!
//! DDP ends no stream of its own accord (RFC 5041 §6.2): the QP asks for it, or TCP has ended. Each
//! half connection ends with that of TCP (RFC 5044 §7.2).

use std::time::{Duration, Instant};

use rddp_ddp::Header;
use rddp_iwarp::Termination;
use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::{Fault, Offending, REQUEST_QUEUE, TerminateCode, TerminateRepr};

use super::acknowledge::{Held, status_of};
use super::first::RtrRead;
use super::link::Link;
use crate::conn::linger::MAX_DISCARDED;
use crate::queues::attributes::QpAttributes;
use crate::wire::WireEvent;

/// Time that an FPDU may take to arrive while memory for partial ones is short.
const STALLED: Duration = Duration::from_secs(2);

/// Octets that are thrown away behind a Terminate before TCP is reset.
const MAX_BEHIND_TERMINATE: usize = 1 << 20;

/// The progress of a connection's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// No more messages go either way.
    closing: bool,
    /// A Terminate, sent or received, or a fault behind which none may be sent, ends the stream.
    terminated: bool,
    /// Octets thrown away since then.
    discarded: usize,
}

impl Link {
    /// Returns whether messages go both ways: the connection is not being closed or terminated.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.ending.closing
    }

    /// Takes no more messages of the peer. Returns the Terminate that is queued for it, if one may
    /// be sent.
    pub(crate) fn fail(&mut self, fault: &Fault, offending: Option<&Offending>) -> Option<TerminateRepr> {
        self.fail_stream();
        let terminate = Termination::of(fault, offending, self.may_send).terminate()?;
        self.push_terminate(&terminate);
        Some(terminate)
    }

    /// Takes no more messages of a peer that has sent a Terminate. No Terminate answers one
    /// (RFC 5040 §7.1).
    pub(super) fn terminated(&mut self, terminate: TerminateRepr) -> WireEvent {
        self.fail_stream();
        let refused = match self.acknowledging {
            Some(_) => Some(status_of(&terminate)),
            None => refuses_request(&terminate).then_some(Status::RemoteAccess),
        };
        WireEvent::Terminated(terminate, refused)
    }

    fn fail_stream(&mut self) {
        self.stream.fail();
        self.ending.terminated = true;
    }

    /// Takes no more messages either way: a graceful teardown has begun (RFC 5041 §6.2.1).
    pub(crate) fn begin_close(&mut self, attrs: &QpAttributes) {
        self.ending.closing = true;
        // What is still to come of a message is no longer placed: see `discard`.
        self.direct = None;
        self.drop_parked(attrs);
        attrs.device.partial.release(self.held().map_or(0, Held::octets));
        self.forget_held();
    }

    /// Makes a graceful close wait for the Response to a Read that is our RTR: that is nothing that
    /// the program knows of, or could wait for. Returns whether there is one.
    pub(crate) fn close_behind_rtr(&mut self) -> bool {
        let is_out = self.rtr != RtrRead::None;
        if is_out {
            self.rtr = RtrRead::OutBeforeClose;
        }
        is_out
    }

    /// Returns whether the peer has asked for something that has not been answered or delivered.
    pub(crate) fn owes_answers(&self) -> bool {
        self.stream.inbound() > 0 || self.is_parked()
    }

    /// Returns whether nothing of the peer's is half-way: its FIN may come now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stream.inbound() == 0 && self.stream.is_between_messages() && self.is_between_fpdus()
    }

    /// Discards octets that have come behind the end of the stream.
    ///
    /// # Errors
    /// They should not have come, or are too many.
    pub(super) fn discard(&mut self, octets: usize) -> Result<(), WireEvent> {
        if !self.ending.terminated {
            // draft-hilland-rddp-verbs §6.2: a segment that arrives in Closing is a bad close.
            return if octets > 0 { Err(WireEvent::Lost(AsyncEventKind::BadClose)) } else { Ok(()) };
        }
        // RFC 5040 §6.2.1: keep reading, within bounds. If unread octets were left, TCP would
        // reset, and the peer could lose the Terminate.
        self.ending.discarded += octets;
        let are_few = self.ending.discarded <= MAX_BEHIND_TERMINATE;
        if are_few { Ok(()) } else { Err(WireEvent::Lost(AsyncEventKind::ConnectionLost)) }
    }

    /// Discards what was read behind the octets that have ended the stream.
    pub(crate) fn discard_stashed(&mut self, attrs: &QpAttributes) -> Result<(), WireEvent> {
        let octets = std::mem::take(&mut self.partial).len();
        attrs.device.partial.release(octets);
        self.discard(octets)
    }

    /// Returns whether the peer has had all the time that it may take for its first FPDU.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns whether no FPDU has come in part.
    pub(crate) fn is_between_fpdus(&self) -> bool {
        self.partial.is_empty() && self.direct.is_none()
    }

    /// Returns whether the FPDU that this connection keeps a part of has been arriving for too long
    /// while others wait for the memory (RFC 5042 §6.4.2), or whether messages have waited for
    /// receives for too long.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        let began_long_ago = |(_, begun)| now.duration_since(begun) >= STALLED;
        let is_held = self.held().is_some_and(|held| held.is_stalled(now));
        is_held || !self.partial.is_empty() && self.partial_begun.is_some_and(began_long_ago)
    }

    /// Gives back what the connection has of the device.
    pub(crate) fn release(&self, attrs: &QpAttributes) {
        let waits = self.parked.as_ref().map_or(0, Vec::len) + self.held().map_or(0, Held::octets);
        attrs.device.partial.release(self.partial.len() + waits);
        attrs.device.promised.release(self.kept);
        attrs.device.mem.disconnect(attrs.num);
    }

    /// Returns what TCP was promised, and still goes out in order (RFC 5040 §5.4), and how many
    /// octets of the peer may be discarded meanwhile.
    pub(crate) fn rest(&self) -> (Vec<u8>, usize) {
        let discards = match self.ending {
            Ending { terminated: true, discarded, .. } => MAX_BEHIND_TERMINATE.saturating_sub(discarded),
            _ => MAX_DISCARDED,
        };
        (self.out.owed().to_vec(), discards)
    }
}

/// Returns whether a Terminate is about the memory that a Read or atomic of ours named. Peers use
/// these codes for Writes and invalidations, too, which the header tells apart if there is one.
fn refuses_request(terminate: &TerminateRepr) -> bool {
    let code = terminate.code;
    let of_request = match terminate.header {
        None => true,
        Some(Header::Untagged(header)) => header.qn == REQUEST_QUEUE,
        Some(Header::Tagged(_)) => false,
    };
    (code.layer(), code.etype()) == (0, 1)
        && code != TerminateCode::CANNOT_INVALIDATE_PROTECTION
        && of_request
}
