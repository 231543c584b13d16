//! Payloads that the kernel has placed: they are summed where they lie, and TCP drops its copy.
//!
//! The program tells of each FPDU what was in its header, its pad and its CRC field. So FPDUs are
//! confirmed before TCP hands them over, as many as follow each other, and their octets are dropped
//! together: one system call for all of them. Nothing is delivered before TCP has dropped all of
//! its FPDU, and so has had it in order.

use std::collections::VecDeque;

use rddp_iwarp::Segment;
use rddp_rdmap::Place;
use rddp_stat::Counter;

use super::link::Link;
use super::place::targets;
use super::staging::Staging;
use crate::kernel::Checked;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::trace;
use crate::wire::LinkEvent;

/// Most FPDUs that are confirmed ahead.
const MOST: usize = 64;

/// The FPDUs that are confirmed, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct Run {
    list: VecDeque<Confirmed>,
    /// Octets of them that TCP has not dropped.
    left: usize,
}

/// An FPDU whose payload is in its place, and of which TCP still has octets.
#[derive(Debug)]
struct Confirmed {
    segment: Segment,
    checked: Checked,
    /// Octets of the FPDU that TCP has not dropped.
    left: usize,
}

impl Link {
    /// Confirms the FPDUs at the front of the stream that the kernel has placed, if nothing of them
    /// has been read. Returns how many octets TCP is to drop.
    pub(super) fn confirm(&mut self, cx: &mut Context<'_>, staging: &Staging) -> usize {
        if self.guided.is_none() {
            return 0;
        }
        let is_next = staging.have == 0 && self.direct.is_none() && self.parked.is_none();
        if is_next && self.is_open() && self.may_send {
            while self.confirmed.list.len() < MOST && self.confirm_next(cx) {}
        }
        self.confirmed.left
    }

    /// Confirms the FPDU behind those that are confirmed. Returns whether it did.
    fn confirm_next(&mut self, cx: &mut Context<'_>) -> bool {
        let ahead = self.confirmed.left;
        let Some(guided) = &mut self.guided else { return false };
        let Some(front) = guided.front(ahead) else { return false };
        let (mut receiver, mut target) = self.receiving(cx);
        let Some(segment) = receiver.announced(&front, &mut target) else { return false };
        if !matches!(segment.place, Place::Write { .. }) {
            return false;
        }
        let mut grants = Grants::new();
        if targets(cx, segment.place, 0, segment.payload_len, &mut grants).is_err() {
            return false;
        }
        let ([grant], Some(guided)) = (&grants[..], &mut self.guided) else { return false };
        let Some(checked) = guided.confirm(ahead, &front, grant, self.negotiated.crc) else { return false };
        let left = checked.fpdu_len;
        self.confirmed.left += left;
        self.confirmed.list.push_back(Confirmed { segment, checked, left });
        true
    }

    /// Delivers the FPDUs of which TCP has dropped the last octets, with these `count`.
    pub(super) fn note_dropped(&mut self, cx: &mut Context<'_>, mut count: usize) -> Result<(), LinkEvent> {
        self.confirmed.left -= count;
        while let Some(first) = self.confirmed.list.front_mut() {
            let dropped = first.left.min(count);
            first.left -= dropped;
            count -= dropped;
            if first.left > 0 {
                break;
            }
            if let Some(Confirmed { segment, checked, .. }) = self.confirmed.list.pop_front() {
                self.deliver_confirmed(cx, segment, &checked)?;
            }
        }
        Ok(())
    }

    fn deliver_confirmed(
        &mut self,
        cx: &mut Context<'_>,
        segment: Segment,
        checked: &Checked,
    ) -> Result<(), LinkEvent> {
        trace::placed(cx.attrs.num, &segment);
        cx.tally.add(Counter::OctetsPlacedByKernel, segment.payload_len as u64);
        let (mut receiver, mut target) = self.receiving(cx);
        let delivered = receiver.received(segment, &[], checked.crc, checked.field, &mut target)?;
        self.complete(cx, delivered)
    }
}
