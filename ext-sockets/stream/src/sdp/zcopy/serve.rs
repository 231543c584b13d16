//! Answers to the peer's Reads, and the tagged segments of both kinds that this end sends.

use std::io::IoSlice;

use rddp_ddp::{Header, Msn, Stag, TaggedRepr, UntaggedRepr, check_range};
use rddp_iwarp::{Record, Segments, Trouble};
use rddp_mpa::mulpdu;
use rddp_octets::Load;
use rddp_rdmap::{
    AccessError, Fault, Opcode, REQUEST_QUEUE, ReadRequestRepr, ReadResponse, tagged_header, untagged_header,
};
use rddp_sdp::machine::{Machine, SourceId, SourceState};

use super::ZeroCopy;
use super::lent::Lent;
use super::state::{Backing, Request, Zcopy, zcopy};
use crate::Errno;
use crate::buffers::LITTLE_SEND;
use crate::owed::owe_fpdu;
use crate::rooms::Room;
use crate::sdp::counters;
use crate::sdp::outbound::copies_up_to;
use crate::sink::Source;
use crate::state::{Rx, Tx};
use crate::sys::{BLOCK, Guard, Scratch};
use crate::train::Train;
use crate::tx::{FPDUS, PIECES, TRAIN};

/// Octets of a tagged message that are to be sent next.
#[derive(Clone, Copy)]
pub(super) struct Tagged {
    pub(super) op: Opcode,
    pub(super) stag: u32,
    /// The Tagged Offset of the first of them.
    pub(super) to: u64,
    pub(super) ends: Ends,
}

/// Ends of messages among the octets that are to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// The message goes on behind them.
    No,
    /// The message ends with the last of them.
    Last,
    /// Each segment is a message, so that none is open between two calls.
    Each,
}

/// Memory that a Read names.
enum Named {
    /// The call's that lends it; offset and length.
    Calls(usize, usize),
    /// The chain of this place.
    Chain(usize),
}

impl Backing {
    pub(super) const NONE: u32 = 0;
    /// Memory of a call.
    pub(super) const CALL: u32 = 1;
    pub(super) const CHAIN: u32 = 2;
    /// Nothing: its owner has died. The advert is being taken back.
    pub(super) const DROPPED: u32 = 3;

    /// Returns the room to which the octets are charged: those without an advert were queued.
    pub(super) fn room(&self) -> Room {
        if self.stag == 0 { Room::Queued } else { Room::Spill }
    }
}

impl Request {
    fn read(&self) -> ReadRequestRepr {
        ReadRequestRepr {
            sink_stag: Stag(self.sink_stag),
            sink_to: self.sink_to,
            size: self.size,
            src_stag: Stag(self.source_stag),
            src_to: self.source_to,
        }
    }

    /// Returns the Request as the protocol of Reads has it.
    pub(crate) fn response(&self) -> ReadResponse {
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(self.msn), 0, true);
        let origin = match header {
            Header::Untagged(header) => header,
            // A Request is untagged.
            Header::Tagged(_) => {
                UntaggedRepr { last: true, rsvd_ulp: [0; 5], qn: REQUEST_QUEUE, msn: Msn(self.msn), mo: 0 }
            }
        };
        ReadResponse { request: self.read(), done: self.done, origin }
    }

    pub(crate) fn of(response: &ReadResponse) -> Self {
        let ReadRequestRepr { sink_stag, sink_to, size, src_stag, src_to } = response.request;
        Self {
            sink_to,
            source_to: src_to,
            sink_stag: sink_stag.0,
            source_stag: src_stag.0,
            size,
            done: response.done,
            msn: response.origin.msn.0,
            unused: 0,
        }
    }
}

impl super::state::Requests {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.list.iter().take(self.count as usize)
    }

    /// Adds a Request. `false`: there are as many as IRD allows.
    #[must_use]
    pub(crate) fn push(&mut self, request: Request) -> bool {
        let Some(place) = self.list.get_mut(self.count as usize) else { return false };
        *place = request;
        self.count += 1;
        true
    }

    fn end_first(&mut self) {
        if self.count > 0 {
            self.list.copy_within(1.., 0);
            self.list[super::state::READS - 1] = Request::default();
            self.count -= 1;
        }
    }
}

