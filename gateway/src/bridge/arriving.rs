//! FPDUs of the plain host become requests of the device.

use std::collections::VecDeque;

use rddp_iwarp::{Receive, Segment, Target, Trouble};
use rddp_rdma::{Completed, Operation, Remote, SendWr, Stag};
use rddp_rdmap::{AtomicOp, AtomicResponse, Fault, Offending, Opcode, Place, ReadRequestRepr, ReadResponse};

use super::Stop;
use super::shape::{Memory, PIECE, Posted, SINKS, Shape, longest, unknown};
use crate::ring::Ring;

/// Octets of an atomic's answer, and the alignment of its target.
const ATOMIC: usize = 8;

/// The last octets of Immediate Data by which rddp's library for verbs tells a Send's value from a
/// Write's: InfiniBand's are a Send's here.
const OF_SEND: [u8; 4] = *b"Send";

/// A request for the device, and what is to be known when it completes.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) request: SendWr,
    pub(super) posted: Posted,
}

/// Segments of a Write that lie one behind the other on both sides.
#[derive(Debug)]
struct Joined {
    remote: Remote,
    at: usize,
    len: usize,
    offending: Offending,
}

/// A Read or an atomic that waits for a place for its answer.
#[derive(Debug)]
enum Ask {
    Read { remote: Remote, left: u32, offending: Offending },
    Atomic { op: AtomicOp, remote: Remote, offending: Offending },
}

/// All that is on its way to the device.
#[derive(Debug)]
pub(super) struct Inbound {
    shape: Shape,
    pub(super) outgoing: Ring,
    pub(super) sinks: Ring,
    write: Option<Joined>,
    /// The place of the Send that is arriving.
    message: Option<usize>,
    pub(super) work: VecDeque<Work>,
    asks: VecDeque<Ask>,
    /// RFC 5044 §7.1.2: a responder sends nothing before it has a good FPDU.
    pub(super) may_send: bool,
}

