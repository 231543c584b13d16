//! Reads and atomics in progress as values, for a stream that goes on where another one stopped.
//!
//! A stream whose state lies in memory that several processes share is rebuilt for each call. Its
//! queues are exported by [`Stream::queue`] and taken over by [`Stream::take_over`]; this module
//! does the same for this end's outstanding requests and for the peer's that are being answered.
//! Between two calls each is an array of octets without pointers and without invalid patterns:
//! [`OutstandingRequest::octets`], [`Response::octets`].
//!
//! Another process may have written anything there. So `parse` checks each value alone, and
//! [`Stream::take_over_requests`] and [`Stream::take_over_responses`] check whether a stream of
//! this configuration could have left them together. A stream whose call was refused is unchanged.

use rddp_ddp::{Header, Msn, OpenTagged, Stag, TaggedRx, UntaggedRepr};

use super::Stream;
use super::line::Line;
use super::requester::{OutstandingAtomic, OutstandingRead, OutstandingRequest};
use super::responder::{AtomicResponse, ReadResponse, Response};
use crate::fields::{Fields, Out};
use crate::opcode::{REQUEST_QUEUE, control};
use crate::{AtomicRequestRepr, Fault, Opcode, ReadRequestRepr};

/// The reason why values cannot be those of a stream that goes on: they were damaged, or
/// belong to another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// Octets of neither a Read nor an atomic operation.
    #[error("no request has kind {kind}")]
    Kind {
        /// The kind in the octets.
        kind: u32,
    },
    /// More octets done than the Read has.
    #[error("{done} octets are done of a Read of {size}")]
    Progress {
        /// Octets done.
        done: u32,
        /// Octets of the Read.
        size: u32,
    },
    /// An unknown atomic operation (RFC 7306 §5.2.1).
    #[error("atomic operation {aopcode:#x}")]
    AtomicOpcode {
        /// The operation in the octets.
        aopcode: u8,
    },
    /// The header of the segment that brought a request is not one that can bring it.
    #[error("a request cannot have come with this header")]
    Origin,
    /// More requests than the stream may have at once (RFC 5040 §6.1).
    #[error("more than {limit} requests at once")]
    TooMany {
        /// The limit: ORD or IRD.
        limit: u32,
    },
    /// An atomic operation on a stream without the extensions of RFC 7306.
    #[error("an atomic operation, without the extensions")]
    NoExtensions,
    /// A request other than the first one has begun. They are answered in order (RFC 5040 §5.5).
    #[error("request {index} is begun out of turn")]
    OutOfTurn {
        /// Position of the request in the line, from 0.
        index: usize,
    },
    /// The MSNs of the peer's requests do not follow each other.
    #[error("request {got} of the peer's where {expected} is due")]
    Msn {
        /// MSN of the request.
        got: Msn,
        /// The MSN after that of the request before it.
        expected: Msn,
    },
    /// The open tagged message is not one that the first outstanding request may have left open.
    #[error("the open tagged message and the Read that is arriving do not agree")]
    OpenMessage,
}

impl Stream {
    /// The tagged message that has begun and not ended, for
    /// [`take_over_requests`](Self::take_over_requests).
    #[must_use]
    pub fn open_tagged(&self) -> Option<OpenTagged> {
        self.tagged.open()
    }

    /// The Reads and atomics of this side that are outstanding, in the order of their MSNs.
    pub fn requests(&self) -> impl Iterator<Item = OutstandingRequest> + '_ {
        self.requester.requests()
    }

    /// The Request Identifier of the next atomic operation, for
    /// [`number_atomics_from`](Self::number_atomics_from).
    #[must_use]
    pub fn next_request_id(&self) -> u32 {
        self.requester.next_request_id()
    }

    /// Goes on with the [`requests`](Self::requests) of another stream, which had the ORD of this
    /// one, and with its [`open_tagged`](Self::open_tagged) message. A lower ORD is set afterwards.
    ///
    /// # Errors
    /// No stream of this configuration can have had both; this one is as before.
    pub fn take_over_requests(
        &mut self,
        open: Option<OpenTagged>,
        requests: impl IntoIterator<Item = OutstandingRequest>,
    ) -> Result<(), TakeOverError> {
        let extensions = self.extensions;
        self.requester.take_over(open, requests, extensions)?;
        self.tagged = TaggedRx::resume(open);
        Ok(())
    }

    /// The requests of the peer that are queued or being answered, in the order they came.
    pub fn responses(&self) -> impl Iterator<Item = &Response> {
        self.responder.responses()
    }

    /// Goes on with the [`responses`](Self::responses) of another stream, which had the IRD of this
    /// one.
    ///
    /// # Errors
    /// No stream of this configuration can have had them; this one is as before.
    pub fn take_over_responses(
        &mut self,
        responses: impl IntoIterator<Item = Response>,
    ) -> Result<(), TakeOverError> {
        self.responder.take_over(responses, self.extensions)
    }
}

