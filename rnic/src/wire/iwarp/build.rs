//! Building: the requests of the send queue become FPDUs of a train (RFC 5040 §5, RFC 5041 §5).

use std::sync::atomic::Ordering;

use rddp_ddp::{Cut, Header, Msn, Stag, TaggedRepr, cut};
use rddp_iwarp::Value;
use rddp_mpa::{Framer, MIN_MULPDU};
use rddp_rdma::{Gather, Operation, Remote, Sge, Status};
use rddp_rdmap::{AtomicOp, AtomicRequestRepr, Fault, Opcode, ReadRequestRepr, Response};
use rddp_rdmap::{REQUEST_QUEUE, SEND_QUEUE, tagged_header, untagged_header};

use super::ahead::{Ahead, MOST};
use super::link::Link;
use super::train::{InFile, Position, Source, Train};
use super::tx::{Outgoing, TURN};
use crate::mem::{Faulted, Verdicts};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::sq::{Cursor, Wqe};
use crate::wire::WireEvent;

/// A message of so many octets is one segment whatever the EMSS.
pub(super) const SMALL: usize = MIN_MULPDU - Header::MAX_LEN;

/// A train while messages of our own are added to it.
struct Filling<'a> {
    attrs: &'a QpAttributes,
    train: &'a mut Train,
    grants: &'a mut Grants,
    /// The state of MPA behind what is in the train.
    framer: Framer,
}

/// The reason why a train stopped growing.
enum Stop {
    /// The train is full, the queue is empty, or something must be waited for.
    Wait,
    /// The request at the cursor cannot be done, with this status; `None`: it has been completed
    /// already.
    Failed(Option<Status>),
}

