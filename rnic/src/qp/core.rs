//! The state that a QP's lock protects, and its transitions (draft-hilland-rddp-verbs §6.2, §6.4).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::{Fault, Offending, TerminateRepr};
use rddp_stat::Counter;

use super::QpInner;
use crate::deadline::Deadline;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::rq::{Outcome, RecvQueue};
use crate::queues::sq::SendQueue;
use crate::queues::state::QpState;
use crate::stat::Tally;
use crate::trace;
use crate::wire::opening::Lengths;
use crate::wire::{Connection, Ends, Itself, WireEvent};

/// State, queues, connection and counts of a QP.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) state: QpState,
    pub(super) sq: SendQueue,
    pub(super) rq: RecvQueue,
    pub(super) connection: Option<Connection>,
    /// Set in place of a connection where the QP is connected to itself.
    pub(super) itself: Option<Itself>,
    /// Set by the first request that waits for a peer to come: the end of its time.
    pub(super) unjoined: Option<Deadline>,
    pub(super) tally: Tally,
    pub(super) terminate_sent: Option<TerminateRepr>,
    pub(super) terminate_received: Option<TerminateRepr>,
    /// The number of its completion queues whose overflow was reported. They never recover.
    pub(super) overflows_told: usize,
}

impl Core {
    pub(super) fn new(sq: SendQueue, rq: RecvQueue) -> Self {
        let (terminate_sent, terminate_received) = Default::default();
        Core {
            state: QpState::Idle,
            sq,
            rq,
            connection: None,
            itself: None,
            unjoined: None,
            tally: Tally::alone(),
            terminate_sent,
            terminate_received,
            overflows_told: 0,
        }
    }

    /// Goes from Idle to RTS.
    pub(super) fn connect(&mut self, connection: Connection, tally: Tally) {
        self.reset();
        self.tally = tally;
        self.connection = Some(connection);
        self.set_state(QpState::ReadyToSend);
    }

    /// Goes from Idle to RTS as the peer of itself.
    pub(super) fn connect_to_itself(&mut self) {
        self.reset();
        self.itself = Some(Itself::default());
        self.set_state(QpState::ReadyToSend);
    }

    /// Changes the state, and shows it.
    pub(super) fn set_state(&mut self, state: QpState) {
        self.state = state;
        if state != QpState::ReadyToSend {
            self.itself = None;
        }
        self.tally.set_state(state);
    }

    /// Returns the connection, if there is one, and beside it the context that it works on.
    #[inline]
    pub(super) fn split<'a>(
        &'a mut self,
        attrs: &'a QpAttributes,
    ) -> Option<(&'a mut Connection, Context<'a>)> {
        let Core { connection, sq, rq, tally, .. } = self;
        Some((connection.as_mut()?, Context { attrs, sq, rq, tally }))
    }

    /// Returns how many requests and receives there may be, and where shared receives are from.
    pub(super) fn lengths(&self) -> Lengths {
        Lengths { sends: self.sq.capacity(), receives: self.rq.capacity(), srq: self.rq.srq().cloned() }
    }

    /// Lends the queues and counts for work that needs no connection.
    pub(super) fn context<'a>(&'a mut self, attrs: &'a QpAttributes) -> Context<'a> {
        let Core { sq, rq, tally, .. } = self;
        Context { attrs, sq, rq, tally }
    }

    /// Returns whether a receive that is posted now is kept rather than flushed at once.
    // `inline(always)`: what fails on demand asks, too, and would take it out of the hot path.
    #[inline(always)]
    pub(super) fn takes_receives(&self) -> bool {
        let state = self.state;
        self.connection.as_ref().map_or(state.takes_receives(), |connection| connection.takes_receives(state))
    }

    /// Returns whether a receive that is posted now is waited for: by a segment, or by a device of
    /// the host.
    #[inline(always)]
    pub(super) fn wants_receive(&self) -> bool {
        self.is_parked() || self.connection.as_ref().is_some_and(Connection::is_of_device)
    }

    /// Returns whether a segment waits for a receive.
    #[inline(always)]
    pub(super) fn is_parked(&self) -> bool {
        match &self.connection {
            Some(connection) => connection.watch.waits(),
            None => self.itself.as_ref().is_some_and(Itself::waits),
        }
    }

    /// Returns whether there is anything to send, or to try again.
    pub(super) fn has_output(&self) -> bool {
        self.connection
            .as_ref()
            .map_or_else(|| self.sq.has_unsent(), |connection| connection.has_output(&self.sq))
    }

    /// Goes to Idle and removes all traces of the last connection; what was posted meanwhile stays.
    pub(super) fn reset(&mut self) {
        (self.state, self.itself, self.unjoined) = (QpState::Idle, None, None);
        self.rq.reset();
        self.sq.reset();
        self.tally = Tally::alone();
        (self.terminate_sent, self.terminate_received) = (None, None);
    }
}

