//! Completions of the device become Sends, Immediate Data and Responses.

use std::collections::VecDeque;
use std::convert::Infallible;

use rddp_ddp::{Header, Msn, Stag, TaggedRepr, UntaggedRepr, cut};
use rddp_iwarp::{OwnMessage, Segments, Termination, Trouble, push_copied};
use rddp_mpa::{Framer, mulpdu};
use rddp_rdma::{Completion, RecvWr};
use rddp_rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicResponseRepr, Opcode, Response, SEND_QUEUE, SendCounters, Stream,
    TerminateCode, untagged_header,
};

use super::shape::{Memory, Shape, Terms};
use crate::ring::Ring;

/// Octets of FPDUs from which on a train waits until TCP has taken it.
const TRAIN: usize = 64 * 1024;

/// A message of the device's host.
#[derive(Debug)]
pub(super) struct Message {
    slot: u64,
    len: usize,
    done: usize,
    immediate: Option<[u8; 8]>,
    /// The message has begun to leave.
    msn: Option<Msn>,
}

impl Message {
    pub(super) fn of(completion: &Completion) -> Self {
        let &Completion { wr_id, byte_len, immediate, .. } = completion;
        Message { slot: wr_id, len: byte_len as usize, done: 0, immediate, msn: None }
    }
}

/// All that is on its way to the plain host.
#[derive(Debug)]
pub(super) struct Outbound {
    shape: Shape,
    framer: Framer,
    counters: SendCounters,
    emss: usize,
    mulpdu: usize,
    first: Option<OwnMessage>,
    pub(super) messages: VecDeque<Message>,
    /// Places of what the device has brought, in the order of the plain host's requests, and how
    /// many octets of the first one have left.
    pub(super) answers: VecDeque<(usize, usize)>,
    sent: usize,
    /// Receives whose messages have left.
    free: VecDeque<u64>,
    octets: u64,
}

impl Outbound {
    pub(super) fn new(terms: &Terms, shape: Shape) -> Self {
        let mut counters = SendCounters::new();
        if let Some(Header::Untagged(header)) = terms.first.as_ref().map(|first| first.header) {
            counters.next(header.qn);
        }
        Outbound {
            shape,
            framer: Framer::new(terms.tx),
            counters,
            emss: terms.emss,
            mulpdu: mulpdu(terms.emss, terms.tx.markers),
            first: terms.first,
            messages: VecDeque::new(),
            answers: VecDeque::new(),
            sent: 0,
            free: VecDeque::new(),
            octets: 0,
        }
    }

    pub(super) fn next_receive(&mut self) -> Option<RecvWr> {
        self.free.pop_front().map(|slot| self.shape.receive(slot))
    }

    pub(super) fn has_more(&self) -> bool {
        !self.messages.is_empty() || !self.answers.is_empty()
    }

    /// Returns the octets of payload that have left since the last call.
    pub(super) fn take_octets(&mut self) -> u64 {
        std::mem::take(&mut self.octets)
    }

    /// Appends FPDUs to an empty train: of messages and answers by turns. Returns whether TCP has
    /// to end its segment behind them: each is to begin with an FPDU (RFC 5044 §5.1). With markers,
    /// no attempt is made.
    pub(super) fn leave(
        &mut self,
        stream: &mut Stream,
        sinks: &mut Ring,
        train: &mut Vec<u8>,
        memory: &impl Memory,
    ) -> bool {
        if let Some(first) = self.first.take() {
            self.own(&first, train);
        }
        let is_aligned = !self.framer.framing().markers;
        let mut segments =
            if is_aligned { Segments::new(self.emss, train.len()) } else { Segments::default() };
        while train.len() < TRAIN {
            let answered = self.answer(stream, sinks, train, memory, &mut segments);
            let said = self.message(train, memory, &mut segments);
            if !answered && !said {
                break;
            }
        }
        segments.end_record(train.len())
    }

    pub(super) fn terminate(
        &mut self,
        trouble: &Trouble,
        may_send: bool,
        train: &mut Vec<u8>,
    ) -> Option<TerminateCode> {
        (self.first, self.messages, self.answers) = (None, VecDeque::new(), VecDeque::new());
        let termination = Termination::of(&trouble.fault, trouble.offending.as_ref(), may_send);
        let terminate = termination.terminate()?;
        self.own(&OwnMessage::terminate(&terminate), train);
        Some(terminate.code)
    }

