//! Reading: octets of TCP into receives, and those behind them ahead of receives to come.

use std::io::ErrorKind;

use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;
use smallvec::SmallVec;

use super::Plain;
use crate::mem::{PieceMut, is_fault, peek, recv_vectored};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::rq::Outcome;
use crate::wire::staging::Staging;
use crate::wire::{Pulled, Watch, WireEvent};

/// Octets that one call may read behind the receive at hand.
const AHEAD: usize = 64 * 1024;

/// The same where the receive at hand is large, or the one before it was: what comes behind it is
/// likely to have a large one, too, and to be read straight into that.
const LITTLE_AHEAD: usize = 4 * 1024;

/// The octets from which on a receive is large.
const LARGE: u64 = 16 * 1024;

/// Octets in the staging buffer that have been read and have had no receive yet.
struct Ahead<'a> {
    octets: &'a mut [u8],
    at: usize,
    end: usize,
    /// The last read has shown that TCP has nothing more now.
    dry: bool,
}

impl Ahead<'_> {
    fn is_empty(&self) -> bool {
        self.at == self.end
    }

    fn rest(&self) -> &[u8] {
        &self.octets[self.at..self.end]
    }
}

impl Plain {
    /// Reads for so many octets, and at most one read more.
    pub(in crate::wire) fn receive(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        turn: u64,
    ) -> (Pulled, Option<WireEvent>) {
        let end = cx.tally.of(Counter::OctetsReceived).wrapping_add(turn);
        self.with_ahead(cx.attrs, |plain, ahead| {
            loop {
                match plain.step(watch, cx, ahead) {
                    Ok(true) if cx.tally.of(Counter::OctetsReceived) < end => {}
                    Ok(true) => return (Pulled::More, None),
                    Ok(false) => return (Pulled::Dry, None),
                    Err(event) => return (Pulled::Dry, Some(event)),
                }
            }
        })
    }

    /// Delivers what was read ahead to the receives that there are now, and reads nothing.
    pub(in crate::wire) fn resume(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
    ) -> Result<(), WireEvent> {
        if !self.ahead.is_empty() {
            self.deliver(watch, cx)?;
        }
        let has_receive = cx.rq.current().is_some() || cx.rq.has_receive(cx.attrs.num);
        watch.waits = !self.ahead.is_empty() || !has_receive;
        Ok(())
    }

