//! One end of a connection: sends its operations segment by segment, answers the other end, and
//! checks what arrives.

use std::collections::VecDeque;

use rddp_ddp::{Header, Stag, TaggedRepr, UntaggedRepr, cut};
use rddp_mpa::Framing;
use rddp_rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicRequestRepr, AtomicResponseRepr, Event, Opcode, OutstandingRequest, Place,
    REQUEST_QUEUE, ReadRequestRepr, Response, SEND_QUEUE, SendCounters, Stream, StreamConfig,
    TERMINATE_QUEUE, TerminateRepr, parse_header, untagged_header,
};

use super::RECEIVE;
use super::memory::{Guarded, Memory};
use super::plan::{BASE, COUNTERS, Op, Outcome, SINK, WRITTEN, memory};
use crate::{Fpdus, segment};

/// An end of the connection: a stream with its framing and memory, and the outcome that it must
/// come to.
pub struct End {
    stream: Stream,
    config: StreamConfig,
    counters: SendCounters,
    fpdus: Fpdus,
    pub(super) memory: Memory,
    /// Octets of the regions for Writes and for Reads.
    pub(super) region: usize,
    /// Receives that messages have taken.
    receives: Vec<Guarded>,
    /// True if a message was taken over whose receive is the last of these.
    has_receive: bool,
    pub(super) queue: VecDeque<Op>,
    /// The message that is being sent, and the offset reached.
    open: Option<(Header, Vec<u8>, u64)>,
    /// Reads and atomics that wait for their end, in order.
    waiting: VecDeque<Op>,
    last_id: u64,
    pub(super) outcome: Outcome,
    pub(super) terminated: Option<TerminateRepr>,
    /// Events other than `Event::None` so far.
    pub(super) heard: usize,
    /// Looks at each segment before all of it has arrived.
    pub looks: usize,
}

