//! Sending: requests become FPDUs, FPDUs become trains (RFC 5040 §5, RFC 5041 §5, RFC 5044 §5.1).
//!
//! [`QpInner::pump`] goes on until TCP takes no more or nothing is left. Octets that TCP has been promised (Responses,
//! a Terminate, the rest of an FPDU that it has begun) wait in the link's `out` buffer and go first.

use std::cell::Cell;
use std::io::ErrorKind;

use rddp_ddp::{Header, Stag, TaggedRepr, cut};
use rddp_iwarp::Segments;
use rddp_mpa::MIN_MULPDU;
use rddp_rdmap::{ATOMIC_RESPONSE_QUEUE, REQUEST_QUEUE, SEND_QUEUE, tagged_header, untagged_header};
use rddp_rdmap::{
    AccessError, AtomicOp, AtomicRequestRepr, AtomicResponseRepr, Fault, Offending, Opcode, ReadRequestRepr,
    Response,
};

use super::QpInner;
use super::core::Core;
use super::link::Link;
use super::rx::Grants;
use super::sq::{Cursor, SendQueue, Wqe};
use super::state::QpState;
use super::train::{Source, Train};
use crate::completion::Status;
use crate::counters::Counters;
use crate::event::AsyncEventKind;
use crate::mem::{Access, AtomicError, Faulted, Verdicts, is_fault};
use crate::scratch::{Own, with_own};
use crate::wr::{Gather, Operation, Remote};

/// Octets of Responses that are prepared ahead of TCP: what a second-level cache holds beside their source.
pub(super) const RESPONSES_AHEAD: usize = 256 * 1024;

/// The same while all QPs together keep too many: what peers that ask and do not read can make us keep is bounded.
pub(super) const FEW_RESPONSES: usize = 64 * 1024;

/// Octets of Responses behind which messages of our own have their turn, and the other way round: a
/// message begun may be longer, but short ones of either kind need not alternate one by one.
const TURN: usize = 16 * 1024;

/// Octets that are sent in one go while Reads of the peer's are in service.
const ANSWERING_TURN: u64 = 1024 * 1024;

/// A message of so many octets is one segment whatever the EMSS.
const SMALL: u64 = (MIN_MULPDU - Header::MAX_LEN) as u64;

thread_local! {
    static TRAIN: Own<(Train, Grants)> = const { Cell::new(None) };
}

/// Why a train stopped growing.
enum Stop {
    /// It is full, the queue is empty, or something must be waited for.
    Wait,
    /// The request at the cursor cannot be done, with this status; `None`: it has been completed already.
    Failed(Option<Status>),
}

impl QpInner {
    /// Sends what can be sent, and completes what that finished.
    pub(super) fn pump(&self, core: &mut Core) {
        self.pump_for(core, ANSWERING_TURN);
    }

    /// Does what [`Self::pump`] does; while Reads of the peer's are in service, for so many octets.
    pub(super) fn pump_for(&self, core: &mut Core, turn: u64) {
        with_own(&TRAIN, |(train, grants)| {
            let end = core.counters.octets_sent + turn;
            loop {
                while self.send_round(core, train, grants) {
                    if core.counters.octets_sent >= end && self.interrupt_answering(core) {
                        break;
                    }
                }
                let before = core.sq.oldest();
                self.retire(core);
                // A local fence ends when the request before it is taken from the queue: nothing
                // else would come and send what it held back.
                if core.sq.oldest() == before || !core.sq.is_fence_over() {
                    break;
                }
            }
        });
        self.update_interest(core);
    }

    /// Leaves Responses to whoever makes progress next, as if TCP were full: a peer that takes them
    /// as fast as they come would keep the queue pair from its program, which has messages to post.
    /// Returns whether there are any.
    fn interrupt_answering(&self, core: &mut Core) -> bool {
        let Some(link) = &mut core.link else { return false };
        link.blocked |= link.stream.inbound() > 0;
        link.blocked
    }

    /// Sends only what TCP has been promised: the rest of an FPDU, a Terminate; then FIN, if one is due.
    pub(super) fn push_out(&self, core: &mut Core) {
        with_own(&TRAIN, |(train, _)| {
            train.clear();
            self.write(core, train);
        });
        self.update_interest(core);
    }

