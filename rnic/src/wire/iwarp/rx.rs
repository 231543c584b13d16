//! Receiving: octets of TCP become FPDUs, segments, placed payload and events (RFC 5044 §6, RFC 5041 §5.4).
//!
//! [`Link::read`] reads into a staging buffer of the calling thread, and handles all whole FPDUs in it in one pass.
//! The payload of a large FPDU goes straight into registered memory where that is allowed: see `direct`. A QP itself
//! keeps only the octets of a partial FPDU.

use std::cell::Cell;
use std::io::ErrorKind;
use std::time::Instant;

use rddp_ddp::{DdpError, Header};
use rddp_mpa::Step;
use rddp_rdmap::{AccessError, Event, Fault, Offending, Place, SEND_QUEUE, parse_header};

use super::link::{Link, RTR_ID, RtrRead};
use crate::completion::Status;
use crate::event::AsyncEventKind;
use crate::mem::{Access, PieceMut, recv_vectored};
use crate::qp::attributes::QpAttributes;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::qp::rq::Outcome;
use crate::qp::sq::Phase;
use crate::scratch::{Own, with_own};
use crate::wire::LinkEvent;
use crate::wr::Operation;

/// Room for several of the largest FPDUs.
pub(super) const STAGING: usize = 256 * 1024;

/// Staging for one read while large payloads go straight to their places: the header, and not much of the payload.
const BULK_ROOM: usize = 2048;

/// A ULPDU from which on its payload is better received straight into its place.
const BULK_ULPDU: usize = 32 * 1024;

thread_local! {
    static STAGE: Own<Stage> = const { Cell::new(None) };
}

/// Octets that have been read and not been handled, at the front of a buffer of the calling thread.
#[derive(Debug)]
pub(crate) struct Stage {
    octets: Vec<u8>,
    have: usize,
    /// The last read has shown that TCP has nothing more now.
    dry: bool,
}

impl Default for Stage {
    fn default() -> Self {
        Stage { octets: vec![0; STAGING], have: 0, dry: false }
    }
}

impl Stage {
    /// Lends the thread's own, empty.
    pub(crate) fn with_own<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        with_own(&STAGE, |stage: &mut Self| {
            stage.clear();
            f(stage)
        })
    }

    /// Returns whether the last read has shown that TCP has nothing more now.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry
    }

    /// Throws away what has not been handled. Returns how many octets that was.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.have)
    }

    /// Drops what has been handled from the front.
    fn consume(&mut self, used: usize) {
        self.octets.copy_within(used..self.have, 0);
        self.have -= used;
    }
}

/// Why a payload has no place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unplaceable {
    /// The peer may not write there.
    Write(AccessError),
    /// Our program's receive names memory that is no good.
    Receive,
    /// So does the sink of its Read with this number.
    Sink(u64),
}

/// Whether the program may learn of a message from its last octets: the segment is the last of a
/// Write, which completes nothing here.
pub(super) fn is_polled(place: Place, header: &Header) -> bool {
    matches!(place, Place::Write { .. }) && header.last()
}

impl Unplaceable {
    /// The memory of `place` has gone bad. For a Write, what is no longer there is out of bounds.
    pub(super) fn gone_bad(place: Place) -> Self {
        match place {
            Place::Write { .. } => Unplaceable::Write(AccessError::Bounds),
            Place::Sink { id, .. } => Unplaceable::Sink(id),
            // The others have no memory that could.
            Place::Receive { .. } | Place::Nothing | Place::Control | Place::Dropped => Unplaceable::Receive,
        }
    }

    /// Ends the request whose memory it was. Returns the fault.
    pub(super) fn refuse(self, cx: &mut Context<'_>, header: &Header, payload_len: usize) -> LinkEvent {
        match self {
            Unplaceable::Write(error) => {
                LinkEvent::Fault(Fault::write_access(error), Some(Offending::new(*header, payload_len)))
            }
            // draft-hilland-rddp-verbs §8.3.2: a receive or a sink that is no good is this side's fault.
            Unplaceable::Receive => {
                cx.end_receive(Status::LocalProtection, &Outcome::default());
                Fault::local_catastrophic().into()
            }
            Unplaceable::Sink(id) => {
                cx.end_request(id, Status::LocalProtection);
                Fault::local_catastrophic().into()
            }
        }
    }
}

