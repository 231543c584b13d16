//! One FPDU of the peer's, from octets to what it means for a byte stream (RFC 5044 §6, RFC 5041 §5, RFC 5040 §5).
//!
//! An [`Inbound`] is made of the shared state at the beginning of a call, and its [`Mark`] is what goes back there. The
//! stream exposes no memory and asks for nothing, so all that a peer may send besides Sends are messages without octets
//! and its Terminate.

use std::ops::Range;

use rddp_ddp::{Header, Msn, Stag, UntaggedRx};
use rddp_mpa::{Deframer, FpduError, Framing, MIN_MULPDU};
use rddp_rdmap::{
    AccessError, Event, Fault, InvalidateError, Offending, Opcode, Place, REQUEST_QUEUE, Response,
    SEND_QUEUE, Stream, StreamConfig, TerminateCode, parse_header,
};

use super::state::Rx;

pub(super) struct Inbound {
    deframer: Deframer,
    stream: Stream,
    max_send: u64,
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

/// What is wrong with it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) fault: Fault,
    pub(super) offending: Option<Offending>,
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
        Self { deframer, stream, max_send: max_send.into(), rtr_read: rx.rtr_read }
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

    /// Looks at the FPDU at the front of `octets`, which is checked and counted in if it is whole.
    pub(super) fn step(&mut self, octets: &mut [u8]) -> Result<Step, Trouble> {
        match self.deframer.step(octets).map_err(|error| Trouble::mpa(&error))? {
            rddp_mpa::Step::Need { total } => Ok(Step::Need { total }),
            rddp_mpa::Step::Fpdu { ulpdu, used } => self.segment(&octets[ulpdu.clone()], ulpdu.start, used),
        }
    }

    fn segment(&mut self, segment: &[u8], at: usize, used: usize) -> Result<Step, Trouble> {
        let header = parse_header(segment).map_err(|fault| Trouble { fault, offending: None })?;
        let payload = &segment[header.len()..];
        let place = self.place(&header, payload.len())?;
        let control = if place == Place::Control { payload } else { &[] };
        let reply = match self.commit(&header, payload.len(), control)? {
            Event::Terminated(terminate) => return Ok(Step::Terminated { used, code: terminate.code }),
            Event::InboundRequest => self.answer()?,
            _ => None,
        };
        match place {
            Place::Receive { .. } => {
                let start = at + header.len();
                Ok(Step::Data { payload: start..start + payload.len(), used })
            }
            _ => Ok(Step::Silent { used, reply }),
        }
    }

    /// Where the payload goes: for a byte stream there is no memory but the program's buffer.
    fn place(&mut self, header: &Header, payload_len: usize) -> Result<Place, Trouble> {
        let max_send = self.max_send;
        let place = self.stream.accept(header, payload_len, &mut || Some(max_send));
        match place.map_err(|fault| Trouble::about(fault, header, payload_len))? {
            // RFC 5041 §7.1: there is no STag that this could be the right one of.
            Place::Write { .. } => {
                Err(Trouble::about(Fault::write_access(AccessError::Stag), header, payload_len))
            }
            place => Ok(place),
        }
    }

    fn commit(&mut self, header: &Header, payload_len: usize, control: &[u8]) -> Result<Event, Trouble> {
        let event = self.stream.commit(header, payload_len, control);
        match event.map_err(|fault| Trouble::about(fault, header, payload_len))? {
            Event::Received { invalidate: Some(_), .. } => {
                let fault = Fault::invalidate(InvalidateError::Unknown);
                Err(Trouble::about(fault, header, payload_len))
            }
            Event::ReadDone { .. } => {
                self.rtr_read = false;
                Ok(Event::None)
            }
            event => Ok(event),
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

    /// Whether a segment whose CRC is not known yet would be data for the program, and good.
    pub(super) fn would_receive(&mut self, header: &Header, payload_len: usize) -> bool {
        let invalidates = Opcode::from_number(header.control() & 0xf).is_none_or(Opcode::invalidates);
        !invalidates && matches!(self.place(header, payload_len), Ok(Place::Receive { .. }))
    }

    /// Counts in such a segment, received elsewhere. `crc` is that of length, ULPDU and pad, `field` the CRC field.
    pub(super) fn received(
        &mut self,
        header: &Header,
        payload_len: usize,
        crc: u32,
        field: [u8; 4],
    ) -> Result<(), Trouble> {
        let ulpdu_len = header.len() + payload_len;
        self.deframer.accept_external(ulpdu_len, crc, field).map_err(|error| Trouble::mpa(&error))?;
        self.commit(header, payload_len, &[]).map(drop)
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

impl Trouble {
    fn mpa(error: &FpduError) -> Self {
        Self { fault: Fault::mpa(error.code()), offending: None }
    }

    fn about(fault: Fault, header: &Header, payload_len: usize) -> Self {
        Self { fault, offending: Some(Offending::new(*header, payload_len)) }
    }
}

/// The id of the Read that is our RTR.
const RTR_ID: u64 = 0;
