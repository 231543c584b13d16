//! What a QP's lock protects, and how its state changes (draft-hilland-rddp-verbs §6.2, §6.4).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use nix::poll::PollFlags;
use nix::sys::epoll::EpollFlags;
use rddp_ddp::Header;
use rddp_rdmap::{Fault, Offending, REQUEST_QUEUE, TerminateCode, TerminateRepr, terminate_for};

use super::QpInner;
use super::link::{CLOSE_TIMEOUT, Link};
use super::rq::{Outcome, RecvQueue};
use super::sq::SendQueue;
use super::state::QpState;
use crate::completion::Status;
use crate::counters::Counters;
use crate::cq::{CqInner, Member, Watched};
use crate::event::AsyncEventKind;
use crate::io::sleep::poll_flags;

#[derive(Debug)]
pub(crate) struct Core {
    pub(super) state: QpState,
    pub(super) sq: SendQueue,
    pub(super) rq: RecvQueue,
    pub(super) link: Option<Link>,
    pub(super) counters: Counters,
    pub(super) terminate_sent: Option<TerminateRepr>,
    pub(super) terminate_received: Option<TerminateRepr>,
    /// The next octets that are received make the thread panic that has read them.
    #[cfg(test)]
    pub(super) panics: bool,
}

impl Core {
    pub(super) fn new(sq: SendQueue, rq: RecvQueue) -> Self {
        let (counters, terminate_sent, terminate_received) = Default::default();
        Core {
            state: QpState::Idle,
            sq,
            rq,
            link: None,
            counters,
            terminate_sent,
            terminate_received,
            #[cfg(test)]
            panics: false,
        }
    }

    /// Idle to RTS.
    pub(super) fn connect(&mut self, link: Link) {
        self.reset();
        self.link = Some(link);
        self.state = QpState::ReadyToSend;
    }

    /// Whether there is anything to send, or to try again.
    pub(super) fn has_output(&self) -> bool {
        self.sq.has_unsent()
            || self.link.as_ref().is_some_and(|link| !link.out.is_empty() || link.stream.inbound() > 0)
    }

    /// To Idle: nothing of the last connection is left but what was posted meanwhile.
    pub(super) fn reset(&mut self) {
        self.state = QpState::Idle;
        self.rq.reset();
        self.counters = Counters::default();
        (self.terminate_sent, self.terminate_received) = (None, None);
    }
}

impl QpInner {
    /// RTS to Terminate: the peer's misbehaviour, or a fault of ours, ends the connection.
    ///
    /// `offending` is the first faulty segment. Everything outstanding is flushed now; the Terminate, if one may be
    /// sent, leaves behind the FPDU that TCP has begun, and then our FIN (RFC 5040 §5.4, §6.2.1).
    pub(super) fn terminate(&self, core: &mut Core, fault: Fault, offending: Option<&Offending>) {
        if core.state != QpState::ReadyToSend {
            return;
        }
        tracing::info!(qp = self.num.0, %fault, "terminating");
        core.state = QpState::Terminate;
        if let Some(link) = &mut core.link {
            link.stream.fail();
            // RFC 5044 §7.1.2: before the peer's first good FPDU a responder may not send one, so it just closes.
            if link.may_send && fault.is_answerable() {
                let terminate = terminate_for(&fault, offending);
                link.push_terminate(&terminate);
                core.terminate_sent = Some(terminate);
                core.counters.terminates_sent += 1;
            }
        }
        self.report(AsyncEventKind::Fault(fault));
        self.flush(core, None);
        self.begin_close(core);
    }

    /// RTS to Terminate, by the peer. No Terminate answers one (RFC 5040 §7.1).
    pub(super) fn terminated(&self, core: &mut Core, terminate: TerminateRepr) {
        core.counters.terminates_received += 1;
        if core.state != QpState::ReadyToSend {
            core.terminate_received.get_or_insert(terminate);
            return;
        }
        core.state = QpState::Terminate;
        if let Some(link) = &mut core.link {
            link.stream.fail();
        }
        self.report(AsyncEventKind::TerminateReceived(terminate.code));
        // A Read that the peer refused is the oldest one out: its owner learns it from the completion.
        let refused = refuses_request(&terminate).then_some(Status::RemoteAccess);
        core.terminate_received = Some(terminate);
        self.flush(core, refused);
        self.begin_close(core);
    }

    /// Sends what is promised, then FIN, and bounds the time until the peer's.
    pub(super) fn begin_close(&self, core: &mut Core) {
        if let Some(link) = &mut core.link {
            link.ending.fin_due = true;
            // What is still to come of a message is no longer placed: see `after_end`.
            link.direct = None;
            self.unpark_nothing(link);
            self.bound_close(link);
        }
    }

