//! Reads and atomics of the peer that wait for their answers (RFC 5040 §5.2, §6.1, RFC 7306 §5.2).
//!
//! They are answered in the order in which they were delivered. Only headers are kept, at most IRD
//! of them, so the length of a Read does not decide how much memory is used. An entry counts until
//! the last segment of its answer has gone to MPA.

use rddp_ddp::{Header, TaggedRepr, UntaggedRepr, cut};

use super::line::Line;
use super::take_over::{TakeOverError, check_order, checked_line};
use crate::{AtomicRequestRepr, Fault, Offending, Opcode, ReadRequestRepr, tagged_header};

/// A request of the peer's that is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Send the octets that it asks for.
    Read(ReadResponse),
    /// Do the operation once, and send the value that was there before.
    Atomic(AtomicResponse),
}

/// A Read that is being answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResponse {
    /// The request. If its size is 0, its source must not be checked (RFC 5040 §5.2.1).
    pub request: ReadRequestRepr,
    /// Number of octets of the answer that have gone to MPA.
    pub done: u32,
    /// Header of the segment that carried the request.
    pub origin: UntaggedRepr,
}

/// A segment of a Read Response that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The segment's header.
    pub header: Header,
    /// Tagged Offset of its first octet in the source.
    pub src_to: u64,
    /// Number of octets of payload.
    pub len: usize,
    /// True for the last segment of the Response.
    pub last: bool,
}

impl ReadResponse {
    /// Returns the number of octets still to be sent.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.request.size.saturating_sub(self.done)
    }

    /// Returns the next segment of the Response. `SinkSTag` is copied from the request
    /// (RFC 5040 §4.4).
    ///
    /// # Panics
    /// When `mulpdu` leaves no room for payload.
    #[must_use]
    pub fn segment(&self, mulpdu: usize) -> ReadSegment {
        let ReadRequestRepr { sink_stag, sink_to, src_to, size, .. } = self.request;
        let done = u64::from(self.done.min(size));
        let cut = cut(size.into(), done, mulpdu, TaggedRepr::LEN);
        ReadSegment {
            header: tagged_header(Opcode::ReadResponse, sink_stag, sink_to.wrapping_add(done), cut.last),
            src_to: src_to.wrapping_add(done),
            len: cut.len,
            last: cut.last,
        }
    }

    /// Notes that a segment with `len` octets has gone to MPA.
    pub fn advance(&mut self, len: usize) {
        self.done = self.done.saturating_add(u32::try_from(len).unwrap_or(u32::MAX)).min(self.request.size);
    }

    /// Returns the segment that a Terminate about this Read shows: the one that carried it, and the
    /// part of the Read that is left (RFC 5040 §4.8).
    #[must_use]
    pub fn offending(&self) -> Offending {
        let read_request = Some(self.request.advanced(self.done));
        Offending { read_request, ..Offending::new(self.origin.into(), ReadRequestRepr::LEN) }
    }
}

/// An atomic operation that is being answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request.
    pub request: AtomicRequestRepr,
    /// The target's value before the operation, stored here by the driver. Once it is set, the
    /// operation has been done and only the answer is missing.
    pub original: Option<u64>,
    /// Header of the segment that carried the request.
    pub origin: UntaggedRepr,
}

impl AtomicResponse {
    /// Returns the segment that a Terminate about this operation shows, by its DDP
    /// header only (RFC 7306 §8.1).
    #[must_use]
    pub fn offending(&self) -> Offending {
        Offending::new(self.origin.into(), AtomicRequestRepr::LEN)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Responder {
    ird: u32,
    line: Line<Response>,
}

impl Responder {
    pub(super) fn new(ird: u32) -> Self {
        Self { ird, line: Line::new() }
    }

    // RFC 5040 §6.1: no more inbound Reads than were negotiated.
    pub(super) fn check_room(&self) -> Result<(), Fault> {
        match self.ird {
            ird if self.line.len() < ird as usize => Ok(()),
            ird => Err(Fault::IrdExceeded { ird }),
        }
    }

    pub(super) fn queue(&mut self, response: Response) {
        self.line.push(response);
    }

    pub(super) fn responses(&self) -> impl Iterator<Item = &Response> {
        self.line.iter()
    }

    /// Replaces the line by one that a stream with this IRD may have had. After an error the line
    /// is as before.
    pub(super) fn take_over(
        &mut self,
        responses: impl IntoIterator<Item = Response>,
        extensions: bool,
    ) -> Result<(), TakeOverError> {
        let line = checked_line(responses, self.ird, extensions)?;
        check_order(&line)?;
        self.line = line;
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    pub(super) fn head(&mut self) -> Option<&mut Response> {
        self.line.first_mut()
    }

    pub(super) fn head_done(&mut self) {
        self.line.end_first();
    }
}
