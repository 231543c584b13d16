//! Answering: the peer's Reads and atomics become Responses (RFC 5040 §5.2, RFC 7306 §5).

use rddp_ddp::{Stag, TaggedRepr};
use rddp_iwarp::Segments;
use rddp_rdmap::{ATOMIC_RESPONSE_QUEUE, untagged_header};
use rddp_rdmap::{AccessError, AtomicResponseRepr, Fault, Opcode, Response};
use rddp_stat::Counter;

use super::build::is_answering;
use super::link::Link;
use super::train::MAX_ALIGNED;
use super::tx::TURN;
use crate::mem::{Access, AtomicError, Faulted};
use crate::qp::attributes::QpAttributes;
use crate::qp::context::Context;
use crate::wire::LinkEvent;

/// Octets of Responses that are prepared ahead of TCP: what a second-level cache holds beside their
/// source.
pub(crate) const RESPONSES_AHEAD: usize = 256 * 1024;

/// Octets of Responses that are prepared while all QPs together keep too many: what peers that ask
/// and do not read can make us keep is bounded.
pub(crate) const FEW_RESPONSES: usize = 64 * 1024;

impl Link {
    /// Turns inbound Reads and atomics into Responses, in order (RFC 5040 §5.2.1, RFC 7306 §5.4),
    /// as far as `out` has room. Sources are copied: a peer's CRC must not depend on what happens
    /// to that memory later.
    pub(super) fn prepare_responses(
        &mut self,
        cx: &mut Context<'_>,
        segments: &mut Segments,
    ) -> Result<(), LinkEvent> {
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
        if is_answering(&mut self.stream) {
            segments.end();
        }
        let ahead = match () {
            () if cx.attrs.device.promised.is_exhausted() => FEW_RESPONSES,
            () if segments.is_set() => MAX_ALIGNED,
            () => RESPONSES_AHEAD,
        };
        while self.out.owed().len() < ahead {
            let before = self.out.owed().len();
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
        Ok(())
    }

    /// Queues one segment of a Read Response. Returns whether it was the last, `None` if it must
    /// wait for the next write.
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
        let segment = response.segment(segments.longest(mulpdu, left as usize + TaggedRepr::LEN));
        // RFC 5040 §5.2.1: the source of a Read of no octets is not checked. Of any other all that
        // is left is checked before each segment: the region may have gone meanwhile
        // (RFC 5042 §6.2.2).
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
        // What is no longer there is out of bounds.
        self.out
            .push(&mut self.framer, &segment.header, segment.len, fill)
            .map_err(|Faulted| faulty(Fault::read_source(AccessError::Bounds)))?;
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
}