    fn own(&mut self, message: &OwnMessage, train: &mut Vec<u8>) {
        self.push(train, &message.header, message.payload().len(), |at, into| {
            into.copy_from_slice(&message.payload()[at..at + into.len()]);
        });
    }

    fn push(
        &mut self,
        train: &mut Vec<u8>,
        header: &Header,
        len: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) {
        // A vector always has room.
        let _ = push_copied(train, &mut self.framer, header, len, |at, into| {
            fill(at, into);
            Ok::<(), Infallible>(())
        });
    }

    /// Appends a segment of the oldest message.
    fn message(&mut self, train: &mut Vec<u8>, memory: &impl Memory, segments: &mut Segments) -> bool {
        let Some(&Message { slot, len, done, immediate, msn }) = self.messages.front() else {
            return false;
        };
        let longest = segments.longest(self.mulpdu, UntaggedRepr::LEN + len - done);
        let cut = cut(len as u64, done as u64, longest, UntaggedRepr::LEN);
        let octets = immediate.map_or(cut.len, |data| data.len());
        if !segments.admit(self.framer.fpdu_len(UntaggedRepr::LEN + octets)) {
            return false;
        }
        let msn = msn.unwrap_or_else(|| self.counters.next(SEND_QUEUE));
        let is_last = if let Some(data) = immediate {
            let header = untagged_header(Opcode::Immediate, Stag(0), msn, 0, true);
            self.push(train, &header, data.len(), |at, into| {
                into.copy_from_slice(&data[at..at + into.len()]);
            });
            true
        } else {
            let header = untagged_header(Opcode::Send, Stag(0), msn, done as u32, cut.last);
            let from = self.shape.receive_at(slot) + done;
            self.push(train, &header, cut.len, |at, into| memory.read(from + at, into));
            self.octets += cut.len as u64;
            if let Some(message) = self.messages.front_mut() {
                (message.done, message.msn) = (done + cut.len, Some(msn));
            }
            cut.last
        };
        if is_last {
            self.messages.pop_front();
            self.free.push_back(slot);
        }
        true
    }

    /// Appends a segment of the answer that is due, if the device has brought octets of it.
    fn answer(
        &mut self,
        stream: &mut Stream,
        sinks: &mut Ring,
        train: &mut Vec<u8>,
        memory: &impl Memory,
        segments: &mut Segments,
    ) -> bool {
        let brought = self.answers.front().map(|&(at, len)| (at + self.sent, len - self.sent));
        match (stream.next_response(), brought) {
            (Some(Response::Read(read)), Some((from, len))) => {
                let rest = TaggedRepr::LEN + len.max(1);
                let segment = read.segment(segments.longest(self.mulpdu, rest).min(rest));
                if !segments.admit(self.framer.fpdu_len(TaggedRepr::LEN + segment.len)) {
                    return false;
                }
                read.advance(segment.len);
                self.push(train, &segment.header, segment.len, |at, into| memory.read(from + at, into));
                self.used(segment.len, sinks);
                if segment.last {
                    stream.response_done();
                }
            }
            (Some(Response::Atomic(atomic)), Some((from, len))) => {
                if !segments.admit(self.framer.fpdu_len(UntaggedRepr::LEN + AtomicResponseRepr::LEN)) {
                    return false;
                }
                let mut octets = [0; 8];
                memory.read(from, &mut octets);
                let original = u64::from_ne_bytes(octets);
                let request_id = atomic.request.request_id;
                let octets = AtomicResponseRepr { request_id, original }.octets();
                let msn = self.counters.next(ATOMIC_RESPONSE_QUEUE);
                let header = untagged_header(Opcode::AtomicResponse, Stag(0), msn, 0, true);
                self.push(train, &header, octets.len(), |at, into| {
                    into.copy_from_slice(&octets[at..at + into.len()]);
                });
                self.used(len, sinks);
                stream.response_done();
            }
            _ => return false,
        }
        true
    }

    /// Notes octets of the first answer that have left.
    fn used(&mut self, count: usize, sinks: &mut Ring) {
        self.octets += count as u64;
        self.sent += count;
        if let Some(&(at, len)) = self.answers.front()
            && self.sent == len
        {
            sinks.free(at);
            self.answers.pop_front();
            self.sent = 0;
        }
    }
}
