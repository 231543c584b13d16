//! Sending: trains of FPDUs are handed to TCP (RFC 5044 §5.1).
//!
//! A round fills a train ([`Link::fill`]) and hands it to TCP ([`Link::write`]). Octets that TCP
//! has been promised (Responses, a Terminate, the rest of an FPDU that it has begun) wait in the
//! link's `out` buffer and go first.

use std::cell::Cell;
use std::io::ErrorKind;

use rddp_iwarp::Segments;
use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;

use super::link::Link;
use super::train::{Behind, MAX_ALIGNED, Position, Train, long_aligned};
use crate::mem::{Faulted, is_fault};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::sq::SendQueue;
use crate::scratch::{Own, with_own};
use crate::trace;
use crate::wire::{Watch, WireEvent};

/// Octets of Responses behind which messages of our own have their turn, and the other way round: a
/// message begun may be longer, but short ones of either kind need not alternate one by one.
pub(super) const TURN: usize = 16 * 1024;

thread_local! {
    static OUTGOING: Own<Outgoing> = const { Cell::new(None) };
}

/// The train that is being filled, and the memory of the segment that is added to it, of the
/// calling thread.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(super) train: Train,
    pub(super) grants: Grants,
}

impl Outgoing {
    /// Lends the thread's own.
    pub(crate) fn with_own<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        with_own(&OUTGOING, f)
    }

    /// Returns whether the train is of lent Responses.
    #[cfg(test)]
    pub(crate) fn answers(&self) -> bool {
        self.train.answers()
    }

    /// Returns whether the train has nothing but what TCP was promised before.
    #[cfg(test)]
    pub(crate) fn is_rest_alone(&self) -> bool {
        self.train.is_empty()
    }

    /// Returns the octets of the train.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.train.len()
    }

    /// Lets go of all memory: grants must not outlive the write, those of a request that failed
    /// half-way neither. They delay whoever deregisters.
    #[inline]
    fn clear(&mut self) {
        self.train.clear();
        self.grants.clear();
    }
}

impl Link {
    /// Returns whether there is anything to send, or to try again.
    #[inline]
    pub(crate) fn has_output(&self, sq: &SendQueue) -> bool {
        sq.has_unsent() || !self.out.is_empty() || self.stream.inbound() > 0
    }

    /// Leaves Responses to whoever makes progress next, as if TCP were full: a peer that takes them
    /// as fast as they come would keep the queue pair from its program, which has messages to post.
    /// Returns whether there are any.
    fn interrupt_answering(&mut self, watch: &mut Watch) -> bool {
        watch.blocked |= self.stream.inbound() > 0;
        watch.blocked
    }

    /// Sends what can be sent, and completes requests that this finished. While Reads of the peer's
    /// are in service, it ends behind so many octets.
    ///
    /// # Errors
    /// What the QP has to act on. What is prepared then is to be sent all the same.
    pub(crate) fn send(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        turn: u64,
    ) -> Result<(), WireEvent> {
        Outgoing::with_own(|out| {
            let end = cx.tally.of(Counter::OctetsSent).wrapping_add(turn);
            self.acknowledge_with_own(cx);
            loop {
                while self.send_round(watch, cx, out)? {
                    let is_over = cx.tally.of(Counter::OctetsSent) >= end;
                    if is_over && self.interrupt_answering(watch) {
                        break;
                    }
                }
                let before = cx.sq.oldest();
                cx.retire();
                // A local fence ends when the request before it is taken from the queue. No other
                // event would then send what the fence held back, so the loop goes on.
                let may_go_on = cx.sq.oldest() != before && cx.sq.is_fence_over();
                // TCP may have taken all that an acknowledgement waited for.
                if !may_go_on && (watch.blocked || !self.acknowledge(cx)) {
                    return Ok(());
                }
            }
        })
    }

    /// Writes once. Returns whether another write may follow.
    #[inline]
    fn send_round(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        out: &mut Outgoing,
    ) -> Result<bool, WireEvent> {
        self.fill(cx, out)?;
        Ok(self.write(watch, cx, out)? && self.has_output(cx.sq))
    }

