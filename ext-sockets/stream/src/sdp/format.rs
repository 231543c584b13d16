//! SDP as the format of a byte stream's Sends.
//!
//! Messages are counted in a [`Look`] at the connection, which is stored when their FPDUs have been
//! taken. Read Responses and Writes into a `SinkAvail` carry octets of the stream, too.

use std::ops::Range;

use rddp_ddp::{Header, OpenTagged, Stag};
use rddp_iwarp::{Delivered, Segment};
use rddp_octets::{Format, Meaning};
use rddp_rdmap::{
    AccessError, OutstandingRead, OutstandingRequest, Place, ReadResponse, Response, SEND_QUEUE,
    Stream as Rdmap,
};
use rddp_sdp::wire::{Body, Flags, Message};

use super::Wrong;
use super::counters::COPIED;
use super::end::keep_end_readable;
use super::inbound::breaks_sdp;
use super::look::{Look, Part, READ_ID};
use super::zcopy::{Adverts, Request, put_aside_of_kept, splice};
use crate::Errno;
use crate::base::Base;
use crate::duties::Duties;
use crate::state::Rx;
use crate::sys::Guard;

/// The kind of FPDU, of those that a stream of plain octets does not have.
pub(crate) enum Apart {
    /// Octets of a Write, which belong that far behind the next one of the stream.
    Aside { ahead: usize },
    /// A number of octets that were put aside, which are the next ones of the stream.
    Splice { octets: usize },
    /// An advert, for which there is no place yet. It counts as not looked at.
    NeedsTables,
    /// A message that breaks a rule.
    Wrong(Wrong),
}

/// The kind of stream whose Sends are messages of SDP.
#[derive(Clone, Copy, Debug)]
pub struct Messages;

impl Format for Look<'_> {
    type Apart = Apart;

    #[inline]
    fn resume(&self, stream: &mut Rdmap) {
        if let Some(adverts) = &self.adverts {
            resume(stream, adverts);
        }
    }

    fn check(&self, stag: Stag, to: u64, len: usize) -> Result<(), AccessError> {
        self.sink().check(stag.0, to, len)
    }

    fn is_next(&self, place: Place, len: usize) -> bool {
        match place {
            Place::Sink { id, .. } => id == READ_ID,
            Place::Write { stag, to } => self.sink().is_next(stag.0, to, len),
            _ => false,
        }
    }

    /// Reads are answered by the calls of a source, in their order.
    fn take_read(&mut self, read: &ReadResponse) -> bool {
        let Some(adverts) = &mut self.adverts else { return false };
        if read.request.size == 0 && adverts.requests.count == 0 {
            return false;
        }
        // No more than IRD come, for which there are places.
        let queued = adverts.requests.push(Request::of(read));
        debug_assert!(queued, "IRD is the number of places");
        true
    }

    #[inline(never)]
    fn meaning(&mut self, delivered: &Delivered, open: Option<OpenTagged>, payload: &[u8]) -> Meaning<Apart> {
        let is_of_message = match delivered.segment.header {
            Header::Tagged(_) => self.adverts.is_some(),
            Header::Untagged(header) => header.qn == SEND_QUEUE,
        };
        // A segment without octets may end a message; a Send without octets is none of SDP.
        if payload.is_empty() && !is_of_message {
            return Meaning::Control;
        }
        match self.delivered(delivered, open, payload) {
            Ok(Part::Octets { from }) => Meaning::Octets { from },
            Ok(Part::Control) => Meaning::Control,
            Ok(Part::Aside { skip, ahead }) => Meaning::Apart(Apart::Aside { ahead }, skip..payload.len()),
            Ok(Part::Splice { octets }) => Meaning::Apart(Apart::Splice { octets }, 0..0),
            Ok(Part::NeedsTables) => Meaning::Apart(Apart::NeedsTables, 0..0),
            Err(wrong) => Meaning::Apart(Apart::Wrong(wrong), 0..0),
        }
    }

    /// At the mark of an urgent octet a read stops.
    #[inline]
    fn stops(&self) -> bool {
        self.now.has_mark()
    }

    #[inline]
    fn consumed(&mut self) {
        self.now.consumed();
    }

    #[inline]
    fn mark(&mut self) {
        self.note_before();
    }

    fn cut_back(&mut self) {
        self.go_back();
    }
}

