//! `AnyOrder` compared with a naive model: whatever the order, and however often a segment is
//! repeated, memory and messages end up as if all segments had arrived in order (RFC 5041 §5.3,
//! §5.4).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use proptest::prelude::*;
use rddp_ddp::{Admission, AnyOrder, Header, Msn, Qn, Stag, TaggedRepr, UntaggedRepr, cut};

const REGION: usize = 4096;
const BUFFER: usize = 700;
const QUEUES: u32 = 2;
const START: u64 = 1000;

#[derive(Clone, Debug)]
enum Message {
    Tagged { to: u16, len: u16 },
    Untagged { qn: u32, len: u16 },
}

#[derive(Clone, Debug)]
struct Segment {
    position: Range<u64>,
    header: Header,
    payload: Vec<u8>,
}

/// Memory as both ends see it: one region, and a buffer for each message of each queue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Memory {
    region: Vec<u8>,
    buffers: HashMap<(u32, u32), Vec<u8>>,
}

impl Memory {
    fn new() -> Self {
        Self { region: vec![0; REGION], buffers: HashMap::new() }
    }

    fn place(&mut self, header: &Header, payload: &[u8]) {
        let (target, at) = match header {
            Header::Tagged(header) => (&mut self.region, header.to as usize),
            Header::Untagged(header) => {
                let key = (header.qn.0, header.msn.0);
                (self.buffers.entry(key).or_insert_with(|| vec![0; BUFFER]), header.mo as usize)
            }
        };
        target[at..at + payload.len()].copy_from_slice(payload);
    }
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (0..3000u16, 0..1000u16).prop_map(|(to, len)| Message::Tagged { to, len }),
        (0..QUEUES, 0..=BUFFER as u16).prop_map(|(qn, len)| Message::Untagged { qn, len }),
    ]
}

/// Returns the segments that a sender makes of the messages. Each octet identifies its segment and
/// its place in it.
fn segments(messages: &[Message], mulpdu: usize) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut next = [Msn::FIRST; QUEUES as usize];
    let mut position = START;
    for message in messages {
        let (len, header_len) = match message {
            Message::Tagged { len, .. } => (*len, TaggedRepr::LEN),
            Message::Untagged { len, .. } => (*len, UntaggedRepr::LEN),
        };
        let mut offset = 0;
        loop {
            let cut = cut(len.into(), offset, mulpdu, header_len);
            let header = match *message {
                Message::Tagged { to, .. } => {
                    let to = u64::from(to) + cut.offset;
                    TaggedRepr { last: cut.last, rsvd_ulp: 0x40, stag: Stag(1), to }.into()
                }
                Message::Untagged { qn, .. } => {
                    let (msn, mo) = (next[qn as usize], cut.offset as u32);
                    UntaggedRepr { last: cut.last, rsvd_ulp: [0x43; 5], qn: Qn(qn), msn, mo }.into()
                }
            };
            let payload = (0..cut.len).map(|at| (segments.len() * 31 + at * 7 + 1) as u8).collect();
            let end = position + (header_len + cut.len) as u64;
            segments.push(Segment { position: position..end, header, payload });
            position = end;
            offset += cut.len as u64;
            if cut.last {
                break;
            }
        }
        if let Message::Untagged { qn, .. } = message {
            next[*qn as usize] = next[*qn as usize].next();
        }
    }
    segments
}

/// Returns positions and lengths of the messages, in the order of the stream.
fn in_order(segments: &[Segment]) -> Vec<(Range<u64>, Option<u32>)> {
    let last = segments.iter().filter(|segment| segment.header.last());
    last.map(|segment| {
        let length = match &segment.header {
            Header::Tagged(_) => None,
            Header::Untagged(header) => Some(header.mo + segment.payload.len() as u32),
        };
        (segment.position.clone(), length)
    })
    .collect()
}

struct Receiver {
    rx: AnyOrder,
    memory: Memory,
    /// The number of messages that have a buffer, on each queue: a few ahead, and always the one
    /// that is due.
    posted: u32,
    delivered: Vec<(Range<u64>, Option<u32>)>,
    /// The positions at which the segments that have been placed begin.
    placed: HashSet<u64>,
}