impl End {
    pub(super) fn new(config: StreamConfig, tx: Framing, rx: Framing, region: usize) -> Self {
        Self {
            stream: Stream::new(config),
            config,
            counters: SendCounters::new(),
            fpdus: Fpdus::new(tx, rx),
            memory: memory(region),
            region,
            receives: Vec::new(),
            has_receive: false,
            queue: VecDeque::new(),
            open: None,
            waiting: VecDeque::new(),
            last_id: 0,
            outcome: Outcome::default(),
            terminated: None,
            heard: 0,
            looks: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.open.is_none() && self.waiting.is_empty() && self.stream.inbound() == 0
    }

    /// Sends a segment if there is one, of an own message or of an answer. Segments of tagged
    /// messages are not mixed; anything may be sent in the middle of an untagged one.
    pub(super) fn send(&mut self, answers: bool, mulpdu: usize, wire: &mut Vec<u8>) {
        let answering = matches!(self.stream.next_response(), Some(Response::Read(read)) if read.done > 0);
        let writing = matches!(self.open, Some((Header::Tagged(_), ..)));
        assert!(!(answering && writing));
        let write_is_next = self.open.is_none()
            && matches!(self.queue.front(), Some(Op::Message { first: Header::Tagged(_), .. }));
        let own_waits = answers || (answering && write_is_next);
        if !own_waits {
            self.send_own(mulpdu, wire);
        } else if !writing {
            self.answer(mulpdu, wire);
        }
    }

    fn send_own(&mut self, mulpdu: usize, wire: &mut Vec<u8>) {
        if self.open.is_none() && !self.begin(wire) {
            return;
        }
        let Some((first, data, offset)) = self.open.take() else { return };
        let cut = cut(data.len() as u64, offset, mulpdu, first.len());
        let header: Header = match first {
            Header::Tagged(first) => TaggedRepr { last: cut.last, to: first.to + offset, ..first }.into(),
            Header::Untagged(first) => UntaggedRepr { last: cut.last, mo: offset as u32, ..first }.into(),
        };
        self.emit(&header, &data[offset as usize..][..cut.len], wire);
        if !cut.last {
            self.open = Some((first, data, offset + cut.len as u64));
        }
    }

    /// Begins the next operation. Returns whether it is a message in segments.
    fn begin(&mut self, wire: &mut Vec<u8>) -> bool {
        // RFC 5040 §6.1: with ORD requests outstanding this one waits, and so do all behind it.
        let waits = matches!(self.queue.front(), Some(Op::Read { .. } | Op::Atomic { .. }));
        if waits && !self.stream.can_issue() {
            return false;
        }
        let Some(op) = self.queue.pop_front() else { return false };
        match op {
            Op::Message { first, data } => {
                let first = match first {
                    Header::Untagged(first) => {
                        UntaggedRepr { msn: self.counters.next(SEND_QUEUE), ..first }.into()
                    }
                    tagged @ Header::Tagged(_) => tagged,
                };
                self.open = Some((first, data, 0));
                return true;
            }
            Op::Read { id, sink_to, src: (src_stag, src_to), ref want } => {
                let size = want.len() as u32;
                self.stream.issue_read(id, SINK, sink_to, size);
                let read = ReadRequestRepr { sink_stag: SINK, sink_to, size, src_stag, src_to };
                self.request(Opcode::ReadRequest, &read.octets(), wire);
            }
            Op::Atomic { id, to, op, .. } => {
                let request_id = self.stream.issue_atomic(id);
                let request = AtomicRequestRepr { op, request_id, stag: COUNTERS, to };
                self.request(Opcode::AtomicRequest, &request.octets(), wire);
            }
        }
        self.waiting.push_back(op);
        assert!(self.stream.outstanding() <= self.config.ord as usize);
        false
    }

    fn request(&mut self, opcode: Opcode, payload: &[u8], wire: &mut Vec<u8>) {
        let msn = self.counters.next(REQUEST_QUEUE);
        self.emit(&untagged_header(opcode, Stag(0), msn, 0, true), payload, wire);
    }

    fn answer(&mut self, mulpdu: usize, wire: &mut Vec<u8>) {
        let (header, payload, last) = match self.stream.next_response() {
            None => return,
            Some(Response::Read(read)) => {
                let segment = read.segment(mulpdu);
                read.advance(segment.len);
                let source = read.request.src_stag;
                let payload = match read.request.size {
                    0 => Vec::new(),
                    _ => self.memory.read(source, segment.src_to, segment.len).unwrap(),
                };
                (segment.header, payload, segment.last)
            }
            Some(Response::Atomic(atomic)) => {
                let AtomicRequestRepr { op, request_id, stag, to } = atomic.request;
                let original = self.memory.atomic(stag, to, op).unwrap().unwrap();
                let msn = self.counters.next(ATOMIC_RESPONSE_QUEUE);
                let header = untagged_header(Opcode::AtomicResponse, Stag(0), msn, 0, true);
                (header, AtomicResponseRepr { request_id, original }.octets().to_vec(), true)
            }
        };
        self.emit(&header, &payload, wire);
        if last {
            self.stream.response_done();
        }
    }

    pub(super) fn terminate(&mut self, terminate: &TerminateRepr, wire: &mut Vec<u8>) {
        let msn = self.counters.next(TERMINATE_QUEUE);
        self.emit(&untagged_header(Opcode::Terminate, Stag(0), msn, 0, true), &terminate.octets(), wire);
    }

    fn emit(&mut self, header: &Header, payload: &[u8], wire: &mut Vec<u8>) {
        wire.extend(self.fpdus.frame(&segment::ulpdu(header, payload)));
    }

    /// Takes octets from the wire, and every segment that they complete.
    pub(super) fn receive(&mut self, octets: &[u8]) {
        self.fpdus.take(octets);
        while let Some(segment) = self.fpdus.next_ulpdu() {
            self.segment(&segment);
        }
    }

    fn segment(&mut self, segment: &[u8]) {
        let header = parse_header(segment).unwrap();
        let payload = &segment[header.len()..];
        for _ in 0..self.looks {
            self.accept(&header, payload.len());
        }
        let mut control = &[][..];
        match self.accept(&header, payload.len()) {
            Place::Nothing | Place::Dropped => {}
            Place::Write { stag, to } => self.memory.write(stag, to, payload).unwrap(),
            Place::Receive { mo } => self.receives.last_mut().unwrap().place(mo as usize, payload),
            Place::Sink { id, stag, to, offset } => {
                let Some(Op::Read { id: waiting, sink_to, .. }) = self.waiting.front() else {
                    panic!("no Read waits")
                };
                assert_eq!((id, stag, to), (*waiting, SINK, sink_to + u64::from(offset)));
                self.memory.region(SINK).memory.place((to - BASE) as usize, payload);
            }
            Place::Control => control = payload,
        }
        let event = self.stream.commit(&header, payload.len(), control).unwrap();
        assert!(self.stream.inbound() <= self.config.ird as usize);
        self.heard += usize::from(event != Event::None);
        self.event(event);
    }

    /// Moves what is in progress to a new stream, by exported octets alone.
    pub fn go_on_elsewhere(&mut self) {
        if self.stream.is_dead() {
            return;
        }
        let requests: Vec<_> = self.stream.requests().map(|request| request.octets()).collect();
        let responses: Vec<_> = self.stream.responses().map(Response::octets).collect();
        let mut fresh = Stream::new(self.config);
        let requests = requests.iter().map(|octets| OutstandingRequest::parse(octets).unwrap());
        fresh.take_over_requests(self.stream.open_tagged(), requests).unwrap();
        fresh.number_atomics_from(self.stream.next_request_id());
        fresh.take_over_responses(responses.iter().map(|octets| Response::parse(octets).unwrap())).unwrap();
        for qn in [SEND_QUEUE, REQUEST_QUEUE, TERMINATE_QUEUE, ATOMIC_RESPONSE_QUEUE] {
            fresh.take_over(qn, self.stream.queue(qn).clone());
        }
        self.has_receive |= self.stream.holds_receive();
        self.stream = fresh;
    }

    fn accept(&mut self, header: &Header, len: usize) -> Place {
        let (receives, has_receive) = (&mut self.receives, &mut self.has_receive);
        let mut receive = || {
            if !std::mem::take(has_receive) {
                receives.push(Guarded::new(RECEIVE));
            }
            Some(RECEIVE as u64)
        };
        self.stream.accept(header, len, &mut receive).unwrap()
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::None | Event::WriteDone | Event::InboundRequest => {}
            Event::Received { .. } | Event::Immediate { .. } => self.check_delivery(&event),
            Event::ReadDone { id } => {
                let Some(Op::Read { id: waiting, sink_to, want, .. }) = self.waiting.pop_front() else {
                    panic!("no Read waits")
                };
                let at = (sink_to - BASE) as usize;
                let sink = &self.memory.region(SINK).memory.octets()[at..at + want.len()];
                assert_eq!((id, sink), (waiting, &want[..]));
            }
            Event::AtomicDone { id, original } => {
                let Some(Op::Atomic { id: waiting, want, .. }) = self.waiting.pop_front() else {
                    panic!("no atomic waits")
                };
                assert_eq!((id, original), (waiting, want));
            }
            Event::Terminated(terminate) => self.terminated = Some(terminate),
        }
    }

