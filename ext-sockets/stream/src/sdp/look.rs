//! A look at FPDUs of the peer: the connection as it will be behind them, before they are taken.

use rddp_ddp::{Header, OpenTagged, TaggedRepr};
use rddp_iwarp::{Delivered, Segment};
use rddp_rdmap::{Event, Place};
use rddp_sdp::machine::{Machine, Received, SinkId, SinkState, Tables};
use rddp_sdp::wire::{Flags, HEADER_LEN, Message};

use super::zcopy::{Adverts, OpenMessage, OwnSink, zcopy};
use super::{Shared, Wrong};
use crate::rooms::Room;
use crate::state::Rx;
use crate::sys::Guard;

/// The connection behind FPDUs that are looked at.
pub(crate) struct Look<'s> {
    pub(crate) now: Shared,
    /// A copy of the adverts, while there are any: large, and so where it need not be moved.
    pub(crate) adverts: Option<&'s mut Adverts>,
    /// Octets that are outstanding no more of Reads and of sinks: they have come, or will not.
    released: [u32; 2],
    /// The room of the last segment's octets, if they were charged before they came.
    of: Option<Room>,
    /// The connection and the octets released before the last FPDU.
    before: Option<(Shared, [u32; 2])>,
    adverts_before: &'s mut Option<Adverts>,
}

/// Memory for the copies of adverts that a look has.
#[derive(Default)]
pub(crate) struct Places {
    now: Option<Adverts>,
    before: Option<Adverts>,
}

/// Meaning of a segment for the program.
pub(crate) enum Part {
    /// The segment has octets for the program, from here on.
    Octets { from: usize },
    /// The segment has none.
    Control,
    /// The segment has octets of a Write, from `skip` on, which belong so many behind the next one
    /// of the stream.
    Aside { skip: usize, ahead: usize },
    /// The peer is through with a sink: so many octets that were put aside are the next ones.
    Splice { octets: usize },
    /// There is an advert, and no place for it yet.
    NeedsTables,
}

impl<'s> Look<'s> {
    /// Begins with copies of the connection as it is, and of its adverts.
    // A look is large: `inline(always)` keeps it from being moved.
    #[inline(always)]
    pub(crate) fn at(now: &Shared, adverts: Option<&Adverts>, places: &'s mut Places) -> Self {
        let adverts = adverts.map(|adverts| places.now.insert(*adverts));
        Self {
            now: *now,
            adverts,
            released: [0; 2],
            of: None,
            before: None,
            adverts_before: &mut places.before,
        }
    }

    /// Notes where [`go_back`](Self::go_back) goes back to.
    #[inline]
    pub(super) fn note_before(&mut self) {
        self.before = Some((self.now, self.released));
        if let Some(adverts) = &self.adverts {
            *self.adverts_before = Some(**adverts);
        }
    }

    /// Leaves out the last FPDU.
    pub(super) fn go_back(&mut self) {
        let Some((now, released)) = self.before.take() else { return };
        if let (Some(adverts), Some(before)) = (&mut self.adverts, self.adverts_before.take()) {
            **adverts = before;
        }
        (self.now, self.released, self.of) = (now, released, None);
    }

    /// Returns the memory that a Write may name.
    #[inline]
    pub(crate) fn sink(&self) -> OwnSink {
        self.adverts.as_ref().map_or(OwnSink::default(), |adverts| adverts.sink)
    }

