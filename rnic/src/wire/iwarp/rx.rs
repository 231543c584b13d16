//! Receiving: octets of TCP become FPDUs (RFC 5044 §6).
//!
//! [`Link::read`] reads into a staging buffer of the calling thread, and handles all whole FPDUs in
//! it in one pass. The payload of a large FPDU goes straight into registered memory where that is
//! allowed: see `direct`. A QP itself keeps only the octets of a partial FPDU.

use std::io::ErrorKind;
use std::time::Instant;

use rddp_iwarp::Step;
use rddp_rdma::AsyncEventKind;
use rddp_stat::Counter;

use super::deliver::refused;
use super::link::Link;
use super::parked::staging_len;
use crate::mem::{PieceMut, discard, recv_vectored};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::wire::staging::Staging;
use crate::wire::{Pulled, WireEvent};

/// Staging for one read while large payloads go straight to their places: the header, and not much
/// of the payload.
const BULK_ROOM: usize = 2048;

impl Link {
    /// Reads for so many octets, and at most one read more. Returns how that ended, and what the QP
    /// has to act on: with what was read behind it kept. If that is nothing, what was read is still
    /// to be acknowledged.
    pub(crate) fn receive(&mut self, cx: &mut Context<'_>, turn: u64) -> (Pulled, Option<WireEvent>) {
        Staging::with_own(|staging| {
            let end = cx.tally.of(Counter::OctetsReceived).wrapping_add(turn);
            self.unstash(cx.attrs, staging);
            loop {
                if let Err(event) = self.read(cx, staging) {
                    self.stash(cx, staging);
                    self.acknowledge(cx);
                    return (pulled(staging), Some(event));
                }
                if !self.is_open()
                    && let Err(event) = self.discard(staging.clear())
                {
                    return (pulled(staging), Some(event));
                }
                if staging.dry || cx.tally.of(Counter::OctetsReceived) >= end {
                    self.stash(cx, staging);
                    return (pulled(staging), None);
                }
            }
        })
    }

    /// Delivers the segment that waits for a receive, and those behind it, if there is a receive
    /// now.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        if self.held().is_some() {
            self.resume_held(cx)?;
        } else {
            self.unpark(cx)?;
        }
        if self.is_parked() {
            return Ok(());
        }
        Staging::with_own(|staging| {
            self.unstash(cx.attrs, staging);
            let handled = self.handle(cx, staging);
            self.stash(cx, staging);
            handled
        })
    }

    /// Reads once, and handles what that brings.
    ///
    /// # Errors
    /// What the QP has to act on, with the octets behind it left in `staging`. There may be more to
    /// read even then.
    #[inline]
    fn read(&mut self, cx: &mut Context<'_>, staging: &mut Staging) -> Result<(), WireEvent> {
        cx.tally.add(Counter::ReceiveCalls, 1);
        staging.dry = false;
        let dropped = self.confirm(cx, staging)?;
        let mut room = if self.is_bulk() {
            BULK_ROOM
        } else {
            staging_len(cx.attrs).min(staging.octets.len()) - staging.have
        };
        if let Some(guided) = &mut self.guided {
            room = guided.room(staging.have, room);
        }
        let free = &mut staging.octets[staging.have..staging.have + room];
        let received = if dropped > 0 {
            discard(self.fd(), dropped).map(|count| (count, 0))
        } else if self.direct.is_some() {
            self.receive_direct(cx, free)?
        } else {
            recv_vectored(self.fd(), &mut [PieceMut::Own(free)]).map(|count| (count, count))
        };
        let (total, staged) = match received {
            Ok((0, _)) => {
                staging.dry = true;
                self.stash(cx, staging);
                return Err(WireEvent::Fin);
            }
            Ok(counts) => counts,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                staging.dry = true;
                self.await_sums(cx.attrs);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer receives");
                return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.tally.add(Counter::OctetsReceived, total as u64);
        if let Some(guided) = &mut self.guided {
            guided.note_read(total);
        }
        if dropped > 0 {
            staging.dry = total < dropped;
            return self.note_dropped(cx, total);
        }
        #[cfg(test)]
        assert!(!self.panics, "as a test wants it");
        staging.have += staged;
        // A short read says that TCP has no more: the next one would only be told so.
        staging.dry = staged < room;
        if staging.dry {
            self.await_sums(cx.attrs);
        }
        self.handle(cx, staging)?;
        // Nor is anything read behind a segment that waits.
        staging.dry |= self.is_parked() && !self.reads_on();
        Ok(())
    }

    /// Puts the octets that the last turn left over back into `staging`.
    #[inline]
    fn unstash(&mut self, attrs: &QpAttributes, staging: &mut Staging) {
        let have = self.partial.len();
        staging.octets[..have].copy_from_slice(&self.partial);
        staging.have = have;
        attrs.device.partial.release(have);
        self.partial = Vec::new();
    }

    /// Keeps the octets that are left over. An idle QP keeps no memory for them.
    fn stash(&mut self, cx: &Context<'_>, staging: &mut Staging) {
        let rest = &staging.octets[..staging.have];
        if rest.is_empty() {
            return;
        }
        cx.attrs.device.partial.charge(rest.len());
        self.partial = rest.to_vec();
        staging.have = 0;
        let before = cx.tally.of(Counter::FpdusReceived);
        if self.partial_begun.is_none_or(|(of, _)| of != before) {
            self.partial_begun = Some((before, Instant::now()));
        }
    }

    /// Handles the whole FPDUs at the front of `staging`, and drops them from it.
    // As a function of its own it would have its registers saved for each read.
    #[inline(always)]
    fn handle(&mut self, cx: &mut Context<'_>, staging: &mut Staging) -> Result<(), WireEvent> {
        if !self.is_open() {
            return Ok(());
        }
        let mut used = 0;
        let handled = if self.acknowledging.is_some() {
            self.handle_acknowledged(cx, staging, &mut used)
        } else {
            self.handle_all(cx, &mut staging.octets[..staging.have], &mut used)
        };
        staging.consume(used);
        handled
    }

    pub(super) fn handle_all(
        &mut self,
        cx: &mut Context<'_>,
        staging: &mut [u8],
        used: &mut usize,
    ) -> Result<(), WireEvent> {
        if !self.finish_direct(cx, staging, used)? {
            return Ok(());
        }
        loop {
            let rest = &mut staging[*used..];
            let (mut receiver, mut target) = self.receiving(cx);
            match receiver.step(rest, &mut target) {
                Ok(Step::Plain { plain, payload_len, used: octets }) => {
                    *used += octets;
                    self.note_plain(cx, &plain, payload_len);
                }
                Ok(Step::Taken { delivered, used: octets, .. }) => {
                    *used += octets;
                    self.deliver(cx, delivered)?;
                }
                Ok(Step::Waits { ulpdu, used: octets }) => {
                    *used += octets;
                    self.park(cx.attrs, &rest[ulpdu]);
                    return Ok(());
                }
                Ok(Step::Need { total }) => {
                    if self.begin_direct(cx, rest, total) {
                        *used = staging.len();
                    }
                    return Ok(());
                }
                Err(trouble) => {
                    self.stop_in_kernel();
                    return Err(refused(cx, trouble));
                }
            }
        }
    }
}

/// Returns how a turn of reading has ended, by what its last read has shown.
fn pulled(staging: &Staging) -> Pulled {
    if staging.dry { Pulled::Dry } else { Pulled::More }
}
