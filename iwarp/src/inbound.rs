//! One FPDU in: deframed, accepted, placed, committed (RFC 5044 §6, RFC 5041 §5, RFC 5040 §5).
//!
//! [`Receiver`] borrows the two protocols' state of one direction and asks a [`Target`] for
//! everything that is not theirs: receives, and memory. The order is fixed, and it is what makes
//! placement safe: nothing is concluded from a segment whose CRC is not known to be good, no octet
//! is placed that the stream has not accepted, and nothing is delivered before all of it is in its
//! place.
//!
//! A large FPDU need not be gathered in one piece first. [`Receiver::announced`] looks at the front
//! of one that is still arriving; whoever then receives its payload elsewhere (into its place, or
//! into a program's buffer) sums it on the way and has it counted in by [`Receiver::received`].

use std::ops::Range;

use rddp_ddp::{DdpError, Header};
use rddp_mpa::{Deframer, FpduError, LENGTH_LEN};
use rddp_rdmap::{Event, Fault, Offending, Place, Plain, SEND_QUEUE, Stream, parse_header};

/// Receives and memory for the segments that arrive: a connection's user.
pub trait Target {
    /// True if [`take_plain`](Self::take_plain) takes segments. Others do not pay for the question.
    const TAKES_PLAIN: bool = false;

    /// Notes that MPA has found an FPDU good, before its segment is looked at. The first one gives
    /// a responder leave to send (RFC 5044 §7.1.2).
    fn note_good_fpdu(&mut self) {}

    /// Takes the receive for a message that begins. Called once for each message, unless the answer
    /// is not [`Receive::Posted`]; and before the CRC is known where a segment is looked at early.
    fn receive(&mut self) -> Receive;

    /// Stores `payload`, which begins `skip` octets into that of the segment, where the segment
    /// belongs ([`Segment::place`]: a Write, a receive or a sink). Never called without octets.
    ///
    /// # Errors
    /// The fault that refused memory is, by the peer or of this end.
    fn place(&mut self, segment: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault>;

    /// Takes all of a segment that is in turn, by a shorter way than by the other methods: stores
    /// its payload, and completes the receive of a Send. Returns whether it did; if not, or not all
    /// of it, the segment goes the other way.
    #[inline]
    fn take_plain(&mut self, _plain: &Plain, _payload: &[u8]) -> bool {
        false
    }

    /// Returns whether a ULPDU with an opcode that RDMAP lacks is left to the user, as one that
    /// both ends have agreed on may be ([`Acknowledgement`](crate::Acknowledgement)). If not, it is
    /// a fault.
    fn leaves(&self, _opcode: u8) -> bool {
        false
    }
}

/// The receive for a message that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// A receive with room for so many octets.
    Posted(u64),
    /// No receive, and so the message is a fault (RFC 5041 §7.1).
    Missing,
    /// No receive yet: the message waits.
    Awaited,
}

/// A segment that the stream has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The segment's header.
    pub header: Header,
    /// The place of its payload.
    pub place: Place,
    /// Octets of its payload.
    pub payload_len: usize,
}

impl Segment {
    /// Octets of the ULPDU.
    #[inline]
    #[must_use]
    pub fn ulpdu_len(&self) -> usize {
        self.header.len() + self.payload_len
    }

    /// The fault as one of this segment.
    #[must_use]
    pub fn trouble(&self, fault: Fault) -> Trouble {
        Trouble::about(fault, &self.header, self.payload_len)
    }
}

/// A segment that has been counted in, and what it brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The segment.
    pub segment: Segment,
    /// The event that the segment brought about. A stream that is dead takes every segment, and
    /// none brings about anything.
    pub event: Event,
}

