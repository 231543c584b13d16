//! FPDUs of the peer, and their meaning for a byte stream (RFC 5044 §6, RFC 5041 §5, RFC 5040 §5).
//!
//! An [`Incoming`] is made of a [`Position`] at the beginning of a call, takes FPDUs by
//! [`Receiver`], and has the position behind each. A stream of plain octets exposes no memory and
//! reads none of the peer's, so besides Sends a peer may send only messages without octets, and its
//! Terminate. Another [`Format`] may have octets of Read Responses and of Writes: they, too, are
//! the next ones of the stream.

use std::ops::Range;

use rddp_ddp::{Header, Msn, OpenTagged, Stag, UntaggedRx};
use rddp_iwarp::{Delivered, Receive, Receiver, Segment, Target, Trouble};
use rddp_mpa::{Deframer, MIN_MULPDU};
use rddp_rdmap::{
    AccessError, Event, Fault, InvalidateError, Opcode, Place, REQUEST_QUEUE, Response, SEND_QUEUE, Stream,
    StreamConfig, TerminateCode,
};

use crate::format::{Format, Meaning};
use crate::position::{Position, Terms};

/// The receiving direction of a byte stream, for the length of a call.
///
/// Whole FPDUs are best taken as a [`Batch`](crate::Batch), or one at a time by
/// [`step`](Self::step). A large one may be received elsewhere, behind a look at its front
/// ([`announced`](Self::announced), [`received`](Self::received)).
///
/// ```
/// use rddp_octets::{Incoming, Plain, Position, Step, Terms};
///
/// let mut incoming = Incoming::new(&Terms::default(), &Position::FIRST, 4096, &Plain);
/// // An FPDU begins with the length of its ULPDU, here 18 octets of headers and 5 more.
/// let step = incoming.step(&mut [0, 23], &mut Plain);
/// assert!(matches!(step, Ok(Step::Need { total: 32 })));
/// assert!(!incoming.has_good_fpdu());
/// ```
#[derive(Debug)]
pub struct Incoming {
    deframer: Deframer,
    stream: Stream,
    /// Octets of the longest Send.
    max_send: u64,
    good_fpdu: bool,
    rtr_read: bool,
}

/// The meaning of the FPDU in front.
/// ```
/// use rddp_octets::{Incoming, Outgoing, Plain, Position, Step, Terms};
///
/// let mut fpdu = [0; 64];
/// let len = Outgoing::FIRST.send(b"hello", &mut fpdu).unwrap();
/// let mut incoming = Incoming::new(&Terms::default(), &Position::FIRST, 4096, &Plain);
/// match incoming.step(&mut fpdu[..len], &mut Plain) {
///     Ok(Step::Data { payload, used }) => {
///         assert_eq!((&fpdu[payload], used), (&b"hello"[..], len));
///     }
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<A> {
    /// The FPDU is not whole.
    Need {
        /// Octets that it has at least.
        total: usize,
    },
    /// The FPDU has octets for the program.
    Data {
        /// Range of them in the octets that were given.
        payload: Range<usize>,
        /// Octets of the FPDU.
        used: usize,
    },
    /// The FPDU has nothing for the program.
    Silent {
        /// Octets of the FPDU.
        used: usize,
        /// Header of the Read Response that the peer is owed.
        reply: Option<Header>,
    },
    /// The peer has ended the stream.
    Terminated {
        /// Octets of the FPDU.
        used: usize,
        /// The peer's reason.
        code: TerminateCode,
    },
    /// The FPDU is one of the format's own kinds.
    Apart {
        /// The kind.
        what: A,
        /// Range of its octets.
        payload: Range<usize>,
        /// Octets of the FPDU.
        used: usize,
    },
}