    /// Delivers what was read ahead from where it is: a program may post one receive at a time, and
    /// to copy all of it for each would cost more than the reading.
    fn deliver(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let mut octets = std::mem::take(&mut self.ahead);
        let (at, end) = (self.delivered, octets.len());
        let mut ahead = Ahead { octets: &mut octets, at, end, dry: true };
        let result = loop {
            match self.step(watch, cx, &mut ahead) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(event) => break Err(event),
            }
        };
        if ahead.is_empty() {
            cx.attrs.device.partial.release(end);
            self.delivered = 0;
        } else {
            self.delivered = ahead.at;
            self.ahead = octets;
        }
        result
    }

    /// Gives back the memory for what was read ahead.
    pub(in crate::wire) fn release(&self, attrs: &QpAttributes) {
        attrs.device.partial.release(self.ahead.len());
    }

    /// Lends `work` the staging buffer of the calling thread, with what was read ahead, and keeps
    /// what is left of that.
    fn with_ahead<R>(
        &mut self,
        attrs: &QpAttributes,
        work: impl FnOnce(&mut Self, &mut Ahead<'_>) -> R,
    ) -> R {
        Staging::with_own(|staging| {
            let kept = std::mem::take(&mut self.ahead);
            let rest = &kept[std::mem::take(&mut self.delivered)..];
            let end = rest.len();
            let mut ahead = Ahead { octets: &mut staging.octets, at: 0, end, dry: false };
            if end > 0 {
                ahead.octets[..end].copy_from_slice(rest);
                attrs.device.partial.release(kept.len());
                drop(kept);
            }
            let result = work(self, &mut ahead);
            if !ahead.is_empty() {
                attrs.device.partial.charge(ahead.rest().len());
                self.ahead = ahead.rest().to_vec();
            }
            result
        })
    }

    /// Fills the receive at hand by what was read ahead, or by one read. Returns whether there may
    /// be more to do.
    fn step(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        ahead: &mut Ahead<'_>,
    ) -> Result<bool, WireEvent> {
        if watch.end.is_peer_done() || !self.has_receive(watch, cx, ahead)? {
            return Ok(false);
        }
        let (capacity, full) = cx.rq.current().map_or((0, false), |wr| (wr.capacity(), wr.full));
        let Some(len) = self.header(watch, cx, ahead, capacity)? else { return Ok(!ahead.dry) };
        let room = capacity.min(len);
        let wanted = room - self.filled;
        if wanted > 0 {
            let count = if !ahead.is_empty() {
                self.take(cx, ahead, wanted)?
            } else if ahead.dry {
                0
            } else {
                self.read(watch, cx, ahead, wanted, 0)?
            };
            self.filled += count;
            if count == 0 || ((full || self.records.is_some()) && self.filled < room) {
                return Ok(count > 0);
            }
        }
        let status = match &self.records {
            Some(records) if len > room => {
                let rest = len - room - records.discarded;
                if self.discard(watch, cx, ahead, rest)? < rest {
                    return Ok(!ahead.dry);
                }
                Status::MessageTooLong
            }
            _ => Status::Success,
        };
        self.large = self.filled >= LARGE;
        let outcome = Outcome { byte_len: self.filled as u32, ..Outcome::default() };
        if let Some(records) = &mut self.records {
            records.end();
        }
        cx.tally.add(Counter::SendsReceived, 1);
        cx.end_receive(status, &outcome);
        Ok(true)
    }

    /// Returns the octets that the message has, or may have, for a receive of this capacity; `None`
    /// while that is not known.
    fn header(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        ahead: &mut Ahead<'_>,
        capacity: u64,
    ) -> Result<Option<u64>, WireEvent> {
        let missing = match &self.records {
            // The length in a completion is a u32.
            None => return Ok(Some(u32::MAX.into())),
            Some(records) => records.missing(),
        };
        if missing > 0 {
            self.supply(watch, cx, ahead, missing)?;
        }
        let Some(records) = &mut self.records else { return Ok(None) };
        ahead.at += records.take_header(ahead.rest());
        if records.missing() > 0 {
            return Ok(None);
        }
        let len = records.len();
        if len > records.options.max_record {
            tracing::info!(qp = cx.attrs.num.0, len, "reset: the peer's record is longer than any may be");
            return Err(WireEvent::Lost(AsyncEventKind::RecordTooLong { len }));
        }
        if u64::from(len) > capacity && !records.options.drop_long {
            cx.end_receive(Status::MessageTooLong, &Outcome::default());
            return Err(WireEvent::Lost(AsyncEventKind::RecordTooLong { len }));
        }
        Ok(Some(len.into()))
    }

    /// Drops up to `rest` octets of a record that does not fit, by one read at most. Returns how
    /// many.
    fn discard(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        ahead: &mut Ahead<'_>,
        rest: u64,
    ) -> Result<u64, WireEvent> {
        self.supply(watch, cx, ahead, rest.min(AHEAD as u64) as usize)?;
        let count = rest.min(ahead.rest().len() as u64);
        ahead.at += count as usize;
        if let Some(records) = &mut self.records {
            records.discarded += count;
        }
        Ok(count)
    }

    /// Reads octets that are for no receive, at least so many if TCP has them, unless there are
    /// some.
    fn supply(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        ahead: &mut Ahead<'_>,
        least: usize,
    ) -> Result<(), WireEvent> {
        if ahead.is_empty() && !ahead.dry { self.read(watch, cx, ahead, 0, least).map(drop) } else { Ok(()) }
    }

    /// Takes a receive, unless there is one at hand. Returns whether there is one now.
    fn has_receive(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        ahead: &Ahead<'_>,
    ) -> Result<bool, WireEvent> {
        if cx.rq.current().is_some() {
            return Ok(true);
        }
        // A receive of a shared queue is for whoever has octets for it; and where there is none, a
        // FIN is to be noticed all the same.
        if cx.rq.is_empty() && ahead.is_empty() {
            if ahead.dry {
                return Ok(false);
            }
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

    /// Copies up to `wanted` octets that were read ahead into the receive at hand. Returns how many
    /// there were.
    fn take(&mut self, cx: &mut Context<'_>, ahead: &mut Ahead<'_>, wanted: u64) -> Result<u64, WireEvent> {
        let count = wanted.min(ahead.rest().len() as u64);
        let mut grants = Grants::new();
        if cx.receive_grants(self.filled, count as usize, &mut grants).is_err() {
            return Err(bad_receive(cx));
        }
        for grant in &grants {
            let from = ahead.at;
            ahead.at += grant.len();
            if grant.place(0, &ahead.octets[from..ahead.at]).is_err() {
                return Err(bad_receive(cx));
            }
        }
        Ok(count)
    }

    /// Reads up to `wanted` octets into the receive at hand, and what is behind them into staging,
    /// which takes `least` octets however short memory is. Returns how many have come for the
    /// receive.
    fn read(
        &mut self,
        watch: &Watch,
        cx: &mut Context<'_>,
        ahead: &mut Ahead<'_>,
        wanted: u64,
        least: usize,
    ) -> Result<u64, WireEvent> {
        cx.tally.add(Counter::ReceiveCalls, 1);
        let mut grants = Grants::new();
        if cx.receive_grants(self.filled, wanted as usize, &mut grants).is_err() {
            return Err(bad_receive(cx));
        }
        let mut pieces: SmallVec<[PieceMut<'_>; 4]> =
            grants.iter().map(|grant| PieceMut::Granted(grant, 0..grant.len())).collect();
        let room = self.room_ahead(cx.attrs, wanted).max(least);
        if room > 0 {
            pieces.push(PieceMut::Own(&mut ahead.octets[..room]));
        }
        let received = recv_vectored(watch.fd(), &mut pieces);
        drop(pieces);
        drop(grants);
        match received {
            Ok(0) => {
                let outcome = Outcome { byte_len: self.filled as u32, ..Outcome::default() };
                let status = if self.is_inside(cx) { Status::EndOfStream } else { Status::Flushed };
                cx.end_receive(status, &outcome);
                Err(WireEvent::HalfClosed)
            }
            Ok(count) => {
                cx.tally.add(Counter::OctetsReceived, count as u64);
                let here = wanted.min(count as u64);
                (ahead.at, ahead.end) = (0, count - here as usize);
                ahead.dry = (count as u64) < wanted + room as u64;
                Ok(here)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                ahead.dry = true;
                Ok(0)
            }
            Err(error) if is_fault(&error) => Err(bad_receive(cx)),
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer receives");
                Err(WireEvent::Lost(AsyncEventKind::ConnectionLost))
            }
        }
    }

    /// Returns whether the stream may not end here: a message has begun.
    fn is_inside(&self, cx: &Context<'_>) -> bool {
        match &self.records {
            Some(records) => records.is_inside(),
            None => self.filled > 0 && cx.rq.current().is_some_and(|wr| wr.full),
        }
    }

    /// Returns how many octets may be read behind those wanted: none while memory for them is
    /// short.
    fn room_ahead(&self, attrs: &QpAttributes, wanted: u64) -> usize {
        match () {
            () if attrs.device.partial.is_scarce() => 0,
            () if self.large || wanted >= LARGE => LITTLE_AHEAD,
            () => AHEAD,
        }
    }
}

/// Ends a receive whose memory is no good. Returns what the QP has to act on.
#[cold]
fn bad_receive(cx: &mut Context<'_>) -> WireEvent {
    cx.end_receive(Status::LocalProtection, &Outcome::default());
    Fault::local_catastrophic().into()
}
