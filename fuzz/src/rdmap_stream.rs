//! `rdmap_stream`: any headers and lengths through a stream's `accept` and `commit` (RFC 5040
//! chapters 5 to 7, RFC 5041 §7.1, RFC 7306).
//!
//! The stream never panics. A stream that has ended stays ended. No payload is placed outside the
//! memory that was granted for it. Reads and atomics complete in the order in which they were
//! issued. At most IRD requests of the peer are queued.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{Header, Msn, Qn, Stag, TaggedRepr, UntaggedRepr};
use rddp_rdmap::{
    CONTROL_MAX, Event, Fault, Offending, Place, Response, Stream, StreamConfig, TerminateRepr, parse_header,
    terminate_for,
};

use crate::input::{Octets, Tail, choice, inputs};

inputs! {
    /// A stream, and the events on it.
    pub struct Input {
        /// Inbound Reads at a time.
        ird: u8,
        /// Outbound Reads at a time.
        ord: u8,
        /// RFC 7306 is used.
        extensions: bool,
        /// The distance of the queues from the wrap of MSN, in messages.
        near_wrap: Option<u8>,
        /// The events.
        steps: Tail<Step, 300>,
    }
}

choice! {
    /// An event.
    pub enum Step {
        /// An untagged segment that its queue waits for, changed by what is added to it.
        Untagged { opcode: u8, last: bool, len: u16, off: u8, msn: u32, mo: u32, payload: Octets },
        /// A tagged segment that continues the open message or answers a Read, changed by what is
        /// added to it.
        Tagged { opcode: u8, last: bool, len: u16, off: u8, stag: u32, to: u64 },
        /// Any octets as a segment.
        Raw { octets: Octets },
        /// A receive is posted.
        Post { len: u16 },
        /// This end issues a Read.
        Read { stag: u32, to: u64, size: u16 },
        /// This end issues an atomic operation.
        Atomic {},
        /// The peer's next request is answered.
        Answer { mulpdu: u16 },
        /// This end ends the stream.
        Fail {},
    }
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let mut model = Model::new(&input);
    for step in &input.steps.0 {
        model.step(step);
    }
}

/// A Read or atomic of this end that waits for its Response.
enum Waiting {
    Read { id: u64, stag: Stag, to: u64, size: u32, done: u32 },
    Atomic { id: u64, request_id: u32 },
}

struct Model {
    stream: Stream,
    config: StreamConfig,
    /// Lengths of receives.
    posted: VecDeque<u64>,
    /// The receive of the open message on queue 0.
    receive: Option<u64>,
    waiting: VecDeque<Waiting>,
    next_id: u64,
    next_msn: [Msn; 4],
    next_mo: [u32; 4],
    /// The STag of the open tagged message, and the TO where it continues.
    open: Option<(Stag, u64)>,
    dead: bool,
}

impl Model {
    fn new(input: &Input) -> Self {
        let config = StreamConfig {
            ird: u32::from(input.ird % 5),
            ord: u32::from(input.ord % 5),
            extensions: input.extensions,
        };
        let mut stream = Stream::new(config);
        let mut next_msn = [Msn::FIRST; 4];
        if let Some(near) = input.near_wrap {
            for qn in [0, 1, 3] {
                next_msn[qn] = Msn(u32::MAX - u32::from(near % 4));
                stream.expect_msn(Qn(qn as u32), next_msn[qn]);
            }
        }
        Model {
            stream,
            config,
            posted: VecDeque::new(),
            receive: None,
            waiting: VecDeque::new(),
            next_id: 100,
            next_msn,
            next_mo: [0; 4],
            open: None,
            dead: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Untagged { opcode, last, len, off, msn, mo, payload } => {
                let header = self.untagged(*opcode, *last, *off, *msn, *mo);
                let payload = self.payload(*opcode, *len, &payload.0);
                self.segment(&header, &payload);
            }
            Step::Tagged { opcode, last, len, off, stag, to } => {
                let (header, len) = self.tagged(*opcode, *last, *len, *off, *stag, *to);
                self.segment(&header, &vec![0; len]);
            }
            Step::Raw { octets } => match parse_header(&octets.0) {
                Ok(header) => self.segment(&header, &octets.0[header.len()..]),
                Err(fault) => self.fault(&fault, None),
            },
            Step::Post { len } => self.posted.push_back((*len).into()),
            Step::Read { stag, to, size } => self.read(Stag(*stag), *to, (*size).into()),
            Step::Atomic {} => self.atomic(),
            Step::Answer { mulpdu } => self.answer((*mulpdu).into()),
            Step::Fail {} => self.fail(),
        }
        assert!(self.stream.inbound() <= self.config.ird as usize);
        assert_eq!(self.stream.outstanding(), self.waiting.len());
        assert_eq!(self.stream.is_dead(), self.dead);
    }

    fn fail(&mut self) {
        self.stream.fail();
        self.dead = true;
    }