impl Link {
    /// One read, and what it leads to.
    ///
    /// # Errors
    /// What the QP has to act on, with the octets behind it left in `stage`. There may be more to
    /// read even then.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, stage: &mut Stage) -> Result<(), LinkEvent> {
        cx.counters.receive_calls += 1;
        stage.dry = false;
        let room = if self.is_bulk() {
            BULK_ROOM
        } else {
            cx.attrs.stage_len().min(stage.octets.len()) - stage.have
        };
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

    /// Takes back what the last turn left over.
    pub(crate) fn unstash(&mut self, attrs: &QpAttributes, stage: &mut Stage) {
        let have = self.partial.len();
        stage.octets[..have].copy_from_slice(&self.partial);
        stage.have = have;
        attrs.device.partial.release(have);
        self.partial = Vec::new();
    }

    /// Keeps what is left over; an idle QP keeps no memory for it.
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
            match self.deframer.step(rest) {
                Ok(Step::Fpdu { ulpdu, used: octets }) => {
                    *used += octets;
                    self.segment(cx, &rest[ulpdu])?;
                    if self.is_parked() {
                        return Ok(());
                    }
                }
                Ok(Step::Need { total }) => {
                    if self.begin_direct(cx, rest, total) {
                        *used = stage.len();
                    }
                    return Ok(());
                }
                Err(error) => return Err(Fault::mpa(error.code().code()).into()),
            }
        }
    }

    /// One ULPDU whose CRC was good.
    fn segment(&mut self, cx: &mut Context<'_>, ulpdu: &[u8]) -> Result<(), LinkEvent> {
        cx.counters.fpdus_received += 1;
        self.open_for_sending(cx.attrs);
        self.deliver(cx, ulpdu)
    }

    /// Its segment: checked, placed, delivered; or parked until there is a receive for it.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, ulpdu: &[u8]) -> Result<(), LinkEvent> {
        let header = parse_header(ulpdu)?;
        let payload = &ulpdu[header.len()..];
        let Some(place) = self.accept(cx, &header, payload.len())? else {
            self.park(cx.attrs, ulpdu);
            return Ok(());
        };
        self.note_size(ulpdu.len() >= BULK_ULPDU && self.may_place_directly(place));
        place_payload(cx, &header, place, payload)?;
        self.commit(cx, &header, payload.len(), if place == Place::Control { payload } else { &[] })
    }

    /// RFC 5044 §7.1.2: the first FPDU that MPA finds good lets a responder send.
    fn open_for_sending(&mut self, attrs: &QpAttributes) {
        if !self.may_send {
            self.may_send = true;
            self.deadline = None;
            attrs.report(AsyncEventKind::Established);
        }
    }

    /// Asks the stream what the segment is; takes a receive when a message begins. `None`: there is none, and it waits.
    fn accept(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
    ) -> Result<Option<Place>, LinkEvent> {
        match self.classify(cx, header, payload_len) {
            Ok(place) => Ok(Some(place)),
            Err(Fault::Ddp(DdpError::NoBuffer { qn: SEND_QUEUE, .. })) if cx.attrs.waits() => Ok(None),
            Err(fault) => {
                if matches!(fault, Fault::Ddp(DdpError::TooLong { .. })) {
                    cx.end_receive(Status::MessageTooLong, &Outcome::default());
                }
                Err(LinkEvent::Fault(fault, Some(Offending::new(*header, payload_len))))
            }
        }
    }

    /// The same, with no consequences of a fault: the segment's CRC may not be known yet.
    #[inline]
    pub(super) fn classify(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
    ) -> Result<Place, Fault> {
        self.stream.accept(header, payload_len, &mut || cx.begin_receive())
    }

    /// The segment has been placed and its CRC was good: what it completes.
    pub(super) fn commit(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
        control: &[u8],
    ) -> Result<(), LinkEvent> {
        let faulty = |fault| LinkEvent::Fault(fault, Some(Offending::new(*header, payload_len)));
        let event = self.stream.commit(header, payload_len, control).map_err(faulty)?;
        match event {
            Event::None | Event::WriteDone | Event::InboundRequest => Ok(()),
            Event::Received { length, invalidate, solicited } => {
                if let Some(stag) = invalidate {
                    // RFC 5040 §5.3: invalidated when the Send is delivered, before the program learns of it.
                    cx.attrs.invalidate_remote(stag).map_err(|error| {
                        let outcome = Outcome { byte_len: length, ..Outcome::default() };
                        cx.end_receive(Status::RemoteInvalidate, &outcome);
                        faulty(Fault::invalidate(error))
                    })?;
                }
                let outcome =
                    Outcome { byte_len: length, invalidated: invalidate, immediate: None, solicited };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::Immediate { data, solicited } => {
                let outcome = Outcome { byte_len: 8, invalidated: None, immediate: Some(data), solicited };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::ReadDone { id: RTR_ID } => self.rtr_done(),
            Event::ReadDone { id } => Ok(read_done(cx, id)?),
            Event::AtomicDone { id, original } => Ok(atomic_done(cx, id, original)?),
            Event::Terminated(terminate) => Err(self.terminated(terminate)),
        }
    }

    fn rtr_done(&mut self) -> Result<(), LinkEvent> {
        match std::mem::replace(&mut self.rtr, RtrRead::None) {
            RtrRead::OutBeforeClose => Err(LinkEvent::Close),
            RtrRead::None | RtrRead::Out => Ok(()),
        }
    }
}

/// Copies a segment's payload to where it belongs.
fn place_payload(
    cx: &mut Context<'_>,
    header: &Header,
    place: Place,
    payload: &[u8],
) -> Result<(), LinkEvent> {
    if payload.is_empty() || matches!(place, Place::Nothing | Place::Control | Place::Dropped) {
        return Ok(());
    }
    place_from(cx, header, place, 0, payload)
}

/// Copies the end of a segment's payload, `skip` octets into it, to where it belongs: in order,
/// where a program may poll the last octet.
#[inline]
pub(super) fn place_from(
    cx: &mut Context<'_>,
    header: &Header,
    place: Place,
    skip: usize,
    payload: &[u8],
) -> Result<(), LinkEvent> {
    let mut grants = Grants::new();
    if let Err(why) = targets(cx, place, skip, payload.len(), &mut grants) {
        return Err(why.refuse(cx, header, skip + payload.len()));
    }
    let in_order = is_polled(place, header);
    let mut rest = payload;
    for grant in &grants {
        let (now, later) = rest.split_at(grant.len());
        let placed = if in_order { grant.place_in_order(0, now) } else { grant.place(0, now) };
        if placed.is_err() {
            grants.clear();
            return Err(Unplaceable::gone_bad(place).refuse(cx, header, skip + payload.len()));
        }
        rest = later;
    }
    Ok(())
}

/// The memory for `len` octets of a segment's payload from `skip` on.
pub(super) fn targets(
    cx: &Context<'_>,
    place: Place,
    skip: usize,
    len: usize,
    grants: &mut Grants,
) -> Result<(), Unplaceable> {
    match place {
        Place::Write { stag, to } => {
            let to = to.wrapping_add(skip as u64);
            let grant = cx.attrs.check_remote(stag, to, len as u64, Access::REMOTE_WRITE);
            grants.push(grant.map_err(Unplaceable::Write)?);
            Ok(())
        }
        Place::Receive { mo } => {
            let from = u64::from(mo) + skip as u64;
            cx.receive_grants(from, len, grants).map_err(|_| Unplaceable::Receive)
        }
        Place::Sink { id, offset, .. } => {
            let from = u64::from(offset) + skip as u64;
            cx.sink_grants(id, from, len, grants).map_err(|_| Unplaceable::Sink(id))
        }
        Place::Nothing | Place::Control | Place::Dropped => Ok(()),
    }
}

fn read_done(cx: &mut Context<'_>, id: u64) -> Result<(), Fault> {
    let Some(wqe) = cx.sq.get_mut(id) else { return Ok(()) };
    if let Operation::Read { sink, invalidate_sink: true, .. } = wqe.wr.operation
        && cx.attrs.device.mem.invalidate_local(sink.stag, cx.attrs.pd, cx.attrs.num).is_err()
    {
        // draft-hilland-rddp-verbs §8.3.2: as where the invalidation is a request of its own.
        wqe.phase = Phase::Done(Status::MemoryBind);
        return Err(Fault::local_catastrophic());
    }
    wqe.phase = Phase::Done(Status::Success);
    cx.retire();
    Ok(())
}

fn atomic_done(cx: &mut Context<'_>, id: u64, original: u64) -> Result<(), Fault> {
    let Some(wqe) = cx.sq.get_mut(id) else { return Ok(()) };
    let (Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. }) = wqe.wr.operation else {
        return Ok(());
    };
    let grant = cx.attrs.device.mem.check_local(sink.stag, sink.addr, 8, true, cx.attrs.pd);
    if !grant.is_ok_and(|grant| grant.place(0, &original.to_ne_bytes()).is_ok()) {
        wqe.phase = Phase::Done(Status::LocalProtection);
        return Err(Fault::local_catastrophic());
    }
    wqe.phase = Phase::Done(Status::Success);
    cx.retire();
    Ok(())
}
