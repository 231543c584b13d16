//! Receiving: octets of TCP become FPDUs (RFC 5044 §6).
//!
//! [`Link::read`] reads into a staging buffer of the calling thread, and handles all whole FPDUs in
//! it in one pass. The payload of a large FPDU goes straight into registered memory where that is
//! allowed: see `direct`. A QP itself keeps only the octets of a partial FPDU.

use std::io::ErrorKind;
use std::time::Instant;

use rddp_iwarp::Step;
use rddp_rdma::AsyncEventKind;

use super::deliver::refused;
use super::link::Link;
use super::parked::stage_len;
use super::stage::Stage;
use crate::mem::{PieceMut, recv_vectored};
use crate::qp::attributes::QpAttributes;
use crate::qp::context::Context;
use crate::wire::LinkEvent;

/// Staging for one read while large payloads go straight to their places: the header, and not much
/// of the payload.
const BULK_ROOM: usize = 2048;

impl Link {
    /// Reads once, and handles what that brings.
    ///
    /// # Errors
    /// What the QP has to act on, with the octets behind it left in `stage`. There may be more to
    /// read even then.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, stage: &mut Stage) -> Result<(), LinkEvent> {
        cx.counters.receive_calls += 1;
        stage.dry = false;
        let room =
            if self.is_bulk() { BULK_ROOM } else { stage_len(cx.attrs).min(stage.octets.len()) - stage.have };
        let free = &mut stage.octets[stage.have..stage.have + room];
        let received = if self.direct.is_some() {
            self.receive_direct(cx, free)?
        } else {
            recv_vectored(self.fd(), &mut [PieceMut::Own(free)]).map(|count| (count, count))
        };
        let (total, staged) = match received {
            Ok((0, _)) => {
                stage.dry = true;
                self.stash(cx, stage);
                return Err(LinkEvent::Fin);
            }
            Ok(counts) => counts,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stage.dry = true;
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer receives");
                return Err(LinkEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.counters.octets_received += total as u64;
        #[cfg(test)]
        assert!(!self.panics, "as a test wants it");
        stage.have += staged;
        // A short read says that TCP has no more: the next one would only be told so.
        stage.dry = staged < room;
        self.handle(cx, stage)?;
        // Nor is anything read behind a segment that waits.
        stage.dry |= self.is_parked();
        Ok(())
    }

    /// Puts the octets that the last turn left over back into `stage`.
    pub(crate) fn unstash(&mut self, attrs: &QpAttributes, stage: &mut Stage) {
        let have = self.partial.len();
        stage.octets[..have].copy_from_slice(&self.partial);
        stage.have = have;
        attrs.device.partial.release(have);
        self.partial = Vec::new();
    }

    /// Keeps the octets that are left over. An idle QP keeps no memory for them.
    pub(crate) fn stash(&mut self, cx: &Context<'_>, stage: &mut Stage) {
        let rest = &stage.octets[..stage.have];
        if rest.is_empty() {
            return;
        }
        cx.attrs.device.partial.charge(rest.len());
        self.partial = rest.to_vec();
        stage.have = 0;
        let before = cx.counters.fpdus_received;
        if self.partial_begun.is_none_or(|(of, _)| of != before) {
            self.partial_begun = Some((before, Instant::now()));
        }
    }

    /// Handles the whole FPDUs at the front of `stage`, and drops them from it.
    pub(crate) fn handle(&mut self, cx: &mut Context<'_>, stage: &mut Stage) -> Result<(), LinkEvent> {
        if !self.is_open() {
            return Ok(());
        }
        let mut used = 0;
        let handled = self.handle_all(cx, &mut stage.octets[..stage.have], &mut used);
        stage.consume(used);
        handled
    }

    fn handle_all(
        &mut self,
        cx: &mut Context<'_>,
        stage: &mut [u8],
        used: &mut usize,
    ) -> Result<(), LinkEvent> {
        if !self.finish_direct(cx, stage, used)? {
            return Ok(());
        }
        loop {
            let rest = &mut stage[*used..];
            let (mut receiver, mut target) = self.receiving(cx);
            match receiver.step(rest, &mut target) {
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
                        *used = stage.len();
                    }
                    return Ok(());
                }
                Err(trouble) => return Err(refused(cx, trouble)),
            }
        }
    }
}
