//! The beginning of a connection: the first FPDU, and nudges for a peer that may not have read it
//! (RFC 5044 §7.1.2, RFC 6581 §9).

use std::time::{Duration, Instant};

use rddp_ddp::{Header, Stag};
use rddp_iwarp::{OwnMessage, Termination};
use rddp_mpa::{MpaError, Rtr};
use rddp_rdmap::Fault;
use rddp_stat::Counter;

use super::link::Link;
use crate::conn::socket::{finish_sending, send_now};
use crate::deadline::Deadline;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;

/// Time until the first nudge goes out; each later one follows after twice the time.
const FIRST_NUDGE: Duration = Duration::from_millis(100);

/// Number of nudges.
const NUDGES: u32 = 5;

/// The id of the Read that a Read RTR is; no work request has it.
pub(super) const RTR_ID: u64 = u64::MAX;

/// RDMA Writes of no octets for a peer that may have left our first FPDU unread: see
/// [`ConnectOptions::nudge`](crate::ConnectOptions::nudge).
#[derive(Clone, Copy, Debug)]
pub(super) struct Nudge {
    sent: u32,
    due: Instant,
}

impl Nudge {
    pub(super) fn first() -> Self {
        Nudge { sent: 0, due: Instant::now() + FIRST_NUDGE }
    }

    fn next(self) -> Option<Self> {
        let sent = self.sent + 1;
        (sent < NUDGES).then(|| Nudge { sent, due: self.due + FIRST_NUDGE * (1 << sent) })
    }
}

/// A Read that is our RTR, and may be on its way. Its Response may not arrive in a graceful close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RtrRead {
    None,
    Out,
    /// The program has asked for a graceful close meanwhile.
    OutBeforeClose,
}

impl Link {
    /// Begins the connection: sets its timers, and opens memory to its peer. DDP is enabled in both
    /// directions at once (RFC 5041 §6.1).
    pub(crate) fn start(&mut self, attrs: &QpAttributes, timeout: Duration) {
        let driver = &attrs.device.driver;
        if !self.may_send && self.negotiated.rtr.is_some() {
            // RFC 6581 §5: the initiator owes a first FPDU; without it the startup never ends.
            let deadline = Deadline::after(timeout);
            self.deadline = deadline.moment();
            driver.by(deadline, attrs.token);
        }
        if let Some(due) = self.nudge.map(|nudge| nudge.due).or(self.speaks_first) {
            driver.at(due, attrs.token);
        }
        attrs.device.mem.connect(attrs.num, attrs.pd, attrs.inbound.get());
    }

    /// Returns whether a responder that waits for its peer's first FPDU may send meanwhile.
    #[cold]
    pub(super) fn speaks_now(&self) -> bool {
        self.speaks_first.is_some_and(|from| from <= Instant::now())
    }

    /// Returns whether the end of a timer lets something be sent: what was read in a file, a nudge,
    /// or what a responder has that speaks first.
    pub(crate) fn nudges_or_speaks(&mut self, cx: &Context<'_>, now: Instant) -> bool {
        self.ahead.is_reading()
            || self.own_ahead.is_reading()
            || self.nudge(cx, now)
            || (!self.may_send && self.speaks_first.is_some_and(|from| from <= now))
    }

    /// Queues a nudge, an RDMA Write of no octets, if one is due: this end has sent, all of it has
    /// gone, and nothing has come back. Returns whether there is one to be sent.
    fn nudge(&mut self, cx: &Context<'_>, now: Instant) -> bool {
        let Some(nudge) = self.nudge.filter(|nudge| nudge.due <= now) else { return false };
        let quiet = self.is_open()
            && cx.tally.of(Counter::FpdusReceived) == 0
            && cx.sq.cursor.offset == 0
            && !cx.sq.has_unsent();
        if !quiet || !(cx.tally.of(Counter::FpdusSent) > 0 || self.negotiated.rtr.is_some()) {
            self.nudge = None;
            return false;
        }
        tracing::debug!(qp = cx.attrs.num.0, ?nudge, "nothing heard yet: a Write of no octets");
        self.push_own(&OwnMessage::empty_write().header, &[]);
        self.nudge = nudge.next();
        if let Some(next) = self.nudge {
            cx.attrs.device.driver.at(next.due, cx.attrs.token);
        }
        true
    }

    /// Queues the first FPDU of a peer-to-peer connection (RFC 6581 §9.2). Nothing but the peer's
    /// MPA sees it.
    pub(super) fn push_rtr(&mut self, rtr: Rtr) {
        let first = OwnMessage::ready_to_receive(rtr);
        if let Header::Untagged(header) = first.header {
            self.msns.next(header.qn);
        }
        if rtr.is_answered() {
            self.rtr = RtrRead::Out;
            self.stream.issue_read(RTR_ID, Stag(0), 0, 0);
        }
        self.push_own(&first.header, first.payload());
    }

    /// Ends a connection that this end cannot take up, although the Reply was good (RFC 6581 §9.3).
    /// A responder may not send before the first FPDU has come: it just closes. A courtesy: the
    /// connection is over whatever becomes of it.
    pub(crate) fn refuse(&mut self) {
        let fault = Fault::mpa(MpaError::LocalCatastrophic);
        if let Termination::Terminate(terminate) = Termination::of(&fault, None, self.may_send) {
            self.push_terminate(&terminate);
            let _ = send_now(&self.socket, self.out.owed());
        }
        let _ = finish_sending(&self.socket);
    }
}