    /// One write; whether another may follow.
    fn send_round(&self, core: &mut Core, train: &mut Train, grants: &mut Grants) -> bool {
        train.clear();
        train.copies = core.link.as_mut().is_some_and(|link| std::mem::take(&mut link.copies_next));
        self.answer(core, train);
        self.add_own(core, train, grants);
        if train.is_empty() && core.link.as_mut().is_some_and(|link| std::mem::take(&mut link.own_turn)) {
            // None of our own can go now: Responses need not wait for it.
            self.answer(core, train);
        }
        let sent = self.write(core, train);
        // The grants must not outlive the write, those of a request that failed half-way neither: they delay whoever
        // deregisters.
        train.clear();
        grants.clear();
        sent && core.has_output()
    }

    /// Prepares Responses, as many as there is room for and it is their turn.
    fn answer(&self, core: &mut Core, train: &mut Train) {
        if core.state == QpState::ReadyToSend
            && let Err((fault, offending)) = self.prepare_responses(core, &mut train.segments)
        {
            self.terminate(core, fault, offending.as_ref());
        }
    }

    /// Fills the train with messages of our own.
    fn add_own(&self, core: &mut Core, train: &mut Train, grants: &mut Grants) {
        if core.state != QpState::ReadyToSend {
            return;
        }
        // What comes before a bad request goes out first.
        if let Stop::Failed(status) = self.build(core, train, grants)
            && train.is_empty()
        {
            if let Some(status) = status {
                core.sq.finish_at_cursor(status);
            }
            // draft-hilland-rddp-verbs §8.3.2: a local error of a request
            // ends the stream with 0x0000.
            self.terminate(core, Fault::local_catastrophic(), None);
        }
    }

