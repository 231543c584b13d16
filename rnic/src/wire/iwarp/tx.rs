//! Sending: requests become FPDUs, FPDUs become trains (RFC 5040 §5, RFC 5041 §5, RFC 5044 §5.1).
//!
//! A round fills a train ([`Link::fill`]) and hands it to TCP ([`Link::write`]). Octets that TCP has been promised
//! (Responses, a Terminate, the rest of an FPDU that it has begun) wait in the link's `out` buffer and go first.

use std::cell::Cell;
use std::io::ErrorKind;

use rddp_ddp::{Cut, Header, Stag, TaggedRepr, cut};
use rddp_mpa::{Framer, MIN_MULPDU};
use rddp_rdmap::{ATOMIC_RESPONSE_QUEUE, REQUEST_QUEUE, SEND_QUEUE, tagged_header, untagged_header};
use rddp_rdmap::{
    AccessError, AtomicOp, AtomicRequestRepr, AtomicResponseRepr, Fault, Opcode, ReadRequestRepr, Response,
};

use super::link::Link;
use super::segments::Segments;
use super::train::{Source, Train};
use crate::completion::Status;
use crate::event::AsyncEventKind;
use crate::mem::{Access, AtomicError, Faulted, Verdicts, is_fault};
use crate::qp::attributes::QpAttributes;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::qp::sq::{Cursor, SendQueue, Wqe};
use crate::scratch::{Own, with_own};
use crate::wire::LinkEvent;
use crate::wr::{Gather, Operation, Remote};

/// Octets of Responses that are prepared ahead of TCP: what a second-level cache holds beside their source.
pub(crate) const RESPONSES_AHEAD: usize = 256 * 1024;

/// The same while all QPs together keep too many: what peers that ask and do not read can make us keep is bounded.
pub(crate) const FEW_RESPONSES: usize = 64 * 1024;

/// Octets of Responses behind which messages of our own have their turn, and the other way round: a
/// message begun may be longer, but short ones of either kind need not alternate one by one.
const TURN: usize = 16 * 1024;

/// A message of so many octets is one segment whatever the EMSS.
const SMALL: u64 = (MIN_MULPDU - Header::MAX_LEN) as u64;

thread_local! {
    static OUTGOING: Own<Outgoing> = const { Cell::new(None) };
}

/// The train that is being filled, and the memory of the segment that is added to it, of the
/// calling thread.
#[derive(Default)]
pub(crate) struct Outgoing {
    train: Train,
    grants: Grants,
}

impl Outgoing {
    /// Lends the thread's own, empty.
    pub(crate) fn with_own<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        with_own(&OUTGOING, f)
    }

    /// Lets go of all memory: grants must not outlive the write, those of a request that failed half-way neither. They
    /// delay whoever deregisters.
    #[inline]
    fn clear(&mut self) {
        self.train.clear();
        self.grants.clear();
    }
}

/// A train while messages of our own are added to it.
struct Filling<'a> {
    attrs: &'a QpAttributes,
    train: &'a mut Train,
    grants: &'a mut Grants,
    /// The state of MPA behind what is in the train.
    framer: Framer,
}

/// Why a train stopped growing.
enum Stop {
    /// It is full, the queue is empty, or something must be waited for.
    Wait,
    /// The request at the cursor cannot be done, with this status; `None`: it has been completed already.
    Failed(Option<Status>),
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
    pub(crate) fn interrupt_answering(&mut self) -> bool {
        self.blocked |= self.stream.inbound() > 0;
        self.blocked
    }