impl<A> Step<A> {
    /// Returns the octets of the FPDU; 0 if it is not whole.
    #[must_use]
    pub fn used(&self) -> usize {
        match self {
            Self::Need { .. } => 0,
            Self::Data { used, .. }
            | Self::Silent { used, .. }
            | Self::Terminated { used, .. }
            | Self::Apart { used, .. } => *used,
        }
    }
}

// `inline(always)`: what these return is large, and each call in between would copy it once more.
impl Incoming {
    /// The ID of the Read that is this end's RTR. A format's own Reads have others.
    pub const RTR: u64 = 0;

    /// Goes on at a position. `max_send` is the length of the longest Send.
    #[inline(always)]
    #[must_use]
    pub fn new<F: Format>(terms: &Terms, at: &Position, max_send: u32, format: &F) -> Self {
        let config = StreamConfig { ird: terms.ird, ord: terms.ord, extensions: false };
        let mut incoming = Self {
            deframer: Deframer::at(terms.framing(), at.octets & !3),
            stream: Stream::new(config),
            max_send: max_send.into(),
            good_fpdu: false,
            rtr_read: at.rtr_read,
        };
        let stream = &mut incoming.stream;
        let open = at.is_open.then_some(at.open_ulp);
        stream.take_over(SEND_QUEUE, UntaggedRx::resume(Msn(at.msn), at.mo, open));
        stream.expect_msn(REQUEST_QUEUE, Msn(at.request_msn));
        if at.rtr_read {
            stream.issue_read(Self::RTR, Stag(0), 0, 0);
        }
        format.resume(stream);
        incoming
    }

    /// Returns the position behind the FPDUs taken.
    #[inline(always)]
    #[must_use]
    pub fn position(&self) -> Position {
        let sends = self.stream.queue(SEND_QUEUE);
        let open = sends.open_ulp();
        Position {
            octets: self.deframer.position(),
            mo: sends.next_mo(),
            msn: sends.next_msn().0,
            request_msn: self.stream.queue(REQUEST_QUEUE).next_msn().0,
            is_open: open.is_some(),
            open_ulp: open.unwrap_or(0),
            rtr_read: self.rtr_read,
        }
    }

    /// Returns whether an FPDU was found good: the first one lets a responder send
    /// (RFC 5044 §7.1.2), also a Terminate about it.
    #[inline]
    #[must_use]
    pub fn has_good_fpdu(&self) -> bool {
        self.good_fpdu
    }

    /// Returns the tagged message that is open.
    #[inline]
    #[must_use]
    pub fn open_tagged(&self) -> Option<OpenTagged> {
        self.stream.open_tagged()
    }

    /// Looks at the FPDU at the front of `octets`; if it is whole, it is checked and counted in,
    /// also by `format`.
    ///
    /// # Errors
    /// The stream is over, and the peer is owed what [`rddp_iwarp::Termination`] says.
    #[inline(always)]
    pub fn step<F: Format>(&mut self, octets: &mut [u8], format: &mut F) -> Result<Step<F::Apart>, Trouble> {
        let (mut receiver, mut program) = self.parts(format);
        match receiver.step(octets, &mut program)? {
            rddp_iwarp::Step::Need { total } => Ok(Step::Need { total }),
            rddp_iwarp::Step::Taken { delivered, payload, used } => {
                self.taken(&delivered, payload, used, octets, format)
            }
            // A byte stream always has a receive, so that no message waits for one; and takes no
            // segment by the short way.
            rddp_iwarp::Step::Waits { .. } | rddp_iwarp::Step::Plain { .. } => {
                Err(Trouble { fault: Fault::local_catastrophic(), offending: None })
            }
        }
    }

