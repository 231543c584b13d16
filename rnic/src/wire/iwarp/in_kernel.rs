//! Payloads that the kernel has placed: they are summed where they lie, and TCP drops its copy.
//!
//! The program tells of each FPDU what was in its header, its pad and its CRC field. So FPDUs are
//! confirmed before TCP hands them over, as many as follow each other, and their octets are dropped
//! together: one system call for all of them. None of them is the last of its Write, so that
//! nothing is reported to the program before TCP has dropped them all.

use rddp_rdmap::Place;
use rddp_stat::Counter;

use super::link::Link;
use super::place::targets;
use super::staging::Staging;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::trace;
use crate::wire::LinkEvent;

/// Octets that are confirmed ahead, and then dropped: enough for a system call to be of no account.
const MOST: usize = 128 << 10;

impl Link {
    /// Confirms the FPDUs at the front of the stream that the kernel has placed, if nothing of them
    /// has been read. Returns how many octets TCP is to drop.
    pub(super) fn confirm(&mut self, cx: &mut Context<'_>, staging: &Staging) -> Result<usize, LinkEvent> {
        if self.guided.is_none() {
            return Ok(0);
        }
        let is_next = staging.have == 0 && self.direct.is_none() && self.parked.is_none();
        if is_next && self.is_open() && self.may_send {
            while self.confirmed < MOST && self.confirm_next(cx)? {}
        }
        Ok(self.confirmed)
    }

    /// Confirms the FPDU behind those that are confirmed. Returns whether it did.
    fn confirm_next(&mut self, cx: &mut Context<'_>) -> Result<bool, LinkEvent> {
        let ahead = self.confirmed;
        let Some(guided) = &mut self.guided else { return Ok(false) };
        let Some(front) = guided.front(ahead) else { return Ok(false) };
        let (mut receiver, mut target) = self.receiving(cx);
        let Some(segment) = receiver.announced(&front, &mut target) else { return Ok(false) };
        if !matches!(segment.place, Place::Write { .. }) {
            return Ok(false);
        }
        let mut grants = Grants::new();
        if targets(cx, segment.place, 0, segment.payload_len, &mut grants).is_err() {
            return Ok(false);
        }
        let ([grant], Some(guided)) = (&grants[..], &mut self.guided) else { return Ok(false) };
        let Some(checked) = guided.confirm(ahead, &front, grant, self.negotiated.crc) else {
            return Ok(false);
        };
        self.confirmed += checked.fpdu_len;
        trace::placed(cx.attrs.num, &segment);
        cx.tally.add(Counter::OctetsPlacedByKernel, segment.payload_len as u64);
        let (mut receiver, mut target) = self.receiving(cx);
        let delivered = receiver.received(segment, &[], checked.crc, checked.field, &mut target)?;
        self.complete(cx, delivered)?;
        Ok(true)
    }
}