    /// From here on the peer has only so much time.
    pub(super) fn bound_close(&self, link: &mut Link) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        link.deadline = Some(deadline);
        self.device.driver.at(deadline, self.token);
    }

    /// Any state to Error: TCP is gone, or goes now by a reset.
    pub(super) fn lose(&self, core: &mut Core, event: Option<AsyncEventKind>) {
        if let Some(link) = core.link.take() {
            link.reset();
            self.drop_link(&link);
        }
        let before = std::mem::replace(&mut core.state, QpState::Error);
        if before != QpState::Error
            && let Some(kind) = event
        {
            // draft-hilland-rddp-verbs §6.2: a Terminate whose connection does not end in order is a bad close.
            let lost = kind == AsyncEventKind::ConnectionLost && before == QpState::Terminate;
            self.report(if lost { AsyncEventKind::BadClose } else { kind });
        }
        self.flush(core, None);
        if before != QpState::Error {
            self.report_last_wqe(core);
        }
    }

    /// draft-hilland-rddp-verbs §6.3: a QP in Error takes no more from a shared receive queue, and what it had taken has
    /// completed.
    fn report_last_wqe(&self, core: &Core) {
        if core.rq.srq().is_some() {
            self.report(AsyncEventKind::LastWqeReached);
        }
    }

    /// Any state to Error, because the program lets go of the QP: what TCP was promised still goes
    /// out, in order (RFC 5040 §5.4).
    pub(super) fn leave(&self, core: &mut Core) {
        if let Some(link) = core.link.take() {
            self.drop_link(&link);
            let deadline = link.deadline.filter(|_| link.ending.fin_due);
            let deadline = deadline.unwrap_or_else(|| Instant::now() + CLOSE_TIMEOUT);
            let owed = link.out.rest().to_vec();
            self.device.lingering.add(&self.device.driver, link.socket, owed, deadline);
        }
        core.state = QpState::Error;
        self.flush(core, None);
    }

    /// Closing to Idle, or Terminate to Error: both FINs have been seen.
    pub(super) fn closed(&self, core: &mut Core) {
        if let Some(link) = core.link.take() {
            self.drop_link(&link);
        }
        match core.state {
            QpState::Closing => {
                self.flush(core, None);
                core.state = QpState::Idle;
                self.report(AsyncEventKind::CloseComplete);
            }
            _ => {
                core.state = QpState::Error;
                self.report_last_wqe(core);
            }
        }
    }

    /// A panic has left the core half-way through something: nothing is taken from it but the
    /// socket, which is reset, and the requests that are in its queues, which are flushed.
    pub(super) fn abandon(&self, core: &mut Core) {
        let mut fresh = Core::new(core.sq.successor(), core.rq.successor());
        fresh.state = QpState::Error;
        let mut doubtful = std::mem::replace(core, fresh);
        let flushed = catch_unwind(AssertUnwindSafe(|| {
            if let Some(link) = doubtful.link.take() {
                link.reset();
                self.drop_link(&link);
            }
            self.flush(&mut doubtful, None);
        }));
        if flushed.is_err() {
            tracing::error!(
                qp = self.num.0,
                "a panic while a QP was given up: some of what was posted is lost"
            );
            // To drop it might panic once more.
            std::mem::forget(doubtful);
        }
        self.report(AsyncEventKind::QpFailed);
        self.report_last_wqe(core);
    }

    fn drop_link(&self, link: &Link) {
        self.device.partial.release(link.partial.len() + link.parked.as_ref().map_or(0, Vec::len));
        self.device.promised.release(link.kept);
        self.device.mem.disconnect(self.num);
        self.unwatch(link);
    }

    /// Takes a connection's socket out of the epoll sets.
    pub(super) fn unwatch(&self, link: &Link) {
        self.device.driver.unwatch(link.fd());
        self.cqs().for_each(|cq| cq.dismiss(link.fd()));
    }

    /// Ends everything outstanding; `refused` is what the oldest Read or atomic on its way ends with.
    pub(super) fn flush(&self, core: &mut Core, refused: Option<Status>) {
        core.sq.end_all(refused);
        self.retire(core);
        self.end_receive(core, Status::Flushed, &Outcome::default());
        for completion in core.rq.flush(self.num) {
            self.recv_cq.push(completion, None);
        }
    }

    /// Completes what is done at the front of the send queue.
    pub(super) fn retire(&self, core: &mut Core) {
        while let Some(completion) = core.sq.retire(self.num) {
            if let Some(completion) = completion {
                self.send_cq.push(completion, None);
            }
        }
    }

    /// Completes the receive that a message was arriving in, if there is one.
    pub(super) fn end_receive(&self, core: &mut Core, status: Status, outcome: &Outcome) {
        if let Some(completion) = core.rq.end(self.num, status, outcome) {
            self.recv_cq.push(completion, core.rq.srq());
        }
    }

    /// The peer's FIN.
    pub(super) fn on_fin(&self, core: &mut Core) {
        match core.state {
            QpState::ReadyToSend => {
                let quiet = core.sq.is_empty()
                    && core.link.as_ref().is_some_and(|link| {
                        link.stream.inbound() == 0 && link.partial.is_empty() && link.direct.is_none()
                    });
                if quiet {
                    core.state = QpState::Closing;
                    self.begin_close(core);
                    self.end_of_peer(core);
                } else {
                    // draft-hilland-rddp-verbs §6.2.3: a FIN with work outstanding is an error.
                    self.report(AsyncEventKind::BadClose);
                    self.terminate(core, Fault::bad_close(), None);
                    self.end_of_peer(core);
                }
            }
            QpState::Closing | QpState::Terminate => self.end_of_peer(core),
            QpState::Idle | QpState::Error => {}
        }
    }

    /// The peer sends no more: the connection is over as soon as our own octets and FIN have gone.
    fn end_of_peer(&self, core: &mut Core) {
        self.push_out(core);
        let done = core.link.as_ref().is_some_and(|link| link.ending.fin_sent);
        if done {
            self.closed(core);
        } else if let Some(link) = &mut core.link {
            link.ending.peer_done = true;
        }
    }

    /// Arms the epoll sets for what the connection waits for.
    pub(super) fn update_interest(&self, core: &mut Core) {
        let Some(link) = &mut core.link else { return };
        let has_output = !link.out.is_empty() || core.sq.has_unsent() || link.stream.inbound() > 0;
        link.wants_room = link.blocked && has_output;
        let interest = interest(link);
        if interest != link.interest || link.ending.peer_done {
            link.interest = interest;
            self.cqs().for_each(|cq| cq.set_interest(link.fd(), self.token, interest));
            // Out of the set, it is looked after by a program, which asks anew each time.
            if link.watched {
                self.device.driver.arm(link.fd(), self.token, interest);
            }
        }
    }

    /// Arms the background thread's set again after it has read the socket dry.
    pub(super) fn rearm(&self, core: &mut Core) {
        let Some(link) = &mut core.link else { return };
        let interest = interest(link);
        link.interest = interest;
        if link.watched {
            self.device.driver.arm(link.fd(), self.token, interest);
        } else if let Err(error) = self.device.driver.watch(link.fd(), self.token, interest) {
            // The kernel is out of memory or of its limit of watches, and without one nobody would ever look.
            tracing::warn!(qp = self.num.0, %error, "the socket can no longer be watched");
            self.lose(core, Some(AsyncEventKind::ConnectionLost));
        } else {
            link.watched = true;
        }
    }

    /// The completion queues that it uses, each once.
    pub(super) fn cqs(&self) -> impl Iterator<Item = &Arc<CqInner>> {
        let other = (!Arc::ptr_eq(&self.send_cq, &self.recv_cq)).then_some(&self.recv_cq);
        std::iter::once(&self.send_cq).chain(other)
    }
}

impl Member for QpInner {
    fn try_progress(&self) {
        if let Some(mut core) = self.core.try_lock() {
            self.progress(&mut core);
        }
    }

    fn watch_for(&self) -> Option<(Watched, PollFlags)> {
        let core = self.core.lock();
        let link = core.link.as_ref()?;
        Some((link.socket.clone(), poll_flags(interest(link))))
    }

    fn enter(&self, cq: &CqInner) -> io::Result<()> {
        let core = self.core.lock();
        let Some(link) = &core.link else { return Ok(()) };
        cq.ready.add(link.fd(), self.token)?;
        cq.set_interest(link.fd(), self.token, interest(link));
        Ok(())
    }
}

/// Whether it is about the memory that a Read or atomic of ours named. Peers use these codes for Writes and invalidations,
/// too, which the header tells apart if there is one.
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

fn interest(link: &Link) -> EpollFlags {
    // After the peer's FIN the socket is readable for good, and while a Send waits, or this QP for
    // memory, it may be for long: that is no news.
    let idle = link.ending.peer_done || link.parked.is_some() || link.resting;
    let reads = if idle { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
    if link.wants_room { reads | EpollFlags::EPOLLOUT } else { reads }
}