    /// Begins a new train: Responses that there is room for, and messages of our own.
    ///
    /// # Errors
    /// What the QP has to act on. What is prepared then is to be written all the same.
    pub(crate) fn fill(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Result<(), LinkEvent> {
        out.clear();
        out.train.copies = std::mem::take(&mut self.copies_next);
        if !self.is_open() {
            return Ok(());
        }
        self.prepare_responses(cx, &mut out.train.segments)?;
        self.add_own(cx, out)?;
        if out.train.is_empty() && std::mem::take(&mut self.own_turn) {
            // None of our own can go now: Responses need not wait for it.
            self.prepare_responses(cx, &mut out.train.segments)?;
        }
        Ok(())
    }

    /// Fills the train with messages of our own.
    fn add_own(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Result<(), LinkEvent> {
        // What comes before a bad request goes out first.
        if let Stop::Failed(status) = self.build(cx, out)
            && out.train.is_empty()
        {
            if let Some(status) = status {
                cx.sq.finish_at_cursor(status);
            }
            // draft-hilland-rddp-verbs §8.3.2: a local error of a request
            // ends the stream with 0x0000.
            return Err(Fault::local_catastrophic().into());
        }
        Ok(())
    }

    /// Hands `out` and the train to TCP, and lets go of the train. Returns whether another write
    /// may follow.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Result<bool, LinkEvent> {
        let written = self.write_train(cx, &out.train);
        out.clear();
        written
    }

    /// Sends only what TCP has been promised: the rest of an FPDU, a Terminate; then FIN, if one is due.
    pub(crate) fn push_out(&mut self, cx: &mut Context<'_>) -> Result<(), LinkEvent> {
        Outgoing::with_own(|out| {
            out.clear();
            self.write(cx, out).map(drop)
        })
    }

    /// Hands `out` and the train to TCP; true if it took all and there was something.
    fn write_train(&mut self, cx: &mut Context<'_>, train: &Train) -> Result<bool, LinkEvent> {
        let promised = self.out.rest().len();
        let total = promised + train.len();
        if total == 0 {
            self.blocked = false;
            self.finish_sending()?;
            return Ok(false);
        }
        cx.counters.send_calls += 1;
        let end_of_record = train.segments.end_record(total);
        let taken = match train.write(self.fd(), self.out.rest(), end_of_record) {
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
                return Err(LinkEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.counters.octets_sent += taken as u64;
        self.out.take(taken.min(promised));
        if self.out.is_empty() {
            cx.sq.handed_to_cursor();
        }
        if taken > promised {
            // Our own turn has been used. In the middle of a message Responses wait anyway.
            (self.own_turn, self.answered) = (false, 0);
        }
        if self.account(cx, train, taken.saturating_sub(promised)).is_err() {
            // No Terminate fits into the FPDU that TCP has begun, and its rest cannot be had.
            cx.sq.finish_at_cursor(Status::LocalProtection);
            return Err(LinkEvent::Lost(AsyncEventKind::Fault(Fault::local_catastrophic())));
        }
        let kept = self.out.settle();
        cx.attrs.device.promised.release(std::mem::replace(&mut self.kept, kept));
        cx.attrs.device.promised.charge(kept);
        self.blocked = taken < total;
        if self.out.is_empty() {
            self.unaligned = 0;
        }
        if self.blocked {
            return Ok(false);
        }
        self.finish_sending()?;
        Ok(true)
    }

    /// Everything promised has gone: now our FIN, if it is due.
    #[inline]
    fn finish_sending(&mut self) -> Result<(), LinkEvent> {
        if self.out.is_empty() && self.ending.fin_due && !self.ending.fin_sent {
            // A peer that is gone already shows on the receiving side.
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
            self.ending.fin_sent = true;
            if self.ending.peer_done {
                return Err(LinkEvent::Closed);
            }
        }
        Ok(())
    }

    /// Moves the send queue past what TCP took, and keeps the rest of an FPDU that it has begun. If
    /// that has gone bad, the queue is at its request.
    fn account(&mut self, cx: &mut Context<'_>, train: &Train, taken: usize) -> Result<(), Faulted> {
        let outcome = train.outcome(taken);
        cx.counters.fpdus_sent += outcome.fpdus as u64;
        cx.counters.octets_copied += outcome.copied as u64;
        self.unaligned += outcome.end;
        if let Some((cursor, framer)) = outcome.whole {
            cx.sq.cursor = cursor;
            self.framer = framer;
            cx.sq.handed_to_cursor();
        }
        if let Some((cursor, framer, rest)) = outcome.started {
            let rest = rest?;
            cx.sq.cursor = cursor;
            self.framer = framer;
            self.out.keep(rest);
        }
        Ok(())
    }

    /// Turns inbound Reads and atomics into Responses, in order (RFC 5040 §5.2.1, RFC 7306 §5.4), as far as `out` has
    /// room. Sources are copied: a peer's CRC must not depend on what happens to that memory later.
    fn prepare_responses(&mut self, cx: &mut Context<'_>, segments: &mut Segments) -> Result<(), LinkEvent> {
        let has_own = cx.sq.has_unsent();
        // RFC 5041 §5.3 only orders messages, but receivers in the field take a second tagged
        // message inside another for a fault, and a Response is one: a message of our own is sent
        // whole before a Response goes on.
        if !self.may_send || self.own_turn || self.stream.inbound() == 0 || cx.sq.cursor.offset > 0 {
            return Ok(());
        }
        let emss = self.emss();
        let mulpdu = self.mulpdu(emss);
        *segments = self.segments(emss);
        let ahead = if cx.attrs.device.promised.is_exhausted() { FEW_RESPONSES } else { RESPONSES_AHEAD };
        while self.out.rest().len() < ahead {
            let before = self.out.rest().len();
            let done = match self.stream.next_response() {
                None => return Ok(()),
                Some(Response::Read(_)) => match self.read_response(cx.attrs, mulpdu, segments)? {
                    Some(last) => last,
                    None => return Ok(()),
                },
                Some(Response::Atomic(_)) => {
                    let before = self.unaligned;
                    let done = self.atomic_response(cx.attrs)?;
                    segments.add(self.unaligned - before);
                    done
                }
            };
            cx.counters.fpdus_sent += 1;
            self.answered += self.out.rest().len() - before;
            if done {
                self.stream.response_done();
                // Between two Responses any message may go, between two segments of one only some.
                if has_own && self.answered >= TURN {
                    break;
                }
            }
        }
        self.own_turn = has_own;
        if !has_own {
            self.answered = 0;
        }
        Ok(())
    }

    /// One segment of a Read Response; whether it was the last, `None` if it must wait for the next write.
    fn read_response(
        &mut self,
        attrs: &QpAttributes,
        mulpdu: usize,
        segments: &mut Segments,
    ) -> Result<Option<bool>, LinkEvent> {
        let Some(Response::Read(response)) = self.stream.next_response() else { return Ok(Some(true)) };
        let request = response.request;
        let offending = response.offending();
        let faulty = |fault| LinkEvent::Fault(fault, Some(offending));
        let left = u64::from(response.remaining());
        let segment = response.segment(mulpdu);
        // RFC 5040 §5.2.1: the source of a Read of no octets is not checked. Of any other all that is left is checked
        // before each segment: the region may have gone meanwhile (RFC 5042 §6.2.2).
        let source = if request.size == 0 {
            None
        } else {
            let grant = attrs.check_remote(request.src_stag, segment.src_to, left, Access::REMOTE_READ);
            Some(grant.map_err(|error| faulty(Fault::read_source(error)))?)
        };
        let octets = self.framer.fpdu_len(segment.header.len() + segment.len);
        if !segments.admit(octets) {
            return Ok(None);
        }
        let fill = |offset: usize, out: &mut [u8]| match &source {
            Some(source) => source.copy_to(offset, out),
            None => Ok(()),
        };
        let before = self.framer.clone();
        if self.out.emit(&mut self.framer, segment.header.octets().as_ref(), segment.len, fill).is_err() {
            // What is no longer there is out of bounds.
            self.framer = before;
            return Err(faulty(Fault::read_source(AccessError::Bounds)));
        }
        self.unaligned += octets;
        response.advance(segment.len);
        Ok(Some(segment.last))
    }

    /// Carries out an atomic and queues its Response (RFC 7306 §5).
    fn atomic_response(&mut self, attrs: &QpAttributes) -> Result<bool, LinkEvent> {
        let Some(Response::Atomic(response)) = self.stream.next_response() else { return Ok(true) };
        let (request, offending) = (response.request, response.offending());
        let faulty = |fault| LinkEvent::Fault(fault, Some(offending));
        let grant = attrs
            .check_remote(request.stag, request.to, 8, Access::REMOTE_ATOMIC)
            .map_err(|error| faulty(Fault::atomic_access(error)))?;
        // RFC 7306 §5.1: a target that is not aligned is not touched.
        let original = grant
            .fetch_modify_u64(|original| request.op.apply(original))
            .map_err(|error| match error {
                AtomicError::Misaligned { .. } => Fault::misaligned_atomic(),
                AtomicError::Faulted(_) => Fault::atomic_access(AccessError::Bounds),
            })
            .map_err(faulty)?;
        drop(grant);
        let msn = self.msns.next(ATOMIC_RESPONSE_QUEUE);
        let header = untagged_header(Opcode::AtomicResponse, Stag(0), msn, 0, true);
        let response = AtomicResponseRepr { request_id: request.request_id, original };
        self.push_own(&header, &response.octets());
        Ok(true)
    }

    /// Fills the train from the send queue's cursor on.
    fn build(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Stop {
        if !self.may_send || !cx.sq.has_unsent() {
            return Stop::Wait;
        }
        let answering = is_answering(&mut self.stream);
        let Outgoing { train, grants } = out;
        let mut filling = Filling { attrs: cx.attrs, train, grants, framer: self.framer.clone() };
        // Asked for only when the train is more than one message that fits into the smallest MULPDU.
        let mut emss = None;
        let mut cursor = cx.sq.cursor;
        loop {
            let train = &mut *filling.train;
            // Between messages Responses get their turn.
            if train.is_full() || (cursor.offset == 0 && train.len() >= TURN && self.stream.inbound() > 0) {
                break Stop::Wait;
            }
            let at_front = cursor.seq == cx.sq.oldest();
            let Some(wqe) = cx.sq.get_mut(cursor.seq) else { break Stop::Wait };
            if cursor.offset == 0 && wqe.is_fenced(at_front, &self.stream) {
                break Stop::Wait;
            }
            if answering && !wqe.may_go_inside_response() {
                break Stop::Wait;
            }
            if wqe.is_local() {
                if !train.is_empty() {
                    break Stop::Wait;
                }
                let status = cx.attrs.local_operation(&wqe.wr.operation);
                cx.sq.finish_at_cursor(status);
                cursor = cx.sq.cursor;
                if status == Status::Success {
                    continue;
                }
                break Stop::Failed(None);
            }
            let mulpdu = if wqe.total <= SMALL && train.is_empty() && self.out.is_empty() {
                MIN_MULPDU
            } else {
                let emss = *emss.get_or_insert_with(|| {
                    let emss = self.emss();
                    train.align(self.segments(emss));
                    emss
                });
                self.mulpdu(emss)
            };
            match self.push_next(&mut filling, wqe, cursor, mulpdu) {
                Ok(Some(after)) => cursor = after,
                Ok(None) => break Stop::Wait,
                Err(status) => break Stop::Failed(Some(status)),
            }
        }
    }

    /// Adds the FPDU at the cursor; the place behind it, or `None` if it must wait.
    fn push_next(
        &mut self,
        filling: &mut Filling<'_>,
        wqe: &mut Wqe,
        at: Cursor,
        mulpdu: usize,
    ) -> Result<Option<Cursor>, Status> {
        match &wqe.wr.operation {
            Operation::Send { gather, invalidate } => {
                let opcode = send_opcode(invalidate.is_some(), wqe.wr.solicited);
                let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(SEND_QUEUE));
                let segment = cut(wqe.total, at.offset, mulpdu, Header::MAX_LEN);
                let mo = u32::try_from(at.offset).unwrap_or(u32::MAX);
                let header = untagged_header(opcode, invalidate.unwrap_or(Stag(0)), msn, mo, segment.last);
                filling.push_segment(&header, gather, segment, at, &mut self.verdicts)
            }
            Operation::Write { gather, remote } => {
                let segment = cut(wqe.total, at.offset, mulpdu, TaggedRepr::LEN);
                let to = remote.to.wrapping_add(at.offset);
                let header = tagged_header(Opcode::Write, remote.stag, to, segment.last);
                filling.push_segment(&header, gather, segment, at, &mut self.verdicts)
            }
            Operation::Immediate { data } => {
                let opcode = if wqe.wr.solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(SEND_QUEUE));
                let header = untagged_header(opcode, Stag(0), msn, 0, true);
                filling.push_whole(&header, data, at)
            }
            Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CmpSwap { .. } => {
                let Some((header, octets, len)) = self.request(filling.attrs, wqe, at.seq)? else {
                    return Ok(None);
                };
                filling.push_whole(&header, &octets[..len], at)
            }
            // `WriteImmediate` was split when it was posted, the local ones never come here.
            Operation::WriteImmediate { .. } | Operation::Bind { .. } | Operation::Invalidate { .. } => {
                Err(Status::LocalOperation)
            }
        }
    }

    /// The Read Request or Atomic Request of a request, issued once; `None` while ORD are on their way (RFC 5040 §6.1).
    fn request(
        &mut self,
        attrs: &QpAttributes,
        wqe: &mut Wqe,
        seq: u64,
    ) -> Result<Option<(Header, RequestOctets, usize)>, Status> {
        if self.negotiated.ord == 0 {
            return Err(Status::LocalOperation);
        }
        if wqe.msn.is_none() && !self.stream.can_issue() {
            return Ok(None);
        }
        let mut octets = [0; AtomicRequestRepr::LEN];
        let (opcode, len) = match wqe.wr.operation {
            Operation::Read { sink, remote, .. } => {
                attrs.check_sink(&sink, sink.len)?;
                let size = u32::try_from(sink.len).map_err(|_| Status::LocalOperation)?;
                if wqe.msn.is_none() {
                    self.stream.issue_read(seq, sink.stag, sink.addr, size);
                }
                let Remote { stag: src_stag, to: src_to } = remote;
                let request =
                    ReadRequestRepr { sink_stag: sink.stag, sink_to: sink.addr, size, src_stag, src_to };
                octets[..ReadRequestRepr::LEN].copy_from_slice(&request.octets());
                (Opcode::ReadRequest, ReadRequestRepr::LEN)
            }
            Operation::FetchAdd { sink, remote, add, mask } => {
                attrs.check_sink(&sink, 8)?;
                let op = AtomicOp::FetchAdd { add, mask };
                octets = self.atomic_request(wqe, seq, remote, op);
                (Opcode::AtomicRequest, AtomicRequestRepr::LEN)
            }
            Operation::CmpSwap { sink, remote, compare, compare_mask, swap, swap_mask } => {
                attrs.check_sink(&sink, 8)?;
                let op = AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask };
                octets = self.atomic_request(wqe, seq, remote, op);
                (Opcode::AtomicRequest, AtomicRequestRepr::LEN)
            }
            _ => return Err(Status::LocalOperation),
        };
        let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(REQUEST_QUEUE));
        Ok(Some((untagged_header(opcode, Stag(0), msn, 0, true), octets, len)))
    }

