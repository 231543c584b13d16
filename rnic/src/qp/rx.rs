//! Receiving: octets of TCP become FPDUs, segments, placed payload and events (RFC 5044 §6, RFC 5041 §5.4).
//!
//! [`QpInner::pull`] reads into a staging buffer of the calling thread, and handles all whole FPDUs in it in one pass.
//! The payload of a large FPDU goes straight into registered memory where that is allowed: see `direct`. A QP itself
//! keeps only the octets of a partial FPDU.

use std::cell::Cell;
use std::io::ErrorKind;
use std::time::Instant;

use rddp_ddp::{DdpError, Header, Stag};
use rddp_mpa::Step;
use rddp_rdmap::{AccessError, Event, Fault, InvalidateError, Offending, Place, SEND_QUEUE, parse_header};
use smallvec::SmallVec;

use super::QpInner;
use super::core::Core;
use super::link::{RTR_ID, RtrRead};
use super::rq::Outcome;
use super::sq::Phase;
use super::state::QpState;
use crate::completion::Status;
use crate::event::AsyncEventKind;
use crate::mem::{Access, Grant, PdId, PieceMut, recv_vectored};
use crate::scratch::{Own, with_own};
use crate::wr::{Operation, Sge};

/// Room for several of the largest FPDUs.
pub(super) const STAGING: usize = 256 * 1024;

/// Staging for one read while large payloads go straight to their places: the header, and not much of the payload.
const BULK_ROOM: usize = 2048;

/// A ULPDU from which on its payload is better received straight into its place.
const BULK_ULPDU: usize = 32 * 1024;

/// Octets of one turn: other connections get theirs in between (RFC 5042 §6.4.4).
pub(super) const TURN: u64 = 1024 * 1024;

/// Octets that are thrown away behind a Terminate before TCP is reset.
const MAX_DISCARDED: usize = 64 << 20;

thread_local! {
    static STAGE: Own<Vec<u8>> = const { Cell::new(None) };
}

/// How a turn of reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pulled {
    /// TCP has nothing more now.
    Dry,
    /// There may be more.
    More,
    /// Not now: see [`QpInner::must_rest`].
    Resting,
}

/// The memory of one segment: mostly a single piece.
pub(super) type Grants = SmallVec<[Grant; 1]>;

/// What is wrong with a segment, and the segment for the Terminate.
pub(super) type Faulty = (Fault, Option<Offending>);

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
}

impl QpInner {
    /// Reads for one turn, of `turn` octets and at most one read more.
    pub(super) fn pull(&self, core: &mut Core, turn: u64) -> Pulled {
        with_own(&STAGE, |stage| {
            if stage.is_empty() {
                stage.resize(STAGING, 0);
            }
            let mut have = self.unstash(core, stage);
            let end = core.counters.octets_received + turn;
            loop {
                match self.read(core, stage, &mut have) {
                    Some(Pulled::More) if core.counters.octets_received < end => {}
                    Some(pulled) => {
                        self.stash(core, &stage[..have]);
                        return pulled;
                    }
                    None => return Pulled::Dry,
                }
            }
        })
    }

