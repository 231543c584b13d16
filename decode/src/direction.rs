//! One direction of a connection behind the startup: FPDUs, and the messages of SDP in them.

use rddp_ddp::{Header, Stag};
use rddp_mpa::{Deframer, FpduError, Framing, Step};
use rddp_rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, SEND_QUEUE, TerminateRepr, parse_header,
};
use rddp_sdp::wire::{FormatError, HEADER_LEN, LONGEST_CONTROL, Message};

use crate::event::{Detail, Fpdu, Problem, Sdp, What};

/// The FPDUs of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Direction {
    framing: Framing,
    position: u64,
    /// The connection's messages are SDP's.
    sdp: Option<Messages>,
    /// The place of the next FPDU is not known any more.
    is_lost: bool,
}

impl Direction {
    pub(crate) fn new(framing: Framing, is_sdp: bool) -> Self {
        Self { framing, position: 0, sdp: is_sdp.then(Messages::new), is_lost: false }
    }

    /// Takes whole FPDUs off the front of `stream`.
    pub(crate) fn take(&mut self, stream: &mut Vec<u8>, tell: &mut dyn FnMut(What)) {
        let mut used = 0;
        while !self.is_lost && used < stream.len() {
            match self.fpdu(&mut stream[used..], tell) {
                Some(len) => used += len,
                None => break,
            }
        }
        stream.drain(..if self.is_lost { stream.len() } else { used });
    }

    /// Ends the direction, with what is left of it.
    pub(crate) fn finish(&mut self, left: &[u8], tell: &mut dyn FnMut(What)) {
        if !left.is_empty() && !self.is_lost {
            self.is_lost = true;
            tell(What::Problem(Problem::Truncated(FpduError::Truncated { have: left.len() })));
        }
    }

    /// Reads the FPDU at the front. Returns its octets, if all have come.
    fn fpdu(&mut self, stream: &mut [u8], tell: &mut dyn FnMut(What)) -> Option<usize> {
        let mut step = Deframer::at(self.framing, self.position).step(stream);
        if let Err(error @ FpduError::Crc { .. }) = step {
            tell(What::Problem(Problem::Crc(error)));
            // The length may be right nevertheless, and without CRCs the place of all is the same.
            step = Deframer::at(Framing { crc: false, ..self.framing }, self.position).step(stream);
        }
        match step {
            Ok(Step::Fpdu { ulpdu, used }) => {
                self.ulpdu(&stream[ulpdu], tell);
                self.position += used as u64;
                Some(used)
            }
            Ok(Step::Need { .. }) => None,
            Err(error) => {
                self.is_lost = true;
                tell(What::Problem(Problem::Marker(error)));
                None
            }
        }
    }

    fn ulpdu(&mut self, ulpdu: &[u8], tell: &mut dyn FnMut(What)) {
        let header = match parse_header(ulpdu) {
            Ok(header) => header,
            Err(fault) => return tell(What::Problem(Problem::Header(fault))),
        };
        let payload = &ulpdu[header.len()..];
        let opcode = Opcode::from_number(header.control() & 0xf);
        let (detail, problem) = match read(opcode, &header, payload) {
            Ok(detail) => (detail, None),
            Err(problem) => (Detail::None, Some(problem)),
        };
        let payload_len = payload.len();
        tell(What::Fpdu(Fpdu { position: self.position, header, opcode, payload_len, detail }));
        if let Some(problem) = problem {
            tell(What::Problem(problem));
        }
        let is_send =
            opcode.is_some_and(|opcode| opcode.queue() == Some(SEND_QUEUE) && !opcode.is_extension());
        if let (Some(messages), true) = (&mut self.sdp, is_send) {
            messages.take(&header, payload, tell);
        }
    }
}

/// Reads the headers of RDMAP behind DDP's.
fn read(opcode: Option<Opcode>, header: &Header, payload: &[u8]) -> Result<Detail, Problem> {
    Ok(match (opcode, header) {
        (Some(opcode), Header::Untagged(header)) if opcode.invalidates() => {
            let [_, stag @ ..] = header.rsvd_ulp;
            Detail::Invalidate(Stag(u32::from_be_bytes(stag)).0)
        }
        (Some(Opcode::ReadRequest), _) => {
            Detail::Read(ReadRequestRepr::parse(payload).map_err(Problem::Header)?)
        }
        (Some(Opcode::AtomicRequest), _) => {
            Detail::AtomicRequest(AtomicRequestRepr::parse(payload).map_err(Problem::Header)?)
        }
        (Some(Opcode::AtomicResponse), _) => {
            Detail::AtomicResponse(AtomicResponseRepr::parse(payload).map_err(Problem::Header)?)
        }
        (Some(Opcode::Terminate), _) => {
            Detail::Terminate(TerminateRepr::parse(payload).ok_or(Problem::Terminate)?)
        }
        _ => Detail::None,
    })
}

/// The messages of SDP of one direction: one Send each.
#[derive(Clone, Debug)]
struct Messages {
    /// The first octets of the message, as far as headers reach.
    front: Vec<u8>,
    /// Octets of the message that have come.
    len: u64,
    /// The number of the next message.
    mseq: u32,
}

impl Messages {
    fn new() -> Self {
        Self { front: Vec::new(), len: 0, mseq: 1 }
    }

    /// Takes a segment of a Send.
    fn take(&mut self, header: &Header, payload: &[u8], tell: &mut dyn FnMut(What)) {
        let Header::Untagged(header) = header else { return };
        if u64::from(header.mo) != self.len {
            tell(What::Problem(Problem::Offset { got: header.mo, expected: self.len }));
        }
        let room = LONGEST_CONTROL - self.front.len();
        self.front.extend_from_slice(&payload[..payload.len().min(room)]);
        self.len += payload.len() as u64;
        if header.last {
            self.message(tell);
            self.front.clear();
            self.len = 0;
        }
    }

    fn message(&mut self, tell: &mut dyn FnMut(What)) {
        let read = Message::parse(&self.front).and_then(|message| {
            let arrived = usize::try_from(self.len).unwrap_or(usize::MAX);
            let len = message.header.len;
            if u64::from(len) == self.len {
                Ok(message)
            } else {
                Err(FormatError::LenMismatch { len, arrived })
            }
        });
        if let Err(error) = read {
            tell(What::Problem(Problem::Sdp { error, len: self.len }));
        } else if let Ok(message) = read {
            tell(What::Sdp(Sdp { message }));
        }
        // A message that is malformed has a number, too.
        let number = self.front.get(MSEQ..HEADER_LEN).and_then(|front| front.first_chunk());
        let got = number.map_or(self.mseq, |octets| u32::from_be_bytes(*octets));
        if got != self.mseq {
            tell(What::Problem(Problem::Mseq { got, expected: self.mseq }));
        }
        self.mseq = got.wrapping_add(1);
    }
}

/// The place of `MSeq` in a base header.
const MSEQ: usize = 8;