    /// Hands `out` and the train to TCP; true if it took all and there was something.
    fn write(&self, core: &mut Core, train: &Train) -> bool {
        let Some(link) = &mut core.link else { return false };
        let promised = link.out.rest().len();
        let total = promised + train.len();
        if total == 0 {
            link.blocked = false;
            self.finish_sending(core);
            return false;
        }
        core.counters.send_calls += 1;
        let end_of_record = train.segments.end_record(total);
        let taken = match train.write(link.fd(), link.out.rest(), end_of_record) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            // Memory has gone bad. What comes before it is still sent, and of whole FPDUs only:
            // copying finds where it is.
            Err(error) if is_fault(&error) && !train.copies => {
                link.copies_next = true;
                return true;
            }
            Err(error) => {
                tracing::debug!(qp = self.num.0, %error, "TCP no longer sends");
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
                return false;
            }
        };
        core.counters.octets_sent += taken as u64;
        link.out.take(taken.min(promised));
        if link.out.is_empty() {
            core.sq.handed_to_cursor();
        }
        if taken > promised {
            // Our own turn has been used. In the middle of a message Responses wait anyway.
            (link.own_turn, link.answered) = (false, 0);
        }
        let accounted =
            account(link, &mut core.sq, &mut core.counters, train, taken.saturating_sub(promised));
        if accounted.is_err() {
            // No Terminate fits into the FPDU that TCP has begun, and its rest cannot be had.
            core.sq.finish_at_cursor(Status::LocalProtection);
            self.lose(core, Some(AsyncEventKind::Fault(Fault::local_catastrophic())));
            return false;
        }
        let kept = link.out.settle();
        self.device.promised.release(std::mem::replace(&mut link.kept, kept));
        self.device.promised.charge(kept);
        link.blocked = taken < total;
        if link.out.is_empty() {
            link.unaligned = 0;
        }
        if link.blocked {
            return false;
        }
        self.finish_sending(core);
        true
    }

    /// Everything promised has gone: now our FIN, if it is due.
    fn finish_sending(&self, core: &mut Core) {
        let Some(link) = &mut core.link else { return };
        if link.out.is_empty() && link.ending.fin_due && !link.ending.fin_sent {
            // A peer that is gone already shows on the receiving side.
            let _ = link.socket.shutdown(std::net::Shutdown::Write);
            link.ending.fin_sent = true;
            if link.ending.peer_done {
                self.closed(core);
            }
        }
    }

    /// Turns inbound Reads and atomics into Responses, in order (RFC 5040 §5.2.1, RFC 7306 §5.4), as far as `out` has
    /// room. Sources are copied: a peer's CRC must not depend on what happens to that memory later.
    fn prepare_responses(
        &self,
        core: &mut Core,
        segments: &mut Segments,
    ) -> Result<(), (Fault, Option<Offending>)> {
        let has_own = core.sq.has_unsent();
        let Some(link) = &mut core.link else { return Ok(()) };
        // RFC 5041 §5.3 only orders messages, but receivers in the field take a second tagged
        // message inside another for a fault, and a Response is one: a message of our own is sent
        // whole before a Response goes on.
        if !link.may_send || link.own_turn || link.stream.inbound() == 0 || core.sq.cursor.offset > 0 {
            return Ok(());
        }
        let emss = link.emss();
        let mulpdu = link.mulpdu(emss);
        *segments = link.segments(emss);
        let ahead = if self.device.promised.is_exhausted() { FEW_RESPONSES } else { RESPONSES_AHEAD };
        while link.out.rest().len() < ahead {
            let before = link.out.rest().len();
            let done = match link.stream.next_response() {
                None => return Ok(()),
                Some(Response::Read(_)) => match self.read_response(link, mulpdu, segments)? {
                    Some(last) => last,
                    None => return Ok(()),
                },
                Some(Response::Atomic(_)) => {
                    let before = link.unaligned;
                    let done = self.atomic_response(link)?;
                    segments.add(link.unaligned - before);
                    done
                }
            };
            core.counters.fpdus_sent += 1;
            link.answered += link.out.rest().len() - before;
            if done {
                link.stream.response_done();
                // Between two Responses any message may go, between two segments of one only some.
                if has_own && link.answered >= TURN {
                    break;
                }
            }
        }
        link.own_turn = has_own;
        if !has_own {
            link.answered = 0;
        }
        Ok(())
    }

    /// One segment of a Read Response; whether it was the last, `None` if it must wait for the next write.
    fn read_response(
        &self,
        link: &mut Link,
        mulpdu: usize,
        segments: &mut Segments,
    ) -> Result<Option<bool>, (Fault, Option<Offending>)> {
        let Some(Response::Read(response)) = link.stream.next_response() else { return Ok(Some(true)) };
        let request = response.request;
        let offending = response.offending();
        let left = u64::from(response.remaining());
        let segment = response.segment(mulpdu);
        // RFC 5040 §5.2.1: the source of a Read of no octets is not checked. Of any other all that is left is checked
        // before each segment: the region may have gone meanwhile (RFC 5042 §6.2.2).
        let source = if request.size == 0 {
            None
        } else {
            let grant = self.check_remote(request.src_stag, segment.src_to, left, Access::REMOTE_READ);
            Some(grant.map_err(|error| (Fault::read_source(error), Some(offending)))?)
        };
        let octets = link.framer.fpdu_len(segment.header.len() + segment.len);
        if !segments.admit(octets) {
            return Ok(None);
        }
        let fill = |offset: usize, out: &mut [u8]| match &source {
            Some(source) => source.copy_to(offset, out),
            None => Ok(()),
        };
        let before = link.framer.clone();
        if link.out.emit(&mut link.framer, segment.header.octets().as_ref(), segment.len, fill).is_err() {
            // What is no longer there is out of bounds.
            link.framer = before;
            return Err((Fault::read_source(AccessError::Bounds), Some(offending)));
        }
        link.unaligned += octets;
        response.advance(segment.len);
        Ok(Some(segment.last))
    }

    /// Carries out an atomic and queues its Response (RFC 7306 §5).
    fn atomic_response(&self, link: &mut Link) -> Result<bool, (Fault, Option<Offending>)> {
        let Some(Response::Atomic(response)) = link.stream.next_response() else { return Ok(true) };
        let (request, offending) = (response.request, response.offending());
        let grant = self
            .check_remote(request.stag, request.to, 8, Access::REMOTE_ATOMIC)
            .map_err(|error| (Fault::atomic_access(error), Some(offending)))?;
        // RFC 7306 §5.1: a target that is not aligned is not touched.
        let original = grant
            .fetch_modify_u64(|original| request.op.apply(original))
            .map_err(|error| match error {
                AtomicError::Misaligned { .. } => Fault::misaligned_atomic(),
                AtomicError::Faulted(_) => Fault::atomic_access(AccessError::Bounds),
            })
            .map_err(|fault| (fault, Some(offending)))?;
        drop(grant);
        let msn = link.msns.next(ATOMIC_RESPONSE_QUEUE);
        let header = untagged_header(Opcode::AtomicResponse, Stag(0), msn, 0, true);
        let response = AtomicResponseRepr { request_id: request.request_id, original };
        link.push_own(&header, &response.octets());
        Ok(true)
    }

    /// Fills the train from the send queue's cursor on.
    fn build(&self, core: &mut Core, train: &mut Train, grants: &mut Grants) -> Stop {
        let Some(link) = &mut core.link else { return Stop::Wait };
        if !link.may_send || !core.sq.has_unsent() {
            return Stop::Wait;
        }
        let answering = is_answering(&mut link.stream);
        let mut framer = link.framer.clone();
        // Asked for only when the train is more than one message that fits into the smallest MULPDU.
        let mut emss = None;
        let mut cursor = core.sq.cursor;
        loop {
            // Between messages Responses get their turn.
            if train.is_full() || (cursor.offset == 0 && train.len() >= TURN && link.stream.inbound() > 0) {
                break Stop::Wait;
            }
            let at_front = cursor.seq == core.sq.oldest();
            let Some(wqe) = core.sq.get_mut(cursor.seq) else { break Stop::Wait };
            if cursor.offset == 0 && wqe.is_fenced(at_front, &link.stream) {
                break Stop::Wait;
            }
            if answering && !wqe.may_go_inside_response() {
                break Stop::Wait;
            }
            if wqe.is_local() {
                if !train.is_empty() {
                    break Stop::Wait;
                }
                let status = self.local_operation(wqe);
                core.sq.finish_at_cursor(status);
                cursor = core.sq.cursor;
                if status == Status::Success {
                    continue;
                }
                break Stop::Failed(None);
            }
            let mulpdu = if wqe.total <= SMALL && train.is_empty() && link.out.is_empty() {
                MIN_MULPDU
            } else {
                let emss = *emss.get_or_insert_with(|| {
                    let emss = link.emss();
                    train.align(link.segments(emss));
                    emss
                });
                link.mulpdu(emss)
            };
            match self.push_next(link, &mut framer, wqe, cursor, mulpdu, train, grants) {
                Ok(Some(after)) => cursor = after,
                Ok(None) => break Stop::Wait,
                Err(status) => break Stop::Failed(Some(status)),
            }
        }
    }

    /// Adds the FPDU at the cursor; the place behind it, or `None` if it must wait.
    #[expect(clippy::too_many_arguments, reason = "the parts of one borrowed core and one train")]
    fn push_next(
        &self,
        link: &mut Link,
        framer: &mut rddp_mpa::Framer,
        wqe: &mut Wqe,
        at: Cursor,
        mulpdu: usize,
        train: &mut Train,
        grants: &mut Grants,
    ) -> Result<Option<Cursor>, Status> {
        let next = Cursor { seq: at.seq + 1, offset: 0 };
        match &wqe.wr.operation {
            Operation::Send { gather, invalidate } => {
                let opcode = send_opcode(invalidate.is_some(), wqe.wr.solicited);
                let msn = *wqe.msn.get_or_insert_with(|| link.msns.next(SEND_QUEUE));
                let segment = cut(wqe.total, at.offset, mulpdu, Header::MAX_LEN);
                let mo = u32::try_from(at.offset).unwrap_or(u32::MAX);
                let header = untagged_header(opcode, invalidate.unwrap_or(Stag(0)), msn, mo, segment.last);
                self.push_segment(framer, &header, gather, segment, at, train, grants, &mut link.verdicts)
            }
            Operation::Write { gather, remote } => {
                let segment = cut(wqe.total, at.offset, mulpdu, TaggedRepr::LEN);
                let to = remote.to.wrapping_add(at.offset);
                let header = tagged_header(Opcode::Write, remote.stag, to, segment.last);
                self.push_segment(framer, &header, gather, segment, at, train, grants, &mut link.verdicts)
            }
            Operation::Immediate { data } => {
                let opcode = if wqe.wr.solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                let msn = *wqe.msn.get_or_insert_with(|| link.msns.next(SEND_QUEUE));
                let header = untagged_header(opcode, Stag(0), msn, 0, true);
                let pushed = train.push(framer, &header, Source::Inline(data), data.len(), next)?;
                Ok(pushed.then_some(next))
            }
            Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CmpSwap { .. } => {
                let Some((header, octets, len)) = self.request(link, wqe, at.seq)? else { return Ok(None) };
                let pushed = train.push(framer, &header, Source::Inline(&octets[..len]), len, next)?;
                Ok(pushed.then_some(next))
            }
            // `WriteImmediate` was split when it was posted, the local ones never come here.
            Operation::WriteImmediate { .. } | Operation::Bind { .. } | Operation::Invalidate { .. } => {
                Err(Status::LocalOperation)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one segment: header, payload, place")]
    fn push_segment(
        &self,
        framer: &mut rddp_mpa::Framer,
        header: &Header,
        gather: &Gather,
        segment: rddp_ddp::Cut,
        at: Cursor,
        train: &mut Train,
        grants: &mut Grants,
        verdicts: &mut Verdicts,
    ) -> Result<Option<Cursor>, Status> {
        let after = if segment.last {
            Cursor { seq: at.seq + 1, offset: 0 }
        } else {
            Cursor { seq: at.seq, offset: at.offset + segment.len as u64 }
        };
        let pushed = match gather {
            Gather::Inline(octets) => {
                let from = usize::try_from(segment.offset).unwrap_or(usize::MAX);
                let octets = octets.get(from..from + segment.len).ok_or(Status::LocalOperation)?;
                train.push(framer, header, Source::Inline(octets), segment.len, after)?
            }
            Gather::List(list) => {
                grants.clear();
                self.grants_of(list, segment.offset, segment.len, None, grants)
                    .map_err(|_| Status::LocalProtection)?;
                let source =
                    if Train::sums_in_place(framer, segment.len) && self.is_shared(train, grants, verdicts) {
                        Source::Shared(grants)
                    } else {
                        Source::Granted(grants)
                    };
                train.push(framer, header, source, segment.len, after)?
            }
        };
        Ok(pushed.then_some(after))
    }

    /// Returns whether others than the receiver may change a payload while it is sent. If not, they
    /// get no right to while the train has its claim.
    fn is_shared(&self, train: &mut Train, grants: &Grants, verdicts: &mut Verdicts) -> bool {
        let claim = train.claim.get_or_insert_with(|| self.device.mem.claim());
        grants.iter().any(|grant| claim.is_shared(grant, self.num, verdicts))
    }

    /// The Read Request or Atomic Request of a request, issued once; `None` while ORD are on their way (RFC 5040 §6.1).
    fn request(
        &self,
        link: &mut Link,
        wqe: &mut Wqe,
        seq: u64,
    ) -> Result<Option<(Header, RequestOctets, usize)>, Status> {
        if link.negotiated.ord == 0 {
            return Err(Status::LocalOperation);
        }
        if wqe.msn.is_none() && !link.stream.can_issue() {
            return Ok(None);
        }
        let mut octets = [0; AtomicRequestRepr::LEN];
        let (opcode, len) = match wqe.wr.operation {
            Operation::Read { sink, remote, .. } => {
                self.check_sink(&sink, sink.len)?;
                let size = u32::try_from(sink.len).map_err(|_| Status::LocalOperation)?;
                if wqe.msn.is_none() {
                    link.stream.issue_read(seq, sink.stag, sink.addr, size);
                }
                let Remote { stag: src_stag, to: src_to } = remote;
                let request =
                    ReadRequestRepr { sink_stag: sink.stag, sink_to: sink.addr, size, src_stag, src_to };
                octets[..ReadRequestRepr::LEN].copy_from_slice(&request.octets());
                (Opcode::ReadRequest, ReadRequestRepr::LEN)
            }
            Operation::FetchAdd { sink, remote, add, mask } => {
                self.check_sink(&sink, 8)?;
                let op = AtomicOp::FetchAdd { add, mask };
                octets = atomic_request(link, wqe, seq, remote, op);
                (Opcode::AtomicRequest, AtomicRequestRepr::LEN)
            }
            Operation::CmpSwap { sink, remote, compare, compare_mask, swap, swap_mask } => {
                self.check_sink(&sink, 8)?;
                let op = AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask };
                octets = atomic_request(link, wqe, seq, remote, op);
                (Opcode::AtomicRequest, AtomicRequestRepr::LEN)
            }
            _ => return Err(Status::LocalOperation),
        };
        let msn = *wqe.msn.get_or_insert_with(|| link.msns.next(REQUEST_QUEUE));
        Ok(Some((untagged_header(opcode, Stag(0), msn, 0, true), octets, len)))
    }

    /// The sink of a Read is the program's own memory: it needs the right of local write.
    fn check_sink(&self, sink: &crate::wr::Sge, len: u64) -> Result<(), Status> {
        if len == 0 {
            return Ok(());
        }
        if sink.len < len {
            return Err(Status::LocalProtection);
        }
        let grant = self.device.mem.check_local(sink.stag, sink.addr, len, true, self.pd);
        grant.map(drop).map_err(|_| Status::LocalProtection)
    }

    /// Binds and invalidations take effect when they are reached, before any later request.
    fn local_operation(&self, wqe: &Wqe) -> Status {
        let done = match wqe.wr.operation {
            Operation::Bind { window, range, access } => self
                .device
                .mem
                .bind(&crate::mem::BindWindow {
                    window,
                    region: range.stag,
                    addr: range.addr,
                    len: range.len,
                    access,
                    pd: self.pd,
                    qp: self.num,
                    key: None,
                })
                .is_ok(),
            Operation::Invalidate { stag } => {
                self.device.mem.invalidate_local(stag, self.pd, self.num).is_ok()
            }
            _ => false,
        };
        if done { Status::Success } else { Status::MemoryBind }
    }
}

/// Whether a Read Response has been begun and not finished.
fn is_answering(stream: &mut rddp_rdmap::Stream) -> bool {
    matches!(stream.next_response(), Some(Response::Read(response)) if response.done > 0)
}

type RequestOctets = [u8; AtomicRequestRepr::LEN];

fn atomic_request(link: &mut Link, wqe: &mut Wqe, seq: u64, remote: Remote, op: AtomicOp) -> RequestOctets {
    if wqe.msn.is_none() {
        wqe.request_id = link.stream.issue_atomic(seq);
    }
    AtomicRequestRepr { op, request_id: wqe.request_id, stag: remote.stag, to: remote.to }.octets()
}

fn send_opcode(invalidate: bool, solicited: bool) -> Opcode {
    match (invalidate, solicited) {
        (false, false) => Opcode::Send,
        (false, true) => Opcode::SendSolicited,
        (true, false) => Opcode::SendInvalidate,
        (true, true) => Opcode::SendSolicitedInvalidate,
    }
}

/// Moves the send queue past what TCP took, and keeps the rest of an FPDU that it has begun. If
/// that has gone bad, the queue is at its request.
fn account(
    link: &mut Link,
    sq: &mut SendQueue,
    counters: &mut Counters,
    train: &Train,
    taken: usize,
) -> Result<(), Faulted> {
    let outcome = train.outcome(taken);
    counters.fpdus_sent += outcome.fpdus as u64;
    counters.octets_copied += outcome.copied as u64;
    link.unaligned += outcome.end;
    if let Some((cursor, framer)) = outcome.whole {
        sq.cursor = cursor;
        link.framer = framer;
        sq.handed_to_cursor();
    }
    if let Some((cursor, framer, rest)) = outcome.started {
        let rest = rest?;
        sq.cursor = cursor;
        link.framer = framer;
        link.out.keep(rest);
    }
    Ok(())
}

impl Wqe {
    pub(super) fn is_local(&self) -> bool {
        matches!(self.wr.operation, Operation::Bind { .. } | Operation::Invalidate { .. })
    }

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