impl Duties for Look<'_> {
    #[inline]
    fn max_send(&self, _: &Base<'_>) -> u32 {
        self.now.size
    }

    #[inline]
    fn before_drop(&mut self, base: &Base<'_>) {
        keep_end_readable(base, &mut self.now);
    }

    #[inline(never)]
    fn store(&self, base: &Base<'_>, rx: &mut Guard<'_, Rx>, copied: usize) {
        self.put(rx);
        base.state.sdp.count(COPIED, copied);
    }

    #[inline]
    fn headers(&self, segment: &Segment, octets: &[u8]) -> Option<usize> {
        headers(segment, octets).filter(|_| !self.now.has_mark())
    }

    #[inline]
    fn count_in(
        &mut self,
        base: &Base<'_>,
        delivered: &Delivered,
        open: Option<OpenTagged>,
        headers: &[u8],
    ) -> Result<(), Errno> {
        match self.delivered(delivered, open, headers) {
            // What the peer says twice it says in the same way, or breaks the rules.
            Ok(Part::Octets { from }) if from == headers.len() => Ok(()),
            Ok(_) => Err(breaks_sdp(base, Wrong::Format)),
            Err(wrong) => Err(breaks_sdp(base, wrong)),
        }
    }

    fn before_stop(&self) -> Option<usize> {
        let ahead = self.now.ahead_of_mark().filter(|_| self.now.has_mark());
        ahead.map(|ahead| ahead as usize)
    }

    fn refusal(base: &Base<'_>, what: &Apart, stays: bool) -> Option<Errno> {
        match what {
            Apart::Wrong(wrong) => Some(breaks_sdp(base, *wrong)),
            Apart::NeedsTables if !stays => Some(Errno::NO_BUFFERS),
            _ => None,
        }
    }

    fn take_kept(
        base: &Base<'_>,
        rx: &mut Guard<'_, Rx>,
        what: Apart,
        payload: Range<usize>,
    ) -> Result<(), Errno> {
        match what {
            Apart::Aside { ahead } => put_aside_of_kept(base, rx, ahead, payload),
            Apart::Splice { octets } => splice(base, rx, octets),
            Apart::NeedsTables | Apart::Wrong(_) => Ok(()),
        }
    }
}

/// Goes on with the Reads of this end. Adverts that are sound are those of a stream; where they are
/// another's, no segment is accepted.
fn resume(stream: &mut Rdmap, adverts: &Adverts) {
    let reads = adverts.reads.iter().map(|read| {
        OutstandingRequest::Read(OutstandingRead {
            id: READ_ID,
            sink_stag: Stag(read.sink_stag),
            sink_to: 0,
            size: read.size,
            done: read.done,
        })
    });
    let open = adverts.open.get();
    if (open.is_some() || adverts.reads.len() > 0) && stream.take_over_requests(open, reads).is_err() {
        stream.fail();
    }
    let requests = adverts.requests.iter().map(|request| Response::Read(request.response()));
    if adverts.requests.count > 0 && stream.take_over_responses(requests).is_err() {
        stream.fail();
    }
}

/// Returns the octets of headers in a segment of Data.
#[inline(never)]
fn headers(segment: &Segment, octets: &[u8]) -> Option<usize> {
    let Header::Untagged(header) = segment.header else { return Some(0) };
    if header.mo > 0 {
        return Some(0);
    }
    let message = Message::parse(octets).ok()?;
    let has_octets = segment.payload_len > message.header_len();
    let is_urgent = message.header.flags.contains(Flags::OOB_PRES);
    (message.body == Body::Data && has_octets && !is_urgent).then_some(message.header_len())
}
