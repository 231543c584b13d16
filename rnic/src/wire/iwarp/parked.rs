//! Sends that wait for a receive ([`NoReceive::Wait`](crate::NoReceive::Wait)).
//!
//! The segment that finds no receive is parked, what was read behind it is kept as a partial FPDU
//! would be, and nothing more is read: TCP's window holds the peer. It goes on when a receive is
//! posted, in the thread that posts it. TCP's end is noticed meanwhile if it is a reset; a FIN lies
//! behind octets that the program has not wanted yet.

use rddp_rdma::AsyncEventKind;

use super::deliver::refused;
use super::link::Link;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::wire::WireEvent;
use crate::wire::staging::STAGING_LEN;

/// Octets read at a time where they may have to be kept: room for an FPDU of the largest size
/// behind another.
const WAITING_LEN: usize = STAGING_LEN / 2;

/// Returns how many octets may be staged at a time.
pub(super) fn staging_len(attrs: &QpAttributes) -> usize {
    if attrs.waits() { WAITING_LEN } else { STAGING_LEN }
}

impl Link {
    /// Returns whether a segment waits for a receive.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Keeps a ULPDU until there is a receive for it.
    pub(super) fn park(&mut self, attrs: &QpAttributes, ulpdu: &[u8]) {
        attrs.device.partial.charge(ulpdu.len());
        self.parked = Some(ulpdu.to_vec());
    }

    /// Drops a segment that waited.
    pub(super) fn drop_parked(&mut self, attrs: &QpAttributes) {
        let len = self.parked.take().map_or(0, |ulpdu| ulpdu.len());
        attrs.device.partial.release(len);
    }

    /// Delivers the segment that waits, if there is a receive for it.
    pub(super) fn unpark(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        if cx.rq.is_empty() {
            let is_reset = self.socket.take_error().is_ok_and(|error| error.is_some());
            return if is_reset { Err(WireEvent::Lost(AsyncEventKind::ConnectionLost)) } else { Ok(()) };
        }
        let Some(ulpdu) = self.parked.take() else { return Ok(()) };
        cx.attrs.device.partial.release(ulpdu.len());
        let (mut receiver, mut target) = self.receiving(cx);
        match receiver.segment(&ulpdu, &mut target) {
            Ok(Some(delivered)) => self.deliver(cx, delivered),
            Ok(None) => {
                self.park(cx.attrs, &ulpdu);
                Ok(())
            }
            Err(trouble) => {
                self.stop_in_kernel();
                Err(refused(cx, trouble))
            }
        }
    }
}