impl ZeroCopy<'_, '_> {
    /// Answers Reads as far as TCP takes it. Reads of memory that a call lends are answered by that
    /// call, with `own`; others wake it.
    pub(crate) fn serve(
        &self,
        rx: &mut Guard<'_, Rx>,
        tx: &mut Tx,
        own: Option<&Lent<'_>>,
    ) -> Result<(), Errno> {
        while tx.owed().is_empty() {
            let Some(request) = zcopy(rx).and_then(|(_, _, all)| all.adverts.requests.iter().next().copied())
            else {
                break;
            };
            let before = request.done;
            let now = self.answer_one(rx, tx, &request, own)?;
            let Some(now) = now else { break };
            self.state.sdp.count(counters::READ, (now - before) as usize);
            rx.set_changing(true);
            let Some((_, _, all)) = zcopy(rx) else { return Err(self.damaged()) };
            let requests = &mut all.adverts.requests;
            requests.list[0].done = now;
            let is_over = now >= request.size;
            if is_over {
                requests.end_first();
            }
            self.settle_adverts(rx);
            rx.set_changing(false);
            if !is_over && now == before {
                break;
            }
        }
        self.state.note_owed(tx);
        Ok(())
    }

    /// Answers the oldest Read. Returns how many of its octets are answered; `None`: another call
    /// has to.
    fn answer_one(
        &self,
        rx: &mut Guard<'_, Rx>,
        tx: &mut Tx,
        request: &Request,
        own: Option<&Lent<'_>>,
    ) -> Result<Option<u32>, Errno> {
        if request.size == 0 {
            // Its source is not looked at (RFC 5040 §5.2.1).
            let header = tagged_header(Opcode::ReadResponse, Stag(request.sink_stag), request.sink_to, true);
            return Ok((tx.prepare_to_owe(LITTLE_SEND) && owe_fpdu(tx, &header, &[])).then_some(0));
        }
        let named = match self.named_by(rx, request) {
            Ok(named) => named,
            Err(error) => return Err(self.refuse_read(rx, tx, request, error)),
        };
        let left = (request.size - request.done) as usize;
        let sent = match named {
            Named::Calls(place, at) => {
                let Some(mut source) = own.and_then(|own| own.memory(place)) else {
                    if own.is_none() {
                        self.kick();
                    }
                    return Ok(None);
                };
                source.skip(at);
                self.push_tagged(tx, answer(request, Ends::Last), source.first(left))
            }
            Named::Chain(place) => self.answer_from_chain(rx, tx, request, place),
        };
        match sent {
            // The peer was promised this memory, and has begun to read it.
            Err(Errno::FAULT) => Err(self.memory_gone()),
            Err(error) => Err(error),
            Ok(sent) => Ok(Some(request.done + sent as u32)),
        }
    }

    fn answer_from_chain(
        &self,
        rx: &mut Guard<'_, Rx>,
        tx: &mut Tx,
        request: &Request,
        place: usize,
    ) -> Result<usize, Errno> {
        let left = (request.size - request.done) as usize;
        let Some((_, chains, all)) = zcopy(rx) else { return Err(self.damaged()) };
        let backing = &all.sources[place];
        let at = (request.source_to + u64::from(request.done)) as usize;
        let Some(at) = at.checked_sub(backing.from as usize) else { return Err(self.damaged()) };
        let sent = chains.look_at(&backing.chain, at, left, |pieces| {
            let source = Source::new(pieces);
            let ends = if source.left() < left { Ends::No } else { Ends::Last };
            self.push_tagged(tx, answer(request, ends), source)
        });
        sent.unwrap_or_else(|_| Err(self.damaged()))
    }

    /// Returns the memory that a Read names, whose bounds are checked (RFC 5040 §7.2).
    fn named_by(&self, rx: &mut Guard<'_, Rx>, request: &Request) -> Result<Named, AccessError> {
        let Some((rx, _, all)) = zcopy(rx) else { return Err(AccessError::Stag) };
        let is_named = |backing: &Backing| {
            matches!(backing.kind, Backing::CALL | Backing::CHAIN | Backing::DROPPED)
                && backing.stag == request.source_stag
        };
        let place = all.sources.iter().position(is_named).ok_or(AccessError::Stag)?;
        let Zcopy { adverts, sources, .. } = all;
        let source = Machine::new(&mut rx.sdp.core, Some(&mut adverts.tables)).source(SourceId::at(place));
        if source.state != SourceState::Out {
            return Err(AccessError::Stag);
        }
        check_range(0, source.len.into(), request.source_to, request.size.into()).map_err(
            |error| match error {
                rddp_ddp::RangeError::Wrap => AccessError::Wrap,
                _ => AccessError::Bounds,
            },
        )?;
        let at = (request.source_to + u64::from(request.done)) as usize;
        match sources[place].kind {
            Backing::CALL => Ok(Named::Calls(place, at)),
            Backing::CHAIN => Ok(Named::Chain(place)),
            _ => Err(AccessError::Stag),
        }
    }