/// Outcome of a look at the FPDU at the front of some octets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The FPDU is not all here.
    Need {
        /// Octets without which another look cannot say more.
        total: usize,
    },
    /// The FPDU is good and counted in.
    Taken {
        /// The segment in it, and the event.
        delivered: Delivered,
        /// Range of its payload in the octets that were given.
        payload: Range<usize>,
        /// Octets to drop from the front.
        used: usize,
    },
    /// The FPDU is good, and its segment was [taken](Target::take_plain) and is counted in.
    Plain {
        /// The segment.
        plain: Plain,
        /// Octets of its payload.
        payload_len: usize,
        /// Octets to drop from the front.
        used: usize,
    },
    /// The FPDU is good, and its message waits for a receive: [`Receiver::segment`] takes the ULPDU
    /// up again. Or RDMAP does not know it, and it is [left](Target::leaves).
    Waits {
        /// Range of the ULPDU in the octets that were given.
        ulpdu: Range<usize>,
        /// Octets to drop from the front.
        used: usize,
    },
}

/// The fault that ends a stream, and the segment for the Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Trouble {
    /// The reason for the end.
    pub fault: Fault,
    /// The segment it was found in; none when no header could be read.
    pub offending: Option<Offending>,
}

impl Trouble {
    /// The fault as one of the segment with this header.
    #[must_use]
    pub fn about(fault: Fault, header: &Header, payload_len: usize) -> Self {
        Self { fault, offending: Some(Offending::new(*header, payload_len)) }
    }

    fn without_segment(fault: Fault) -> Self {
        Self { fault, offending: None }
    }
}

impl From<FpduError> for Trouble {
    fn from(error: FpduError) -> Self {
        Self::without_segment(Fault::mpa(error.code()))
    }
}

/// The receiving direction of a connection, for as long as its state is borrowed.
#[derive(Debug)]
pub struct Receiver<'a> {
    /// MPA's state.
    pub deframer: &'a mut Deframer,
    /// State of DDP and RDMAP.
    pub stream: &'a mut Stream,
}