    fn untagged(&self, opcode: u8, last: bool, off: u8, msn: u32, mo: u32) -> Header {
        let opcode = opcode & 0xf;
        let right = match opcode {
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        let qn = if off & 1 != 0 { u32::from(off >> 5) } else { right };
        let at = qn as usize % 4;
        let due = self.next_msn[at].0;
        let msn = if off & 2 != 0 { due.wrapping_add(msn) } else { due };
        let mo = if off & 4 != 0 { self.next_mo[at].wrapping_add(mo) } else { self.next_mo[at] };
        let version = if off & 8 != 0 { 0x80 } else { 0x40 };
        let [a, b, c, d] = mo.to_be_bytes();
        UntaggedRepr { last, rsvd_ulp: [version | opcode, a, b, c, d], qn: Qn(qn), msn: Msn(msn), mo }.into()
    }

    /// Returns a payload of these octets: of the length that the opcode's message must have, if it
    /// must have one, and for an Atomic Response mostly with the identifier of the request that
    /// waits.
    fn payload(&self, opcode: u8, len: u16, octets: &[u8]) -> Vec<u8> {
        let len = match opcode & 0xf {
            _ if len & 0x8000 != 0 => usize::from(len & 0x7fff),
            1 => 28,
            8 | 9 => 8,
            10 => 52,
            11 => 12,
            7 => 4 + usize::from(len % 64),
            _ => usize::from(len % 2000),
        };
        let mut payload = octets.to_vec();
        payload.resize(len, 0);
        if let (11, Some(Waiting::Atomic { request_id, .. })) = (opcode & 0xf, self.waiting.front())
            && len == 12
            && payload[4] & 1 == 0
        {
            payload[..4].copy_from_slice(&request_id.to_be_bytes());
        }
        payload
    }

    fn tagged(&self, opcode: u8, last: bool, len: u16, off: u8, stag: u32, to: u64) -> (Header, usize) {
        let opcode = if off & 1 != 0 { opcode & 0xf } else { (opcode & 1) * 2 };
        let mut len = usize::from(len % 3000);
        let (mut due_stag, mut due_to) = self.open.unwrap_or((Stag(stag), to));
        let mut last = last;
        if let (2, Some(Waiting::Read { stag, to, size, done, .. })) = (opcode, self.waiting.front()) {
            (due_stag, due_to) = (*stag, to.wrapping_add((*done).into()));
            if off & 8 == 0 {
                len = len.min((size - done) as usize);
                last = len == (size - done) as usize;
            }
        }
        let stag = if off & 2 != 0 { Stag(stag) } else { due_stag };
        let to = if off & 4 != 0 { due_to.wrapping_add(to) } else { due_to };
        let version = if off & 16 != 0 { 0 } else { 0x40 };
        (TaggedRepr { last, rsvd_ulp: version | opcode, stag, to }.into(), len)
    }

    fn segment(&mut self, header: &Header, payload: &[u8]) {
        let len = payload.len();
        let (mut asked, had) = (0, self.receive);
        let accepted = {
            let (posted, receive) = (&mut self.posted, &mut self.receive);
            self.stream.accept(header, len, &mut || {
                asked += 1;
                *receive = posted.pop_front();
                *receive
            })
        };
        assert!(asked <= 1 && (asked == 0 || had.is_none()), "one receive for one message");
        assert_eq!(self.stream.holds_receive(), self.receive.is_some());
        if self.dead {
            assert_eq!((asked, accepted), (0, Ok(Place::Dropped)));
            assert_eq!(self.stream.commit(header, len, payload), Ok(Event::None));
            return;
        }
        // A segment may be presented again, with the same result. The receive that it took the
        // first time is still at hand, so none is taken.
        if self.receive.is_some() || accepted.is_ok() {
            assert_eq!(self.stream.accept(header, len, &mut || panic!("a second receive")), accepted);
        }
        match accepted {
            Ok(place) => {
                self.check_place(place, header, len);
                let control = if place == Place::Control { payload } else { &[] };
                match self.stream.commit(header, len, control) {
                    Ok(event) => self.event(&event, header, len),
                    Err(fault) => {
                        self.dead = true;
                        self.fault(&fault, Some((header, len)));
                    }
                }
            }
            Err(fault) => {
                assert!(!self.stream.is_dead(), "a fault from accept alone kills nothing");
                self.fault(&fault, Some((header, len)));
                self.fail();
            }
        }
    }

    /// Checks that a payload is placed only where a place was granted.
    fn check_place(&self, place: Place, header: &Header, len: usize) {
        match place {
            Place::Nothing => assert_eq!(len, 0),
            Place::Write { stag, to } => {
                let Header::Tagged(header) = header else { panic!("an untagged Write") };
                assert_eq!((stag, to), (header.stag, header.to));
                assert_ne!(len, 0);
            }
            Place::Receive { mo } => {
                assert!(u64::from(mo) + len as u64 <= self.receive.expect("a receive"));
                assert_eq!(mo, self.next_mo[0]);
            }
            Place::Sink { id, stag, to, offset } => {
                let Some(Waiting::Read { id: due, stag: sink, to: base, size, done }) = self.waiting.front()
                else {
                    panic!("no Read waits")
                };
                assert_eq!((id, stag, offset), (*due, *sink, *done));
                assert_eq!(to, base.wrapping_add((*done).into()));
                assert!(u64::from(offset) + len as u64 <= u64::from(*size));
            }
            Place::Control => assert!(len <= CONTROL_MAX && header.last()),
            Place::Dropped => panic!("the stream is alive"),
        }
    }

    fn event(&mut self, event: &Event, header: &Header, len: usize) {
        match header {
            Header::Tagged(header) => self.tagged_event(event, header, len),
            Header::Untagged(header) => self.untagged_event(event, header, len),
        }
    }

    fn tagged_event(&mut self, event: &Event, header: &TaggedRepr, len: usize) {
        self.open = match (header.last, len, self.open) {
            (true, ..) => None,
            (false, 0, open) => open,
            (false, ..) => Some((header.stag, header.to.wrapping_add(len as u64))),
        };
        if header.rsvd_ulp & 0xf == 0 {
            assert_eq!(*event, if header.last { Event::WriteDone } else { Event::None });
            return;
        }
        let Some(Waiting::Read { id, size, done, .. }) = self.waiting.front_mut() else {
            panic!("a Read Response that nobody asked for");
        };
        *done += len as u32;
        if header.last {
            assert_eq!(done, size, "a Read is done when all of it is there");
            assert_eq!(*event, Event::ReadDone { id: *id });
            self.waiting.pop_front();
        } else {
            assert_eq!(*event, Event::None);
        }
    }

    fn untagged_event(&mut self, event: &Event, header: &UntaggedRepr, len: usize) {
        let qn = header.qn.0 as usize;
        assert_eq!((header.msn, header.mo), (self.next_msn[qn], self.next_mo[qn]));
        if !header.last {
            assert_eq!(*event, Event::None);
            self.next_mo[qn] += len as u32;
            return;
        }
        let length_now = self.next_mo[qn] + len as u32;
        (self.next_msn[qn], self.next_mo[qn]) = (header.msn.next(), 0);
        match event {
            Event::Received { length, .. } => {
                assert_eq!(*length, length_now);
                assert!(u64::from(*length) <= self.receive.take().expect("a receive"));
            }
            Event::Immediate { .. } => {
                assert!(self.config.extensions && len == 8);
                self.receive.take().expect("a receive");
            }
            Event::InboundRequest => assert_eq!(qn, 1),
            Event::AtomicDone { id, .. } => {
                let Some(Waiting::Atomic { id: due, .. }) = self.waiting.pop_front() else {
                    panic!("an atomic that was not issued")
                };
                assert_eq!(*id, due);
            }
            Event::Terminated(terminate) => {
                assert!(!terminate.to_string().is_empty());
                self.dead = true;
            }
            other => panic!("{other:?} of an untagged message"),
        }
    }

    /// Checks that every fault becomes a Terminate that can be sent and read.
    fn fault(&self, fault: &Fault, segment: Option<(&Header, usize)>) {
        assert!(fault.code().name().is_some() && !fault.to_string().is_empty());
        let offending = segment.map(|(header, len)| Offending::new(*header, len));
        let terminate = terminate_for(fault, offending.as_ref());
        assert_eq!(TerminateRepr::parse(&terminate.octets()), Some(terminate));
    }

    fn read(&mut self, stag: Stag, to: u64, size: u32) {
        assert_eq!(self.stream.can_issue(), self.waiting.len() < self.config.ord as usize);
        if self.stream.can_issue() {
            self.stream.issue_read(self.next_id, stag, to, size);
            self.waiting.push_back(Waiting::Read { id: self.next_id, stag, to, size, done: 0 });
            self.next_id += 1;
        }
    }

    fn atomic(&mut self) {
        if self.stream.can_issue() {
            let request_id = self.stream.issue_atomic(self.next_id);
            self.waiting.push_back(Waiting::Atomic { id: self.next_id, request_id });
            self.next_id += 1;
        }
    }

    fn answer(&mut self, mulpdu: usize) {
        let done = match self.stream.next_response() {
            None => return,
            Some(Response::Read(read)) => {
                let segment = read.segment(mulpdu.max(128));
                let before = read.remaining();
                assert!(
                    segment.len <= before as usize && segment.header.len() + segment.len <= mulpdu.max(128)
                );
                assert_eq!(segment.last, segment.len == before as usize);
                assert!(!read.offending().read_request.expect("a Read").to_string().is_empty());
                read.advance(segment.len);
                assert_eq!(read.remaining() as usize, before as usize - segment.len);
                segment.last
            }
            Some(Response::Atomic(atomic)) => {
                assert_eq!(atomic.offending().read_request, None);
                true
            }
        };
        if done {
            self.stream.response_done();
        }
    }
}