    fn atomic_request(&mut self, wqe: &mut Wqe, seq: u64, remote: Remote, op: AtomicOp) -> RequestOctets {
        if wqe.msn.is_none() {
            wqe.request_id = self.stream.issue_atomic(seq);
        }
        AtomicRequestRepr { op, request_id: wqe.request_id, stag: remote.stag, to: remote.to }.octets()
    }
}

impl Filling<'_> {
    /// Adds a message of one segment; the place behind it, or `None` if it must wait.
    fn push_whole(&mut self, header: &Header, octets: &[u8], at: Cursor) -> Result<Option<Cursor>, Status> {
        let next = Cursor { seq: at.seq + 1, offset: 0 };
        let pushed = self.train.push(&mut self.framer, header, Source::Inline(octets), octets.len(), next)?;
        Ok(pushed.then_some(next))
    }

    /// Adds one segment of a message that may be cut; the place behind it, or `None` if it must wait.
    fn push_segment(
        &mut self,
        header: &Header,
        gather: &Gather,
        segment: Cut,
        at: Cursor,
        verdicts: &mut Verdicts,
    ) -> Result<Option<Cursor>, Status> {
        let after = if segment.last {
            Cursor { seq: at.seq + 1, offset: 0 }
        } else {
            Cursor { seq: at.seq, offset: at.offset + segment.len as u64 }
        };
        let source = match gather {
            Gather::Inline(octets) => {
                let from = usize::try_from(segment.offset).unwrap_or(usize::MAX);
                Source::Inline(octets.get(from..from + segment.len).ok_or(Status::LocalOperation)?)
            }
            Gather::List(list) => {
                self.grants.clear();
                self.attrs
                    .grants_of(list, segment.offset, segment.len, None, self.grants)
                    .map_err(|_| Status::LocalProtection)?;
                let shared = Train::sums_in_place(&self.framer, segment.len) && self.is_shared(verdicts);
                if shared { Source::Shared(self.grants) } else { Source::Granted(self.grants) }
            }
        };
        let pushed = self.train.push(&mut self.framer, header, source, segment.len, after)?;
        Ok(pushed.then_some(after))
    }

    /// Returns whether others than the receiver may change a payload while it is sent. If not, they
    /// get no right to while the train has its claim.
    fn is_shared(&mut self, verdicts: &mut Verdicts) -> bool {
        let claim = self.train.claim.get_or_insert_with(|| self.attrs.device.mem.claim());
        self.grants.iter().any(|grant| claim.is_shared(grant, self.attrs.num, verdicts))
    }
}

