//! One direction of a connection behind the startup: FPDUs, and the messages of SDP in them.

use rddp_ddp::{Header, Stag, UntaggedRepr};
use rddp_mpa::{Deframer, FpduError, Framing, MARKER_LEN, MARKER_SPACING, Step};
use rddp_rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, SEND_QUEUE, TerminateRepr, parse_header,
};
use rddp_sdp::wire::{FormatError, HEADER_LEN, LONGEST_CONTROL, Message};

use crate::event::{Detail, Fpdu, Problem, Sdp, What};
use crate::stream::Stream;

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
    pub(crate) fn take(&mut self, stream: &mut Stream, tell: &mut dyn FnMut(What)) {
        loop {
            let (front, mut used) = (stream.front(), 0);
            let needed = loop {
                match self.fpdu(&mut front[used..], tell) {
                    Outcome::Used(len) => used += len,
                    Outcome::Need(total) => break total,
                    Outcome::Lost => return stream.skip(stream.len()),
                }
            };
            stream.skip(used as u64);
            // Octets that were not captured may be all that it lacks.
            match self.cut_fpdu(stream, needed, tell) {
                Outcome::Used(len) => stream.skip(len as u64),
                Outcome::Need(_) => return,
                Outcome::Lost => return stream.skip(stream.len()),
            }
        }
    }

    /// Ends the direction, with the number of octets that are left of it.
    pub(crate) fn finish(&mut self, left: u64, tell: &mut dyn FnMut(What)) {
        if left > 0 && !self.is_lost {
            self.is_lost = true;
            let have = usize::try_from(left).unwrap_or(usize::MAX);
            tell(What::Problem(Problem::Truncated(FpduError::Truncated { have })));
        }
    }

    /// Reads the FPDU at the front.
    fn fpdu(&mut self, stream: &mut [u8], tell: &mut dyn FnMut(What)) -> Outcome {
        if self.is_lost {
            return Outcome::Lost;
        }
        let mut step = Deframer::at(self.framing, self.position).step(stream);
        if let Err(error @ FpduError::Crc { .. }) = step {
            tell(What::Problem(Problem::Crc(error)));
            // The length may be right nevertheless, and without CRCs the place of all is the same.
            step = Deframer::at(Framing { crc: false, ..self.framing }, self.position).step(stream);
        }
        match step {
            Ok(Step::Fpdu { ulpdu, used }) => {
                self.ulpdu(&stream[ulpdu], None, tell);
                self.position += used as u64;
                Outcome::Used(used)
            }
            Ok(Step::Need { total }) => Outcome::Need(total),
            Err(error) => {
                self.is_lost = true;
                tell(What::Problem(Problem::Marker(error)));
                Outcome::Lost
            }
        }
    }

    /// Reads the FPDU of `total` octets at the front as far as it was captured, once all of it has
    /// come. Its CRC, and the markers in it, are not checked.
    fn cut_fpdu(&mut self, stream: &mut Stream, total: usize, tell: &mut dyn FnMut(What)) -> Outcome {
        let is_here = stream.len() >= total as u64;
        let Some(hole) = stream.hole(total).filter(|_| is_here) else { return Outcome::Need(total) };
        let is_marker = |at: u64| self.framing.markers && at % (MARKER_SPACING as u64) < MARKER_LEN as u64;
        let front = stream.front().iter().zip(self.position..);
        let known: Vec<u8> = front.filter(|(_, at)| !is_marker(*at)).map(|(octet, _)| *octet).collect();
        let Some((len, ulpdu)) = known.split_first_chunk() else {
            self.is_lost = true;
            tell(What::Problem(Problem::NotCaptured { at: hole.at, octets: hole.octets }));
            return Outcome::Lost;
        };
        let len = usize::from(u16::from_be_bytes(*len));
        self.ulpdu(&ulpdu[..len.min(ulpdu.len())], Some(len), tell);
        self.position += total as u64;
        Outcome::Used(total)
    }

    /// Reads a ULPDU; one that was not captured whole had `cut_of` octets.
    fn ulpdu(&mut self, ulpdu: &[u8], cut_of: Option<usize>, tell: &mut dyn FnMut(What)) {
        let header = match parse_header(ulpdu) {
            Ok(header) => header,
            Err(fault) => {
                let is_cut = ulpdu.len() < cut_of.unwrap_or(0).min(UntaggedRepr::LEN);
                let problem = if is_cut { Problem::HeaderNotCaptured } else { Problem::Header(fault) };
                return tell(What::Problem(problem));
            }
        };
        let payload = &ulpdu[header.len()..];
        let payload_len = cut_of.unwrap_or(ulpdu.len()) - header.len();
        let opcode = Opcode::from_number(header.control() & 0xf);
        let (detail, problem) = match read(opcode, &header, payload) {
            Ok(detail) => (detail, None),
            Err(_) if payload.len() < payload_len => (Detail::NotCaptured, None),
            Err(problem) => (Detail::None, Some(problem)),
        };
        let captured = cut_of.map(|_| payload.len());
        tell(What::Fpdu(Fpdu { position: self.position, header, opcode, payload_len, captured, detail }));
        if let Some(problem) = problem {
            tell(What::Problem(problem));
        }
        let is_send =
            opcode.is_some_and(|opcode| opcode.queue() == Some(SEND_QUEUE) && !opcode.is_extension());
        if let (Some(messages), true) = (&mut self.sdp, is_send) {
            messages.take(&header, payload, payload_len, tell);
        }
    }
}

/// The outcome of reading the FPDU at the front.
enum Outcome {
    /// The number of its octets, which were used.
    Used(usize),
    /// Octets that are needed before another try can say more: not all have come.
    Need(usize),
    /// Nothing more is read of this direction.
    Lost,
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
    /// Not all of them were captured.
    is_cut: bool,
    /// The number of the next message.
    mseq: u32,
}

impl Messages {
    fn new() -> Self {
        Self { front: Vec::new(), len: 0, is_cut: false, mseq: 1 }
    }

    /// Takes a segment of a Send with `len` octets of payload, the first of which were captured.
    fn take(&mut self, header: &Header, payload: &[u8], len: usize, tell: &mut dyn FnMut(What)) {
        let Header::Untagged(header) = header else { return };
        if u64::from(header.mo) != self.len {
            tell(What::Problem(Problem::Offset { got: header.mo, expected: self.len }));
        }
        if !self.is_cut {
            let room = LONGEST_CONTROL - self.front.len();
            self.front.extend_from_slice(&payload[..payload.len().min(room)]);
        }
        self.is_cut |= payload.len() < len;
        self.len += len as u64;
        if header.last {
            self.message(tell);
            self.front.clear();
            (self.len, self.is_cut) = (0, false);
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
        tell(match read {
            Ok(message) => What::Sdp(Sdp { message }),
            Err(_) if self.is_cut && self.front.len() < LONGEST_CONTROL => {
                What::Problem(Problem::SdpNotCaptured { len: self.len })
            }
            Err(error) => What::Problem(Problem::Sdp { error, len: self.len }),
        });
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
