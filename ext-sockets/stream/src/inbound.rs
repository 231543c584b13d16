//! FPDUs of the peer, and their meaning for a byte stream (RFC 5044 §6, RFC 5041 §5, RFC 5040 §5).
//!
//! An [`Inbound`] is made of the shared state at the beginning of a call and takes FPDUs by
//! [`Receiver`]; its [`Mark`] is stored in the state again. A stream of plain octets exposes no
//! memory and reads none of the peer's, so besides Sends a peer may send only messages without
//! octets, and its Terminate. With SDP it may answer Reads and write into a `SinkAvail`: those
//! octets, too, are the next ones of the stream, and stay in the kernel until they are read.

use std::ops::Range;

use rddp_ddp::{Header, Msn, OpenTagged, Stag, UntaggedRx};
use rddp_iwarp::{Delivered, Receive, Receiver, Segment, Target, Trouble};
use rddp_mpa::{Deframer, Framing, MIN_MULPDU};
use rddp_rdmap::{
    Event, Fault, InvalidateError, Opcode, OutstandingRead, OutstandingRequest, Place, REQUEST_QUEUE,
    Response, SEND_QUEUE, Stream, StreamConfig, TerminateCode,
};

use super::sdp::{Adverts, Look, OwnSink, Part, Request, Wrong};
use super::state::Rx;

/// The receiving direction of a stream, for the length of a call.
pub(super) struct Inbound {
    deframer: Deframer,
    stream: Stream,
    program: Program,
    rtr_read: bool,
}

/// Meaning of the FPDU in front.
pub(super) enum Step {
    /// The FPDU is not whole: it has at least this many octets.
    Need { total: usize },
    /// The FPDU has octets for the program.
    Data { payload: Range<usize>, used: usize },
    /// The FPDU has nothing for the program; the peer may be owed a reply.
    Silent { used: usize, reply: Option<Header> },
    /// The peer has ended the stream.
    Terminated { used: usize, code: TerminateCode },
    /// The FPDU has octets of a Write, which belong so many behind the next one of the stream.
    Aside { payload: Range<usize>, ahead: usize, used: usize },
    /// The FPDU makes so many octets that were put aside the next ones of the stream.
    Splice { octets: usize, used: usize },
    /// The FPDU brings an advert, for which there is no place yet. It counts as not looked at.
    NeedsTables,
    /// A message of SDP is wrong.
    Wrong(Wrong),
}

impl Step {
    /// Returns the octets of the FPDU; 0 if it is not whole.
    pub(super) fn used(&self) -> usize {
        match self {
            Self::Need { .. } | Self::NeedsTables | Self::Wrong(_) => 0,
            Self::Data { used, .. }
            | Self::Silent { used, .. }
            | Self::Terminated { used, .. }
            | Self::Aside { used, .. }
            | Self::Splice { used, .. } => *used,
        }
    }
}

/// State of the direction after an FPDU.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    position: u64,
    msn: Msn,
    mo: u64,
    open: Option<u8>,
    request_msn: Msn,
    rtr_read: bool,
}

impl Inbound {
    #[inline(always)]
    pub(super) fn new(rx: &Rx, max_send: u32, sdp: Option<&Look<'_>>) -> Self {
        let config = StreamConfig { ird: rx.ird, ord: rx.ord, extensions: false };
        let framing = Framing { crc: rx.crc, markers: rx.markers };
        let deframer = Deframer::at(framing, rx.position & !3);
        let sink = sdp.map_or(OwnSink::default(), Look::sink);
        let program = Program { max_send: max_send.into(), good_fpdu: false, sink };
        let mut inbound = Self { deframer, stream: Stream::new(config), program, rtr_read: rx.rtr_read };
        let stream = &mut inbound.stream;
        let open = rx.is_open.then_some(rx.open_ulp);
        stream.take_over(SEND_QUEUE, UntaggedRx::resume(Msn(rx.msn), rx.mo, open));
        stream.expect_msn(REQUEST_QUEUE, Msn(rx.request_msn));
        if rx.rtr_read {
            stream.issue_read(RTR_ID, Stag(0), 0, 0);
        }
        if let Some(adverts) = sdp.and_then(|sdp| sdp.adverts.as_deref()) {
            resume(stream, adverts);
        }
        inbound
    }

