//! `rdmap_pair`: two streams with their framers and deframers, joined by octet streams that the
//! input cuts (RFC 5040 §5.5, RFC 5041 §5.4, RFC 5044 §6).
//!
//! The input says what the ends submit, when they send and how much of the wire is delivered. Both
//! ends keep to the protocols, so every message has to arrive: in order, whole, and in its place;
//! and no fault may be found.

use std::collections::VecDeque;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{Header, Stag, TaggedRepr, UntaggedRepr, cut};
use rddp_mpa::Framing;
use rddp_rdmap::{
    ATOMIC_RESPONSE_QUEUE, AtomicOp, AtomicRequestRepr, AtomicResponseRepr, Event, Opcode, Place,
    REQUEST_QUEUE, ReadRequestRepr, Response, SEND_QUEUE, SendCounters, Stream, StreamConfig,
    TERMINATE_QUEUE, TerminateCode, TerminateRepr, parse_header, tagged_header, untagged_header,
};
use rddp_test_support::{Fpdus, segment};

use crate::input::{Tail, choice, inputs};

inputs! {
    /// A connection, and the events on it.
    pub struct Input {
        /// CRC and markers of each direction.
        framing: u8,
        /// Reads and atomics at a time, four bits for each end.
        depth: u8,
        /// The events.
        steps: Tail<Step, 150>,
    }
}

choice! {
    /// An event.
    pub enum Step {
        /// An end submits an operation.
        Submit { end: bool, work: Work },
        /// An end sends a segment, of a message of its own or of a Response.
        Send { end: bool, answers: bool, mulpdu: u16 },
        /// Octets arrive at an end.
        Deliver { end: bool, octets: u16 },
        /// An end ends the connection by a Terminate.
        Terminate { end: bool },
    }
}

choice! {
    /// An operation.
    pub enum Work {
        /// Any of the four Sends.
        Send { variant: u8, len: u16 },
        /// A Write behind what was written before.
        Write { len: u16 },
        /// A Read of a pattern, or of what was written before.
        Read { written: bool, at: u16, len: u16 },
        /// A FetchAdd on one of eight counters.
        FetchAdd { at: u8, add: u64, mask: u64 },
        /// A CmpSwap whose comparison succeeds or fails as chosen.
        CmpSwap { at: u8, equal: bool, swap: u64, swap_mask: u64 },
        /// Immediate Data, with or without an event.
        Immediate { solicited: bool, data: u64 },
    }
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let mut pair = Pair::new(&input);
    for step in &input.steps.0 {
        match step {
            Step::Submit { end, work } => pair.submit(usize::from(*end), work),
            Step::Send { end, answers, mulpdu } => {
                pair.send(usize::from(*end), *answers, 128 + usize::from(mulpdu % 1400));
            }
            Step::Deliver { end, octets } => pair.deliver(usize::from(*end), (*octets).into()),
            Step::Terminate { end } => return pair.terminate(usize::from(*end)),
        }
    }
    pair.finish();
}

const WRITTEN: Stag = Stag(0x0101_0101);
const PATTERN: Stag = Stag(0x0202_0202);
const COUNTERS: Stag = Stag(0x0303_0303);
const SINK: Stag = Stag(0x0404_0404);
/// The TO of every region: sums with it pass 2^32, and come near 2^64.
const BASE: u64 = 0xffff_ffff_0000_0000;
const RECEIVE: usize = 3500;
const REGION: usize = 1 << 14;

/// An operation that waits to be sent, with its expected outcome.
#[derive(Clone, Debug)]
enum Op {
    Message { first: Header, data: Vec<u8> },
    Read { sink_to: u64, src: (Stag, u64), want: Vec<u8> },
    Atomic { to: u64, op: AtomicOp, want: u64 },
}

/// A message that the other end has to receive on queue 0.
struct Delivery {
    event: Event,
    data: Vec<u8>,
    /// Octets that were written before.
    written: usize,
}

