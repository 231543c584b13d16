//! The receiving half of a stream, with the outstanding Reads and atomics of both ends (RFC 5040
//! chapters 5 to 7).
//!
//! Segments come in order, as TCP delivers them. For each the driver calls [`Stream::accept`],
//! checks the memory and places the payload there, and calls [`Stream::commit`] once the CRC is
//! known to be good. `accept` changes no state: it may be called before the CRC is known, and again
//! for the same segment. The order in which a segment is checked is that of RFC 5040 §7.2: version,
//! opcode, queue, T and QN of the opcode, then DDP's rules, then the message's own.

mod line;
mod place;
mod plain;
mod requester;
mod responder;
mod take_over;

use rddp_ddp::{DdpError, Header, Msn, Qn, Stag, TaggedRepr, TaggedRx, UntaggedRepr, UntaggedRx};

use crate::opcode::{ATOMIC_RESPONSE_QUEUE, SEND_QUEUE, TERMINATE_QUEUE, control};
use crate::{
    AtomicRequestRepr, AtomicResponseRepr, Fault, Opcode, ReadRequestRepr, TerminateFlaw, TerminateRepr,
};

pub use place::{Event, Place};
pub use plain::Plain;
use requester::Requester;
pub use requester::{OutstandingAtomic, OutstandingRead, OutstandingRequest};
use responder::Responder;
pub use responder::{AtomicResponse, ReadResponse, ReadSegment, Response};
pub use take_over::TakeOverError;

/// Longest payload for which [`Place::Control`] is returned.
pub const CONTROL_MAX: usize = 128;

/// Octets of Immediate Data (RFC 7306 §6.3).
pub const IMMEDIATE_LEN: usize = 8;

/// Parameters that both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Reads and atomics that the peer may have outstanding.
    pub ird: u32,
    /// Reads and atomics that this end may have outstanding.
    pub ord: u32,
    /// True if Immediate Data and atomics (RFC 7306) are in use; if not, the peer's are unexpected
    /// opcodes.
    pub extensions: bool,
}

/// One stream. Has no access to memory or sockets.
///
/// # End of the stream
/// The first fault ends the stream: from then on every segment is dropped without a word,
/// [`accept`](Self::accept) returns [`Place::Dropped`] and [`commit`](Self::commit) returns
/// [`Event::None`] (RFC 5041 §7.1). The stream ends
/// - when `commit` returns a fault, or a Terminate;
/// - when the driver calls [`fail`](Self::fail): after a fault from `accept` once the segment's CRC
///   is known to be good, after memory has refused an access, or for any other reason.
///
/// A fault from `accept` alone does not end the stream, because a damaged segment may look like any
/// fault.
#[derive(Clone, Debug)]
pub struct Stream {
    dead: bool,
    extensions: bool,
    tagged: TaggedRx,
    queues: [UntaggedRx; QUEUES as usize],
    /// Length of the receive taken for the open or next message on queue 0.
    receive: Option<u64>,
    requester: Requester,
    responder: Responder,
}

impl Stream {
    /// Makes a stream on which nothing has arrived.
    #[must_use]
    pub fn new(config: StreamConfig) -> Self {
        Self {
            dead: false,
            extensions: config.extensions,
            tagged: TaggedRx::new(),
            queues: Default::default(),
            receive: None,
            requester: Requester::new(config.ord),
            responder: Responder::new(config.ird),
        }
    }

    /// Checks everything about a segment that needs no memory, and returns the place of its
    /// payload.
    ///
    /// Changes nothing, with one exception: when a message begins on queue 0, it calls `receive`,
    /// which takes the next posted receive and returns its length, or `None` when nothing is
    /// posted. A length is kept until the message has been delivered, so a second call for the same
    /// segment does not take another receive; after `None` (which is a fault, RFC 5041 §7.1) the
    /// driver may also wait for a receive and call again.
    ///
    /// # Errors
    /// The first fault in the order of RFC 5040 §7.2. It is final only when the segment's
    /// CRC is good; then the driver calls [`fail`](Self::fail).
    #[inline]
    pub fn accept(
        &mut self,
        header: &Header,
        payload_len: usize,
        receive: &mut dyn FnMut() -> Option<u64>,
    ) -> Result<Place, Fault> {
        if self.dead {
            return Ok(Place::Dropped);
        }
        let opcode = self.opcode(header)?;
        match header {
            Header::Tagged(header) => self.accept_tagged(opcode, header, payload_len),
            Header::Untagged(header) if opcode == Opcode::Terminate => {
                self.accept_terminate(header, payload_len)
            }
            Header::Untagged(header) => self.accept_untagged(opcode, header, payload_len, receive),
        }
    }