    pub(super) fn mark(&self) -> Mark {
        let sends = self.stream.queue(SEND_QUEUE);
        Mark {
            position: self.deframer.position(),
            msn: sends.next_msn(),
            mo: sends.next_mo(),
            open: sends.open_ulp(),
            request_msn: self.stream.queue(REQUEST_QUEUE).next_msn(),
            rtr_read: self.rtr_read,
        }
    }

    /// Returns whether an FPDU was found good: the first one lets a responder send
    /// (RFC 5044 §7.1.2), also a Terminate about it.
    pub(super) fn has_good_fpdu(&self) -> bool {
        self.program.good_fpdu
    }

    /// Looks at the FPDU at the front of `octets`; if it is whole, it is checked and counted, also
    /// in `sdp`.
    #[inline(always)]
    pub(super) fn step(&mut self, octets: &mut [u8], sdp: Option<&mut Look<'_>>) -> Result<Step, Trouble> {
        if let Some(sdp) = &sdp {
            self.program.sink = sdp.sink();
        }
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        match receiver.step(octets, &mut self.program)? {
            rddp_iwarp::Step::Need { total } => Ok(Step::Need { total }),
            rddp_iwarp::Step::Taken { delivered, payload, used } => {
                let mut sdp = sdp;
                let step = self.taken(&delivered, payload, used, sdp.as_deref_mut())?;
                let Some(sdp) = sdp else { return Ok(step) };
                Ok(of_message(sdp, step, &delivered, self.stream.open_tagged(), octets))
            }
            // A byte stream always has a receive, so that no message waits for one; and takes no
            // segment by the short way.
            rddp_iwarp::Step::Waits { .. } | rddp_iwarp::Step::Plain { .. } => {
                Err(Trouble { fault: Fault::local_catastrophic(), offending: None })
            }
        }
    }

    fn taken(
        &mut self,
        delivered: &Delivered,
        payload: Range<usize>,
        used: usize,
        sdp: Option<&mut Look>,
    ) -> Result<Step, Trouble> {
        let segment = &delivered.segment;
        match &delivered.event {
            Event::Terminated(terminate) => Ok(Step::Terminated { used, code: terminate.code }),
            Event::InboundRequest => Ok(Step::Silent { used, reply: self.answer(sdp)? }),
            Event::Received { invalidate: Some(_), .. } => {
                Err(segment.trouble(Fault::invalidate(InvalidateError::Unknown)))
            }
            Event::ReadDone { id: RTR_ID } => {
                self.rtr_read = false;
                Ok(Step::Silent { used, reply: None })
            }
            _ if has_octets(segment.place) => Ok(Step::Data { payload, used }),
            _ => Ok(Step::Silent { used, reply: None }),
        }
    }

    /// Returns the answer to a Read of the peer. A Read without octets is answered whatever it
    /// names (RFC 5040 §5.2.1), others by the calls of a source of SDP, in their order.
    fn answer(&mut self, sdp: Option<&mut Look>) -> Result<Option<Header>, Trouble> {
        if let Some(adverts) = sdp.and_then(|sdp| sdp.adverts.as_mut())
            && let Some(Response::Read(read)) = self.stream.responses().last()
            && (read.request.size > 0 || adverts.requests.count > 0)
        {
            // No more than IRD come, for which there are places.
            let queued = adverts.requests.push(Request::of(read));
            debug_assert!(queued, "IRD is the number of places");
            return Ok(None);
        }
        let Some(Response::Read(read)) = self.stream.next_response() else {
            return Ok(None);
        };
        if read.request.size > 0 {
            let offending = Some(read.offending());
            return Err(Trouble { fault: Fault::read_source(rddp_rdmap::AccessError::Stag), offending });
        }
        let header = read.segment(MIN_MULPDU).header;
        self.stream.response_done();
        Ok(Some(header))
    }