impl QpInner {
    /// Does what a connection has asked for by an event.
    pub(super) fn on_event(&self, core: &mut Core, event: WireEvent) {
        match event {
            WireEvent::Fault(fault, offending) => self.terminate(core, fault, offending.as_ref()),
            WireEvent::Terminated(terminate, refused) => self.terminated(core, terminate, refused),
            WireEvent::Close => self.close(core),
            WireEvent::Fin | WireEvent::Lost(AsyncEventKind::ConnectionLost) if self.stays(core) => {
                self.part(core);
            }
            WireEvent::Fin => self.on_fin(core),
            WireEvent::HalfClosed => self.on_half_close(core),
            WireEvent::Closed => self.closed(core),
            WireEvent::SendsFailed => self.fail_sends(core),
            WireEvent::NoReceive => {
                let event = Some(AsyncEventKind::ConnectionLost);
                self.lose_refused(core, event, Some(Status::ReceiverNotReady));
            }
            WireEvent::Lost(kind) => self.lose(core, Some(kind)),
        }
    }

    /// Goes from RTS to Terminate: the peer's misbehaviour, or a fault of this end, ends the
    /// connection.
    ///
    /// `offending` is the first faulty segment. Everything outstanding is flushed now. The
    /// Terminate, if one may be sent, follows the FPDU that TCP has begun to take, and FIN follows
    /// the Terminate (RFC 5040 §5.4, §6.2.1).
    pub(super) fn terminate(&self, core: &mut Core, fault: Fault, offending: Option<&Offending>) {
        if !core.state.is_at_work() {
            return;
        }
        self.acknowledge_held(core);
        core.set_state(QpState::Terminate);
        let sent = match core.connection.as_mut().map(|connection| connection.fail(&fault, offending)) {
            Some(Ends::Terminate(sent)) => sent,
            Some(Ends::Reset) | None => return self.lose(core, Some(AsyncEventKind::Fault(fault))),
        };
        trace::terminating(self.attrs.num, &fault, sent.as_ref());
        if let Some(terminate) = &sent {
            core.tally.count_terminate(terminate.code.0, true);
        }
        core.terminate_sent = sent;
        self.attrs.report(AsyncEventKind::Fault(fault));
        self.flush(core, None);
        self.begin_close(core);
    }

    /// Goes from RTS to Terminate because the peer sent one. The oldest request that the peer has
    /// not answered completes with `refused`.
    fn terminated(&self, core: &mut Core, terminate: TerminateRepr, refused: Option<Status>) {
        core.tally.count_terminate(terminate.code.0, false);
        trace::terminated(self.attrs.num, &terminate);
        core.set_state(QpState::Terminate);
        self.attrs.report(AsyncEventKind::TerminateReceived(terminate.code));
        core.terminate_received = Some(terminate);
        self.flush(core, refused);
        self.begin_close(core);
    }

    /// Sends what TCP was promised, then FIN, and limits the time until the peer's FIN.
    pub(super) fn begin_close(&self, core: &mut Core) {
        if let Some(connection) = &mut core.connection {
            connection.begin_close(&self.attrs);
        }
    }

    /// Returns whether the QP stays ready to send without its peer: where requests are
    /// acknowledged, the end of the peer is noticed by a request that nobody answers, and by
    /// nothing else.
    pub(super) fn stays(&self, core: &Core) -> bool {
        self.attrs.acknowledges() && core.state == QpState::ReadyToSend
    }

    /// Executes what has come before the program leaves, and tells the peer: else its last requests
    /// would fail, which an adapter has acknowledged by then.
    #[cold]
    #[inline(never)]
    pub(super) fn acknowledge_last(&self, core: &mut Core) {
        if self.stays(core) {
            self.pull(core);
            self.pump(core);
        }
    }

