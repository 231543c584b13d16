//! Plain TCP (RFC 9293): octets with no framing, to and from any TCP program.
//!
//! A Send is written as it is, and completes when TCP has taken it. A receive completes with what
//! one read brings, or once it is full ([`RecvWr::full`](rddp_rdma::RecvWr::full)). Without a
//! receive nothing is read, so that TCP's window holds the peer. Each direction ends by itself: the
//! peer's FIN ends the receives, and [`Connection::close`](super::Connection::close) the Sends.

use std::io::ErrorKind;

use rddp_rdma::{AsyncEventKind, Gather, Operation, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;
use smallvec::SmallVec;

use super::{Pulled, Watch, WireEvent};
use crate::mem::{Piece, PieceMut, SendFlags, is_fault, peek, recv_vectored, send_vectored};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::rq::Outcome;
use crate::queues::sq::Cursor;

/// The requests of one write.
const REQUESTS: usize = 64;

/// The octets with which a write takes no further request.
const OCTETS: u64 = 1 << 20;

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Octets that the receive at hand has.
    filled: u64,
    /// Memory of the last write has gone bad: requests go one by one until that is found.
    one_by_one: bool,
}

/// The requests of one write: their memory, and where each of them ends.
#[derive(Default)]
struct Batch {
    grants: Grants,
    ends: SmallVec<[u64; 8]>,
}

impl Plain {
    /// Reads for so many octets, and at most one read more.
    pub(super) fn receive(
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

    /// Sends what can be sent, then FIN if one is due, and completes requests that this finished.
    pub(super) fn send(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let sent = loop {
            match self.write(watch, cx) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(event) => break Err(event),
            }
        };
        cx.retire();
        sent
    }

    /// Hands the next requests to TCP by one call. Returns whether another may follow.
    fn write(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        let Some(batch) = self.batch(cx) else {
            cx.sq.finish_at_cursor(Status::LocalProtection);
            return Err(Fault::local_catastrophic().into());
        };
        let Some(total) = batch.ends.last().copied() else {
            watch.blocked = false;
            let socket = watch.socket.clone();
            return watch.end.send_fin(&socket).map(|()| false);
        };
        cx.tally.add(Counter::SendCalls, 1);
        // TCP has taken a request of no octets.
        let sent = if total == 0 {
            Ok(0)
        } else {
            send_vectored(watch.fd(), &pieces(cx, &batch), SendFlags::default())
        };
        let taken = match sent {
            Ok(taken) => taken as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // What comes before the bad memory is still sent.
            Err(error) if is_fault(&error) && batch.ends.len() > 1 => {
                self.one_by_one = true;
                return Ok(true);
            }
            Err(error) if is_fault(&error) => {
                cx.sq.finish_at_cursor(Status::LocalProtection);
                return Err(Fault::local_catastrophic().into());
            }
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer sends");
                return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.tally.add(Counter::OctetsSent, taken);
        cx.sq.cursor = batch.behind(cx.sq.cursor, taken);
        cx.sq.handed_to_cursor();
        watch.blocked = taken < total;
        Ok(!watch.blocked)
    }

    /// Returns the requests of the next write; `None` if the program may not send the memory of the
    /// first.
    fn batch(&self, cx: &Context<'_>) -> Option<Batch> {
        let mut batch = Batch::default();
        let Cursor { seq, offset: mut skip } = cx.sq.cursor;
        let most = if self.one_by_one { 1 } else { REQUESTS };
        let mut total = 0;
        while let Some(wqe) = cx.sq.get(seq + batch.ends.len() as u64) {
            if batch.ends.len() == most || total >= OCTETS {
                break;
            }
            let left = wqe.total - skip;
            if let Operation::Send { gather: Gather::List(list), .. } = &wqe.wr.operation {
                let before = batch.grants.len();
                if cx.attrs.grants_of(list, skip, left as usize, None, &mut batch.grants).is_err() {
                    // What comes before it goes out first.
                    batch.grants.truncate(before);
                    return (!batch.ends.is_empty()).then_some(batch);
                }
            }
            (total, skip) = (total + left, 0);
            batch.ends.push(total);
        }
        Some(batch)
    }
}

impl Batch {
    /// Returns the place behind `taken` octets of the batch, which begins at `from`.
    fn behind(&self, from: Cursor, taken: u64) -> Cursor {
        let whole = self.ends.iter().take_while(|end| **end <= taken).count();
        let before = whole.checked_sub(1).map_or(0, |last| self.ends[last]);
        let begun = if whole == 0 { from.offset } else { 0 };
        Cursor { seq: from.seq + whole as u64, offset: begun + (taken - before) }
    }
}

/// Returns the octets of a batch, in order.
fn pieces<'a>(cx: &'a Context<'_>, batch: &'a Batch) -> SmallVec<[Piece<'a>; 8]> {
    let mut pieces = SmallVec::new();
    let (mut grants, mut from) = (batch.grants.iter(), cx.sq.cursor);
    for _ in &batch.ends {
        let Some(wqe) = cx.sq.get(from.seq) else { break };
        let mut left = wqe.total - from.offset;
        if let Operation::Send { gather: Gather::Inline(octets), .. } = &wqe.wr.operation {
            pieces.push(Piece::Own(&octets[octets.len() - left as usize..]));
            left = 0;
        }
        while left > 0 {
            let Some(grant) = grants.next() else { break };
            pieces.push(Piece::Granted(grant, 0..grant.len()));
            left -= grant.len() as u64;
        }
        from = Cursor { seq: from.seq + 1, offset: 0 };
    }
    pieces
}

/// Ends a receive whose memory is no good. Returns what the QP has to act on.
#[cold]
fn bad_receive(cx: &mut Context<'_>) -> WireEvent {
    cx.end_receive(Status::LocalProtection, &Outcome::default());
    Fault::local_catastrophic().into()
}