    /// Returns the segment at the front of `octets`, whose CRC is not known yet, if it is one of
    /// octets for the program.
    pub(super) fn announced(&mut self, octets: &[u8]) -> Option<Segment> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let segment = receiver.announced(octets, &mut self.program)?;
        let control = segment.header.control();
        let invalidates = Opcode::from_number(control & 0xf).is_none_or(Opcode::invalidates);
        let is_next = match segment.place {
            Place::Receive { .. } => !invalidates,
            Place::Sink { id, .. } => id == READ_ID,
            Place::Write { stag, to } => self.program.sink.is_next(stag.0, to, segment.payload_len),
            _ => false,
        };
        is_next.then_some(segment)
    }

    /// Counts such a segment, which was received elsewhere. `crc` is the CRC of length field, ULPDU
    /// and pad, `field` the CRC field.
    pub(super) fn received(
        &mut self,
        segment: Segment,
        crc: u32,
        field: [u8; 4],
    ) -> Result<Delivered, Trouble> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        receiver.received(segment, &[], crc, field, &mut self.program)
    }

    /// Returns the tagged message that is open.
    pub(super) fn open_tagged(&self) -> Option<OpenTagged> {
        self.stream.open_tagged()
    }
}

/// Goes on with the Reads of this end. Adverts that are sound are those of a stream; where they are
/// another's, no segment is accepted.
fn resume(stream: &mut Stream, adverts: &Adverts) {
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

/// Returns whether the octets of a segment are the program's.
fn has_octets(place: Place) -> bool {
    matches!(place, Place::Receive { .. } | Place::Sink { .. } | Place::Write { .. })
}

/// Returns the step for a segment, as SDP sees it.
#[inline(never)]
fn of_message(
    sdp: &mut Look<'_>,
    step: Step,
    delivered: &Delivered,
    open: Option<OpenTagged>,
    octets: &[u8],
) -> Step {
    let is_of_message = match delivered.segment.header {
        Header::Tagged(_) => sdp.adverts.is_some(),
        Header::Untagged(header) => header.qn == SEND_QUEUE,
    };
    let (payload, used) = match step {
        Step::Data { payload, used } => (payload, used),
        // A segment without octets may end a message; a Send without octets is none of SDP.
        Step::Silent { used, reply: None } if is_of_message => (0..0, used),
        step => return step,
    };
    match sdp.delivered(delivered, open, &octets[payload.clone()]) {
        Ok(Part::Octets { from }) => Step::Data { payload: payload.start + from..payload.end, used },
        Ok(Part::Control) => Step::Silent { used, reply: None },
        Ok(Part::Aside { skip, ahead }) => {
            Step::Aside { payload: payload.start + skip..payload.end, ahead, used }
        }
        Ok(Part::Splice { octets }) => Step::Splice { octets, used },
        Ok(Part::NeedsTables) => Step::NeedsTables,
        Err(wrong) => Step::Wrong(wrong),
    }
}

/// The receiving program, as the protocols see it.
struct Program {
    /// Octets of the longest Send.
    max_send: u64,
    good_fpdu: bool,
    /// The memory that a Write may name.
    sink: OwnSink,
}

impl Target for Program {
    fn note_good_fpdu(&mut self) {
        self.good_fpdu = true;
    }

    fn receive(&mut self) -> Receive {
        Receive::Posted(self.max_send)
    }

    /// Checks the memory that a Write names (RFC 5041 §7.1). Nothing is placed yet: octets stay
    /// where they are until the program reads them.
    fn place(&mut self, segment: &Segment, _: usize, _: &[u8]) -> Result<(), Fault> {
        match segment.place {
            Place::Write { stag, to } => {
                self.sink.check(stag.0, to, segment.payload_len).map_err(Fault::write_access)
            }
            _ => Ok(()),
        }
    }
}

impl Mark {
    pub(super) fn apply(&self, rx: &mut Rx) {
        rx.position = self.position;
        rx.msn = self.msn.0;
        rx.mo = self.mo;
        rx.is_open = self.open.is_some();
        rx.open_ulp = self.open.unwrap_or(0);
        rx.request_msn = self.request_msn.0;
        rx.rtr_read = self.rtr_read;
    }
}

/// ID of the Read that is this end's RTR.
const RTR_ID: u64 = 0;
/// ID of each Read of octets for the program.
pub(super) const READ_ID: u64 = 1;