    /// One read and what it leads to; `None` when the connection is gone.
    fn read(&self, core: &mut Core, stage: &mut [u8], have: &mut usize) -> Option<Pulled> {
        let link = core.link.as_ref()?;
        core.counters.receive_calls += 1;
        let room = if link.is_bulk() { BULK_ROOM } else { self.stage_len().min(stage.len()) - *have };
        let free = &mut stage[*have..*have + room];
        let received = if link.direct.is_some() {
            self.receive_direct(core, free)
        } else {
            recv_vectored(link.fd(), &mut [PieceMut::Own(free)]).map(|count| (count, count))
        };
        let (total, staged) = match received {
            Ok((0, _)) => {
                self.stash(core, &stage[..*have]);
                self.on_fin(core);
                return None;
            }
            Ok(counts) => counts,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Pulled::Dry),
            // The memory of a direct placement went away: the connection ends.
            Err(error) if error.kind() == ErrorKind::Interrupted => return Some(Pulled::More),
            Err(error) => {
                tracing::debug!(qp = self.num.0, %error, "TCP no longer receives");
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
                return None;
            }
        };
        core.counters.octets_received += total as u64;
        #[cfg(test)]
        assert!(!core.panics, "as a test wants it");
        *have += staged;
        let used = self.handle(core, &mut stage[..*have]);
        stage.copy_within(used..*have, 0);
        *have -= used;
        core.link.as_ref()?;
        if core.is_parked() {
            return Some(Pulled::Dry);
        }
        // A short read says that TCP has no more: the next one would only be told so.
        Some(if staged < room { Pulled::Dry } else { Pulled::More })
    }

    /// Handles whole FPDUs among what the last turn left over.
    pub(super) fn handle_stashed(&self, core: &mut Core) {
        with_own(&STAGE, |stage| {
            if stage.is_empty() {
                stage.resize(STAGING, 0);
            }
            let have = self.unstash(core, stage);
            let used = self.handle(core, &mut stage[..have]);
            self.stash(core, &stage[used..have]);
        });
    }

    /// Takes back what the last turn left over.
    fn unstash(&self, core: &mut Core, stage: &mut [u8]) -> usize {
        let Some(link) = &mut core.link else { return 0 };
        let have = link.partial.len();
        stage[..have].copy_from_slice(&link.partial);
        self.device.partial.release(have);
        link.partial = Vec::new();
        have
    }

    /// Keeps what is left over; an idle QP keeps no memory for it.
    fn stash(&self, core: &mut Core, rest: &[u8]) {
        if let Some(link) = &mut core.link
            && !rest.is_empty()
        {
            self.device.partial.charge(rest.len());
            link.partial = rest.to_vec();
            let before = core.counters.fpdus_received;
            if link.partial_begun.is_none_or(|(of, _)| of != before) {
                link.partial_begun = Some((before, Instant::now()));
            }
        }
    }

    /// Handles the FPDUs at the front of `stage`; how many octets they were.
    fn handle(&self, core: &mut Core, stage: &mut [u8]) -> usize {
        let mut used = 0;
        if let Err((fault, offending)) = self.handle_all(core, stage, &mut used) {
            self.terminate(core, fault, offending.as_ref());
        }
        self.after_end(core, stage.len() - used).map_or(used, |discarded| used + discarded)
    }

    fn handle_all(&self, core: &mut Core, stage: &mut [u8], used: &mut usize) -> Result<(), Faulty> {
        self.finish_direct(core, stage, used)?;
        while core.state == QpState::ReadyToSend {
            let Some(link) = &mut core.link else { return Ok(()) };
            if link.direct.is_some() {
                return Ok(());
            }
            let rest = &mut stage[*used..];
            match link.deframer.step(rest) {
                Ok(Step::Fpdu { ulpdu, used: octets }) => {
                    *used += octets;
                    self.segment(core, &rest[ulpdu])?;
                    if core.is_parked() {
                        return Ok(());
                    }
                }
                Ok(Step::Need { total }) => {
                    if self.begin_direct(core, rest, total) {
                        *used = stage.len();
                    }
                    return Ok(());
                }
                Err(error) => return Err((Fault::mpa(error.code().code()), None)),
            }
        }
        Ok(())
    }

    /// Octets that come when the stream has ended for us: the number thrown away, `None` while it goes on.
    fn after_end(&self, core: &mut Core, rest: usize) -> Option<usize> {
        match core.state {
            QpState::ReadyToSend => None,
            QpState::Closing => {
                if rest > 0 {
                    // draft-hilland-rddp-verbs §6.2: a segment that arrives in Closing is a bad close.
                    self.lose(core, Some(AsyncEventKind::BadClose));
                }
                Some(rest)
            }
            QpState::Terminate => {
                // RFC 5040 §6.2.1: read on, so that TCP does not reset and take the Terminate with it; within bounds.
                if let Some(link) = &mut core.link {
                    link.ending.discarded += rest;
                    if link.ending.discarded > MAX_DISCARDED {
                        self.lose(core, Some(AsyncEventKind::ConnectionLost));
                    }
                }
                Some(rest)
            }
            QpState::Idle | QpState::Error => Some(rest),
        }
    }

    /// One ULPDU whose CRC was good.
    fn segment(&self, core: &mut Core, ulpdu: &[u8]) -> Result<(), Faulty> {
        core.counters.fpdus_received += 1;
        self.open_for_sending(core);
        self.deliver(core, ulpdu)
    }

    /// Its segment: checked, placed, delivered; or parked until there is a receive for it.
    pub(super) fn deliver(&self, core: &mut Core, ulpdu: &[u8]) -> Result<(), Faulty> {
        let header = parse_header(ulpdu).map_err(|fault| (fault, None))?;
        let payload = &ulpdu[header.len()..];
        let Some(place) = self.accept(core, &header, payload.len())? else {
            self.park(core, ulpdu);
            return Ok(());
        };
        if let Some(link) = &mut core.link {
            link.note_size(ulpdu.len() >= BULK_ULPDU && link.may_place_directly(place));
        }
        self.place(core, &header, place, payload)?;
        self.commit(core, &header, payload.len(), if place == Place::Control { payload } else { &[] })
    }

    /// RFC 5044 §7.1.2: the first FPDU that MPA finds good lets a responder send.
    pub(super) fn open_for_sending(&self, core: &mut Core) {
        if let Some(link) = &mut core.link
            && !link.may_send
        {
            link.may_send = true;
            link.deadline = None;
            self.report(AsyncEventKind::Established);
        }
    }

    /// Asks the stream what the segment is; takes a receive when a message begins. `None`: there is none, and it waits.
    fn accept(&self, core: &mut Core, header: &Header, payload_len: usize) -> Result<Option<Place>, Faulty> {
        match self.classify(core, header, payload_len) {
            Ok(place) => Ok(Some(place)),
            Err(Fault::Ddp(DdpError::NoBuffer { qn: SEND_QUEUE, .. })) if self.waits() => Ok(None),
            Err(fault) => {
                if matches!(fault, Fault::Ddp(DdpError::TooLong { .. })) {
                    self.end_receive(core, Status::MessageTooLong, &Outcome::default());
                }
                Err((fault, Some(Offending::new(*header, payload_len))))
            }
        }
    }

    /// The same, with no consequences of a fault: the segment's CRC may not be known yet.
    pub(super) fn classify(
        &self,
        core: &mut Core,
        header: &Header,
        payload_len: usize,
    ) -> Result<Place, Fault> {
        let Some(link) = &mut core.link else { return Ok(Place::Dropped) };
        let (rq, num) = (&mut core.rq, self.num);
        let mut limit_reached = false;
        let place = link.stream.accept(header, payload_len, &mut || rq.begin(num, &mut limit_reached));
        if let Some(srq) = core.rq.srq().filter(|_| limit_reached) {
            self.report_about(srq.element(), AsyncEventKind::SrqLimit);
        }
        place
    }

    /// Copies a segment's payload to where it belongs.
    fn place(&self, core: &mut Core, header: &Header, place: Place, payload: &[u8]) -> Result<(), Faulty> {
        if payload.is_empty() || matches!(place, Place::Nothing | Place::Control | Place::Dropped) {
            return Ok(());
        }
        self.place_from(core, header, place, 0, payload)
    }

    /// Copies the end of a segment's payload, `skip` octets into it, to where it belongs: in order,
    /// where a program may poll the last octet.
    #[inline]
    pub(super) fn place_from(
        &self,
        core: &mut Core,
        header: &Header,
        place: Place,
        skip: usize,
        payload: &[u8],
    ) -> Result<(), Faulty> {
        let mut grants = Grants::new();
        if let Err(why) = self.targets(core, place, skip, payload.len(), &mut grants) {
            return Err(self.refuse(core, why, header, skip + payload.len()));
        }
        let in_order = is_polled(place, header);
        let mut rest = payload;
        for grant in &grants {
            let (now, later) = rest.split_at(grant.len());
            let placed = if in_order { grant.place_in_order(0, now) } else { grant.place(0, now) };
            if placed.is_err() {
                grants.clear();
                return Err(self.refuse(core, Unplaceable::gone_bad(place), header, skip + payload.len()));
            }
            rest = later;
        }
        Ok(())
    }

    /// The memory for `len` octets of a segment's payload from `skip` on.
    pub(super) fn targets(
        &self,
        core: &Core,
        place: Place,
        skip: usize,
        len: usize,
        grants: &mut Grants,
    ) -> Result<(), Unplaceable> {
        match place {
            Place::Write { stag, to } => {
                let to = to.wrapping_add(skip as u64);
                let grant = self.check_remote(stag, to, len as u64, Access::REMOTE_WRITE);
                grants.push(grant.map_err(Unplaceable::Write)?);
                Ok(())
            }
            Place::Receive { mo } => {
                let scatter = core.rq.current().map_or(&[][..], |wr| &wr.scatter);
                let pd = core.rq.srq().map_or(self.pd, |srq| srq.pd);
                self.grants_of(scatter, u64::from(mo) + skip as u64, len, Some(pd), grants)
                    .map_err(|_| Unplaceable::Receive)
            }
            Place::Sink { id, offset, .. } => {
                let sink = core.sq.get(id).and_then(|wqe| match wqe.wr.operation {
                    Operation::Read { sink, .. } => Some(sink),
                    _ => None,
                });
                let from = u64::from(offset) + skip as u64;
                self.grants_of(sink.as_slice(), from, len, Some(self.pd), grants)
                    .map_err(|_| Unplaceable::Sink(id))
            }
            Place::Nothing | Place::Control | Place::Dropped => Ok(()),
        }
    }

    /// The fault, and the completion in error, of a payload that has no place.
    pub(super) fn refuse(
        &self,
        core: &mut Core,
        why: Unplaceable,
        header: &Header,
        payload_len: usize,
    ) -> Faulty {
        match why {
            Unplaceable::Write(error) => {
                (Fault::write_access(error), Some(Offending::new(*header, payload_len)))
            }
            // draft-hilland-rddp-verbs §8.3.2: a receive or a sink that is no good is this side's fault.
            Unplaceable::Receive => {
                self.end_receive(core, Status::LocalProtection, &Outcome::default());
                (Fault::local_catastrophic(), None)
            }
            Unplaceable::Sink(id) => {
                if let Some(wqe) = core.sq.get_mut(id) {
                    wqe.phase = Phase::Done(Status::LocalProtection);
                }
                (Fault::local_catastrophic(), None)
            }
        }
    }

    /// Access by the peer: the QP's own switches, then the memory's rights (draft-hilland-rddp-verbs §7.6.3).
    #[inline]
    pub(super) fn check_remote(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        want: Access,
    ) -> Result<Grant, AccessError> {
        if !self.inbound.contains(want) {
            return Err(AccessError::Rights);
        }
        self.device.mem.check_remote(stag, to, len, want, self.pd, self.num)
    }

    /// Invalidation by the peer, for which the QP must allow it something (draft-hilland-rddp-verbs §7.8).
    fn invalidate_remote(&self, stag: Stag) -> Result<(), InvalidateError> {
        if self.inbound.is_empty() {
            return Err(InvalidateError::Rights);
        }
        self.device.mem.invalidate_remote(stag, self.pd, self.num)
    }

    /// The memory of a scatter list (to be written, in the PD given) or gather list, `len` octets from `skip` on.
    pub(super) fn grants_of(
        &self,
        list: &[Sge],
        mut skip: u64,
        len: usize,
        scatter: Option<PdId>,
        grants: &mut Grants,
    ) -> Result<(), AccessError> {
        let mut left = len as u64;
        for sge in list {
            if left == 0 {
                break;
            }
            if skip >= sge.len {
                skip -= sge.len;
                continue;
            }
            let count = left.min(sge.len - skip);
            let addr = sge.addr.checked_add(skip).ok_or(AccessError::Wrap)?;
            let pd = scatter.unwrap_or(self.pd);
            grants.push(self.device.mem.check_local(sge.stag, addr, count, scatter.is_some(), pd)?);
            (left, skip) = (left - count, 0);
        }
        if left == 0 { Ok(()) } else { Err(AccessError::Bounds) }
    }

    /// The segment has been placed and its CRC was good: what it completes.
    pub(super) fn commit(
        &self,
        core: &mut Core,
        header: &Header,
        payload_len: usize,
        control: &[u8],
    ) -> Result<(), Faulty> {
        let Some(link) = &mut core.link else { return Ok(()) };
        let faulty = |fault| (fault, Some(Offending::new(*header, payload_len)));
        let event = link.stream.commit(header, payload_len, control).map_err(faulty)?;
        match event {
            Event::None | Event::WriteDone | Event::InboundRequest => Ok(()),
            Event::Received { length, invalidate, solicited } => {
                if let Some(stag) = invalidate {
                    // RFC 5040 §5.3: invalidated when the Send is delivered, before the program learns of it.
                    self.invalidate_remote(stag).map_err(|error| {
                        let outcome = Outcome { byte_len: length, ..Outcome::default() };
                        self.end_receive(core, Status::RemoteInvalidate, &outcome);
                        faulty(Fault::invalidate(error))
                    })?;
                }
                let outcome =
                    Outcome { byte_len: length, invalidated: invalidate, immediate: None, solicited };
                self.end_receive(core, Status::Success, &outcome);
                Ok(())
            }
            Event::Immediate { data, solicited } => {
                let outcome = Outcome { byte_len: 8, invalidated: None, immediate: Some(data), solicited };
                self.end_receive(core, Status::Success, &outcome);
                Ok(())
            }
            Event::ReadDone { id } => self.read_done(core, id).map_err(|fault| (fault, None)),
            Event::AtomicDone { id, original } => {
                self.atomic_done(core, id, original).map_err(|fault| (fault, None))
            }
            Event::Terminated(terminate) => {
                self.terminated(core, terminate);
                Ok(())
            }
        }
    }

    fn read_done(&self, core: &mut Core, id: u64) -> Result<(), Fault> {
        if id == RTR_ID {
            self.rtr_done(core);
            return Ok(());
        }
        let Some(wqe) = core.sq.get_mut(id) else { return Ok(()) };
        if let Operation::Read { sink, invalidate_sink: true, .. } = wqe.wr.operation
            && self.device.mem.invalidate_local(sink.stag, self.pd, self.num).is_err()
        {
            // draft-hilland-rddp-verbs §8.3.2: as where the invalidation is a request of its own.
            wqe.phase = Phase::Done(Status::MemoryBind);
            return Err(Fault::local_catastrophic());
        }
        wqe.phase = Phase::Done(Status::Success);
        self.retire(core);
        Ok(())
    }

    fn rtr_done(&self, core: &mut Core) {
        let Some(link) = &mut core.link else { return };
        if std::mem::replace(&mut link.rtr, RtrRead::None) == RtrRead::OutBeforeClose {
            self.close(core);
        }
    }

    fn atomic_done(&self, core: &mut Core, id: u64, original: u64) -> Result<(), Fault> {
        let Some(wqe) = core.sq.get_mut(id) else { return Ok(()) };
        let (Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. }) = wqe.wr.operation else {
            return Ok(());
        };
        let grant = self.device.mem.check_local(sink.stag, sink.addr, 8, true, self.pd);
        if !grant.is_ok_and(|grant| grant.place(0, &original.to_ne_bytes()).is_ok()) {
            wqe.phase = Phase::Done(Status::LocalProtection);
            return Err(Fault::local_catastrophic());
        }
        wqe.phase = Phase::Done(Status::Success);
        self.retire(core);
        Ok(())
    }
}