/// An entry of either line, as the checks see it.
pub(super) trait InLine {
    /// Returns whether a part of the answer has arrived, or gone.
    fn is_begun(&self) -> bool;
    fn is_atomic(&self) -> bool;
}

impl InLine for OutstandingRequest {
    fn is_begun(&self) -> bool {
        matches!(self, Self::Read(read) if read.done > 0)
    }

    fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic(_))
    }
}

impl InLine for Response {
    fn is_begun(&self) -> bool {
        match self {
            Self::Read(read) => read.done > 0,
            Self::Atomic(atomic) => atomic.original.is_some(),
        }
    }

    fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic(_))
    }
}

/// Collects a line of at most `limit` entries, of which only the first may be begun.
pub(super) fn checked_line<T: InLine>(
    entries: impl IntoIterator<Item = T>,
    limit: u32,
    extensions: bool,
) -> Result<Line<T>, TakeOverError> {
    let mut line = Line::new();
    for (index, entry) in entries.into_iter().enumerate() {
        // RFC 5040 §6.1
        if line.len() >= limit as usize {
            return Err(TakeOverError::TooMany { limit });
        }
        if entry.is_atomic() && !extensions {
            return Err(TakeOverError::NoExtensions);
        }
        // RFC 5040 §5.5 rule 20, RFC 7306 §5.4 rule 8
        if index > 0 && entry.is_begun() {
            return Err(TakeOverError::OutOfTurn { index });
        }
        line.push(entry);
    }
    Ok(line)
}

/// Checks that `open` is the Response to the Read at the head of the line, if that has begun to
/// arrive, and no Response else.
pub(super) fn check_open(
    open: Option<OpenTagged>,
    head: Option<&OutstandingRequest>,
) -> Result<(), TakeOverError> {
    let begun = match head {
        Some(OutstandingRequest::Read(read)) if read.done > 0 => Some(read),
        _ => None,
    };
    let agrees = match (open, begun) {
        (None, None) => true,
        (Some(open), None) => is_of(open.rsvd_ulp, Opcode::Write),
        (None, Some(_)) => false,
        (Some(open), Some(read)) => {
            let next_to = read.sink_to.checked_add(read.done.into());
            is_of(open.rsvd_ulp, Opcode::ReadResponse)
                && (open.stag, open.next_to) == (read.sink_stag, next_to)
        }
    };
    if agrees { Ok(()) } else { Err(TakeOverError::OpenMessage) }
}

/// Checks that the requests of the peer have come one behind the other on their queue.
pub(super) fn check_order(line: &Line<Response>) -> Result<(), TakeOverError> {
    for (before, after) in line.iter().zip(line.iter().skip(1)) {
        let (got, expected) = (after.origin().msn, before.origin().msn.next());
        if got != expected {
            return Err(TakeOverError::Msn { got, expected });
        }
    }
    Ok(())
}

/// Returns whether a control octet is that of a message with this opcode, of the RFC's version.
fn is_of(octet: u8, opcode: Opcode) -> bool {
    octet >> control::VERSION_SHIFT == 1 && octet & control::OPCODE == opcode as u8
}

impl OutstandingRequest {
    /// Octets of an exported request.
    pub const LEN: usize = 32;

    /// The request as octets, for [`parse`](Self::parse).
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        let mut out = Out(&mut octets);
        match *self {
            Self::Read(OutstandingRead { id, sink_stag, sink_to, size, done }) => {
                out.u32(KIND_READ);
                out.u64(id);
                out.u32(sink_stag.0);
                out.u64(sink_to);
                out.u32(size);
                out.u32(done);
            }
            Self::Atomic(OutstandingAtomic { id, request_id }) => {
                out.u32(KIND_ATOMIC);
                out.u64(id);
                out.u32(request_id);
            }
        }
        octets
    }

    /// Reads octets that may have been damaged since [`octets`](Self::octets) made them.
    ///
    /// # Errors
    /// The octets are not those of a request.
    pub fn parse(octets: &[u8; Self::LEN]) -> Result<Self, TakeOverError> {
        let mut fields = Fields(octets);
        match fields.u32() {
            KIND_READ => {
                let id = fields.u64();
                let sink_stag = Stag(fields.u32());
                let sink_to = fields.u64();
                let (size, done) = (fields.u32(), fields.u32());
                check_progress(done, size)?;
                Ok(Self::Read(OutstandingRead { id, sink_stag, sink_to, size, done }))
            }
            KIND_ATOMIC => {
                let (id, request_id) = (fields.u64(), fields.u32());
                Ok(Self::Atomic(OutstandingAtomic { id, request_id }))
            }
            kind => Err(TakeOverError::Kind { kind }),
        }
    }
}