    /// Counts in a segment that [`accept`](Self::accept) has passed, whose payload has been
    /// placed and whose CRC is good. `control` is the payload if `accept` returned
    /// [`Place::Control`], else empty.
    ///
    /// # Errors
    /// A fault that only the payload of RDMAP's own messages shows. The stream has then ended.
    #[inline]
    pub fn commit(&mut self, header: &Header, payload_len: usize, control: &[u8]) -> Result<Event, Fault> {
        let Some(opcode) = self.alive_opcode(header) else {
            return Ok(Event::None);
        };
        let event = match header {
            Header::Tagged(header) => Ok(self.commit_tagged(opcode, header, payload_len)),
            Header::Untagged(header) => self.commit_untagged(opcode, header, payload_len, control),
        };
        if matches!(event, Err(_) | Ok(Event::Terminated(_))) {
            self.dead = true;
        }
        event
    }

    /// Ends the stream: every segment that still arrives is dropped.
    pub fn fail(&mut self) {
        self.dead = true;
    }

    /// Returns whether the stream has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Returns whether no message is half received, tagged or untagged.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        !self.tagged.is_open() && self.queues.iter().all(|queue| !queue.is_open())
    }

    /// Returns whether a receive was taken for a message that has not been delivered. After the
    /// stream's end the driver flushes it.
    #[must_use]
    pub fn holds_receive(&self) -> bool {
        self.receive.is_some()
    }

    /// Sets the MSN that is expected next on queue `qn`: for tests of the wrap, and for a stream
    /// that is taken over.
    ///
    /// # Panics
    /// When RDMAP has no such queue.
    pub fn expect_msn(&mut self, qn: Qn, msn: Msn) {
        self.queues[qn.0 as usize] = UntaggedRx::starting_at(msn);
    }

    /// Returns the state of queue `qn`, for a stream that goes on from there by
    /// [`take_over`](Self::take_over).
    ///
    /// # Panics
    /// When RDMAP has no such queue.
    #[must_use]
    pub fn queue(&self, qn: Qn) -> &UntaggedRx {
        &self.queues[qn.0 as usize]
    }

    /// Continues queue `qn` from the state of another stream's.
    ///
    /// # Panics
    /// When RDMAP has no such queue.
    pub fn take_over(&mut self, qn: Qn, queue: UntaggedRx) {
        self.queues[qn.0 as usize] = queue;
    }

    /// Returns whether one more Read or atomic may be issued now: fewer than ORD are outstanding
    /// (RFC 5040 §6.1). If not, it waits, and so does everything submitted after it.
    #[must_use]
    pub fn can_issue(&self) -> bool {
        self.requester.can_issue()
    }

    /// Notes a Read that is being sent. Call it in the order of the requests' MSNs, and only when
    /// [`can_issue`](Self::can_issue).
    pub fn issue_read(&mut self, id: u64, sink_stag: Stag, sink_to: u64, size: u32) {
        debug_assert!(self.can_issue(), "more Reads than ORD");
        self.requester.issue_read(id, sink_stag, sink_to, size);
    }

    /// Notes an atomic operation that is being sent, as [`issue_read`](Self::issue_read) does, and
    /// returns its Request Identifier.
    pub fn issue_atomic(&mut self, id: u64) -> u32 {
        debug_assert!(self.can_issue(), "more Reads and atomics than ORD");
        self.requester.issue_atomic(id)
    }

    /// Sets another ORD for requests from now on, as a ULP may ask for
    /// (draft-hilland-rddp-verbs §6.5).
    pub fn set_ord(&mut self, ord: u32) {
        self.requester.set_ord(ord);
    }

    /// Sets the Request Identifier of the next atomic operation; later ones count on from there.
    pub fn number_atomics_from(&mut self, request_id: u32) {
        self.requester.number_atomics_from(request_id);
    }

    /// Returns the number of this end's Reads and atomics without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requester.outstanding()
    }

    /// Returns the peer's request that is to be answered now: the same one until
    /// [`response_done`](Self::response_done).
    pub fn next_response(&mut self) -> Option<&mut Response> {
        self.responder.head()
    }

    /// Removes the peer's request whose last segment of the answer has gone to MPA, which frees its
    /// place among the IRD.
    pub fn response_done(&mut self) {
        self.responder.head_done();
    }

    /// Returns the number of the peer's requests that are queued or being answered.
    #[must_use]
    pub fn inbound(&self) -> usize {
        self.responder.len()
    }

    /// Checks version, opcode, queue, and T and QN of the opcode, in this order.
    #[inline]
    fn opcode(&self, header: &Header) -> Result<Opcode, Fault> {
        let octet = header.control();
        let version = octet >> control::VERSION_SHIFT;
        // RFC 5040 §4.1: version 1 is the one of the RFC.
        if version != 1 {
            return Err(Fault::Version { version });
        }
        let number = octet & control::OPCODE;
        let opcode = Opcode::from_number(number)
            .filter(|opcode| self.extensions || !opcode.is_extension())
            .ok_or(Fault::UnknownOpcode { opcode: number })?;
        if opcode.fits(header) {
            return Ok(opcode);
        }
        Err(self.misdirected(opcode, header))
    }

    #[cold]
    fn misdirected(&self, opcode: Opcode, header: &Header) -> Fault {
        let qn = match header {
            Header::Tagged(_) => None,
            Header::Untagged(header) => Some(header.qn),
        };
        match qn {
            _ if opcode == Opcode::Terminate => Fault::Terminate(TerminateFlaw::Misdirected(qn)),
            Some(qn) if qn.0 >= self.queues_there_are() => DdpError::InvalidQn { qn }.into(),
            qn => Fault::Misdirected { opcode, qn },
        }
    }

    fn queues_there_are(&self) -> u32 {
        if self.extensions { QUEUES } else { ATOMIC_RESPONSE_QUEUE.0 }
    }

    #[inline]
    fn accept_tagged(&self, opcode: Opcode, header: &TaggedRepr, len: usize) -> Result<Place, Fault> {
        self.tagged.check(header, len)?;
        if opcode == Opcode::ReadResponse {
            return self.requester.place(header, len);
        }
        if len == 0 {
            return Ok(Place::Nothing);
        }
        Ok(Place::Write { stag: header.stag, to: header.to })
    }

    #[inline]
    fn accept_untagged(
        &mut self,
        opcode: Opcode,
        header: &UntaggedRepr,
        len: usize,
        receive: &mut dyn FnMut() -> Option<u64>,
    ) -> Result<Place, Fault> {
        let queue = &self.queues[header.qn.0 as usize];
        queue.check_msn(header)?;
        // Messages that RDMAP reads itself need no buffer; their length is checked below.
        let no_limit = u64::from(u32::MAX);
        let buffer = match opcode {
            Opcode::ReadRequest | Opcode::AtomicRequest => {
                self.responder.check_room()?;
                no_limit
            }
            Opcode::AtomicResponse | Opcode::Terminate => no_limit,
            _ => {
                let buffer = take_receive(&mut self.receive, header, receive)?;
                // Immediate Data leaves the memory of its receive alone (RFC 7306 §6.1).
                if opcode.is_extension() { no_limit } else { buffer }
            }
        };
        queue.check_offset(header, len, buffer)?;
        let wanted = match opcode {
            Opcode::ReadRequest => ReadRequestRepr::LEN,
            Opcode::AtomicRequest => AtomicRequestRepr::LEN,
            Opcode::AtomicResponse => {
                self.requester.expects_atomic()?;
                AtomicResponseRepr::LEN
            }
            Opcode::Immediate | Opcode::ImmediateSolicited => IMMEDIATE_LEN,
            _ if len == 0 => return Ok(Place::Nothing),
            _ => return Ok(Place::Receive { mo: header.mo }),
        };
        if !header.last {
            return Err(Fault::NotLast { opcode });
        }
        if len != wanted {
            return Err(Fault::ControlLength { opcode, len });
        }
        Ok(Place::Control)
    }

    /// Accepts a Terminate. RFC 5040 §5.4: a stream always has space for its one Terminate.
    fn accept_terminate(&self, header: &UntaggedRepr, len: usize) -> Result<Place, Fault> {
        let queue = &self.queues[TERMINATE_QUEUE.0 as usize];
        let flaw = match queue.check_msn(header).and_then(|()| queue.check_offset(header, len, u64::MAX)) {
            Err(error) => TerminateFlaw::Ddp(error),
            Ok(()) if !header.last => TerminateFlaw::NotLast,
            Ok(()) if !(TERMINATE_MIN..=CONTROL_MAX).contains(&len) => TerminateFlaw::Length(len),
            Ok(()) => return Ok(Place::Control),
        };
        Err(Fault::Terminate(flaw))
    }

    #[inline]
    fn alive_opcode(&self, header: &Header) -> Option<Opcode> {
        if self.dead { None } else { self.opcode(header).ok() }
    }

    #[inline]
    fn commit_tagged(&mut self, opcode: Opcode, header: &TaggedRepr, len: usize) -> Event {
        self.tagged.commit(header, len);
        if opcode == Opcode::ReadResponse {
            return self.requester.placed(header, len);
        }
        if header.last { Event::WriteDone } else { Event::None }
    }

    #[inline]
    fn commit_untagged(
        &mut self,
        opcode: Opcode,
        header: &UntaggedRepr,
        len: usize,
        control: &[u8],
    ) -> Result<Event, Fault> {
        let Some(length) = self.queues[header.qn.0 as usize].commit(header, len) else {
            return Ok(Event::None);
        };
        let origin = *header;
        if header.qn == SEND_QUEUE {
            self.receive = None;
        }
        match opcode {
            Opcode::ReadRequest => {
                let request = ReadRequestRepr::parse(control)?;
                self.responder.queue(Response::Read(ReadResponse { request, done: 0, origin }));
                Ok(Event::InboundRequest)
            }
            Opcode::AtomicRequest => {
                let request = AtomicRequestRepr::parse(control)?;
                self.responder.queue(Response::Atomic(AtomicResponse { request, original: None, origin }));
                Ok(Event::InboundRequest)
            }
            Opcode::AtomicResponse => self.requester.answered(AtomicResponseRepr::parse(control)?),
            Opcode::Terminate => TerminateRepr::parse(control)
                .map(Event::Terminated)
                .ok_or(Fault::Terminate(TerminateFlaw::Length(control.len()))),
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                let data =
                    control.try_into().map_err(|_| Fault::ControlLength { opcode, len: control.len() })?;
                Ok(Event::Immediate { data, solicited: opcode.is_solicited() })
            }
            _ => Ok(Event::Received {
                length,
                invalidate: opcode.invalidates().then(|| invalidate_stag(header)),
                solicited: opcode.is_solicited(),
            }),
        }
    }
}

/// Returns the length of the receive for the message on queue 0; takes one if none is held.
#[inline]
fn take_receive(
    held: &mut Option<u64>,
    header: &UntaggedRepr,
    receive: &mut dyn FnMut() -> Option<u64>,
) -> Result<u64, DdpError> {
    if held.is_none() {
        *held = receive();
    }
    // RFC 5041 §7.1: a message without a buffer is a fault, even if it has no octets
    // (RFC 5040 §5.3).
    held.ok_or(DdpError::NoBuffer { qn: header.qn, msn: header.msn })
}

/// Returns the Invalidate STag field (RFC 5040 §4.1).
fn invalidate_stag(header: &UntaggedRepr) -> Stag {
    let [_, a, b, c, d] = header.rsvd_ulp;
    Stag(u32::from_be_bytes([a, b, c, d]))
}

const QUEUES: u32 = ATOMIC_RESPONSE_QUEUE.0 + 1;
const TERMINATE_MIN: usize = 4;

#[cfg(test)]
mod tests;
