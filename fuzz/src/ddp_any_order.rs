//! `ddp_any_order`: segments in any order, repeated and forged, compared with the contents of the
//! stream (RFC 5041 §5.3, §5.4, §7.1).

use std::ops::Range;

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{
    Admission, AnyOrder, DdpError, Delivered, Header, Msn, Qn, Stag, TaggedRepr, UntaggedRepr, cut,
};

use crate::input::{Tail, choice, inputs};

inputs! {
    /// A stream, and the segments of it that arrive.
    pub struct Input {
        /// Number of early segments that can be noted.
        room: u8,
        /// Number of messages that have a buffer, ahead of the one that is due.
        ahead: u8,
        /// Octets of a ULPDU beyond the least.
        mulpdu: u8,
        /// Position at which the stream begins.
        start: u64,
        /// The messages first, then the order of arrival.
        messages: [Message; 6],
        /// The events.
        steps: Tail<Step, 200>,
    }

    /// A message.
    pub struct Message {
        /// The queue, or a queue that does not exist.
        queue: u8,
        /// Octets.
        len: u16,
    }
}

impl crate::input::Encode for [Message; 6] {
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|message| message.encode(out));
    }
}

choice! {
    /// An event.
    pub enum Step {
        /// A segment of the stream, by its number.
        True { number: u16 },
        /// A segment of the stream, at another position.
        Moved { number: u16, by: u16, len: u16 },
        /// A segment that is not of the stream.
        Forged { from: u16, len: u16, tagged: bool, last: bool, queue: u8, msn: u32, mo: u32, payload: u16 },
        /// The stream ends here.
        Fail {},
    }
}

const QUEUES: u32 = 3;
const BUFFER: u64 = 700;

struct Segment {
    position: Range<u64>,
    header: Header,
    len: usize,
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let start = input.start.min(u64::MAX - (1 << 20));
    let segments = segments(&input, start);
    let mut receiver = Receiver::new(&input, start);
    let mut honest = true;
    for step in &input.steps.0 {
        let (segment, true_one) = step.segment(&segments, start);
        match segment {
            Some(segment) => {
                honest &= true_one;
                let _ = receiver.give(&segment);
            }
            None => receiver.rx.fail(),
        }
    }
    if honest && !receiver.rx.is_dead() {
        finish(&mut receiver, &segments);
    }
}

/// TCP sends again what is missing, in order: then everything is delivered as it was sent.
fn finish(receiver: &mut Receiver, segments: &[Segment]) {
    for segment in segments {
        let admission = receiver.give(segment);
        assert_ne!(admission, Ok(Admission::Later), "nothing is early when it comes in order");
        assert!(admission.is_ok(), "{admission:?}");
    }
    let want: Vec<Delivered> = segments
        .iter()
        .filter(|segment| segment.header.last())
        .map(|segment| Delivered {
            header: segment.header,
            length: match segment.header {
                Header::Tagged(_) => None,
                Header::Untagged(header) => Some(header.mo + segment.len as u32),
            },
            position: segment.position.clone(),
        })
        .collect();
    assert_eq!(receiver.delivered, want);
    assert_eq!(receiver.rx.noted(), 0);
}

struct Receiver {
    rx: AnyOrder,
    room: usize,
    ahead: u32,
    delivered: Vec<Delivered>,
    /// Segments that are placed and not counted: no two overlap, except for those at the turn.
    turn: u64,
}

impl Receiver {
    fn new(input: &Input, start: u64) -> Self {
        let room = usize::from(input.room % 32);
        let rx = AnyOrder::new(QUEUES, start, room);
        Receiver { rx, room, ahead: u32::from(input.ahead % 8), delivered: Vec::new(), turn: start }
    }

    fn give(&mut self, segment: &Segment) -> Result<Admission, DdpError> {
        let dead = self.rx.is_dead();
        let at_turn = segment.position.start == self.rx.turn();
        let (ahead, next) = (self.ahead, [0, 1, 2].map(|qn| self.rx.next_msn(Qn(qn)).unwrap()));
        // The message that is due has a buffer, and so have some behind it.
        let posted = |qn: Qn, msn: Msn| msn.ahead_of(next[qn.0 as usize]) <= ahead;
        let mut buffer = |qn, msn| posted(qn, msn).then_some(BUFFER);
        let admission = self.rx.check(&segment.position, &segment.header, segment.len, &mut buffer);
        assert_eq!(admission, self.rx.check(&segment.position, &segment.header, segment.len, &mut buffer));
        match admission {
            Ok(Admission::Place) => {
                assert!(!dead && segment.position.start >= self.turn && !segment.position.is_empty());
                self.check_place(segment, posted);
                self.rx.placed(segment.position.clone(), &segment.header, segment.len);
                assert!(at_turn || self.rx.noted() <= self.room);
            }
            Ok(Admission::Later) => assert!(!dead && !at_turn),
            Ok(Admission::Drop) => {
                assert!(dead || segment.position.start < self.turn || segment.position.is_empty());
            }
            Err(error) => {
                assert!(at_turn && !dead, "only the segment whose turn it is can be a fault");
                assert_eq!(error.code().0, 2);
                self.rx.fail();
            }
        }
        self.deliver();
        admission
    }

