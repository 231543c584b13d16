//! One FPDU of the peer's, and what it means for a byte stream (RFC 5044 §6, RFC 5041 §5, RFC 5040
//! §5).
//!
//! An [`Inbound`] is made of the shared state at the beginning of a call, takes FPDUs by
//! [`Receiver`], and its [`Mark`] is what goes back there. The stream exposes no memory and asks for
//! nothing, so all that a peer may send besides Sends are messages without octets and its Terminate.

use std::ops::Range;

use rddp_ddp::{Header, Msn, Stag, UntaggedRx};
use rddp_iwarp::{Delivered, Receive, Receiver, Segment, Target, Trouble};
use rddp_mpa::{Deframer, Framing, MIN_MULPDU};
use rddp_rdmap::{
    AccessError, Event, Fault, InvalidateError, Opcode, Place, REQUEST_QUEUE, Response, SEND_QUEUE, Stream,
    StreamConfig, TerminateCode,
};

use super::state::Rx;

pub(super) struct Inbound {
    deframer: Deframer,
    stream: Stream,
    program: Program,
    rtr_read: bool,
}

/// What the FPDU in front is.
pub(super) enum Step {
    /// Not whole: its octets number at least this.
    Need { total: usize },
    /// Octets for the program.
    Data { payload: Range<usize>, used: usize },
    /// Nothing for the program; perhaps an answer to the peer.
    Silent { used: usize, reply: Option<Header> },
    /// The peer has ended the stream.
    Terminated { used: usize, code: TerminateCode },
}

impl Step {
    /// Octets of the FPDU; 0 if it is not whole.
    pub(super) fn used(&self) -> usize {
        match self {
            Self::Need { .. } => 0,
            Self::Data { used, .. } | Self::Silent { used, .. } | Self::Terminated { used, .. } => *used,
        }
    }
}

/// How far the direction has come behind an FPDU.
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
    pub(super) fn new(rx: &Rx, max_send: u32) -> Self {
        let config = StreamConfig { ird: rx.ird, ord: rx.ord, extensions: false };
        let mut stream = Stream::new(config);
        let open = rx.is_open.then_some(rx.open_ulp);
        stream.take_over(SEND_QUEUE, UntaggedRx::resume(Msn(rx.msn), rx.mo, open));
        stream.expect_msn(REQUEST_QUEUE, Msn(rx.request_msn));
        if rx.rtr_read {
            stream.issue_read(RTR_ID, Stag(0), 0, 0);
        }
        let framing = Framing { crc: rx.crc, markers: rx.markers };
        let deframer = Deframer::at(framing, rx.position & !3);
        let program = Program { max_send: max_send.into(), good_fpdu: false };
        Self { deframer, stream, program, rtr_read: rx.rtr_read }
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

    /// Returns whether an FPDU was found good: the first one gives a responder leave to send (RFC
    /// 5044 §7.1.2), a Terminate about it, too.
    pub(super) fn has_good_fpdu(&self) -> bool {
        self.program.good_fpdu
    }

    /// Looks at the FPDU at the front of `octets`, which is checked and counted in if it is whole.
    pub(super) fn step(&mut self, octets: &mut [u8]) -> Result<Step, Trouble> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        match receiver.step(octets, &mut self.program)? {
            rddp_iwarp::Step::Need { total } => Ok(Step::Need { total }),
            rddp_iwarp::Step::Taken { delivered, payload, used } => self.taken(&delivered, payload, used),
            // There always is a receive, and nothing waits for one.
            rddp_iwarp::Step::Waits { .. } => {
                Err(Trouble { fault: Fault::local_catastrophic(), offending: None })
            }
        }
    }

    fn taken(&mut self, delivered: &Delivered, payload: Range<usize>, used: usize) -> Result<Step, Trouble> {
        let segment = &delivered.segment;
        match &delivered.event {
            Event::Terminated(terminate) => Ok(Step::Terminated { used, code: terminate.code }),
            Event::InboundRequest => Ok(Step::Silent { used, reply: self.answer()? }),
            Event::Received { invalidate: Some(_), .. } => {
                Err(segment.trouble(Fault::invalidate(InvalidateError::Unknown)))
            }
            Event::ReadDone { .. } => {
                self.rtr_read = false;
                Ok(Step::Silent { used, reply: None })
            }
            _ if matches!(segment.place, Place::Receive { .. }) => Ok(Step::Data { payload, used }),
            _ => Ok(Step::Silent { used, reply: None }),
        }
    }

    /// A Read of the peer's. RFC 5040 §5.2.1: one without octets is answered, whatever it names.
    fn answer(&mut self) -> Result<Option<Header>, Trouble> {
        let Some(Response::Read(read)) = self.stream.next_response() else {
            return Ok(None);
        };
        if read.request.size > 0 {
            let offending = Some(read.offending());
            return Err(Trouble { fault: Fault::read_source(AccessError::Stag), offending });
        }
        let header = read.segment(MIN_MULPDU).header;
        self.stream.response_done();
        Ok(Some(header))
    }

    /// Returns the segment at the front of `octets`, of an FPDU whose CRC is not known yet, if it
    /// would be octets for the program, and good.
    pub(super) fn announced(&mut self, octets: &[u8]) -> Option<Segment> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let segment = receiver.announced(octets, &mut self.program)?;
        let control = segment.header.control();
        let invalidates = Opcode::from_number(control & 0xf).is_none_or(Opcode::invalidates);
        (matches!(segment.place, Place::Receive { .. }) && !invalidates).then_some(segment)
    }

    /// Counts in such a segment, received elsewhere. `crc` is that of length field, ULPDU and pad,
    /// `field` the CRC field.
    pub(super) fn received(&mut self, segment: Segment, crc: u32, field: [u8; 4]) -> Result<(), Trouble> {
        let mut receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        receiver.received(segment, &[], crc, field, &mut self.program).map(drop)
    }
}

/// The program that reads, as the protocols see it.
struct Program {
    /// Octets of the longest Send.
    max_send: u64,
    good_fpdu: bool,
}

impl Target for Program {
    fn note_good_fpdu(&mut self) {
        self.good_fpdu = true;
    }

    fn receive(&mut self) -> Receive {
        Receive::Posted(self.max_send)
    }

    /// Octets of a Send stay where they are: the program gets them when they are delivered.
    fn place(&mut self, segment: &Segment, _: usize, _: &[u8]) -> Result<(), Fault> {
        match segment.place {
            // RFC 5041 §7.1: there is no STag that this could be the right one of.
            Place::Write { .. } => Err(Fault::write_access(AccessError::Stag)),
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

/// The id of the Read that is our RTR.
const RTR_ID: u64 = 0;