    /// Tells the peer of a message whose acknowledgement waits for an answer: none comes any more.
    #[cold]
    #[inline(never)]
    pub(super) fn acknowledge_held(&self, core: &mut Core) {
        if let Some((connection, mut cx)) = core.split(&self.attrs) {
            connection.acknowledge_held(&mut cx);
        }
    }

    /// Goes on without the peer, which has gone, until a request is outstanding.
    pub(super) fn part(&self, core: &mut Core) {
        if !core.sq.is_empty() {
            return self.lose(core, Some(AsyncEventKind::ConnectionLost));
        }
        if let Some(connection) = core.connection.take() {
            tracing::debug!(qp = self.attrs.num.0, "the peer has gone, and nothing is outstanding");
            connection.linger(&self.attrs);
        }
    }

    /// Limits the time in which a peer has to come to a QP with a request for it.
    pub(super) fn limit_joining(&self, core: &mut Core) {
        let limit = core.sq.patience.answers.filter(|_| self.attrs.acknowledges());
        if let (Some(limit), None) = (limit, core.unjoined) {
            let end = Deadline::after(limit);
            self.attrs.device.driver.by(end, self.attrs.token);
            core.unjoined = Some(end);
        }
    }

    /// Ends an idle QP to which no peer has come in time.
    pub(super) fn lose_unjoined(&self, core: &mut Core, now: Instant) {
        let is_over = core.unjoined.is_some_and(|end| end.is_over(now));
        if is_over && core.state == QpState::Idle && !core.sq.is_empty() {
            self.lose(core, Some(AsyncEventKind::ConnectionLost));
        }
    }

    /// Goes from any state to Error: TCP is lost, or is reset now.
    pub(super) fn lose(&self, core: &mut Core, event: Option<AsyncEventKind>) {
        // A fault has a request to blame, or is none of the requests'.
        let is_unanswered = self.attrs.acknowledges()
            && event.as_ref().is_some_and(|kind| !matches!(kind, AsyncEventKind::Fault(_)));
        self.lose_refused(core, event, is_unanswered.then_some(Status::Unanswered));
    }

    /// Goes from any state to Error; the oldest request that the peer has not answered completes
    /// with `refused`.
    fn lose_refused(&self, core: &mut Core, event: Option<AsyncEventKind>, refused: Option<Status>) {
        if let Some(connection) = core.connection.take() {
            connection.lose(&self.attrs);
            core.tally.add(Counter::Lost, 1);
        }
        let before = core.state;
        core.set_state(QpState::Error);
        trace::lost(self.attrs.num, before, event.as_ref());
        if before != QpState::Error
            && let Some(kind) = event
        {
            // draft-hilland-rddp-verbs §6.2: if the connection does not end in order after a
            // Terminate, that is a bad close.
            let lost = kind == AsyncEventKind::ConnectionLost && before == QpState::Terminate;
            self.attrs.report(if lost { AsyncEventKind::BadClose } else { kind });
        }
        self.flush(core, refused);
        if before != QpState::Error {
            self.report_last_wqe(core);
        }
    }

    /// Reports that a QP in Error takes no more from a shared receive queue, and that what it had
    /// taken has completed.
    fn report_last_wqe(&self, core: &Core) {
        if core.rq.srq().is_some() {
            self.attrs.report(AsyncEventKind::LastWqeReached);
        }
    }

    /// Goes from any state to Error because the program drops the QP. What TCP was promised still
    /// goes out, in order (RFC 5040 §5.4).
    pub(super) fn leave(&self, core: &mut Core) {
        if let Some(connection) = core.connection.take() {
            trace::left(self.attrs.num, core.state);
            connection.linger(&self.attrs);
        }
        core.set_state(QpState::Error);
        self.flush(core, None);
    }

    /// Goes from Closing to Idle, or from Terminate to Error: both FINs have been seen.
    pub(super) fn closed(&self, core: &mut Core) {
        if let Some(connection) = core.connection.take() {
            trace::closed(self.attrs.num, core.state);
            connection.release(&self.attrs);
        }
        match core.state {
            QpState::Closing => {
                self.flush(core, None);
                core.set_state(QpState::Idle);
                self.attrs.report(AsyncEventKind::CloseComplete);
            }
            _ => {
                core.set_state(QpState::Error);
                self.report_last_wqe(core);
            }
        }
    }