    #[inline(always)]
    fn taken<F: Format>(
        &mut self,
        delivered: &Delivered,
        payload: Range<usize>,
        used: usize,
        octets: &[u8],
        format: &mut F,
    ) -> Result<Step<F::Apart>, Trouble> {
        let segment = &delivered.segment;
        match &delivered.event {
            Event::Terminated(terminate) => return Ok(Step::Terminated { used, code: terminate.code }),
            Event::InboundRequest => return Ok(Step::Silent { used, reply: self.answer(format)? }),
            Event::Received { invalidate: Some(_), .. } => {
                return Err(segment.trouble(Fault::invalidate(InvalidateError::Unknown)));
            }
            Event::ReadDone { id: Self::RTR } => self.rtr_read = false,
            _ => {}
        }
        let (start, end) =
            (payload.start, if has_octets(segment.place) { payload.end } else { payload.start });
        // A segment without octets may end a message.
        Ok(match format.meaning(delivered, self.stream.open_tagged(), &octets[start..end]) {
            Meaning::Octets { from } => Step::Data { payload: start + from..end, used },
            Meaning::Control => Step::Silent { used, reply: None },
            Meaning::Apart(what, of) => Step::Apart { what, payload: start + of.start..start + of.end, used },
        })
    }

    /// Returns the answer to a Read of the peer that the format does not take. One without octets
    /// is answered whatever it names (RFC 5040 §5.2.1).
    fn answer<F: Format>(&mut self, format: &mut F) -> Result<Option<Header>, Trouble> {
        if let Some(Response::Read(read)) = self.stream.responses().last()
            && format.take_read(read)
        {
            return Ok(None);
        }
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

    /// Returns the segment at the front of `octets`, whose CRC is not known yet, if it carries the
    /// next octets of the stream. Nothing is counted in.
    #[inline]
    #[must_use]
    pub fn announced<F: Format>(&mut self, octets: &[u8], format: &F) -> Option<Segment> {
        let (mut receiver, mut program) = self.parts(format);
        let segment = receiver.announced(octets, &mut program)?;
        let control = segment.header.control();
        let invalidates = Opcode::from_number(control & 0xf).is_none_or(Opcode::invalidates);
        let is_next = match segment.place {
            Place::Receive { .. } => !invalidates,
            place => format.is_next(place, segment.payload_len),
        };
        is_next.then_some(segment)
    }

    /// Counts in such a segment, which was received elsewhere. `crc` is the CRC of length field,
    /// ULPDU and pad, `field` the CRC field as it came. The format is not asked for its meaning.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[inline]
    pub fn received<F: Format>(
        &mut self,
        segment: Segment,
        crc: u32,
        field: [u8; 4],
        format: &F,
    ) -> Result<Delivered, Trouble> {
        let (mut receiver, mut program) = self.parts(format);
        receiver.received(segment, &[], crc, field, &mut program)
    }

    #[inline(always)]
    fn parts<'a, F: Format>(&'a mut self, format: &'a F) -> (Receiver<'a>, Program<'a, F>) {
        let receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        (receiver, Program { max_send: self.max_send, good_fpdu: &mut self.good_fpdu, format })
    }
}

/// Returns whether the octets of a segment are the program's.
fn has_octets(place: Place) -> bool {
    matches!(place, Place::Receive { .. } | Place::Sink { .. } | Place::Write { .. })
}

/// The receiving program, as the protocols see it.
struct Program<'a, F> {
    max_send: u64,
    good_fpdu: &'a mut bool,
    format: &'a F,
}

impl<F: Format> Target for Program<'_, F> {
    #[inline(always)]
    fn note_good_fpdu(&mut self) {
        *self.good_fpdu = true;
    }

    #[inline(always)]
    fn receive(&mut self) -> Receive {
        Receive::Posted(self.max_send)
    }

    /// Checks the memory that a Write names. Nothing is placed: octets stay where they are until
    /// the program reads them.
    #[inline(always)]
    fn place(&mut self, segment: &Segment, _: usize, _: &[u8]) -> Result<(), Fault> {
        match segment.place {
            Place::Write { stag, to } => {
                self.format.check(stag, to, segment.payload_len).map_err(Fault::write_access)
            }
            _ => Ok(()),
        }
    }
}