    /// Begins a new train: Responses that there is room for, and messages of our own.
    ///
    /// # Errors
    /// What the QP has to act on. What is prepared then is to be written all the same.
    #[inline]
    pub(crate) fn fill(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Result<(), WireEvent> {
        out.train.clear();
        out.train.copies = std::mem::take(&mut self.copies_next);
        out.train.most_aligned = self.most_aligned;
        if !self.is_open() {
            return Ok(());
        }
        if self.slipped && !self.out.is_empty() && self.is_aligned() {
            let rest = Segments::of_rest(self.emss(), self.unaligned);
            if rest.is_set() {
                out.train.segments = rest;
                return Ok(());
            }
        }
        if self.prepare_responses(cx, &mut out.train.segments)? {
            return self.lend_responses(cx, out);
        }
        self.add_own(cx, out)?;
        if out.train.is_empty() && std::mem::take(&mut self.own_turn) {
            // None of our own can go now: Responses need not wait for it.
            if self.prepare_responses(cx, &mut out.train.segments)? {
                return self.lend_responses(cx, out);
            }
        }
        Ok(())
    }

    /// Hands `out` and the train to TCP, and lets go of the train. Returns whether another write
    /// may follow.
    #[inline]
    pub(crate) fn write(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        out: &mut Outgoing,
    ) -> Result<bool, WireEvent> {
        let written = self.write_train(watch, cx, &out.train);
        out.clear();
        written
    }

    /// Sends only what TCP has been promised: the rest of an FPDU, a Terminate; then FIN, if one is
    /// due.
    pub(crate) fn push_out(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        Outgoing::with_own(|out| {
            out.train.clear();
            self.write(watch, cx, out).map(drop)
        })
    }

    /// Hands `out` and the train to TCP. Returns whether it took all, and there was something.
    fn write_train(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        train: &Train,
    ) -> Result<bool, WireEvent> {
        let promised = self.out.owed().len();
        let total = promised + train.len();
        if total == 0 {
            watch.blocked = false;
            self.finish_sending(watch)?;
            return Ok(false);
        }
        cx.tally.add(Counter::SendCalls, 1);
        let end_of_record = train.segments.end_record(total);
        let taken = match train.write(self.fd(), self.out.owed(), end_of_record) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            // Memory has gone bad. What comes before it is still sent, and of whole FPDUs only:
            // copying finds where it is.
            Err(error) if is_fault(&error) && !train.copies => {
                self.copies_next = true;
                return Ok(true);
            }
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer sends");
                return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.tally.add(Counter::OctetsSent, taken as u64);
        trace::train(cx.attrs.num, total, taken);
        self.out.take(taken.min(promised));
        if self.out.is_empty() {
            cx.sq.handed_to_cursor();
        }
        if taken > promised {
            if train.answers() {
                self.note_lent(taken - promised, cx.sq.has_unsent());
            } else {
                // Our own turn has been used. In the middle of a message Responses wait anyway.
                (self.own_turn, self.answered) = (false, 0);
            }
        }
        if self.account(cx, train, taken.saturating_sub(promised)).is_err() {
            // No Terminate fits into the FPDU that TCP has begun, and its rest cannot be had.
            if !train.answers() {
                cx.sq.finish_at_cursor(Status::LocalProtection);
            }
            return Err(WireEvent::Lost(AsyncEventKind::Fault(Fault::local_catastrophic())));
        }
        self.note_taken(watch, cx, taken, total);
        if watch.blocked {
            return Ok(false);
        }
        self.finish_sending(watch)?;
        Ok(true)
    }

    /// Notes that TCP has taken so many octets of a write, and counts the memory of those that it
    /// is still promised.
    #[inline]
    pub(crate) fn note_taken(&mut self, watch: &mut Watch, cx: &Context<'_>, taken: usize, total: usize) {
        self.recount(cx.attrs);
        watch.blocked = taken < total;
        self.slipped = watch.blocked && (self.slipped || taken > 0);
        self.note_write(total, watch.blocked);
        if watch.blocked {
            self.most_aligned = MAX_ALIGNED;
        } else if total >= MAX_ALIGNED {
            self.most_aligned = long_aligned(self.emss());
        }
        if self.out.is_empty() {
            self.unaligned = 0;
        }
    }

    /// Counts the memory of octets that TCP is promised, or that are read for it.
    #[inline]
    pub(super) fn recount(&mut self, attrs: &QpAttributes) {
        let kept = self.out.settle() + self.ahead.kept() + self.own_ahead.kept();
        attrs.device.promised.release(std::mem::replace(&mut self.kept, kept));
        attrs.device.promised.charge(kept);
    }

    /// Sends FIN if it is due and everything promised has gone (RFC 5044 §7.2).
    #[inline]
    fn finish_sending(&mut self, watch: &mut Watch) -> Result<(), WireEvent> {
        if self.out.is_empty() { watch.end.send_fin(&self.socket) } else { Ok(()) }
    }

    /// Moves the send queue, or the line of Responses, past what TCP took, and keeps the rest of an
    /// FPDU that it has begun.
    ///
    /// # Errors
    /// The rest has gone bad. The queue or the line is at its message.
    fn account(&mut self, cx: &mut Context<'_>, train: &Train, taken: usize) -> Result<(), Faulted> {
        let taken = train.taken(taken);
        cx.tally.add(Counter::FpdusSent, taken.fpdus as u64);
        cx.tally.add(Counter::OctetsCopied, taken.last().map_or(0, |record| record.after.copied as u64));
        self.unaligned += taken.end();
        if let Some(whole) = taken.whole {
            self.go_on_behind(cx, &whole.after);
            cx.sq.handed_to_cursor();
        }
        if let Some(begun) = taken.begun {
            let rest = train.copy_out(taken.owed())?;
            self.go_on_behind(cx, &begun.after);
            self.out.keep(rest);
        }
        Ok(())
    }

    /// Goes on behind an FPDU that TCP has taken or begun.
    #[inline]
    fn go_on_behind(&mut self, cx: &mut Context<'_>, behind: &Behind) {
        match behind.position {
            Position::Own(cursor) => cx.sq.cursor = cursor,
            Position::Response(answered) => self.answered_up_to(answered),
        }
        self.framer = behind.framer.clone();
    }
}