    fn machine(&mut self) -> Machine<'_> {
        Machine::new(&mut self.now.core, self.adverts.as_deref_mut().map(|adverts| &mut adverts.tables))
    }

    /// Counts in a segment; `open` is the tagged message that is open behind it. The first one of a
    /// message begins with the `front` of that, all of its headers.
    pub(crate) fn delivered(
        &mut self,
        delivered: &Delivered,
        open: Option<OpenTagged>,
        front: &[u8],
    ) -> Result<Part, Wrong> {
        match &delivered.segment.header {
            Header::Tagged(header) => self.tagged(header, delivered, open),
            Header::Untagged(_) => self.segment(&delivered.segment, front),
        }
    }

    /// Counts in a segment of a message.
    fn segment(&mut self, segment: &Segment, front: &[u8]) -> Result<Part, Wrong> {
        let Header::Untagged(header) = segment.header else { return Err(Wrong::Format) };
        let (at, last) = (header.mo as usize, header.last);
        (self.now.message.is_tagged, self.of) = (0, None);
        let (from, spliced) = match at {
            0 => match self.front(front)? {
                Some(front) => front,
                None => return Ok(Part::NeedsTables),
            },
            _ => (0, 0),
        };
        // `Len` is said first: no segment may go beyond it, and the last one ends there.
        let end = at.saturating_add(segment.payload_len);
        let len = self.now.message.len as usize;
        if end > len || last != (end == len) {
            return Err(Wrong::Len);
        }
        self.now.message.is_open = (!last).into();
        if from < segment.payload_len {
            return Ok(Part::Octets { from });
        }
        self.now.consumed();
        Ok(if spliced > 0 { Part::Splice { octets: spliced } } else { Part::Control })
    }

    /// Counts in the message that begins here. Returns the octets of its headers, and those put
    /// aside that it makes the next ones. `None`: it needs tables.
    fn front(&mut self, octets: &[u8]) -> Result<Option<(usize, usize)>, Wrong> {
        let message = Message::parse(octets)?;
        let received = self.machine().receive(&message)?;
        if message.payload_len > 0 {
            let is_advert = received == Received::SrcAvail;
            self.now.message.inline = if is_advert { message.payload_len as u32 } else { 0 };
        }
        match received {
            Received::NeedsTables if self.now.queue.starved == 0 => return Ok(None),
            Received::NeedsTables => self.refuse(&message)?,
            Received::LargerBuffersWanted { .. } => self.machine().answer_buffer_size(None),
            Received::Aborted => return Err(Wrong::Abort),
            _ => {}
        }
        let spliced = self.settle_sink()?;
        self.now.message.len = message.header.len;
        self.now.message.has_payload = (message.payload_len > 0).into();
        if message.header.flags.contains(Flags::OOB_PRES) && message.payload_len > 0 {
            self.now.note_mark(message.payload_len);
        }
        Ok(Some((message.header_len(), spliced)))
    }

    /// Refuses an advert of the peer. The tables live for the length of the refusal: an advert that
    /// is refused leaves nothing in them.
    fn refuse(&mut self, message: &Message) -> Result<(), Wrong> {
        let mut tables = Tables::default();
        let mut machine = Machine::new(&mut self.now.core, Some(&mut tables));
        machine.receive(message)?;
        // A SendSm that answers no cancel is not for Pipelined.
        machine.refuse_source().map_err(|_| Wrong::Unsupported)?;
        let front = machine.next_control().filter(|front| front.len() == HEADER_LEN);
        let front = front.ok_or(Wrong::Unsupported)?;
        self.now.answer.octets.copy_from_slice(&front);
        (self.now.answer.is_due, self.now.queue.starved) = (1, 0);
        Ok(())
    }

    /// Gives up the own `SinkAvail` if the peer is through with it. Returns how many octets that
    /// were put aside it made the next ones.
    fn settle_sink(&mut self) -> Result<usize, Wrong> {
        let Some(adverts) = &mut self.adverts else { return Ok(0) };
        let OwnSink { stag, len, come, aside, place } = adverts.sink;
        if stag == 0 {
            return Ok(0);
        }
        let id = SinkId::at(place as usize);
        let mut machine = Machine::new(&mut self.now.core, Some(&mut adverts.tables));
        let behind = match machine.sink(id).state {
            SinkState::Out => return Ok(0),
            // Octets that have come are reported: no more than have, and no fewer.
            SinkState::Written(octets) => {
                octets.checked_sub(come).filter(|behind| *behind <= aside).ok_or(Wrong::Writes)?
            }
            // What was written to an advert that comes back is to be reported first.
            _ if come > 0 || aside > 0 => return Err(Wrong::Writes),
            _ => 0,
        };
        machine.release_sink(id).map_err(|_| Wrong::Writes)?;
        adverts.sink = OwnSink::default();
        self.released[1] += len - come - behind;
        Ok(behind as usize)
    }

    /// Counts in a segment of a Read Response or of a Write.
    fn tagged(
        &mut self,
        header: &TaggedRepr,
        delivered: &Delivered,
        open: Option<OpenTagged>,
    ) -> Result<Part, Wrong> {
        let adverts = self.adverts.as_deref_mut().ok_or(Wrong::Unsupported)?;
        adverts.open = OpenMessage::of(open);
        self.now.message.is_tagged = 1;
        let len = delivered.segment.payload_len;
        self.now.message.inline = 0;
        let part = match delivered.segment.place {
            Place::Sink { id: READ_ID, .. } => {
                let read = adverts.reads.first().ok_or(Wrong::Unsupported)?;
                read.done = read.done.saturating_add(len as u32);
                self.of = read.room();
                self.released[usize::from(self.of == Some(Room::Sinks))] += len as u32;
                Part::Octets { from: 0 }
            }
            Place::Write { .. } => {
                self.of = Some(Room::Sinks);
                written(&mut adverts.sink, &mut self.released[1], header.to, len)?
            }
            _ => Part::Control,
        };
        if delivered.event == (Event::ReadDone { id: READ_ID }) {
            let size = adverts.reads.first().map_or(0, |read| read.size);
            adverts.reads.end_first();
            // Reported only now, when the last octet is here (RFC 5040 §5.5).
            self.machine().read_done(size).map_err(|_| Wrong::Unsupported)?;
        }
        Ok(part)
    }

    /// Takes back that octets of the last segment are released: they stay outside of the kernel, in
    /// this room. `None`: they were not charged before they came.
    pub(crate) fn keep_charged(&mut self, octets: usize) -> Option<Room> {
        let released = &mut self.released[usize::from(self.of? == Room::Sinks)];
        *released = released.saturating_sub(octets as u32);
        self.of
    }

    /// Stores the connection as it is behind the FPDUs.
    pub(crate) fn put(&self, rx: &mut Guard<'_, Rx>) {
        let mut marked = self.now.marked();
        marked.queue.hungry = 0;
        let [reads, sinks] = self.released;
        let adverts = self.adverts.as_deref();
        rx.change_sdp(|at| *at = marked);
        if let Some(adverts) = adverts {
            rx.rooms.release(Room::Reads, reads as usize);
            rx.rooms.release(Room::Sinks, sinks as usize);
            rx.set_changing(true);
            if let Some((rx, _, zcopy)) = zcopy(rx) {
                zcopy.adverts = *adverts;
                rx.sdp.has_adverts = (!adverts.is_idle()).into();
            }
            rx.set_changing(false);
        }
    }
}

/// Counts in octets of a Write into the own sink, which the placement has checked against its
/// bounds.
fn written(sink: &mut OwnSink, released: &mut u32, to: u64, len: usize) -> Result<Part, Wrong> {
    let from = u32::try_from(to).map_err(|_| Wrong::Writes)?;
    let end = from.checked_add(len as u32).filter(|end| *end <= sink.len).ok_or(Wrong::Writes)?;
    if end <= sink.come {
        // Octets that were written before, and may be with the program: the first ones count.
        return Ok(Part::Control);
    }
    if from > sink.come || sink.aside > 0 {
        sink.aside = sink.aside.max(end - sink.come);
        let (skip, ahead) = (sink.come.saturating_sub(from), from.saturating_sub(sink.come));
        return Ok(Part::Aside { skip: skip as usize, ahead: ahead as usize });
    }
    let known = sink.come - from;
    *released += end - sink.come;
    sink.come = end;
    Ok(Part::Octets { from: known as usize })
}

/// ID of each Read of octets for the program.
pub(super) const READ_ID: u64 = 1;
