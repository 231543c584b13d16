//! Payloads that the kernel has placed: they are summed where they lie, and TCP drops its copy.
//!
//! An FPDU counts once TCP has its octets in order. If they have passed the eBPF program only once,
//! TCP has those that were placed: header and CRC as the program has noted them are to fit the
//! octets in memory (a *sure* run). Otherwise a look at the stream tells header, pad and CRC, as
//! TCP has them. FPDUs that follow each other are confirmed as a run, whose octets are dropped
//! together. The last FPDU of a message ends a run, and the message is delivered when TCP has
//! dropped all of it. While a segment is missing, the background thread sums what has come behind
//! it.

use std::time::{Duration, Instant};

use rddp_ddp::Stag;
use rddp_iwarp::Segment;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, fpdu_len};
use rddp_rdmap::Place;
use rddp_stat::Counter;

use super::link::Link;
use super::place::targets;
use crate::kernel::{Checked, Guided, Run};
use crate::mem::{peek, unread};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::trace;
use crate::wire::WireEvent;
use crate::wire::staging::Staging;

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
    pub(super) fn confirm(
        &mut self,
        cx: &mut Context<'_>,
        staging: &mut Staging,
    ) -> Result<usize, WireEvent> {
        let Some(guided) = &mut self.guided else { return Ok(0) };
        guided.tell_receives(cx.rq.posted().iter(), u32::from(cx.rq.current().is_some()));
        let is_next = staging.have == 0 && self.direct.is_none() && self.parked.is_none();
        if is_next && self.confirmed.octets == 0 && self.is_open() && self.may_send {
            self.confirm_run(cx, staging)?;
        }
        Ok(self.confirmed.octets)
    }

    /// Confirms those FPDUs, by a look at their octets where one is needed.
    fn confirm_run(&mut self, cx: &mut Context<'_>, staging: &mut Staging) -> Result<(), WireEvent> {
        if !self.guided.as_mut().is_some_and(Guided::is_next_placed) {
            return Ok(());
        }
        // The read that follows reports an error.
        let there = unread(self.fd()).unwrap_or(0);
        let Some(Run { octets, is_sure }) = self.guided.as_mut().map(|guided| guided.enter_run(there)) else {
            return Ok(());
        };
        if is_sure {
            return self.confirm_sure(cx, octets);
        }
        let Some(look) = staging.octets.get_mut(..octets).filter(|look| !look.is_empty()) else {
            return Ok(());
        };
        let have = peek(self.fd(), look).unwrap_or(0);
        let mut octets = &staging.octets[..have];
        while self.confirmed.last.is_none()
            && let Some(used) = self.confirm_next(cx, octets, true)?
        {
            octets = &octets[used..];
        }
        Ok(())
    }

    /// Confirms the FPDUs of a sure run of so many octets.
    fn confirm_sure(&mut self, cx: &mut Context<'_>, octets: usize) -> Result<(), WireEvent> {
        let mut done = 0;
        while done < octets
            && self.confirmed.last.is_none()
            && let Some(front) = self.guided.as_ref().and_then(|guided| guided.front(done))
            && let Some(used) = self.confirm_next(cx, &front, false)?
        {
            done += used;
        }
        Ok(())
    }

    /// Confirms the FPDU at the front of `octets`, behind those that are confirmed: of what TCP
    /// has, or else only the first ones of an FPDU of a sure run. Returns its octets if it did.
    fn confirm_next(
        &mut self,
        cx: &mut Context<'_>,
        octets: &[u8],
        by_look: bool,
    ) -> Result<Option<usize>, WireEvent> {
        let (mut receiver, mut target) = self.receiving(cx);
        let Some(segment) = receiver.announced(octets, &mut target) else { return Ok(None) };
        let mut grants = Grants::new();
        if targets(cx, segment.place, 0, segment.payload_len, &mut grants).is_err() {
            return Ok(None);
        }
        let ([grant], Some(guided)) = (&grants[..], &mut self.guided) else { return Ok(None) };
        let ahead = self.confirmed.octets;
        let checked = if by_look {
            let fpdu = octets.get(..fpdu_len(segment.ulpdu_len()));
            let front_len = LENGTH_LEN + segment.header.len();
            fpdu.and_then(|fpdu| guided.confirm_by_look(ahead, (fpdu, front_len), grant))
        } else {
            guided.confirm(ahead, grant, write_stag(segment.place))
        };
        let Some(checked) = checked else { return Ok(None) };
        drop(grants);
        self.confirmed.octets += checked.fpdu_len;
        cx.tally.add(Counter::OctetsPlacedByKernel, segment.payload_len as u64);
        trace::placed(cx.attrs.num, &segment);
        let Checked { fpdu_len, crc, field } = checked;
        if segment.header.last() {
            self.confirmed.last = Some((segment, crc, field));
        } else {
            self.count_in(cx, segment, crc, field)?;
        }
        Ok(Some(fpdu_len))
    }

    /// Notes that TCP has dropped octets of confirmed FPDUs, and delivers the message of which they
    /// were the last.
    pub(super) fn note_dropped(&mut self, cx: &mut Context<'_>, octets: usize) -> Result<(), WireEvent> {
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
    ) -> Result<(), WireEvent> {
        let (mut receiver, mut target) = self.receiving(cx);
        let delivered = receiver.received(segment, &[], crc, field, &mut target)?;
        self.complete(cx, delivered)
    }

    /// Has the background thread look for what the kernel places, now that there is nothing to
    /// read: a segment may be missing.
    #[inline]
    pub(super) fn await_sums(&mut self, attrs: &QpAttributes) {
        if self.guided.is_some() && self.sums.is_none() {
            self.sum_in(FIRST_PAUSE, attrs);
        }
    }

    fn sum_in(&mut self, pause: Duration, attrs: &QpAttributes) {
        let due = Instant::now() + pause;
        self.sums = Some((due, pause));
        attrs.device.driver.at(due, attrs.token);
    }

    /// Sums what the kernel has placed, if it is time. Where nothing is placed any more, that ends
    /// until there is nothing to read again.
    pub(crate) fn sum_ahead(&mut self, attrs: &QpAttributes, now: Instant) {
        let Some((_, pause)) = self.sums.filter(|(due, _)| *due <= now) else { return };
        self.sums = None;
        let Some(guided) = &mut self.guided else { return };
        let (is_new, is_any) = guided.sum_ahead();
        // What is missing may never come.
        let pause = if is_new { FIRST_PAUSE } else { 2 * pause };
        if is_any || pause < LAST_PAUSE {
            self.sum_in(pause.min(LAST_PAUSE), attrs);
        }
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

/// Pauses between two looks for what has been placed.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(16);

/// Returns the STag by which a peer writes.
fn write_stag(place: Place) -> Option<Stag> {
    match place {
        Place::Write { stag, .. } => Some(stag),
        _ => None,
    }
}
