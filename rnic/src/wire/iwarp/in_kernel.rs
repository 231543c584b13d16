//! Payloads that the kernel has placed: they are summed where they lie, and TCP drops its copy.
//!
//! The program tells of each FPDU what was in its header, its pad and its CRC field. So FPDUs are
//! confirmed before TCP hands them over, as many as follow each other, and their octets are dropped
//! together: one system call for all of them. The last FPDU of a message ends such a run, and the
//! message is delivered when TCP has dropped all of it.

use rddp_iwarp::Segment;
use rddp_mpa::{CRC_LEN, LENGTH_LEN};
use rddp_stat::Counter;

use super::link::Link;
use super::place::targets;
use super::staging::Staging;
use crate::kernel::Checked;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::trace;
use crate::wire::LinkEvent;

/// Octets that are confirmed ahead, and then dropped: enough for a system call to be of no account.
const MOST: usize = 128 << 10;

/// FPDUs that are confirmed, and whose octets TCP has not dropped.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    /// Octets of all of them.
    octets: usize,
    /// The last of them, if that is the last of its message: with its CRC as it was summed, and the
    /// CRC field.
    last: Option<(Segment, u32, [u8; CRC_LEN])>,
}

impl Link {
    /// Confirms the FPDUs at the front of the stream that the kernel has placed, if nothing of them
    /// has been read. Returns how many octets TCP is to drop.
    pub(super) fn confirm(&mut self, cx: &mut Context<'_>, staging: &Staging) -> Result<usize, LinkEvent> {
        let Some(guided) = &mut self.guided else { return Ok(0) };
        guided.tell_receives(cx.rq.posted(), u32::from(cx.rq.current().is_some()));
        let is_next = staging.have == 0 && self.direct.is_none() && self.parked.is_none();
        if is_next && self.is_open() && self.may_send {
            while self.confirmed.octets < MOST && self.confirmed.last.is_none() && self.confirm_next(cx)? {}
        }
        Ok(self.confirmed.octets)
    }

    /// Confirms the FPDU behind those that are confirmed. Returns whether it did.
    fn confirm_next(&mut self, cx: &mut Context<'_>) -> Result<bool, LinkEvent> {
        let ahead = self.confirmed.octets;
        let Some(guided) = &mut self.guided else { return Ok(false) };
        let Some(front) = guided.front(ahead) else { return Ok(false) };
        let (mut receiver, mut target) = self.receiving(cx);
        let Some(segment) = receiver.announced(&front, &mut target) else { return Ok(false) };
        let mut grants = Grants::new();
        if targets(cx, segment.place, 0, segment.payload_len, &mut grants).is_err() {
            return Ok(false);
        }
        let ([grant], Some(guided)) = (&grants[..], &mut self.guided) else { return Ok(false) };
        let front = &front[..LENGTH_LEN + segment.header.len()];
        let Some(checked) = guided.confirm(ahead, front, grant, self.negotiated.crc) else {
            return Ok(false);
        };
        drop(grants);
        self.confirmed.octets += checked.fpdu_len;
        cx.tally.add(Counter::OctetsPlacedByKernel, segment.payload_len as u64);
        trace::placed(cx.attrs.num, &segment);
        let Checked { crc, field, .. } = checked;
        if segment.header.last() {
            self.confirmed.last = Some((segment, crc, field));
        } else {
            self.count_in(cx, segment, crc, field)?;
        }
        Ok(true)
    }

    /// Notes that TCP has dropped octets of confirmed FPDUs, and delivers the message of which they
    /// were the last.
    pub(super) fn note_dropped(&mut self, cx: &mut Context<'_>, octets: usize) -> Result<(), LinkEvent> {
        self.confirmed.octets -= octets;
        if self.confirmed.octets == 0
            && let Some((segment, crc, field)) = self.confirmed.last.take()
        {
            self.count_in(cx, segment, crc, field)?;
        }
        Ok(())
    }

    /// Counts in a segment whose payload is in its place.
    fn count_in(
        &mut self,
        cx: &mut Context<'_>,
        segment: Segment,
        crc: u32,
        field: [u8; CRC_LEN],
    ) -> Result<(), LinkEvent> {
        let (mut receiver, mut target) = self.receiving(cx);
        let delivered = receiver.received(segment, &[], crc, field, &mut target)?;
        self.complete(cx, delivered)
    }

    /// Ends placement by the kernel: before anything completes that it might still place into.
    pub(crate) fn stop_in_kernel(&mut self) {
        if let Some(guided) = &mut self.guided {
            guided.stop();
        }
    }

    /// Takes the memory of the next message's receive back from the kernel: the receive is about to
    /// complete.
    #[inline]
    pub(super) fn end_receive_in_kernel(&mut self) {
        if let Some(guided) = &mut self.guided {
            guided.end_receive();
        }
    }

    /// Takes the sink of a Read back from the kernel: the Read is about to complete.
    #[inline]
    pub(super) fn end_sink_in_kernel(&mut self, id: u64) {
        if let Some(guided) = &mut self.guided {
            guided.end_sink(id);
        }
    }
}
