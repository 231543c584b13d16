//! Responses that are sent from where their octets lie, by a train of them.
//!
//! The source of a Response is copied, since a peer may change it between its CRC and the write
//! (RFC 5044 §4.4). Without CRC, or where the owner says that nobody changes it
//! ([`Access::STABLE`]), long segments go as those of this end's own messages do: what TCP does not
//! begin to take is checked and made anew for the next write, and the rest of an FPDU that it did
//! begin is copied.

use rddp_ddp::TaggedRepr;
use rddp_mpa::Framer;
use rddp_rdmap::{AccessError, Fault, ReadResponse, Response};

use super::link::Link;
use super::responses::read_source;
use super::train::{Position, Source, Train};
use super::tx::{Outgoing, TURN};
use crate::mem::Grant;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::wire::WireEvent;

/// The place in the line of Responses behind an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// Number of Responses that are not over.
    left: usize,
    /// Octets of the first of them that are done.
    done: u32,
}

/// The end of a Response's part in a train.
enum Lent {
    /// A whole one, or all that was left of it.
    Whole,
    /// The train is full, or what follows is not lent.
    Stopped,
}

impl Link {
    /// Returns whether a segment of a Response may be sent from where it lies: its CRC cannot go
    /// wrong. With markers everything is copied; and what is in a file lies nowhere.
    #[inline]
    pub(super) fn may_lend(&self, source: &Grant) -> bool {
        !self.negotiated.markers_tx && (!self.negotiated.crc || source.is_stable()) && !source.is_in_file()
    }

    /// Fills the train with Responses, the first of which may be lent. Messages of this end wait
    /// for another train, and have their turn as behind Responses that are copied.
    // Inside the loop that sends it would take that loop's registers.
    #[inline(never)]
    pub(super) fn lend_responses(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outgoing,
    ) -> Result<(), WireEvent> {
        let emss = self.emss();
        let (mulpdu, has_own) = (self.mulpdu(emss), cx.sq.has_unsent());
        let Outgoing { train, grants } = out;
        let mut framer = self.framer.clone();
        let responses = self.stream.responses();
        for (left, response) in (1..=self.stream.inbound()).rev().zip(responses) {
            let Response::Read(response) = response else { break };
            if has_own && !train.is_empty() && self.answered + train.len() >= TURN {
                break;
            }
            let mut lending = Lending { attrs: cx.attrs, train, grants, framer: &mut framer, mulpdu };
            match self.lend_response(&mut lending, response.clone(), left) {
                Ok(Lent::Whole) => {}
                // What comes before a bad source goes out first.
                Err(_) if !train.is_empty() => break,
                Ok(Lent::Stopped) => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Adds what is left of a Response to the train. `left` Responses are not over, this one
    /// included.
    fn lend_response(
        &self,
        lending: &mut Lending<'_>,
        mut response: ReadResponse,
        left: usize,
    ) -> Result<Lent, WireEvent> {
        loop {
            let train = &mut *lending.train;
            // RFC 5040 §5.2.1: a Response of no octets has no source, and is not lent.
            if train.is_full() || response.remaining() == 0 {
                return Ok(Lent::Stopped);
            }
            let rest = response.remaining() as usize + TaggedRepr::LEN;
            let segment = response.segment(train.segments.longest(lending.mulpdu, rest));
            let mut source = read_source(lending.attrs, &response, segment.src_to)?;
            if !self.may_lend(&source) {
                return Ok(Lent::Stopped);
            }
            source.truncate(segment.len);
            let fault = WireEvent::Fault(Fault::read_source(AccessError::Bounds), Some(response.offending()));
            response.advance(segment.len);
            let behind = if segment.last {
                Answered { left: left - 1, done: 0 }
            } else {
                Answered { left, done: response.done }
            };
            lending.grants.clear();
            lending.grants.push(source);
            let (header, payload) = (&segment.header, Source::Granted(lending.grants));
            let pushed = train.push(lending.framer, header, payload, segment.len, Position::Response(behind));
            // What is no longer there is out of bounds.
            if !pushed.map_err(|_| fault)? {
                return Ok(Lent::Stopped);
            }
            if segment.last {
                return Ok(Lent::Whole);
            }
        }
    }

    /// Goes on in the line of Responses behind an FPDU that TCP has taken or begun.
    pub(super) fn answered_up_to(&mut self, behind: Answered) {
        while self.stream.inbound() > behind.left {
            self.stream.response_done();
        }
        if let Some(Response::Read(response)) = self.stream.next_response() {
            response.done = behind.done;
        }
    }

    /// Counts octets of lent Responses that TCP has taken, and gives messages of this end their
    /// turn behind enough of them.
    pub(super) fn note_lent(&mut self, octets: usize, has_own: bool) {
        self.answered += octets;
        if self.answered >= TURN {
            self.own_turn = has_own;
        }
        if !has_own {
            self.answered = 0;
        }
    }
}

/// A train while Responses are added to it.
struct Lending<'a> {
    attrs: &'a QpAttributes,
    train: &'a mut Train,
    grants: &'a mut Grants,
    /// The state of MPA behind what is in the train.
    framer: &'a mut Framer,
    mulpdu: usize,
}
