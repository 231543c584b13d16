//! One end of a connection: sends its plan segment by segment, answers the other end,
//! and checks what arrives.

use std::collections::VecDeque;

use rddp_ddp::{Header, Stag, TaggedRepr, UntaggedRepr, cut};
use rddp_mpa::Framing;
use rddp_rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicRequestRepr, AtomicResponseRepr, Event, Opcode, OutstandingRequest, Place,
    REQUEST_QUEUE, ReadRequestRepr, Response, SEND_QUEUE, SendCounters, Stream, StreamConfig,
    TERMINATE_QUEUE, TerminateRepr, parse_header, tagged_header, untagged_header,
};
use rddp_test_support::{Fpdus, Random, segment};

use crate::plan::{BASE, COUNTERS, Delivery, Op, Plan, RECEIVE, SINK, WRITTEN};
use crate::support::{Guarded, Memory};

pub(crate) struct End {
    stream: Stream,
    config: StreamConfig,
    counters: SendCounters,
    fpdus: Fpdus,
    pub(crate) memory: Memory,
    /// Receives that messages have taken.
    receives: Vec<Guarded>,
    /// True if a message was taken over whose receive is the last of these.
    has_receive: bool,
    queue: VecDeque<Op>,
    /// The Send or Write that has begun, its header and the octets sent of it.
    open: Option<(Op, Header, u64)>,
    /// Deliveries that the peer's plan leads to at this end.
    expected: VecDeque<Delivery>,
    deliveries: usize,
    peer_written: Vec<u8>,
    peer_counters: Vec<u64>,
    peer_invalidated: Vec<Stag>,
    /// Reads and atomics that wait for their end, in order.
    waiting: VecDeque<Op>,
    pub(crate) terminated: Option<TerminateRepr>,
    /// Events other than `Event::None` so far.
    pub(crate) heard: usize,
}

