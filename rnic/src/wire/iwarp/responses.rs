//! Answering: the peer's Reads and atomics become Responses (RFC 5040 §5.2, RFC 7306 §5).

use rddp_ddp::{Stag, TaggedRepr};
use rddp_iwarp::Segments;
use rddp_rdmap::{ATOMIC_RESPONSE_QUEUE, untagged_header};
use rddp_rdmap::{AccessError, AtomicResponseRepr, Fault, Opcode, ReadResponse, Response};
use rddp_stat::Counter;

use super::build::is_answering;
use super::link::Link;
use super::train::COPY_UP_TO;
use super::tx::TURN;
use crate::mem::{Access, AtomicError, Faulted, Grant};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::wire::WireEvent;

/// Octets of Responses that are prepared ahead of TCP: what a second-level cache holds beside their
/// source.
pub(crate) const RESPONSES_AHEAD: usize = 256 * 1024;

/// Octets of Responses that are prepared while all QPs together keep too many: what peers that ask
/// and do not read can make us keep is bounded.
pub(crate) const FEW_RESPONSES: usize = 64 * 1024;

/// The way that a segment of a Response has taken.
enum Next {
    /// Queued.
    Queued { last: bool },
    /// Left for the next write, or until its octets have been read.
    Waits,
    /// Left to be sent from where it lies.
    MayBeLent,
}

/// Returns a grant of all that is left of a Response, whose next octet lies at `src_to`. It is
/// checked before each segment: the region may have gone meanwhile (RFC 5042 §6.2.2).
#[inline]
pub(super) fn read_source(
    attrs: &QpAttributes,
    response: &ReadResponse,
    src_to: u64,
) -> Result<Grant, WireEvent> {
    let (stag, left) = (response.request.src_stag, response.remaining().into());
    attrs
        .check_remote(stag, src_to, left, Access::REMOTE_READ)
        .map_err(|error| WireEvent::Fault(Fault::read_source(error), Some(response.offending())))
}

impl Link {
    /// Turns inbound Reads and atomics into Responses, in order (RFC 5040 §5.2.1, RFC 7306 §5.4),
    /// as far as `out` has room. Sources are copied: a peer's CRC must not depend on what happens
    /// to that memory later. Returns whether it stopped at one that need not be
    /// ([`lend_responses`](Self::lend_responses)).
    pub(super) fn prepare_responses(
        &mut self,
        cx: &mut Context<'_>,
        segments: &mut Segments,
    ) -> Result<bool, WireEvent> {
        let has_own = cx.sq.has_unsent();
        // RFC 5041 §5.3 only orders messages, but receivers in the field take a second tagged
        // message inside another for a fault, and a Response is one: a message of our own is sent
        // whole before a Response goes on.
        if !self.may_send || self.own_turn || self.stream.inbound() == 0 || cx.sq.cursor.offset > 0 {
            return Ok(false);
        }
        let emss = self.emss();
        let mulpdu = self.mulpdu(emss);
        *segments = self.segments(emss);
        if is_answering(&mut self.stream) {
            segments.end();
        }
        let ahead = match () {
            () if cx.attrs.device.promised.is_exhausted() => FEW_RESPONSES,
            () if segments.is_set() => self.most_aligned,
            () => RESPONSES_AHEAD,
        };
        while self.out.owed().len() < ahead {
            let before = self.out.owed().len();
            let done = match self.stream.next_response() {
                None => return Ok(false),
                Some(Response::Read(_)) => match self.read_response(cx, mulpdu, segments)? {
                    Next::Queued { last } => last,
                    Next::Waits => return Ok(false),
                    Next::MayBeLent => return Ok(true),
                },
                Some(Response::Atomic(_)) => {
                    let before = self.unaligned;
                    let done = self.atomic_response(cx.attrs)?;
                    segments.add(self.unaligned - before);
                    done
                }
            };
            cx.tally.add(Counter::FpdusSent, 1);
            self.answered += self.out.owed().len() - before;
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
        Ok(false)
    }

    /// Executes a short Read or an atomic of the peer's that has just come, if it is the next one.
    /// No RFC asks for it, nor does InfiniBand without a fence; but adapters do, and programs of
    /// these let a Write follow a Read of the same memory, and expect what was there before.
    #[cold]
    pub(super) fn answer_short(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let is_short = match self.stream.next_response() {
            Some(Response::Read(response)) => response.remaining() as usize <= COPY_UP_TO,
            Some(Response::Atomic(_)) => true,
            None => false,
        };
        if is_short {
            self.prepare_responses(cx, &mut Segments::default())?;
        }
        Ok(())
    }

    /// Queues one segment of a Read Response, unless it may be lent.
    fn read_response(
        &mut self,
        cx: &Context<'_>,
        mulpdu: usize,
        segments: &mut Segments,
    ) -> Result<Next, WireEvent> {
        let (attrs, tally) = (cx.attrs, cx.tally);
        let Some(Response::Read(response)) = self.stream.next_response() else {
            return Ok(Next::Queued { last: true });
        };
        let left = response.remaining() as usize;
        let segment = response.segment(segments.longest(mulpdu, left + TaggedRepr::LEN));
        // RFC 5040 §5.2.1: the source of a Read of no octets is not checked.
        let source = match response.request.size {
            0 => None,
            _ => Some(read_source(attrs, response, segment.src_to)?),
        };
        let offending = response.offending();
        if segment.len > COPY_UP_TO && source.as_ref().is_some_and(|source| self.may_lend(source)) {
            return Ok(Next::MayBeLent);
        }
        let octets = self.framer.fpdu_len(segment.header.len() + segment.len);
        let before = *segments;
        if !segments.admit(octets) {
            return Ok(Next::Waits);
        }
        let ahead = &mut self.ahead;
        let fill = |offset: usize, out: &mut [u8]| match &source {
            Some(source) if source.is_in_file() => {
                let copied = ahead.copy_to(attrs, source, offset, out);
                ahead.tell(tally);
                copied
            }
            Some(source) => {
                if out.len() > COPY_UP_TO {
                    tally.add(Counter::OctetsCopied, out.len() as u64);
                }
                source.copy_to(offset, out)
            }
            None => Ok(()),
        };
        if let Err(Faulted) = self.out.push(&mut self.framer, &segment.header, segment.len, fill) {
            if self.ahead.is_reading() {
                *segments = before;
                self.recount(attrs);
                return Ok(Next::Waits);
            }
            // What is no longer there is out of bounds.
            return Err(WireEvent::Fault(Fault::read_source(AccessError::Bounds), Some(offending)));
        }
        self.unaligned += octets;
        if let Some(Response::Read(response)) = self.stream.next_response() {
            response.advance(segment.len);
        }
        if segment.last {
            self.ahead.forget();
        }
        Ok(Next::Queued { last: segment.last })
    }

    /// Carries out an atomic and queues its Response (RFC 7306 §5).
    fn atomic_response(&mut self, attrs: &QpAttributes) -> Result<bool, WireEvent> {
        let Some(Response::Atomic(response)) = self.stream.next_response() else { return Ok(true) };
        let (request, offending) = (response.request, response.offending());
        let faulty = |fault| WireEvent::Fault(fault, Some(offending));
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
}
