//! The parts of a queue pair that its connection works on while the lock is held.

use rddp_ddp::TaggedRepr;
use rddp_iwarp::Acknowledgement;
use rddp_rdma::{AsyncEventKind, Completion, Operation, SendWr, Status};
use rddp_rdmap::{AccessError, Fault};
use rddp_stat::Counter;

use super::attributes::QpAttributes;
use super::memory::Grants;
use super::rq::{Outcome, RecvQueue};
use super::sq::{self, Phase, SendQueue};
use crate::mem::Access;
use crate::stat::Tally;
use crate::trace;

/// The queues, attributes and counts of a queue pair, lent to its connection for one call.
///
/// The state of the QP is not among them: what changes that, a connection returns as a
/// [`WireEvent`](crate::wire::WireEvent).
pub(crate) struct Context<'a> {
    pub(crate) attrs: &'a QpAttributes,
    pub(crate) sq: &'a mut SendQueue,
    pub(crate) rq: &'a mut RecvQueue,
    pub(crate) tally: &'a Tally,
}

impl Context<'_> {
    /// Takes a receive for a message that begins. Returns the number of octets that fit into it, or
    /// `None` if there is none.
    #[inline]
    pub(crate) fn begin_receive(&mut self) -> Option<u64> {
        let mut limit_reached = false;
        let room = self.rq.begin(self.attrs.num, &mut limit_reached);
        if limit_reached {
            self.report_limit();
        }
        room
    }

    /// Takes the receive of a shared queue that a device of the host has taken for a message.
    pub(crate) fn begin_given(&mut self, number: u64) {
        if self.rq.begin_given(number) {
            self.report_limit();
        }
    }

    /// Reports that the shared receive queue is below its limit: rare, and kept out of the way of
    /// messages.
    #[cold]
    fn report_limit(&self) {
        if let Some(srq) = self.rq.srq() {
            self.attrs.report_about(srq.element(), AsyncEventKind::SrqLimit);
        }
    }

    /// Completes the receive that a message was arriving in, if there is one.
    pub(crate) fn end_receive(&mut self, status: Status, outcome: &Outcome) {
        if let Some(completion) = self.rq.end(self.attrs.num, status, outcome) {
            self.complete_receive(completion);
        }
    }

    /// Completes the next receive, one of the QP's own, which no message was arriving in.
    pub(crate) fn end_next_receive(&mut self, status: Status, outcome: &Outcome) {
        if let Some(completion) = self.rq.complete_next(self.attrs.num, status, outcome) {
            self.complete_receive(completion);
        }
    }

    /// Takes all of a Send by the short way: into the first piece of the next receive, if that is
    /// the QP's own and has room, with no receive begun. Returns whether the receive has completed;
    /// if not, the queues have not changed.
    #[inline]
    pub(crate) fn take_send(&mut self, payload: &[u8], solicited: bool) -> bool {
        self.take_message(payload, Outcome { solicited, ..Outcome::default() })
    }

    /// Takes all of a message by the short way, as a Send is taken; the completion has `outcome`,
    /// and the message's length.
    #[inline(always)]
    pub(crate) fn take_message(&mut self, payload: &[u8], outcome: Outcome) -> bool {
        let Some(sge) = self.rq.next_piece().filter(|sge| payload.len() as u64 <= sge.len) else {
            return false;
        };
        let len = payload.len() as u64;
        let memory = &self.attrs.device.mem;
        let Ok(grant) = memory.check_local(sge.stag, sge.addr, len, true, self.attrs.pd) else {
            return false;
        };
        if grant.place(0, payload).is_err() {
            return false;
        }
        drop(grant);
        let outcome = Outcome { byte_len: payload.len() as u32, ..outcome };
        let completed = self.rq.complete_next(self.attrs.num, Status::Success, &outcome);
        let Some(completion) = completed else { return false };
        self.tally.add(Counter::SendsReceived, 1);
        self.complete_receive(completion);
        true
    }

    /// Reports a receive that has ended.
    #[inline(always)]
    pub(crate) fn complete_receive(&mut self, completion: Completion) {
        let number = self.attrs.recv_cq.push(completion, self.rq.srq());
        self.rq.unpolled.note(number);
    }

    /// Places a segment of a Write of the peer by the short way. Returns whether it did.
    #[inline]
    pub(crate) fn take_write(&self, header: &TaggedRepr, payload: &[u8]) -> bool {
        let TaggedRepr { stag, to, last, .. } = *header;
        let grant = self.attrs.check_remote(stag, to, payload.len() as u64, Access::REMOTE_WRITE);
        // A program may poll the last octet of a Write.
        grant.is_ok_and(|grant| {
            if last { grant.place_in_order(0, payload) } else { grant.place(0, payload) }.is_ok()
        })
    }

    /// Ends the request with this number, wherever it stands in the send queue.
    pub(crate) fn end_request(&mut self, seq: u64, status: Status) {
        if let Some(wqe) = self.sq.get_mut(seq) {
            trace::request_failed(self.attrs.num, status);
            wqe.phase = Phase::Done(status);
        }
    }

    /// Completes what is done at the front of the send queue.
    pub(crate) fn retire(&mut self) {
        while let Some(completion) = self.sq.retire(self.attrs.num, self.tally) {
            if let Some(completion) = completion {
                self.complete_request(completion);
            }
        }
    }

    /// Completes the requests that the peer says it has executed.
    ///
    /// # Errors
    /// The peer acknowledges what cannot be.
    pub(crate) fn acknowledged(&mut self, said: Acknowledgement) -> Result<(), Fault> {
        self.sq.acknowledged(said)?;
        self.retire();
        Ok(())
    }

    fn complete_request(&mut self, completion: Completion) {
        let number = self.attrs.send_cq.push(completion, None);
        self.sq.unpolled.note(number);
    }

    /// Completes a request that TCP has taken and that was never in the queue.
    #[inline]
    pub(crate) fn complete_unqueued(&mut self, wr: &SendWr) {
        if let Some(completion) = sq::succeeded(wr, self.attrs.num, self.tally) {
            self.complete_request(completion);
        } else {
            self.sq.unpolled.note_quiet();
        }
    }

    /// Adds the memory for `len` octets of the message that is arriving, from its octet `from` on.
    pub(crate) fn receive_grants(
        &self,
        from: u64,
        len: usize,
        grants: &mut Grants,
    ) -> Result<(), AccessError> {
        let scatter = self.rq.current().map_or(&[][..], |wr| &wr.scatter);
        let pd = self.rq.srq().map_or(self.attrs.pd, |srq| srq.pd);
        self.attrs.grants_of(scatter, from, len, Some(pd), grants).map(drop)
    }

    /// Adds the memory for `len` octets of the Response to the Read with this number, from its
    /// octet `from` on.
    pub(crate) fn sink_grants(
        &self,
        seq: u64,
        from: u64,
        len: usize,
        grants: &mut Grants,
    ) -> Result<(), AccessError> {
        let sink = self.sq.get(seq).and_then(|wqe| match wqe.wr.operation {
            Operation::Read { sink, .. } => Some(sink),
            _ => None,
        });
        self.attrs.grants_of(sink.as_slice(), from, len, Some(self.attrs.pd), grants).map(drop)
    }
}