    /// Checks that nothing is placed outside its buffer, or into a buffer that does not exist.
    fn check_place(&self, segment: &Segment, posted: impl Fn(Qn, Msn) -> bool) {
        if let Header::Untagged(header) = segment.header {
            assert!(header.qn.0 < QUEUES && posted(header.qn, header.msn));
            assert!(u64::from(header.mo) + segment.len as u64 <= BUFFER);
        }
    }

    fn deliver(&mut self) {
        loop {
            let before = [0, 1, 2].map(|qn| self.rx.next_msn(Qn(qn)).unwrap());
            let delivered = self.rx.deliver();
            assert!(self.rx.turn() >= self.turn);
            self.turn = self.rx.turn();
            match delivered {
                Ok(Some(delivered)) => {
                    assert_eq!(delivered.position.end, self.turn);
                    if let Header::Untagged(header) = delivered.header {
                        assert_eq!(header.msn, before[header.qn.0 as usize]);
                        assert_eq!(self.rx.next_msn(header.qn), Some(header.msn.next()));
                        assert!(u64::from(delivered.length.unwrap()) <= BUFFER);
                    }
                    self.delivered.push(delivered);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(matches!(error, DdpError::MsnOutOfRange { .. }));
                    assert!(self.rx.is_dead());
                    break;
                }
            }
        }
        assert!(self.rx.noted() <= self.room);
    }
}

/// Returns the stream that a sender makes of the messages.
fn segments(input: &Input, start: u64) -> Vec<Segment> {
    let mulpdu = 128 + usize::from(input.mulpdu);
    let mut next = [Msn::FIRST; QUEUES as usize];
    let (mut segments, mut position) = (Vec::new(), start);
    for message in &input.messages {
        let qn = u32::from(message.queue) % (QUEUES + 1);
        let tagged = qn == QUEUES;
        let total = u64::from(message.len) % (BUFFER + 1);
        let mut offset = 0;
        loop {
            let header_len = if tagged { TaggedRepr::LEN } else { UntaggedRepr::LEN };
            let cut = cut(total, offset, mulpdu, header_len);
            let header = if tagged {
                Header::from(TaggedRepr { last: cut.last, rsvd_ulp: 0x40, stag: Stag(1), to: cut.offset })
            } else {
                let msn = next[qn as usize];
                let mo = cut.offset as u32;
                UntaggedRepr { last: cut.last, rsvd_ulp: [0x43, 0, 0, 0, 0], qn: Qn(qn), msn, mo }.into()
            };
            let end = position + (header_len + cut.len) as u64;
            segments.push(Segment { position: position..end, header, len: cut.len });
            (position, offset) = (end, offset + cut.len as u64);
            if cut.last {
                break;
            }
        }
        if !tagged {
            next[qn as usize] = next[qn as usize].next();
        }
    }
    segments
}

impl Step {
    /// Returns the segment of an event, and whether it is one of the stream.
    fn segment(&self, segments: &[Segment], start: u64) -> (Option<Segment>, bool) {
        match *self {
            Step::True { number } => {
                let Segment { position, header, len } = &segments[usize::from(number) % segments.len()];
                (Some(Segment { position: position.clone(), header: *header, len: *len }), true)
            }
            Step::Moved { number, by, len } => {
                let Segment { position, header, len: payload } =
                    &segments[usize::from(number) % segments.len()];
                let from = position.start + u64::from(by % 300);
                let position = from..from + u64::from(len % 800);
                (Some(Segment { position, header: *header, len: *payload }), false)
            }
            Step::Forged { from, len, tagged, last, queue, msn, mo, payload } => {
                let from = start + u64::from(from % 5000);
                let header = if tagged {
                    Header::from(TaggedRepr { last, rsvd_ulp: 0x40, stag: Stag(1), to: mo.into() })
                } else {
                    let qn = Qn(u32::from(queue % 5));
                    UntaggedRepr { last, rsvd_ulp: [0x43, 0, 0, 0, 0], qn, msn: Msn(msn), mo }.into()
                };
                let position = from..from + u64::from(len % 800);
                (Some(Segment { position, header, len: usize::from(payload) }), false)
            }
            Step::Fail {} => (None, true),
        }
    }
}