    /// Checks a delivery. RFC 5040 §5.5 rule 10: in order, and the octets of earlier Writes are
    /// there.
    fn check_delivery(&mut self, event: &Event) {
        let expected = self.outcome.deliveries.pop_front().expect("a message that was submitted");
        assert_eq!(*event, expected.event);
        let receive = self.receives.last().unwrap();
        assert_eq!(receive.octets()[..expected.data.len()], expected.data);
        receive.assert_guards();
        let written = self.memory.region(WRITTEN).memory.octets();
        assert_eq!(written[..expected.written], self.outcome.written[..expected.written]);
        if let Event::Received { invalidate: Some(stag), .. } = event {
            self.memory.invalidate(*stag).unwrap();
        }
    }

    /// Checks that all outcomes have come about, and that nothing else was touched.
    pub(super) fn check(&mut self) {
        let outcome = &self.outcome;
        assert!(outcome.deliveries.is_empty() && self.fpdus.is_empty() && self.stream.is_between_messages());
        assert_eq!(self.receives.len(), outcome.receives, "one receive for each Send and each Immediate");
        self.memory.assert_guards();
        let (written, rest) = self.memory.region(WRITTEN).memory.octets().split_at(outcome.written.len());
        assert_eq!(written, outcome.written);
        assert!(rest.iter().all(|octet| *octet == 0));
        assert!(self.memory.region(SINK).memory.octets()[outcome.sunk..].iter().all(|octet| *octet == 0));
        let counters = self.memory.region(COUNTERS).memory.octets();
        assert_eq!(counters, outcome.counters.map(u64::to_le_bytes).concat());
        for stag in &outcome.invalidated {
            assert!(!self.memory.region(*stag).valid);
        }
    }
}
