//! Progress of a queue pair: its connection reads and writes, and the QP acts on the result.

use std::io;
use std::os::fd::BorrowedFd;

use rddp_rdma::{AsyncEventKind, SendWr};
use rddp_stat::Counter;

use super::QpInner;
use super::core::Core;
use crate::mem::send_octets;
use crate::queues::state::QpState;
use crate::wire::{Link, LinkEvent, Outgoing, Sent, Staging};

/// Number of octets of one turn of reading: other connections get theirs in between
/// (RFC 5042 §6.4.4). Tests have a shorter one, as TCP does not keep enough for this.
pub(super) const TURN: u64 = if cfg!(test) { 30_000 } else { 1024 * 1024 };

/// Number of octets of one turn of sending while Reads of the peer's are in service.
const ANSWERING_TURN: u64 = 1024 * 1024;

/// The end of a turn of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulled {
    /// TCP has nothing more now.
    Dry,
    /// There may be more.
    More,
    /// The connection reads nothing for a while: see [`Link::must_pause`].
    Paused,
}

impl QpInner {
    /// Reads for one turn, and at most one read more.
    pub(super) fn pull(&self, core: &mut Core) -> Pulled {
        Staging::with_own(|staging| {
            let end = core.tally.of(Counter::OctetsReceived).wrapping_add(TURN);
            let Some(link) = &mut core.link else { return Pulled::Dry };
            link.unstash(&self.attrs, staging);
            while let Some((link, mut cx)) = core.split(&self.attrs) {
                let read = link.read(&mut cx, staging);
                self.after_reading(core, staging, read);
                let Some((link, cx)) = core.split(&self.attrs) else { break };
                if staging.is_dry() || cx.tally.of(Counter::OctetsReceived) >= end {
                    link.stash(&cx, staging);
                    return if staging.is_dry() { Pulled::Dry } else { Pulled::More };
                }
            }
            Pulled::Dry
        })
    }

    /// Delivers the segment that waits for a receive, and those behind it, if there is a receive
    /// now. Returns whether the socket may be read.
    #[inline]
    pub(super) fn unpark(&self, core: &mut Core) -> bool {
        let Some((link, mut cx)) = core.split(&self.attrs) else { return true };
        if !link.is_parked() {
            return true;
        }
        if let Err(event) = link.unpark(&mut cx) {
            self.on_event(core, event);
        }
        if core.is_parked() {
            return false;
        }
        self.handle_stashed(core);
        core.link.is_some() && !core.is_parked()
    }

    /// Goes on after a receive was posted, and has the socket read again.
    pub(super) fn resume(&self, core: &mut Core) {
        self.unpark(core);
        self.pump(core);
    }

    /// Handles whole FPDUs among the octets that the last turn left over.
    fn handle_stashed(&self, core: &mut Core) {
        Staging::with_own(|staging| {
            let Some((link, mut cx)) = core.split(&self.attrs) else { return };
            link.unstash(&self.attrs, staging);
            let handled = link.handle(&mut cx, staging);
            self.after_reading(core, staging, handled);
            if let Some((link, cx)) = core.split(&self.attrs) {
                link.stash(&cx, staging);
            }
        });
    }

    /// Acts on the result of reading. If the stream has ended for this end, discards the rest.
    #[inline]
    fn after_reading(&self, core: &mut Core, staging: &mut Staging, result: Result<(), LinkEvent>) {
        if let Err(event) = result {
            self.on_event(core, event);
        }
        if core.state != QpState::ReadyToSend {
            self.discard(core, staging.clear());
        }
    }

    /// Discards octets that arrive after the stream has ended for this end.
    fn discard(&self, core: &mut Core, octets: usize) {
        match core.state {
            // draft-hilland-rddp-verbs §6.2: a segment that arrives in Closing is a bad close.
            QpState::Closing if octets > 0 => self.lose(core, Some(AsyncEventKind::BadClose)),
            // RFC 5040 §6.2.1: keep reading, within bounds. If unread octets were left, TCP would
            // reset, and the peer could lose the Terminate.
            QpState::Terminate if core.link.as_mut().is_some_and(|link| !link.may_discard(octets)) => {
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
            }
            _ => {}
        }
    }

    /// Sends what can be sent, and completes requests that this finished. While Reads of the peer's
    /// are in service, it ends after a turn.
    pub(super) fn pump(&self, core: &mut Core) {
        Outgoing::with_own(|out| {
            let end = core.tally.of(Counter::OctetsSent).wrapping_add(ANSWERING_TURN);
            loop {
                while self.send_round(core, out) {
                    let is_over = core.tally.of(Counter::OctetsSent) >= end;
                    if is_over && core.link.as_mut().is_some_and(Link::interrupt_answering) {
                        break;
                    }
                }
                let before = core.sq.oldest();
                core.context(&self.attrs).retire();
                // A local fence ends when the request before it is taken from the queue. No other
                // event would then send what the fence held back, so the loop goes on.
                if core.sq.oldest() == before || !core.sq.is_fence_over() {
                    break;
                }
            }
        });
        self.update_interest(core);
    }

    /// Writes once. Returns whether another write may follow.
    fn send_round(&self, core: &mut Core, out: &mut Outgoing) -> bool {
        let Some((link, mut cx)) = core.split(&self.attrs) else { return false };
        if let Err(event) = link.fill(&mut cx, out) {
            self.on_event(core, event);
        }
        let Some((link, mut cx)) = core.split(&self.attrs) else { return false };
        match link.write(&mut cx, out) {
            Ok(sent) => sent && link.has_output(cx.sq),
            Err(event) => {
                self.on_event(core, event);
                false
            }
        }
    }

    /// Sends the message of a request past the queue, if it is short and nothing stands before it.
    /// Returns whether it did; if not, nothing has changed.
    #[inline]
    pub(super) fn send_short(&self, core: &mut Core, wr: &SendWr) -> bool {
        self.send_short_by(core, wr, send_octets)
    }

    /// Does what [`send_short`](Self::send_short) does, by this call to TCP.
    #[inline]
    pub(super) fn send_short_by(
        &self,
        core: &mut Core,
        wr: &SendWr,
        tcp: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<usize>,
    ) -> bool {
        if core.state != QpState::ReadyToSend {
            return false;
        }
        let Some((link, mut cx)) = core.split(&self.attrs) else { return false };
        let sent = link.send_short(&mut cx, wr, tcp);
        if sent == Some(Sent::Begun) {
            self.update_interest(core);
        }
        sent.is_some()
    }

    /// Sends only what TCP has been promised, which is the rest of an FPDU or a Terminate; then
    /// FIN, if one is due.
    pub(super) fn push_out(&self, core: &mut Core) {
        if let Some((link, mut cx)) = core.split(&self.attrs)
            && let Err(event) = link.push_out(&mut cx)
        {
            self.on_event(core, event);
        }
        self.update_interest(core);
    }
}