struct End {
    stream: Stream,
    config: StreamConfig,
    counters: SendCounters,
    fpdus: Fpdus,
    queue: VecDeque<Op>,
    /// The message that is being sent, and the offset reached.
    open: Option<(Header, Vec<u8>, u64)>,
    /// Reads and atomics that wait for their Responses.
    waiting: VecDeque<(u64, Op)>,
    next_id: u64,
    /// Messages submitted to each queue.
    submitted: SendCounters,
    sunk: usize,
    /// Own memory.
    written: Vec<u8>,
    words: [u64; 8],
    sink: Vec<u8>,
    receive: Vec<u8>,
    /// The expected end of what the peer has submitted.
    expected: VecDeque<Delivery>,
    peer_written: Vec<u8>,
    peer_words: [u64; 8],
    terminated: bool,
}

struct Pair {
    ends: [End; 2],
    /// Octets that are on their way to each end.
    wires: [Vec<u8>; 2],
}

impl Pair {
    fn new(input: &Input) -> Self {
        let bit = |at: u8| input.framing >> at & 1 == 1;
        let framing = [Framing { crc: bit(0), markers: bit(1) }, Framing { crc: bit(2), markers: bit(3) }];
        let depth = [u32::from(input.depth & 3) + 1, u32::from(input.depth >> 4 & 3) + 1];
        let end = |number: usize| {
            End::new(
                StreamConfig { ord: depth[number], ird: depth[1 - number], extensions: true },
                framing,
                number,
            )
        };
        Pair { ends: [end(0), end(1)], wires: Default::default() }
    }

    /// Queues an operation at one end, and its outcome at the other.
    fn submit(&mut self, number: usize, work: &Work) {
        let [first, second] = &mut self.ends;
        let (end, peer) = if number == 0 { (first, second) } else { (second, first) };
        end.submit(peer, work);
    }

    fn send(&mut self, end: usize, answers: bool, mulpdu: usize) {
        self.ends[end].send(answers, mulpdu, &mut self.wires[1 - end]);
    }

    fn deliver(&mut self, end: usize, octets: usize) {
        let count = octets.min(self.wires[end].len());
        let octets: Vec<u8> = self.wires[end].drain(..count).collect();
        self.ends[end].receive(&octets);
    }

    /// The other end receives the Terminate, and nothing that is sent behind it (RFC 5040 §5.4).
    fn terminate(&mut self, number: usize) {
        let other = 1 - number;
        let terminate = TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC);
        let end = &mut self.ends[number];
        let msn = end.counters.next(TERMINATE_QUEUE);
        let header = untagged_header(Opcode::Terminate, Stag(0), msn, 0, true);
        end.emit(&header, &terminate.octets(), &mut self.wires[other]);
        self.deliver(other, usize::MAX);
        assert!(self.ends[other].terminated);
        let heard = self.ends[other].expected.len();
        let memory = self.ends[other].written.clone();
        (0..20).for_each(|at| self.send(number, at % 2 == 0, 1000));
        self.deliver(other, usize::MAX);
        assert_eq!((heard, &memory), (self.ends[other].expected.len(), &self.ends[other].written));
    }

    /// Sends and delivers everything.
    fn finish(&mut self) {
        for round in 0..20_000 {
            for end in 0..2 {
                self.send(end, round % 2 == 0, 1456);
                self.deliver(end, usize::MAX);
            }
            if self.wires.iter().all(Vec::is_empty) && self.ends.iter().all(End::is_done) {
                self.ends.iter().for_each(End::check);
                return;
            }
        }
        panic!("the two never come to an end");
    }
}

impl End {
    fn new(config: StreamConfig, framing: [Framing; 2], number: usize) -> Self {
        End {
            stream: Stream::new(config),
            config,
            counters: SendCounters::new(),
            fpdus: Fpdus::new(framing[number], framing[1 - number]),
            queue: VecDeque::new(),
            open: None,
            waiting: VecDeque::new(),
            next_id: 7,
            submitted: SendCounters::new(),
            sunk: 0,
            written: vec![0; REGION],
            words: [0; 8],
            sink: vec![0; REGION],
            receive: vec![0; RECEIVE],
            expected: VecDeque::new(),
            peer_written: Vec::new(),
            peer_words: [0; 8],
            terminated: false,
        }
    }