// `inline(always)`: what these return is large, and each call in between would copy it once more.
impl Receiver<'_> {
    /// Takes the FPDU at the front of `octets`, if it is whole.
    ///
    /// # Errors
    /// The stream is over, and the peer is owed what [`Termination`](crate::Termination) says.
    #[inline(always)]
    pub fn step<T: Target>(&mut self, octets: &mut [u8], target: &mut T) -> Result<Step, Trouble> {
        let (ulpdu, used) = match self.deframer.step(octets)? {
            rddp_mpa::Step::Need { total } => return Ok(Step::Need { total }),
            rddp_mpa::Step::Fpdu { ulpdu, used } => (ulpdu, used),
        };
        target.note_good_fpdu();
        if T::TAKES_PLAIN
            && let Some((plain, payload_len)) = self.plain(&octets[ulpdu.clone()], target)
        {
            return Ok(Step::Plain { plain, payload_len, used });
        }
        let Some(delivered) = self.segment(&octets[ulpdu.clone()], target)? else {
            return Ok(Step::Waits { ulpdu, used });
        };
        let payload = ulpdu.end - delivered.segment.payload_len..ulpdu.end;
        Ok(Step::Taken { delivered, payload, used })
    }

    /// Takes a ULPDU whose FPDU was good by the short way, if that is one for it.
    #[inline(always)]
    fn plain<T: Target>(&mut self, ulpdu: &[u8], target: &mut T) -> Option<(Plain, usize)> {
        let plain = self.stream.plain(ulpdu)?;
        let payload = &ulpdu[plain.header_len()..];
        if !target.take_plain(&plain, payload) {
            return None;
        }
        self.stream.commit_plain(&plain, payload.len());
        Some((plain, payload.len()))
    }

    /// Takes a ULPDU whose FPDU was good. `None`: its message waits for a receive, or is left, and
    /// nothing has changed.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[inline(always)]
    pub fn segment<T: Target>(&mut self, ulpdu: &[u8], target: &mut T) -> Result<Option<Delivered>, Trouble> {
        let header = parse_header(ulpdu).map_err(|fault| self.fail(Trouble::without_segment(fault)))?;
        let payload = &ulpdu[header.len()..];
        let Some(segment) = self.accept(&header, payload.len(), target)? else { return Ok(None) };
        if !payload.is_empty() && has_memory(segment.place) {
            target.place(&segment, 0, payload).map_err(|fault| self.fail(segment.trouble(fault)))?;
        }
        let control = if matches!(segment.place, Place::Control) { payload } else { &[] };
        self.commit(segment, control).map(Some)
    }

    /// Looks at the front of an FPDU that has not all come: which segment it will be if its CRC is
    /// good. `None`: too little of it is here, or markers stand in it, or there is something wrong
    /// with it. Nothing follows from that before the CRC is known: all of it is to be given to
    /// [`step`](Self::step).
    #[inline]
    #[must_use]
    pub fn announced<T: Target>(&mut self, octets: &[u8], target: &mut T) -> Option<Segment> {
        let peek = self.deframer.peek(octets)?;
        let header = Header::parse(&octets[LENGTH_LEN..]).ok()?;
        let payload_len = peek.ulpdu_len.checked_sub(header.len())?;
        let place = accept(self.stream, &header, payload_len, target).ok()?;
        Some(Segment { header, place, payload_len })
    }

    /// Counts in an FPDU without markers whose payload was received elsewhere: all of it but
    /// `last`, which is placed now. `crc` is that of length field, ULPDU and pad, and is not looked
    /// at when CRCs are off; `field` is the CRC field as it came.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[inline]
    pub fn received<T: Target>(
        &mut self,
        segment: Segment,
        last: &[u8],
        crc: u32,
        field: [u8; 4],
        target: &mut T,
    ) -> Result<Delivered, Trouble> {
        self.deframer.accept_external(segment.ulpdu_len(), crc, field)?;
        target.note_good_fpdu();
        if !last.is_empty() {
            let skip = segment.payload_len - last.len();
            target.place(&segment, skip, last).map_err(|fault| self.fail(segment.trouble(fault)))?;
        }
        self.commit(segment, &[])
    }

    /// Returns the segment as the stream accepts it; `None` if its message waits for a receive.
    #[inline(always)]
    fn accept<T: Target>(
        &mut self,
        header: &Header,
        payload_len: usize,
        target: &mut T,
    ) -> Result<Option<Segment>, Trouble> {
        match accept(self.stream, header, payload_len, target) {
            Ok(place) => Ok(Some(Segment { header: *header, place, payload_len })),
            Err(Refused::Waits) => Ok(None),
            Err(Refused::Fault(fault)) => Err(self.fail(Trouble::about(fault, header, payload_len))),
        }
    }

    #[inline(always)]
    fn commit(&mut self, segment: Segment, control: &[u8]) -> Result<Delivered, Trouble> {
        let event = self.stream.commit(&segment.header, segment.payload_len, control);
        let event = event.map_err(|fault| segment.trouble(fault))?;
        Ok(Delivered { segment, event })
    }

    /// RFC 5041 §7.1: behind a fault in a good FPDU everything is dropped.
    #[cold]
    fn fail(&mut self, trouble: Trouble) -> Trouble {
        self.stream.fail();
        trouble
    }
}

/// The reason why a segment is not taken now.
enum Refused {
    Fault(Fault),
    Waits,
}

/// Asks the stream what a segment is. Kills nothing: the segment's CRC may not be known yet.
#[inline(always)]
fn accept<T: Target>(
    stream: &mut Stream,
    header: &Header,
    payload_len: usize,
    target: &mut T,
) -> Result<Place, Refused> {
    let mut waits = false;
    let mut receive = || match target.receive() {
        Receive::Posted(len) => Some(len),
        Receive::Missing => None,
        Receive::Awaited => {
            waits = true;
            None
        }
    };
    match stream.accept(header, payload_len, &mut receive) {
        Ok(place) => Ok(place),
        Err(Fault::Ddp(DdpError::NoBuffer { qn: SEND_QUEUE, .. })) if waits => Err(Refused::Waits),
        Err(Fault::UnknownOpcode { opcode }) if target.leaves(opcode) => Err(Refused::Waits),
        Err(fault) => Err(Refused::Fault(fault)),
    }
}

/// Returns whether a payload goes to memory of the target's.
#[inline]
fn has_memory(place: Place) -> bool {
    matches!(place, Place::Write { .. } | Place::Receive { .. } | Place::Sink { .. })
}

#[cfg(test)]
mod tests;