impl Receiver {
    fn new(room: usize, posted: u32) -> Self {
        let rx = AnyOrder::new(QUEUES, START, room);
        Self { rx, memory: Memory::new(), posted, delivered: Vec::new(), placed: HashSet::new() }
    }

    /// RFC 5041 §5.4: a delivered message, and everything before it, has been placed.
    fn check_delivered(&self, segments: &[Segment]) {
        let turn = self.delivered.last().map_or(START, |(position, _)| position.end);
        let counted = segments.iter().filter(|segment| segment.position.end <= turn);
        assert!(counted.into_iter().all(|segment| self.placed.contains(&segment.position.start)));
    }

    fn give(&mut self, segment: &Segment) -> Admission {
        let len = segment.payload.len();
        if let (Header::Untagged(header), true) = (&segment.header, segment.position.start == self.rx.turn())
        {
            self.posted = self.posted.max(header.msn.0);
        }
        let posted = self.posted;
        let mut buffer = |_: Qn, msn: Msn| (msn.0 <= posted).then_some(BUFFER as u64);
        let admission = self.rx.check(&segment.position, &segment.header, len, &mut buffer).unwrap();
        if admission == Admission::Place {
            self.memory.place(&segment.header, &segment.payload);
            self.rx.placed(segment.position.clone(), &segment.header, len);
        }
        while let Some(message) = self.rx.deliver().unwrap() {
            self.delivered.push((message.position, message.length));
        }
        if admission == Admission::Place {
            self.placed.insert(segment.position.start);
        }
        admission
    }
}

proptest! {
    #[test]
    fn any_order_ends_like_in_order(
        messages in prop::collection::vec(message(), 1..20),
        mulpdu in 128..400usize,
        room in 0..40usize,
        look_ahead in 1..6u32,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let segments = segments(&messages, mulpdu);
        let mut receiver = Receiver::new(room, look_ahead);
        // The segments are presented in any order and any number of times; then, as TCP would,
        // again in order.
        for segment in order.iter().map(|index| index.get(&segments)) {
            let turn = receiver.rx.turn();
            let before = receiver.memory.clone();
            let admission = receiver.give(segment);
            receiver.check_delivered(&segments);
            prop_assert!(receiver.rx.noted() <= room);
            if segment.position.start < turn {
                prop_assert_eq!(admission, Admission::Drop);
            }
            if admission != Admission::Place {
                prop_assert_eq!(before, receiver.memory.clone());
            }
        }
        for segment in &segments {
            let admission = receiver.give(segment);
            prop_assert!(admission != Admission::Later, "nothing is early when it comes in order");
        }
        prop_assert_eq!(&receiver.delivered, &in_order(&segments));
        // Untagged buffers contain each message. Where tagged messages overlap, the last placed
        // wins, and that may be any of them.
        let mut model = Memory::new();
        segments.iter().for_each(|segment| model.place(&segment.header, &segment.payload));
        prop_assert_eq!(&receiver.memory.buffers, &model.buffers);
        check_region(&segments, &receiver.memory.region);
    }
}

/// Checks that every octet of the region is 0 where no message wrote, and otherwise what one of the
/// writers put there.
fn check_region(segments: &[Segment], region: &[u8]) {
    for (at, octet) in region.iter().enumerate() {
        let writers: Vec<u8> = segments
            .iter()
            .filter_map(|segment| match &segment.header {
                Header::Tagged(header) => segment.payload.get(at.checked_sub(header.to as usize)?).copied(),
                Header::Untagged(_) => None,
            })
            .collect();
        assert!(writers.contains(octet) || (writers.is_empty() && *octet == 0), "octet {at} is {octet}");
    }
}

#[test]
fn a_stream_given_backwards_is_delivered_at_its_first_segment() {
    let messages = vec![Message::Untagged { qn: 0, len: 600 }, Message::Tagged { to: 5, len: 900 }];
    let segments = segments(&messages, 128);
    let mut receiver = Receiver::new(segments.len(), 1);
    for segment in segments.iter().skip(1).rev() {
        assert_eq!(receiver.give(segment), Admission::Place);
        assert!(receiver.delivered.is_empty());
    }
    receiver.give(&segments[0]);
    assert_eq!(receiver.delivered, in_order(&segments));
}
