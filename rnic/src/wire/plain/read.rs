//! Reading: octets of TCP into receives.

use std::io::ErrorKind;

use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;
use smallvec::SmallVec;

use super::Plain;
use crate::mem::{PieceMut, is_fault, peek, recv_vectored};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::rq::Outcome;
use crate::wire::{Pulled, Watch, WireEvent};

impl Plain {
    /// Reads for so many octets, and at most one read more.
    pub(in crate::wire) fn receive(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        turn: u64,
    ) -> (Pulled, Option<WireEvent>) {
        let end = cx.tally.of(Counter::OctetsReceived).wrapping_add(turn);
        loop {
            match self.read(watch, cx) {
                Ok(true) if cx.tally.of(Counter::OctetsReceived) < end => {}
                Ok(true) => return (Pulled::More, None),
                Ok(false) => return (Pulled::Dry, None),
                Err(event) => return (Pulled::Dry, Some(event)),
            }
        }
    }

    /// Reads once, straight into the receive at hand. Returns whether there may be more to read.
    fn read(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        if watch.end.is_peer_done() || !self.has_receive(watch, cx)? {
            return Ok(false);
        }
        let (room, full) = cx.rq.current().map_or((0, false), |wr| (wr.capacity(), wr.full));
        // The length in a completion is a u32.
        let room = room.min(u32::MAX.into());
        let wanted = room - self.filled;
        if wanted > 0 {
            let count = self.read_into(watch, cx, wanted)?;
            self.filled += count;
            if count == 0 || (full && self.filled < room) {
                return Ok(count > 0);
            }
        }
        let outcome = Outcome { byte_len: self.filled as u32, ..Outcome::default() };
        cx.tally.add(Counter::SendsReceived, 1);
        cx.end_receive(Status::Success, &outcome);
        Ok(true)
    }

    /// Takes a receive, unless there is one at hand. Returns whether there is one now.
    fn has_receive(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        if cx.rq.current().is_some() {
            return Ok(true);
        }
        // A receive of a shared queue is for whoever has octets for it; and where there is none, a
        // FIN is to be noticed all the same.
        if cx.rq.is_empty() {
            match peek(watch.fd(), &mut [0]) {
                Ok(0) => return Err(WireEvent::HalfClosed),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                // The read tells.
                Ok(_) | Err(_) => {}
            }
        }
        loop {
            if cx.begin_receive().is_some() {
                (self.filled, watch.waits) = (0, false);
                return Ok(true);
            }
            watch.waits = cx.rq.srq().is_none_or(|srq| srq.await_receive(cx.attrs.num));
            if watch.waits {
                return Ok(false);
            }
        }
    }

    /// Reads up to `wanted` octets into the receive at hand. Returns how many have come.
    fn read_into(&mut self, watch: &Watch, cx: &mut Context<'_>, wanted: u64) -> Result<u64, WireEvent> {
        cx.tally.add(Counter::ReceiveCalls, 1);
        let mut grants = Grants::new();
        if cx.receive_grants(self.filled, wanted as usize, &mut grants).is_err() {
            return Err(bad_receive(cx));
        }
        let mut pieces: SmallVec<[PieceMut<'_>; 4]> =
            grants.iter().map(|grant| PieceMut::Granted(grant, 0..grant.len())).collect();
        let received = recv_vectored(watch.fd(), &mut pieces);
        drop(pieces);
        drop(grants);
        match received {
            Ok(0) => {
                let outcome = Outcome { byte_len: self.filled as u32, ..Outcome::default() };
                cx.end_receive(Status::Flushed, &outcome);
                Err(WireEvent::HalfClosed)
            }
            Ok(count) => {
                cx.tally.add(Counter::OctetsReceived, count as u64);
                Ok(count as u64)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) if is_fault(&error) => Err(bad_receive(cx)),
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer receives");
                Err(WireEvent::Lost(AsyncEventKind::ConnectionLost))
            }
        }
    }
}

/// Ends a receive whose memory is no good. Returns what the QP has to act on.
#[cold]
fn bad_receive(cx: &mut Context<'_>) -> WireEvent {
    cx.end_receive(Status::LocalProtection, &Outcome::default());
    Fault::local_catastrophic().into()
}