impl Response {
    /// Octets of an exported request of the peer's.
    pub const LEN: usize = KIND_LEN + DONE_LEN + UntaggedRepr::LEN + AtomicRequestRepr::LEN;

    /// The request of the peer's and how far its answer has come as octets, for
    /// [`parse`](Self::parse).
    #[must_use]
    pub fn octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        let mut out = Out(&mut octets);
        match self {
            Self::Read(ReadResponse { request, done, origin }) => {
                out.u32(KIND_READ);
                out.u64((*done).into());
                out.octets(&Header::from(*origin).octets());
                out.octets(&request.octets());
            }
            Self::Atomic(AtomicResponse { request, original, origin }) => {
                out.u32(if original.is_some() { KIND_ATOMIC_DONE } else { KIND_ATOMIC });
                out.u64(original.unwrap_or(0));
                out.octets(&Header::from(*origin).octets());
                out.octets(&request.octets());
            }
        }
        octets
    }

    /// Reads octets that may have been damaged since [`octets`](Self::octets) made them.
    ///
    /// # Errors
    /// The octets are not those of a request.
    pub fn parse(octets: &[u8; Self::LEN]) -> Result<Self, TakeOverError> {
        let mut fields = Fields(octets);
        let kind = fields.u32();
        let done = fields.u64();
        let (origin, request) = fields.0.split_at(UntaggedRepr::LEN);
        match kind {
            KIND_READ => {
                let (request, origin) = (read_request(request)?, parse_origin(origin, Opcode::ReadRequest)?);
                let done = u32::try_from(done).unwrap_or(u32::MAX);
                check_progress(done, request.size)?;
                Ok(Self::Read(ReadResponse { request, done, origin }))
            }
            KIND_ATOMIC | KIND_ATOMIC_DONE => {
                let original = (kind == KIND_ATOMIC_DONE).then_some(done);
                let request = atomic_request(request)?;
                let origin = parse_origin(origin, Opcode::AtomicRequest)?;
                Ok(Self::Atomic(AtomicResponse { request, original, origin }))
            }
            kind => Err(TakeOverError::Kind { kind }),
        }
    }

    fn origin(&self) -> &UntaggedRepr {
        match self {
            Self::Read(read) => &read.origin,
            Self::Atomic(atomic) => &atomic.origin,
        }
    }
}

fn check_progress(done: u32, size: u32) -> Result<(), TakeOverError> {
    if done <= size { Ok(()) } else { Err(TakeOverError::Progress { done, size }) }
}

fn read_request(octets: &[u8]) -> Result<ReadRequestRepr, TakeOverError> {
    ReadRequestRepr::parse(&octets[..ReadRequestRepr::LEN])
        .map_err(|_| TakeOverError::Kind { kind: KIND_READ })
}

fn atomic_request(octets: &[u8]) -> Result<AtomicRequestRepr, TakeOverError> {
    AtomicRequestRepr::parse(octets).map_err(|fault| match fault {
        Fault::AtomicOpcode { aopcode } => TakeOverError::AtomicOpcode { aopcode },
        _ => TakeOverError::Kind { kind: KIND_ATOMIC },
    })
}

/// The header of a segment that brought a request. RFC 5040 §4.4: that is all of its message.
fn parse_origin(octets: &[u8], opcode: Opcode) -> Result<UntaggedRepr, TakeOverError> {
    match Header::parse(octets) {
        Ok(Header::Untagged(header)) => Some(header)
            .filter(|header| header.qn == REQUEST_QUEUE && header.mo == 0 && header.last)
            .filter(|header| is_of(header.rsvd_ulp[0], opcode))
            .ok_or(TakeOverError::Origin),
        _ => Err(TakeOverError::Origin),
    }
}

/// Kinds of values. 0 is none, so that memory that nobody wrote to holds no request.
const KIND_READ: u32 = 1;
const KIND_ATOMIC: u32 = 2;
/// An atomic operation of the peer's that has been carried out and not answered.
const KIND_ATOMIC_DONE: u32 = 3;
const KIND_LEN: usize = 4;
const DONE_LEN: usize = 8;
