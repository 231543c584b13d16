//! Receiving: many datagrams by one call into staging of the thread, and from there into receives.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;

use rddp_capture::Direction;
use rddp_rdma::{AsyncEventKind, Datagram, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;

use super::notices::{is_end, is_news};
use super::{Datagrams, unreliable};
use crate::mem::{Inbox, MARGIN, MOST_BUFFERS, Received};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::options::{Transport, WithoutReceive};
use crate::queues::rq::Outcome;
use crate::scratch::{Own, with_own};
use crate::wire::{Pulled, Watch, WireEvent};

/// Octets that a call counts towards a turn, besides those of its datagrams.
const CALL: u64 = 4096;

thread_local! {
    static INBOX: Own<Inbox> = const { Cell::new(None) };
}

/// Datagrams of one sender that have found no receive.
#[derive(Debug)]
pub(super) struct Staged {
    datagram: Datagram,
    segment: usize,
    /// The datagrams, and in front of the first room for what a receive has in front.
    octets: Vec<u8>,
    /// The place of the next one.
    at: usize,
}

impl Staged {
    /// Returns what it counts in the device's budget: one of no octets takes memory, too.
    fn cost(&self) -> usize {
        self.octets.len() + size_of::<Self>()
    }
}

impl Datagrams {
    /// Reads for so many octets, and at most one read more.
    pub(in crate::wire) fn receive(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
        turn: u64,
    ) -> (Pulled, Option<WireEvent>) {
        let mut read = 0;
        loop {
            match self.step(watch, cx) {
                Ok(Some(octets)) => read += octets,
                Ok(None) => return (Pulled::Dry, None),
                Err(event) => return (Pulled::Dry, Some(event)),
            }
            if read >= turn {
                return (Pulled::More, None);
            }
        }
    }

    /// Delivers what is staged to the receives that there are now, and reads nothing.
    pub(in crate::wire) fn resume(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
    ) -> Result<(), WireEvent> {
        self.deliver_staged(cx)?;
        if !self.has_receive(watch, cx) {
            // Nothing is read now that would tell of an error.
            self.take_notices(watch, cx);
        }
        Ok(())
    }

    /// Gives back the memory for what is staged.
    pub(in crate::wire) fn release(&self, attrs: &QpAttributes) {
        attrs.device.partial.release(self.staged.iter().map(Staged::cost).sum());
    }

    /// Receives once. Returns how much that counts, or `None` where there is no more now, as far as
    /// is known.
    fn step(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<Option<u64>, WireEvent> {
        self.deliver_staged(cx)?;
        while !self.has_receive(watch, cx) {
            if watch.waits || self.staged.is_empty() {
                return Ok(None);
            }
            self.deliver_staged(cx)?;
        }
        cx.tally.add(Counter::ReceiveCalls, 1);
        let wanted = self.wanted(cx);
        let received = with_own(&INBOX, |inbox: &mut Inbox| {
            let count = inbox.receive(watch.fd(), wanted)?;
            io::Result::Ok((count, self.take_all(cx, inbox, count)))
        });
        match received {
            Ok((count, taken)) => {
                let is_full = count == wanted;
                let next = if is_full { 2 * wanted } else { count.next_power_of_two() };
                self.buffers = next.clamp(1, MOST_BUFFERS);
                // Of a single datagram another call would find the end as a rule; where there are
                // more, somebody comes again.
                taken.map(|octets| (is_full && wanted > 1).then_some(octets + CALL))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.buffers = 1;
                Ok(None)
            }
            Err(error) if is_end(&error) => Err(WireEvent::Lost(AsyncEventKind::ConnectionLost)),
            Err(error) => {
                self.take_notices(watch, cx);
                Ok(is_news(&error).then_some(CALL))
            }
        }
    }

    /// Returns the number of buffers for the next call.
    fn wanted(&self, cx: &Context<'_>) -> usize {
        match self.options.without_receive {
            // What finds no receive had better stay in the socket.
            WithoutReceive::Keep if cx.rq.srq().is_none() => self.buffers.min(cx.rq.posted().len()).max(1),
            WithoutReceive::Keep | WithoutReceive::Drop => self.buffers,
        }
    }

    /// Returns whether the socket is to be read: there is a receive, or none is needed.
    fn has_receive(&mut self, watch: &mut Watch, cx: &Context<'_>) -> bool {
        let drops = self.options.without_receive == WithoutReceive::Drop;
        if self.staged.is_empty() && (drops || cx.rq.has_receive(cx.attrs.num)) {
            watch.waits = false;
            return true;
        }
        // Of a shared queue a QP waits for a receive only once there is something for it.
        if self.staged.is_empty() && cx.rq.srq().is_some() && !watch.has_arrived() {
            return false;
        }
        watch.waits = cx.rq.srq().is_none_or(|srq| srq.await_receive(cx.attrs.num));
        false
    }

    /// Delivers all that a call has received. Returns how many octets that were.
    fn take_all(&mut self, cx: &mut Context<'_>, inbox: &mut Inbox, count: usize) -> Result<u64, WireEvent> {
        let mut total = 0;
        for at in 0..count {
            if let Some((received, octets)) = inbox.filled(at) {
                total += received.len as u64;
                self.take(cx, received, octets)?;
            }
        }
        cx.tally.add(Counter::OctetsReceived, total);
        Ok(total)
    }

    /// Delivers the datagrams of one buffer; those that find no receive are staged or dropped.
    fn take(&mut self, cx: &mut Context<'_>, received: Received, octets: &mut [u8]) -> Result<(), WireEvent> {
        if received.overflow != 0 {
            let dropped = received.overflow.wrapping_sub(self.overflow);
            cx.tally.add(Counter::Dropped, dropped.into());
            self.overflow = received.overflow;
        }
        let Received { source, traffic_class, segment, .. } = received;
        let destination = received.destination.unwrap_or(self.local.ip());
        if rddp_capture::is_on() {
            let names = [SocketAddr::new(destination, self.local.port()), source];
            let payload = &octets[MARGIN..];
            let pieces = [IoSlice::new(payload)];
            rddp_capture::datagrams(names, Direction::Received, &pieces, payload.len(), segment);
        }
        let mut datagram = Datagram { source, destination, traffic_class, len: 0 };
        if cx.attrs.transport == Transport::Unreliable
            && let SocketAddr::V6(source) = &mut datagram.source
        {
            // A GRH has addresses alone, and the interface is that of the device.
            source.set_scope_id(0);
        }
        let mut at = MARGIN;
        if self.staged.is_empty() && deliver(cx, datagram, segment, octets, &mut at)? {
            return Ok(());
        }
        let keeps = self.options.without_receive == WithoutReceive::Keep;
        if !keeps || cx.attrs.device.partial.is_exhausted() {
            let left = (octets.len() - at).div_ceil(segment.max(1)).max(1);
            cx.tally.add(Counter::Dropped, left as u64);
            return Ok(());
        }
        let octets = octets[at - MARGIN..].to_vec();
        let staged = Staged { datagram, segment, octets, at: MARGIN };
        cx.attrs.device.partial.charge(staged.cost());
        self.staged.push_back(staged);
        Ok(())
    }

    /// Delivers what is staged, as far as there are receives.
    fn deliver_staged(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        while let Some(Staged { datagram, segment, octets, at }) = self.staged.front_mut() {
            if !deliver(cx, *datagram, *segment, octets, at)? {
                break;
            }
            if let Some(staged) = self.staged.pop_front() {
                cx.attrs.device.partial.release(staged.cost());
            }
        }
        Ok(())
    }
}

/// Delivers datagrams of one sender, from the place `at` on, which moves. Returns whether all have
/// found receives.
fn deliver(
    cx: &mut Context<'_>,
    mut datagram: Datagram,
    segment: usize,
    octets: &mut [u8],
    at: &mut usize,
) -> Result<bool, WireEvent> {
    let mut front = None;
    loop {
        let end = octets.len().min(*at + segment);
        let taken = match cx.attrs.transport {
            Transport::Unreliable => unreliable::accept(cx.attrs, datagram.source, &octets[*at..end]),
            _ => Some((0, Outcome::default())),
        };
        if let Some((begin, outcome)) = taken {
            let message = *at + begin;
            let len = (end - message) as u16;
            if datagram.len != len || front.is_none() {
                datagram.len = len;
                front = Some(datagram.to_octets());
            }
            // What stands there has been read.
            if let Some(front) = &front {
                octets[message - MARGIN..message].copy_from_slice(front);
            }
            if !deliver_one(cx, &octets[message - MARGIN..end], outcome)? {
                return Ok(false);
            }
        } else {
            cx.tally.add(Counter::Dropped, 1);
        }
        *at = end;
        if end == octets.len() {
            return Ok(true);
        }
    }
}

/// Places one datagram, with what is in front of it, in the next receive. Returns whether there was
/// one.
fn deliver_one(cx: &mut Context<'_>, octets: &[u8], outcome: Outcome) -> Result<bool, WireEvent> {
    if cx.take_message(octets, outcome) {
        return Ok(true);
    }
    let Some(room) = cx.begin_receive() else { return Ok(false) };
    let count = octets.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    let mut grants = Grants::new();
    let mut rest = &octets[..count];
    let is_placed = cx.receive_grants(0, count, &mut grants).is_ok()
        && grants.iter().all(|grant| {
            let (now, later) = rest.split_at(grant.len());
            rest = later;
            grant.place(0, now).is_ok()
        });
    drop(grants);
    if !is_placed {
        cx.end_receive(Status::LocalProtection, &Outcome::default());
        return Err(Fault::local_catastrophic().into());
    }
    let status = if count < octets.len() { Status::MessageTooLong } else { Status::Success };
    cx.tally.add(Counter::SendsReceived, 1);
    cx.end_receive(status, &Outcome { byte_len: count as u32, ..outcome });
    Ok(true)
}