impl Inbound {
    pub(super) fn new(shape: Shape, may_send: bool) -> Self {
        Inbound {
            shape,
            outgoing: Ring::new(0, shape.outgoing()),
            sinks: Ring::new(shape.outgoing(), SINKS),
            write: None,
            message: None,
            work: VecDeque::new(),
            asks: VecDeque::new(),
            may_send,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.outgoing.fits(longest(self.shape.max_message))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.write.is_none() && self.work.is_empty() && self.asks.is_empty()
    }

    /// Drops all requests that the device has not got.
    pub(super) fn forget_requests(&mut self) {
        (self.write, self.work, self.asks) = (None, VecDeque::new(), VecDeque::new());
    }

    fn push(&mut self, operation: Operation, posted: Posted, solicited: bool) {
        let request = SendWr::new(0, operation);
        let request = if solicited { request.solicited() } else { request };
        self.work.push_back(Work { request, posted });
    }

    /// Adds a segment of a Write. While one is open, the stream takes no segment but the next.
    fn write(&mut self, remote: Remote, payload: &[u8], offending: Offending, memory: &impl Memory) -> bool {
        if let Some(open) = &mut self.write
            && self.outgoing.grow(open.at, payload.len())
        {
            memory.write(open.at + open.len, payload);
            open.len += payload.len();
            return true;
        }
        self.close_write();
        let Some(at) = self.outgoing.take(payload.len()) else { return false };
        memory.write(at, payload);
        self.write = Some(Joined { remote, at, len: payload.len(), offending });
        true
    }

    /// Gives the Write to the device whose segments have been joined.
    pub(super) fn close_write(&mut self) {
        if let Some(Joined { remote, at, len, offending }) = self.write.take() {
            let gather = self.shape.piece(at, len).into();
            let posted = Posted { kind: Completed::Write, place: Some((at, len)), offending };
            self.push(Operation::Write { gather, remote }, posted, false);
        }
    }

    pub(super) fn send(
        &mut self,
        len: usize,
        invalidate: Option<Stag>,
        solicited: bool,
        offending: Offending,
    ) {
        let Some(at) = self.message.take() else { return };
        self.outgoing.shrink(at, len);
        let pieces = if len == 0 { Vec::new() } else { vec![self.shape.piece(at, len)] };
        let posted = Posted { kind: Completed::Send, place: Some((at, len)), offending };
        self.push(Operation::Send { gather: pieces.into(), invalidate }, posted, solicited);
    }

    /// Passes Immediate Data on: RFC 7306 §6.2 has eight octets, of which InfiniBand carries four.
    pub(super) fn immediate(
        &mut self,
        data: [u8; 8],
        solicited: bool,
        offending: Offending,
    ) -> Result<(), Stop> {
        if let Some(at) = self.message.take() {
            self.outgoing.free(at);
        }
        let [a, b, c, d, rest @ ..] = data;
        if rest != [0; 4] && rest != OF_SEND {
            let trouble = Trouble { fault: unknown(Opcode::Immediate), offending: Some(offending) };
            let what = "Immediate Data whose last four octets are not 0: InfiniBand carries the first four";
            return Err(Stop::Lacks { what, trouble: trouble.into() });
        }
        let data = [a, b, c, d, 0, 0, 0, 0];
        let posted = Posted { kind: Completed::Immediate, place: None, offending };
        self.push(Operation::Immediate { data }, posted, solicited);
        Ok(())
    }

    /// Asks for a Read: for one without octets, too, by which programs learn that their Writes are
    /// there.
    pub(super) fn read(&mut self, read: &ReadResponse) {
        let ReadRequestRepr { size, src_stag, src_to, .. } = read.request;
        let remote = Remote { stag: src_stag, to: src_to };
        self.asks.push_back(Ask::Read { remote, left: size, offending: read.offending() });
    }

    /// Asks for an atomic: of those with masks (RFC 7306 §5.1), only what InfiniBand's do.
    pub(super) fn atomic(&mut self, atomic: &AtomicResponse) -> Result<(), Trouble> {
        let (request, offending) = (atomic.request, atomic.offending());
        let is_plain = match request.op {
            // No mask is one field of 64 bits, and so is its highest bit.
            AtomicOp::FetchAdd { mask, .. } => mask & !(1 << 63) == 0,
            AtomicOp::CmpSwap { compare_mask, swap_mask, .. } => compare_mask & swap_mask == u64::MAX,
        };
        let fault = match request.to % ATOMIC as u64 {
            _ if !is_plain => unknown(Opcode::AtomicRequest),
            0 => {
                let remote = Remote { stag: request.stag, to: request.to };
                self.asks.push_back(Ask::Atomic { op: request.op, remote, offending });
                return Ok(());
            }
            // RFC 7306 §8.2
            _ => Fault::misaligned_atomic(),
        };
        Err(Trouble { fault, offending: Some(offending) })
    }

    /// Takes the next request: Reads and atomics behind all that came before them, and before what
    /// came after them only where there is room for the answer. RFC 5040 §5.5 leaves that open.
    pub(super) fn next(&mut self) -> Option<Work> {
        self.work.pop_front().or_else(|| self.next_ask())
    }

    fn next_ask(&mut self) -> Option<Work> {
        match *self.asks.front()? {
            Ask::Read { remote, left, offending } => {
                let len = (left as usize).min(PIECE);
                // One without octets has a place, too, by which its answer keeps its turn.
                let place = (self.sinks.take(len.max(1))?, len);
                if left as usize == len {
                    self.asks.pop_front();
                } else if let Some(Ask::Read { remote, left, .. }) = self.asks.front_mut() {
                    (*remote, *left) = (remote.at(len as u64), *left - len as u32);
                }
                let sink = self.shape.sink(place.0, len);
                let posted = Posted { kind: Completed::Read, place: Some(place), offending };
                Some(Work { request: SendWr::read(0, sink, remote), posted })
            }
            Ask::Atomic { op, remote, offending } => {
                let place = (self.sinks.take(ATOMIC)?, ATOMIC);
                self.asks.pop_front();
                let sink = self.shape.sink(place.0, ATOMIC);
                let request = match op {
                    AtomicOp::FetchAdd { add, .. } => SendWr::fetch_add(0, sink, remote, add),
                    AtomicOp::CmpSwap { compare, swap, .. } => {
                        SendWr::cmp_swap(0, sink, remote, compare, swap)
                    }
                };
                let posted = Posted { kind: Completed::FetchAdd, place: Some(place), offending };
                Some(Work { request, posted })
            }
        }
    }
}

/// The memory of what arrives.
pub(super) struct Arriving<'a, M> {
    pub(super) inbound: &'a mut Inbound,
    pub(super) memory: &'a M,
}

impl<M: Memory> Target for Arriving<'_, M> {
    fn note_good_fpdu(&mut self) {
        self.inbound.may_send = true;
    }

    fn receive(&mut self) -> Receive {
        let max = self.inbound.shape.max_message;
        self.inbound.message = self.inbound.outgoing.take(max);
        self.inbound.message.map_or(Receive::Missing, |_| Receive::Posted(max as u64))
    }

    fn place(&mut self, segment: &Segment, _skip: usize, payload: &[u8]) -> Result<(), Fault> {
        let offending = Offending::new(segment.header, segment.payload_len);
        let is_placed = match (segment.place, self.inbound.message) {
            (Place::Write { stag, to }, _) => {
                self.inbound.write(Remote { stag, to }, payload, offending, self.memory)
            }
            (Place::Receive { mo }, Some(at)) => {
                self.memory.write(at + mo as usize, payload);
                true
            }
            _ => false,
        };
        if is_placed { Ok(()) } else { Err(Fault::local_catastrophic()) }
    }
}