impl End {
    pub(crate) fn new(config: StreamConfig, tx: Framing, rx: Framing, plan: Plan, peer: &Plan) -> Self {
        let mut memory = peer.memory();
        let sink = memory.add(SINK, BASE, plan.sink_len());
        (sink.read, sink.write) = (false, false);
        Self {
            stream: Stream::new(config),
            config,
            counters: SendCounters::new(),
            fpdus: Fpdus::new(tx, rx),
            memory,
            receives: Vec::new(),
            has_receive: false,
            queue: plan.ops.into(),
            open: None,
            expected: peer.deliveries.clone().into(),
            deliveries: peer.deliveries.len(),
            peer_written: peer.written.clone(),
            peer_counters: peer.counters.to_vec(),
            peer_invalidated: peer.invalidated.clone(),
            waiting: VecDeque::new(),
            terminated: None,
            heard: 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.open.is_none() && self.waiting.is_empty() && self.stream.inbound() == 0
    }

    /// Sends a segment if there is one, of an own message or of an answer.
    pub(crate) fn send(&mut self, random: &mut Random, wire: &mut Vec<u8>) {
        self.go_on_elsewhere(random);
        let mulpdu = 128 + random.below(1400);
        // One tagged message at a time; anything may be sent in the middle of an untagged one.
        let answering = matches!(self.stream.next_response(), Some(Response::Read(read)) if read.done > 0);
        let writing = matches!(self.open, Some((Op::Write { .. }, ..)));
        assert!(!(answering && writing));
        let write_is_next =
            writing || (self.open.is_none() && matches!(self.queue.front(), Some(Op::Write { .. })));
        match random.below(2) {
            0 if !(answering && write_is_next) => self.send_own(mulpdu, wire),
            _ if !writing => self.answer(mulpdu, wire),
            _ => {}
        }
    }

    fn send_own(&mut self, mulpdu: usize, wire: &mut Vec<u8>) {
        if self.open.is_none() && !self.begin(wire) {
            return;
        }
        let Some((op, header, offset)) = self.open.take() else { return };
        let (Op::Send { data, .. } | Op::Write { data, .. }) = &op else { unreachable!() };
        let cut = cut(data.len() as u64, offset, mulpdu, header.len());
        let header = match header {
            Header::Tagged(first) => TaggedRepr { last: cut.last, to: first.to + offset, ..first }.into(),
            Header::Untagged(first) => {
                Header::from(UntaggedRepr { last: cut.last, mo: offset as u32, ..first })
            }
        };
        self.emit(&header, &data[offset as usize..][..cut.len], wire);
        if !cut.last {
            let first = match header {
                Header::Tagged(header) => TaggedRepr { to: header.to - offset, ..header }.into(),
                header @ Header::Untagged(_) => header,
            };
            self.open = Some((op, first, offset + cut.len as u64));
        }
    }

    /// Begins the next operation; returns `false` if there is none or it has to wait. Short
    /// messages are sent at once.
    fn begin(&mut self, wire: &mut Vec<u8>) -> bool {
        let Some(op) = self.queue.front() else { return false };
        // RFC 5040 §6.1: with ORD requests outstanding this one waits, and so do all behind it.
        if matches!(op, Op::Read { .. } | Op::Atomic { .. }) && !self.stream.can_issue() {
            return false;
        }
        let op = self.queue.pop_front().unwrap();
        match &op {
            Op::Send { op: opcode, invalidate, .. } => {
                let msn = self.counters.next(SEND_QUEUE);
                let header = untagged_header(*opcode, *invalidate, msn, 0, false);
                self.open = Some((op, header, 0));
                return true;
            }
            Op::Write { to, .. } => {
                self.open = Some((op.clone(), tagged_header(Opcode::Write, WRITTEN, *to, false), 0));
                return true;
            }
            Op::Immediate { op, data } => {
                let header = untagged_header(*op, Stag(0), self.counters.next(SEND_QUEUE), 0, true);
                self.emit(&header, data, wire);
            }
            Op::Read { id, sink_to, src_stag, src_to, want } => {
                let size = want.len() as u32;
                self.stream.issue_read(*id, SINK, *sink_to, size);
                let (src_stag, src_to) = (*src_stag, *src_to);
                let read = ReadRequestRepr { sink_stag: SINK, sink_to: *sink_to, size, src_stag, src_to };
                let msn = self.counters.next(REQUEST_QUEUE);
                self.emit(&untagged_header(Opcode::ReadRequest, Stag(0), msn, 0, true), &read.octets(), wire);
                self.waiting.push_back(op);
            }
            Op::Atomic { id, to, op: what, .. } => {
                let request_id = self.stream.issue_atomic(*id);
                let request = AtomicRequestRepr { op: *what, request_id, stag: COUNTERS, to: *to };
                let msn = self.counters.next(REQUEST_QUEUE);
                let header = untagged_header(Opcode::AtomicRequest, Stag(0), msn, 0, true);
                self.emit(&header, &request.octets(), wire);
                self.waiting.push_back(op);
            }
        }
        assert!(self.stream.outstanding() <= self.config.ord as usize);
        false
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

    pub(crate) fn terminate(&mut self, terminate: &TerminateRepr, wire: &mut Vec<u8>) {
        let header =
            untagged_header(Opcode::Terminate, Stag(0), self.counters.next(TERMINATE_QUEUE), 0, true);
        self.emit(&header, &terminate.octets(), wire);
    }

    fn emit(&mut self, header: &Header, payload: &[u8], wire: &mut Vec<u8>) {
        wire.extend(self.fpdus.frame(&segment::ulpdu(header, payload)));
    }

    /// Takes octets from the wire, and every segment that they complete.
    pub(crate) fn receive(&mut self, random: &mut Random, octets: &[u8]) {
        self.fpdus.take(octets);
        while let Some(segment) = self.fpdus.next_ulpdu() {
            self.segment(random, &segment);
        }
    }

    fn segment(&mut self, random: &mut Random, segment: &[u8]) {
        self.go_on_elsewhere(random);
        let header = parse_header(segment).unwrap();
        let payload = &segment[header.len()..];
        // Sometimes the segment is looked at before all of it has arrived.
        for _ in 0..random.below(3) {
            self.accept(&header, payload.len());
        }
        let mut control = &[][..];
        match self.accept(&header, payload.len()) {
            Place::Nothing | Place::Dropped => {}
            Place::Write { stag, to } => self.memory.write(stag, to, payload).unwrap(),
            Place::Receive { mo } => self.receives.last_mut().unwrap().place(mo as usize, payload),
            Place::Sink { id, stag, to, offset } => {
                let Some(Op::Read { id: waiting, sink_to, .. }) = self.waiting.front() else {
                    panic!("no Read")
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

    /// Sometimes moves what is in progress to a new stream, by exported octets alone.
    fn go_on_elsewhere(&mut self, random: &mut Random) {
        if self.stream.is_dead() || random.below(4) > 0 {
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
                    panic!("no Read")
                };
                let at = (sink_to - BASE) as usize;
                let sink = &self.memory.region(SINK).memory.octets()[at..at + want.len()];
                assert_eq!((id, sink), (waiting, &want[..]));
            }
            Event::AtomicDone { id, original } => {
                let Some(Op::Atomic { id: waiting, want, .. }) = self.waiting.pop_front() else {
                    panic!("no atomic")
                };
                assert_eq!((id, original), (waiting, want));
            }
            Event::Terminated(terminate) => self.terminated = Some(terminate),
        }
    }

    /// Checks a delivery. RFC 5040 §5.5 rule 10: in order, and the octets of earlier Writes are
    /// there.
    fn check_delivery(&mut self, event: &Event) {
        let expected = self.expected.pop_front().unwrap();
        assert_eq!(*event, expected.event);
        let receive = self.receives.last().unwrap();
        assert_eq!(receive.octets()[..expected.data.len()], expected.data);
        receive.assert_guards();
        let written = self.memory.region(WRITTEN).memory.octets();
        assert_eq!(written[..expected.written], self.peer_written[..expected.written]);
        if let Event::Received { invalidate: Some(stag), .. } = event {
            self.memory.invalidate(*stag).unwrap();
        }
    }

    /// Checks that everything is as the peer's plan has it at the end, and that
    /// nothing else was touched.
    pub(crate) fn check(&mut self) {
        assert!(self.expected.is_empty() && self.fpdus.is_empty() && self.stream.is_between_messages());
        assert_eq!(self.receives.len(), self.deliveries, "one receive for each Send and each Immediate");
        self.memory.assert_guards();
        assert_eq!(self.memory.region(WRITTEN).memory.octets(), self.peer_written);
        let counters = self.memory.region(COUNTERS).memory.octets();
        let counters: Vec<u64> =
            counters.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(counters, self.peer_counters);
        for stag in self.peer_invalidated.clone() {
            assert!(!self.memory.region(stag).valid);
        }
    }
}