    fn submit(&mut self, peer: &mut End, work: &Work) {
        let op = match *work {
            Work::Send { variant, len } => self.submit_send(peer, variant, usize::from(len) % (RECEIVE + 1)),
            Work::Write { len } => {
                let len = usize::from(len).min(REGION - peer.peer_written.len());
                let to = BASE + peer.peer_written.len() as u64;
                let data = octets(len, to);
                peer.peer_written.extend(&data);
                Op::Message { first: tagged_header(Opcode::Write, WRITTEN, to, false), data }
            }
            Work::Read { written, at, len } => {
                let source = if written { &peer.peer_written } else { &*SOURCE };
                let at = usize::from(at).min(source.len());
                let len = usize::from(len).min(source.len() - at).min(REGION - self.sunk);
                let want = source[at..at + len].to_vec();
                let sink_to = BASE + self.sunk as u64;
                self.sunk += len;
                Op::Read { sink_to, src: (if written { WRITTEN } else { PATTERN }, BASE + at as u64), want }
            }
            Work::FetchAdd { at, add, mask } => atomic(peer, at, AtomicOp::FetchAdd { add, mask }),
            Work::CmpSwap { at, equal, swap, swap_mask } => {
                let compare = peer.peer_words[usize::from(at % 8)] ^ u64::from(!equal);
                atomic(peer, at, AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask: u64::MAX })
            }
            Work::Immediate { solicited, data } => {
                let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                let data = data.to_be_bytes();
                let written = peer.peer_written.len();
                let event = Event::Immediate { data, solicited };
                peer.expected.push_back(Delivery { event, data: Vec::new(), written });
                let msn = self.submitted.next(SEND_QUEUE);
                Op::Message { first: untagged_header(opcode, Stag(0), msn, 0, false), data: data.to_vec() }
            }
        };
        self.queue.push_back(op);
    }

    fn submit_send(&mut self, peer: &mut End, variant: u8, len: usize) -> Op {
        let opcode =
            [Opcode::Send, Opcode::SendInvalidate, Opcode::SendSolicited, Opcode::SendSolicitedInvalidate]
                [usize::from(variant % 4)];
        let stag = Stag(u32::from(variant) << 8);
        let msn = self.submitted.next(SEND_QUEUE);
        let data = octets(len, msn.0.into());
        let event = Event::Received {
            length: len as u32,
            invalidate: opcode.invalidates().then_some(stag),
            solicited: opcode.is_solicited(),
        };
        let written = peer.peer_written.len();
        peer.expected.push_back(Delivery { event, data: data.clone(), written });
        Op::Message { first: untagged_header(opcode, stag, msn, 0, false), data }
    }

    fn is_done(&self) -> bool {
        self.queue.is_empty() && self.open.is_none() && self.waiting.is_empty() && self.stream.inbound() == 0
    }

    /// Sends one segment, if there is one. Segments of tagged messages are not mixed.
    fn send(&mut self, answers: bool, mulpdu: usize, wire: &mut Vec<u8>) {
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
        let id = self.next_id;
        self.next_id += 1;
        match &op {
            Op::Message { first, data } => {
                self.open = Some((*first, data.clone(), 0));
                return true;
            }
            Op::Read { sink_to, src: (src_stag, src_to), want } => {
                let (sink_to, src_stag, src_to, size) = (*sink_to, *src_stag, *src_to, want.len() as u32);
                self.stream.issue_read(id, SINK, sink_to, size);
                let read = ReadRequestRepr { sink_stag: SINK, sink_to, size, src_stag, src_to };
                self.request(Opcode::ReadRequest, &read.octets(), wire);
            }
            Op::Atomic { to, op, .. } => {
                let request_id = self.stream.issue_atomic(id);
                let request = AtomicRequestRepr { op: *op, request_id, stag: COUNTERS, to: *to };
                self.request(Opcode::AtomicRequest, &request.octets(), wire);
            }
        }
        self.waiting.push_back((id, op));
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
                let source = if read.request.src_stag == WRITTEN { &self.written } else { &*SOURCE };
                let at = (segment.src_to - BASE) as usize;
                (segment.header, source[at..at + segment.len].to_vec(), segment.last)
            }
            Some(Response::Atomic(atomic)) => {
                let AtomicRequestRepr { op, request_id, to, .. } = atomic.request;
                let word = &mut self.words[((to - BASE) / 8) as usize];
                let original = *word;
                *word = op.apply(original).unwrap_or(original);
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

    fn emit(&mut self, header: &Header, payload: &[u8], wire: &mut Vec<u8>) {
        wire.extend(self.fpdus.frame(&segment::ulpdu(header, payload)));
    }

    fn receive(&mut self, octets: &[u8]) {
        self.fpdus.take(octets);
        while let Some(segment) = self.fpdus.next_ulpdu() {
            self.segment(&segment);
        }
    }

    fn segment(&mut self, segment: &[u8]) {
        let header = parse_header(segment).unwrap();
        let payload = &segment[header.len()..];
        let receive = &mut self.receive;
        let place = self.stream.accept(&header, payload.len(), &mut || {
            receive.fill(0);
            Some(RECEIVE as u64)
        });
        let mut control = &[][..];
        let (target, at) = match place.unwrap() {
            Place::Nothing | Place::Dropped => (&mut self.receive, 0),
            Place::Write { stag: WRITTEN, to } => (&mut self.written, (to - BASE) as usize),
            Place::Receive { mo } => (&mut self.receive, mo as usize),
            Place::Sink { stag: SINK, to, .. } => (&mut self.sink, (to - BASE) as usize),
            Place::Control => {
                control = payload;
                (&mut self.receive, 0)
            }
            place => panic!("{place:?}"),
        };
        if control.is_empty() && !self.stream.is_dead() {
            target[at..at + payload.len()].copy_from_slice(payload);
        }
        let event = self.stream.commit(&header, payload.len(), control).unwrap();
        assert!(self.stream.inbound() <= self.config.ird as usize);
        self.event(&event);
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::None | Event::WriteDone | Event::InboundRequest => {}
            Event::Received { .. } | Event::Immediate { .. } => {
                let delivery = self.expected.pop_front().expect("a message that was submitted");
                assert_eq!(*event, delivery.event);
                assert_eq!(self.receive[..delivery.data.len()], delivery.data);
                // RFC 5040 §5.5: what was written before has been placed.
                assert_eq!(self.written[..delivery.written], self.peer_written[..delivery.written]);
            }
            Event::ReadDone { id } => {
                let Some((waiting, Op::Read { sink_to, want, .. })) = self.waiting.pop_front() else {
                    panic!("no Read waits")
                };
                let at = (sink_to - BASE) as usize;
                assert_eq!((*id, &self.sink[at..at + want.len()]), (waiting, &want[..]));
            }
            Event::AtomicDone { id, original } => {
                let Some((waiting, Op::Atomic { want, .. })) = self.waiting.pop_front() else {
                    panic!("no atomic waits")
                };
                assert_eq!((*id, *original), (waiting, want));
            }
            Event::Terminated(_) => self.terminated = true,
        }
    }

    /// Checks that memory is as the peer submitted it, and otherwise unchanged.
    fn check(&self) {
        assert!(self.expected.is_empty() && self.fpdus.is_empty() && self.stream.is_between_messages());
        let (written, rest) = self.written.split_at(self.peer_written.len());
        assert_eq!(written, self.peer_written);
        assert!(rest.iter().chain(&self.sink[self.sunk..]).all(|octet| *octet == 0));
        assert_eq!(self.words, self.peer_words);
    }
}

fn atomic(peer: &mut End, at: u8, op: AtomicOp) -> Op {
    let word = &mut peer.peer_words[usize::from(at % 8)];
    let want = *word;
    *word = op.apply(want).unwrap_or(want);
    Op::Atomic { to: BASE + 8 * u64::from(at % 8), op, want }
}

fn octets(len: usize, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + seed + 1) as u8).collect()
}

/// Returns the octets that a Read should return.
static SOURCE: LazyLock<Vec<u8>> = LazyLock::new(|| (0..2048).map(|at| (at * 7 + at / 256) as u8).collect());
