//! Outstanding Reads and atomics of this end (RFC 5040 §5.2, §6.1, RFC 7306 §5.2).
//!
//! They are answered in the order in which they were issued, so a response can only belong to the
//! head of the line. Both kinds share the limit ORD.

use rddp_ddp::{OpenTagged, Stag, TaggedRepr};

use super::line::Line;
use super::take_over::{TakeOverError, check_open, checked_line};
use crate::{AtomicResponseRepr, Event, Fault, Opcode, Place};

#[derive(Clone, Debug)]
pub(super) struct Requester {
    ord: u32,
    line: Line<OutstandingRequest>,
    next_request_id: u32,
}

/// A Read or atomic operation of this side that has been issued and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutstandingRequest {
    /// A Read.
    Read(OutstandingRead),
    /// An atomic operation.
    Atomic(OutstandingAtomic),
}

/// A Read of this side whose Response is awaited or arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingRead {
    /// The id given to [`issue_read`](crate::Stream::issue_read).
    pub id: u64,
    /// `SinkSTag` of the request.
    pub sink_stag: Stag,
    /// `SinkTO` of the request.
    pub sink_to: u64,
    /// Octets that the request asks for.
    pub size: u32,
    /// Octets of the Response that have been placed.
    pub done: u32,
}

/// An atomic operation of this side whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingAtomic {
    /// The id given to [`issue_atomic`](crate::Stream::issue_atomic).
    pub id: u64,
    /// Request Identifier of the request.
    pub request_id: u32,
}

impl Requester {
    pub(super) fn new(ord: u32) -> Self {
        Self { ord, line: Line::new(), next_request_id: 0 }
    }

    pub(super) fn can_issue(&self) -> bool {
        self.line.len() < self.ord as usize
    }

    pub(super) fn set_ord(&mut self, ord: u32) {
        self.ord = ord;
    }

    pub(super) fn number_atomics_from(&mut self, request_id: u32) {
        self.next_request_id = request_id;
    }

    pub(super) fn outstanding(&self) -> usize {
        self.line.len()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = OutstandingRequest> + '_ {
        self.line.iter().copied()
    }

    pub(super) fn next_request_id(&self) -> u32 {
        self.next_request_id
    }

    /// Replaces the line by one that a stream with this ORD may have had while `open` was its open
    /// tagged message. After an error the line is as before.
    pub(super) fn take_over(
        &mut self,
        open: Option<OpenTagged>,
        requests: impl IntoIterator<Item = OutstandingRequest>,
        extensions: bool,
    ) -> Result<(), TakeOverError> {
        let line = checked_line(requests, self.ord, extensions)?;
        check_open(open, line.first())?;
        self.line = line;
        Ok(())
    }

    pub(super) fn issue_read(&mut self, id: u64, sink_stag: Stag, sink_to: u64, size: u32) {
        let read = OutstandingRead { id, sink_stag, sink_to, size, done: 0 };
        self.line.push(OutstandingRequest::Read(read));
    }

    pub(super) fn issue_atomic(&mut self, id: u64) -> u32 {
        let request_id = self.next_request_id;
        self.next_request_id = request_id.wrapping_add(1);
        self.line.push(OutstandingRequest::Atomic(OutstandingAtomic { id, request_id }));
        request_id
    }

    /// Checks that an atomic operation is at the head of the line.
    pub(super) fn expects_atomic(&self) -> Result<(), Fault> {
        match self.line.first() {
            Some(OutstandingRequest::Atomic(_)) => Ok(()),
            _ => Err(Fault::Unsolicited { opcode: Opcode::AtomicResponse }),
        }
    }

    /// Returns the place of a segment of a Read Response.
    #[inline]
    pub(super) fn place(&self, header: &TaggedRepr, len: usize) -> Result<Place, Fault> {
        let read = self.head_read()?;
        read.check(header, len)?;
        if len == 0 {
            return Ok(Place::Nothing);
        }
        Ok(Place::Sink { id: read.id, stag: header.stag, to: header.to, offset: read.done })
    }

    /// Counts a segment of a Read Response in.
    #[inline]
    pub(super) fn placed(&mut self, header: &TaggedRepr, len: usize) -> Event {
        let Some(OutstandingRequest::Read(read)) = self.line.first_mut() else {
            return Event::None;
        };
        // `check` has kept `done + len` within `size`.
        read.done = read.done.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        if !header.last {
            return Event::None;
        }
        let id = read.id;
        self.line.end_first();
        Event::ReadDone { id }
    }

    /// Handles the answer to the atomic operation at the head of the line.
    pub(super) fn answered(&mut self, response: AtomicResponseRepr) -> Result<Event, Fault> {
        let Some(OutstandingRequest::Atomic(atomic)) = self.line.first().copied() else {
            return Err(Fault::Unsolicited { opcode: Opcode::AtomicResponse });
        };
        let OutstandingAtomic { id, request_id: expected } = atomic;
        let AtomicResponseRepr { request_id: got, original } = response;
        if got != expected {
            return Err(Fault::RequestId { got, expected });
        }
        self.line.end_first();
        Ok(Event::AtomicDone { id, original })
    }

    fn head_read(&self) -> Result<&OutstandingRead, Fault> {
        match self.line.first() {
            Some(OutstandingRequest::Read(read)) => Ok(read),
            _ => Err(Fault::Unsolicited { opcode: Opcode::ReadResponse }),
        }
    }
}

impl OutstandingRead {
    /// Checks STag, TO and length of a Response against its Request, as RFC 5040 §5.2.2 allows.
    /// Without this a peer could write elsewhere in this end's memory than it was asked to.
    fn check(&self, header: &TaggedRepr, len: usize) -> Result<(), Fault> {
        if len > 0 {
            if header.stag != self.sink_stag {
                return Err(Fault::SinkStag { got: header.stag, expected: self.sink_stag });
            }
            let expected = self.sink_to.wrapping_add(self.done.into());
            if header.to != expected {
                return Err(Fault::SinkTo { got: header.to, expected });
            }
        }
        let got = u64::from(self.done) + len as u64;
        let size = u64::from(self.size);
        if got > size || (header.last && got < size) {
            return Err(Fault::ResponseLength { got, expected: self.size });
        }
        Ok(())
    }
}