    /// Ends the QP after a panic that has left the core half-way through something.
    /// Nothing in it is trusted but the socket, which is reset, and the requests in its
    /// queues, which are flushed.
    pub(super) fn abandon(&self, core: &mut Core) {
        let mut fresh = Core::new(core.sq.successor(), core.rq.successor());
        fresh.overflows_told = core.overflows_told;
        fresh.state = QpState::Error;
        let mut doubtful = std::mem::replace(core, fresh);
        let flushed = catch_unwind(AssertUnwindSafe(|| {
            if let Some(connection) = doubtful.connection.take() {
                connection.lose(&self.attrs);
            }
            self.flush(&mut doubtful, None);
        }));
        if flushed.is_err() {
            tracing::error!(
                qp = self.attrs.num.0,
                "a panic while a QP was given up: some of what was posted is lost"
            );
            // Dropping it could panic once more.
            std::mem::forget(doubtful);
        }
        self.attrs.report(AsyncEventKind::QpFailed);
        self.report_last_wqe(core);
    }

    /// Ends everything outstanding; the oldest request that the peer has not answered completes
    /// with `refused`.
    pub(super) fn flush(&self, core: &mut Core, refused: Option<Status>) {
        if let Some(connection) = &mut core.connection {
            connection.flush();
        }
        let mut cx = core.context(&self.attrs);
        cx.sq.end_all(refused);
        cx.retire();
        self.flush_receives(core);
    }

    /// Goes from RTS to `SendsFailed`: all requests end, and receives go on.
    pub(super) fn fail_sends(&self, core: &mut Core) {
        core.set_state(QpState::SendsFailed);
        self.flush_sends(core);
    }

    /// Ends all requests.
    pub(super) fn flush_sends(&self, core: &mut Core) {
        let mut cx = core.context(&self.attrs);
        cx.sq.end_all(None);
        cx.retire();
    }

    /// Ends all receives: nothing more comes for them.
    pub(super) fn flush_receives(&self, core: &mut Core) {
        let mut cx = core.context(&self.attrs);
        cx.end_receive(Status::Flushed, &Outcome::default());
        while let Some(completion) = cx.rq.flush(self.attrs.num) {
            cx.complete_receive(completion);
        }
        if let Some(srq) = cx.rq.srq() {
            srq.refill();
        }
    }

    /// Handles the peer's FIN, its graceful teardown (RFC 5041 §6.2.1).
    pub(super) fn on_fin(&self, core: &mut Core) {
        match core.state {
            QpState::ReadyToSend => {
                if core.sq.is_empty() && core.connection.as_ref().is_some_and(Connection::is_quiet) {
                    core.set_state(QpState::Closing);
                    self.begin_close(core);
                    self.end_of_peer(core);
                } else {
                    // draft-hilland-rddp-verbs §6.2.3: a FIN with work outstanding is an error.
                    self.attrs.report(AsyncEventKind::BadClose);
                    self.terminate(core, Fault::bad_close(), None);
                    self.end_of_peer(core);
                }
            }
            QpState::Closing | QpState::Terminate => self.end_of_peer(core),
            QpState::Idle | QpState::Error | QpState::SendsFailed => {}
        }
    }

    /// Handles the FIN of a peer to which this end may go on sending.
    fn on_half_close(&self, core: &mut Core) {
        self.flush_receives(core);
        self.attrs.report(AsyncEventKind::PeerDone);
        self.end_of_peer(core);
    }

    /// Ends the receiving direction: the connection is over as soon as this end's octets and FIN
    /// have gone out.
    fn end_of_peer(&self, core: &mut Core) {
        self.push_out(core);
        if core.connection.as_mut().is_some_and(Connection::note_peer_done) {
            self.closed(core);
        }
    }

    /// Arms the epoll sets for what the connection waits for.
    pub(super) fn update_interest(&self, core: &mut Core) {
        if let Some((connection, cx)) = core.split(&self.attrs) {
            connection.update_interest(&cx);
        }
    }
}