impl Link {
    /// Fills the train with messages of our own.
    // Inside the loop that sends it would take that loop's registers.
    #[inline(never)]
    pub(super) fn add_own(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Result<(), WireEvent> {
        // What comes before a bad request goes out first.
        if let Stop::Failed(status) = self.build(cx, out)
            && out.train.is_empty()
        {
            if let Some(status) = status {
                cx.sq.finish_at_cursor(status);
            }
            // draft-hilland-rddp-verbs §8.3.2: a local error of a request ends the stream with
            // 0x0000.
            return Err(Fault::local_catastrophic().into());
        }
        Ok(())
    }

    /// Fills the train from the send queue's cursor on.
    fn build(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Stop {
        if !(self.may_send || self.speaks_now()) || !cx.sq.has_unsent() {
            return Stop::Wait;
        }
        // Between messages: a Response would wait behind one that has been begun.
        if self.awaits_peers_receive() && cx.sq.cursor.offset == 0 {
            return Stop::Wait;
        }
        let answering = is_answering(&mut self.stream);
        let Outgoing { train, grants } = out;
        let mut filling = Filling { attrs: cx.attrs, train, grants, framer: self.framer.clone() };
        // Asked for only when the train is more than one message that fits into the smallest
        // MULPDU.
        let mut emss = None;
        let mut cursor = cx.sq.cursor;
        let goes_on = cursor.offset > 0;
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
            let mulpdu = if wqe.total <= SMALL as u64 && train.is_empty() && self.out.is_empty() {
                MIN_MULPDU
            } else {
                let emss = *emss.get_or_insert_with(|| {
                    let emss = self.emss();
                    let mut segments = self.segments(emss);
                    if goes_on {
                        segments.end();
                    }
                    train.align(segments);
                    emss
                });
                train.segments.longest(self.mulpdu(emss), rest_of(wqe, cursor))
            };
            match self.push_next(&mut filling, wqe, cursor, mulpdu) {
                Ok(Some(after)) => cursor = after,
                Ok(None) => break Stop::Wait,
                Err(status) => break Stop::Failed(Some(status)),
            }
        }
    }

    /// Adds the FPDU at the cursor. Returns the place behind it, or `None` if it must wait.
    fn push_next(
        &mut self,
        filling: &mut Filling<'_>,
        wqe: &mut Wqe,
        at: Cursor,
        mulpdu: usize,
    ) -> Result<Option<Cursor>, Status> {
        match &wqe.wr.operation {
            Operation::Send { gather, invalidate } => {
                let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(SEND_QUEUE));
                let segment = cut(wqe.total, at.offset, mulpdu, Header::MAX_LEN);
                let header = send_header(*invalidate, wqe.wr.solicited, msn, at.offset, segment.last);
                filling.push_segment(&header, gather, segment, at, (&mut self.verdicts, &mut self.own_ahead))
            }
            Operation::SendImmediate { gather, data } => {
                if at.offset == 0 && !filling.push_value(Value(*data), at)? {
                    return Ok(None);
                }
                let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(SEND_QUEUE));
                let segment = cut(wqe.total, at.offset, mulpdu, Header::MAX_LEN);
                let header = send_header(None, wqe.wr.solicited, msn, at.offset, segment.last);
                filling.push_segment(&header, gather, segment, at, (&mut self.verdicts, &mut self.own_ahead))
            }
            Operation::Write { gather, remote } => {
                let segment = cut(wqe.total, at.offset, mulpdu, TaggedRepr::LEN);
                let header = write_header(*remote, at.offset, segment.last);
                filling.push_segment(&header, gather, segment, at, (&mut self.verdicts, &mut self.own_ahead))
            }
            Operation::Immediate { data } => {
                let msn = *wqe.msn.get_or_insert_with(|| self.msns.next(SEND_QUEUE));
                filling.push_whole(&immediate_header(wqe.wr.solicited, msn), data, at)
            }
            Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CmpSwap { .. } => {
                let Some((header, octets, len)) = self.request(filling.attrs, wqe, at.seq)? else {
                    return Ok(None);
                };
                filling.push_whole(&header, &octets[..len], at)
            }
            // `WriteImmediate` was split when it was posted, the local ones never come here.
            _ => Err(Status::LocalOperation),
        }
    }

    /// Makes the Read Request or Atomic Request of a work request, which is issued once. Returns
    /// `None` while as many are outstanding as ORD allows (RFC 5040 §6.1).
    fn request(
        &mut self,
        attrs: &QpAttributes,
        wqe: &mut Wqe,
        seq: u64,
    ) -> Result<Option<(Header, RequestOctets, usize)>, Status> {
        match attrs.max_requests.load(Ordering::Relaxed) {
            most if most > 0 && self.acknowledging.is_some() => self.stream.set_ord(most),
            _ if self.negotiated.ord == 0 => return Err(Status::LocalOperation),
            _ => {}
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
                    if let Some(guided) = &mut self.guided {
                        guided.tell_sink(seq, &sink);
                    }
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
    /// Adds a message of one segment. Returns the place behind it, or `None` if it must wait.
    fn push_whole(&mut self, header: &Header, octets: &[u8], at: Cursor) -> Result<Option<Cursor>, Status> {
        let next = Cursor { seq: at.seq + 1, offset: 0 };
        let pushed = self
            .train
            .push(&mut self.framer, header, Source::Inline(octets), octets.len(), Position::Own(next))
            .map_err(gone_bad)?;
        Ok(pushed.then_some(next))
    }

    /// Adds the value of the Send at the cursor, in front of it: where the Send finds no room it is
    /// told again. Returns whether there was room.
    #[cold]
    fn push_value(&mut self, value: Value, at: Cursor) -> Result<bool, Status> {
        let none = Source::Inline(&[]);
        self.train.push(&mut self.framer, &value.header(), none, 0, Position::Own(at)).map_err(gone_bad)
    }

    /// Adds one segment of a message that may be cut. Returns the place behind it, or `None` if it
    /// must wait.
    #[inline]
    fn push_segment(
        &mut self,
        header: &Header,
        gather: &Gather,
        segment: Cut,
        at: Cursor,
        (verdicts, ahead): (&mut Verdicts, &mut Ahead),
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
                if self.grant(list, segment.offset, segment.len)? {
                    return self.push_from_file(header, list, segment, after, ahead);
                }
                if Train::sums_in_place(&self.framer, segment.len) && self.is_shared(verdicts) {
                    Source::Shared(self.grants)
                } else {
                    Source::Granted(self.grants)
                }
            }
        };
        let pushed = self
            .train
            .push(&mut self.framer, header, source, segment.len, Position::Own(after))
            .map_err(gone_bad)?;
        Ok(pushed.then_some(after))
    }

    /// Does what [`push_segment`](Self::push_segment) does with a segment some or all of which is
    /// in a file.
    #[cold]
    #[inline(never)]
    fn push_from_file(
        &mut self,
        header: &Header,
        list: &[Sge],
        segment: Cut,
        after: Cursor,
        ahead: &mut Ahead,
    ) -> Result<Option<Cursor>, Status> {
        // What follows of the message is read along with it.
        let rest = list.iter().map(|sge| sge.len).sum::<u64>() - segment.offset;
        self.grant(list, segment.offset, segment.len.max(MOST.min(rest as usize)))?;
        let mut octets = InFile { grants: self.grants, ahead, attrs: self.attrs };
        let source = Source::InFile(&mut octets);
        let pushed = self.train.push(&mut self.framer, header, source, segment.len, Position::Own(after));
        self.grants.clear();
        match pushed {
            Ok(pushed) => {
                if segment.last {
                    ahead.forget();
                }
                Ok(pushed.then_some(after))
            }
            // Another thread reads its octets.
            Err(Faulted) if ahead.is_reading() => Ok(None),
            Err(Faulted) => Err(Status::LocalProtection),
        }
    }

    /// Takes grants of these octets of a gather list, and of no others. Returns whether some are in
    /// a file.
    #[inline]
    fn grant(&mut self, list: &[Sge], offset: u64, len: usize) -> Result<bool, Status> {
        self.grants.clear();
        let granted = self.attrs.grants_of(list, offset, len, None, self.grants);
        granted.map_err(|_| Status::LocalProtection)
    }

    /// Returns whether others than the receiver may change a payload while it is sent. If not, they
    /// get no right to while the train has its claim. Of stable memory its owner says that nobody
    /// does.
    fn is_shared(&mut self, verdicts: &mut Verdicts) -> bool {
        let (attrs, claim) = (self.attrs, &mut self.train.claim);
        self.grants.iter().filter(|grant| !grant.is_stable()).any(|grant| {
            let claim = claim.get_or_insert_with(|| attrs.device.mem.claim());
            claim.is_shared(grant, attrs.num, verdicts)
        })
    }
}