    /// Ends the stream with the Terminate for a Read of memory that is not advertised.
    fn refuse_read(
        &self,
        rx: &mut Guard<'_, Rx>,
        tx: &mut Tx,
        request: &Request,
        error: AccessError,
    ) -> Errno {
        let offending = Some(request.response().offending());
        self.fault_of_read(rx, tx, &Trouble { fault: Fault::read_source(error), offending })
    }

    /// Gives TCP what it takes of `source`, as segments of one kind. Returns the octets that are
    /// taken or owed. `EFAULT`: some of the next ones cannot be read.
    pub(super) fn push_tagged(
        &self,
        tx: &mut Tx,
        message: Tagged,
        mut source: Source<'_>,
    ) -> Result<usize, Errno> {
        let mut arena = Scratch::take()?;
        let all = source.left();
        while source.left() > 0 && tx.owed().is_empty() {
            let done = all - source.left();
            let next = Tagged { to: message.to.wrapping_add(done as u64), ..message };
            let sent = match self.push_tagged_train(tx, &mut arena, next, source) {
                Ok((0, _)) => break,
                Ok(sent) => sent,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            source.skip(sent.0);
            if !sent.1 {
                break;
            }
        }
        tx.spare_owed();
        Ok(all - source.left())
    }

    /// Sends one train. Returns the octets taken or owed, and whether TCP took the whole train.
    fn push_tagged_train(
        &self,
        tx: &mut Tx,
        arena: &mut [u8],
        message: Tagged,
        source: Source<'_>,
    ) -> Result<(usize, bool), Errno> {
        let emss = self.emss(tx, source.left());
        let longest = mulpdu(emss, tx.out.markers).saturating_sub(TaggedRepr::LEN).max(1);
        // The rest of an FPDU that TCP does not take is owed.
        let longest = if tx.prepare_to_owe(BLOCK) { longest } else { longest.min(LITTLE_SEND) };
        let mut list = [IoSlice::new(&[]); PIECES];
        let mut train = Train::new(&mut list, arena, copies_up_to(self));
        let mut records = [Record::default(); FPDUS];
        let mut load = tx.out.load(TRAIN, &mut records);
        load_tagged(&mut load, &mut train, message, source, longest)?;
        let mut segments = Segments::new(emss, 0);
        segments.add(train.len());
        let end_of_record = segments.end_record(train.len());
        tx.set_moving(true);
        let octets = match self.write(&train, false, end_of_record) {
            Err(Errno::WOULD_BLOCK) => 0,
            Err(error) => {
                tx.set_moving(false);
                return Err(error);
            }
            Ok(octets) => octets,
        };
        let taken = tx.out.took(load.records(), octets);
        if taken.begun.is_some() {
            self.owe_rest(tx, &train, taken.owed())?;
            tx.unaligned = taken.end() as u32;
        }
        tx.set_moving(false);
        Ok((taken.last().map_or(0, |record| record.after.payload), octets == train.len()))
    }
}

/// Fills the train with segments.
fn load_tagged<'a>(
    load: &mut Load<'_>,
    train: &mut Train<'a, '_>,
    message: Tagged,
    mut source: Source<'a>,
    longest: usize,
) -> Result<(), Errno> {
    let all = source.left();
    while source.left() > 0 && load.has_room() {
        let (at, len) = (all - source.left(), source.left().min(longest));
        let last = message.ends == Ends::Each || message.ends == Ends::Last && len == source.left();
        let header = tagged_header(message.op, Stag(message.stag), message.to.wrapping_add(at as u64), last);
        if !load.tagged(train, &header, &mut source, len).map_err(|_| Errno::FAULT)? {
            break;
        }
    }
    Ok(())
}

/// Returns the next octets of the answer to a Read.
fn answer(request: &Request, ends: Ends) -> Tagged {
    Tagged {
        op: Opcode::ReadResponse,
        stag: request.sink_stag,
        // A range that the peer's own memory does not have is the peer's to refuse.
        to: request.sink_to.wrapping_add(request.done.into()),
        ends,
    }
}