/// Whether a Read Response has been begun and not finished.
fn is_answering(stream: &mut rddp_rdmap::Stream) -> bool {
    matches!(stream.next_response(), Some(Response::Read(response)) if response.done > 0)
}

type RequestOctets = [u8; AtomicRequestRepr::LEN];

fn send_opcode(invalidate: bool, solicited: bool) -> Opcode {
    match (invalidate, solicited) {
        (false, false) => Opcode::Send,
        (false, true) => Opcode::SendSolicited,
        (true, false) => Opcode::SendInvalidate,
        (true, true) => Opcode::SendSolicitedInvalidate,
    }
}

impl Wqe {
    /// Returns whether this request may be sent between two segments of a Response: untagged
    /// messages may (RFC 5041 §5.3). Binds and invalidations send nothing: they wait for no
    /// Response that the peer may never take.
    fn may_go_inside_response(&self) -> bool {
        !matches!(self.wr.operation, Operation::Write { .. } | Operation::WriteImmediate { .. })
    }

    fn is_fenced(&self, at_front: bool, stream: &rddp_rdmap::Stream) -> bool {
        // A Read that was issued and found no room in the train counts among those outstanding: it
        // must not wait for itself.
        let waits_for_reads = self.wr.read_fence && self.msn.is_none() && stream.outstanding() > 0;
        waits_for_reads || (self.wr.local_fence && !at_front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_send_variant_has_its_opcode() {
        assert_eq!(send_opcode(false, false), Opcode::Send);
        assert_eq!(send_opcode(true, false), Opcode::SendInvalidate);
        assert_eq!(send_opcode(false, true), Opcode::SendSolicited);
        assert_eq!(send_opcode(true, true), Opcode::SendSolicitedInvalidate);
    }
}