/// Returns the status of a request whose memory has gone bad.
fn gone_bad(Faulted: Faulted) -> Status {
    Status::LocalProtection
}

/// Returns the length of what is left of a message, as one ULPDU.
fn rest_of(wqe: &Wqe, at: Cursor) -> usize {
    let header =
        if let Operation::Write { .. } = wqe.wr.operation { TaggedRepr::LEN } else { Header::MAX_LEN };
    usize::try_from(wqe.total - at.offset).unwrap_or(usize::MAX).saturating_add(header)
}

/// Returns whether a Read Response has been begun and not finished.
pub(super) fn is_answering(stream: &mut rddp_rdmap::Stream) -> bool {
    matches!(stream.next_response(), Some(Response::Read(response)) if response.done > 0)
}

type RequestOctets = [u8; AtomicRequestRepr::LEN];

/// Returns the header of a segment of a Send, `offset` octets into the message.
#[inline]
pub(super) fn send_header(
    invalidate: Option<Stag>,
    solicited: bool,
    msn: Msn,
    offset: u64,
    last: bool,
) -> Header {
    let opcode = send_opcode(invalidate.is_some(), solicited);
    let mo = u32::try_from(offset).unwrap_or(u32::MAX);
    untagged_header(opcode, invalidate.unwrap_or(Stag(0)), msn, mo, last)
}

/// Returns the header of a segment of a Write, `offset` octets into the message.
#[inline]
pub(super) fn write_header(remote: Remote, offset: u64, last: bool) -> Header {
    let Remote { stag, to } = remote.at(offset);
    tagged_header(Opcode::Write, stag, to, last)
}

/// Returns the header of a message of Immediate Data.
#[inline]
pub(super) fn immediate_header(solicited: bool, msn: Msn) -> Header {
    let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
    untagged_header(opcode, Stag(0), msn, 0, true)
}

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
