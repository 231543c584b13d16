use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Framer, Framing, MpaError, crc32c, crc32c_append, pad_len};
use rddp_rdmap::{
    AccessError, Opcode, ReadRequestRepr, StreamConfig, TerminateCode, tagged_header, untagged_header,
};

use super::*;

const FRAMING: Framing = Framing { crc: true, markers: false };

/// Receives and memory, and what was done with them.
#[derive(Default)]
struct Memory {
    /// Lengths of the posted receives.
    posted: Vec<u64>,
    waits: bool,
    /// The fault with which memory refuses, if it does.
    refuses: Option<Fault>,
    taken: usize,
    good: usize,
    placed: Vec<(Place, usize, Vec<u8>)>,
    /// True if plain segments are taken.
    takes_plain: bool,
    plain: Vec<(Plain, Vec<u8>)>,
}

impl Target for Memory {
    const TAKES_PLAIN: bool = true;

    fn note_good_fpdu(&mut self) {
        self.good += 1;
    }

    fn receive(&mut self) -> Receive {
        match self.posted.pop() {
            Some(len) => {
                self.taken += 1;
                Receive::Posted(len)
            }
            None if self.waits => Receive::Awaited,
            None => Receive::Missing,
        }
    }

    fn place(&mut self, segment: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault> {
        assert!(!payload.is_empty() && skip + payload.len() <= segment.payload_len);
        self.placed.push((segment.place, skip, payload.to_vec()));
        self.refuses.map_or(Ok(()), Err)
    }

    fn take_plain(&mut self, plain: &Plain, payload: &[u8]) -> bool {
        if self.takes_plain {
            self.plain.push((*plain, payload.to_vec()));
        }
        self.takes_plain
    }
}

struct End {
    deframer: Deframer,
    stream: Stream,
    memory: Memory,
}

impl End {
    fn new(framing: Framing, posted: &[u64]) -> Self {
        let stream = Stream::new(StreamConfig { ird: 1, ord: 1, extensions: true });
        let memory = Memory { posted: posted.to_vec(), ..Memory::default() };
        Self { deframer: Deframer::new(framing), stream, memory }
    }

    fn receiver(&mut self) -> (Receiver<'_>, &mut Memory) {
        (Receiver { deframer: &mut self.deframer, stream: &mut self.stream }, &mut self.memory)
    }

    fn step(&mut self, octets: &mut [u8]) -> Result<Step, Trouble> {
        let (mut receiver, memory) = self.receiver();
        receiver.step(octets, memory)
    }

    fn code(&mut self, octets: &mut [u8]) -> TerminateCode {
        self.step(octets).unwrap_err().fault.code()
    }
}

fn fpdu(framing: Framing, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let fill = |at: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[at..at + dst.len()]);
    Framer::new(framing).emit(&header.octets(), payload.len(), fill, &mut out);
    out
}

fn send(msn: u32) -> Header {
    untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true)
}

fn received(length: u32) -> Event {
    Event::Received { length, invalidate: None, solicited: false }
}

#[test]
fn an_fpdu_is_taken_when_all_of_it_is_here() {
    // RFC 5044 §6
    for markers in [false, true] {
        let framing = Framing { markers, ..FRAMING };
        let mut end = End::new(framing, &[4096]);
        let mut octets = fpdu(framing, &send(1), &[7; 1000]);
        let whole = octets.len();
        for have in 0..whole {
            let Ok(Step::Need { total }) = end.step(&mut octets[..have]) else { panic!("{have} octets") };
            assert!(total > have && total <= whole);
        }
        assert_eq!(end.memory.good, 0);
        octets.extend([9; 3]);
        let Ok(Step::Taken { delivered, payload, used }) = end.step(&mut octets) else { panic!("taken") };
        assert_eq!((used, delivered.event, &octets[payload]), (whole, received(1000), &[7; 1000][..]));
        assert_eq!(end.memory.placed, [(Place::Receive { mo: 0 }, 0, vec![7; 1000])]);
        assert_eq!(end.memory.good, 1);
    }
}

#[test]
fn nothing_is_concluded_from_a_segment_whose_crc_is_wrong() {
    // RFC 5044 §4.4
    let mut end = End::new(FRAMING, &[4096]);
    let mut octets = fpdu(FRAMING, &send(1), b"hello");
    octets[25] ^= 1;
    let trouble = end.step(&mut octets).unwrap_err();
    assert_eq!((trouble.fault, trouble.offending), (Fault::mpa(MpaError::Crc), None));
    assert_eq!((end.memory.good, end.memory.taken, end.memory.placed.len()), (0, 0, 0));
    let mut next = fpdu(FRAMING, &send(1), b"hello");
    assert_eq!(end.step(&mut next), Err(trouble), "and the direction is over");
}

#[test]
fn a_segment_that_is_refused_was_in_a_good_fpdu() {
    // RFC 5044 §7.1.2: which gives a responder leave to send the Terminate
    let mut end = End::new(FRAMING, &[4096]);
    let mut octets = fpdu(FRAMING, &send(3), b"hello");
    let trouble = end.step(&mut octets).unwrap_err();
    assert_eq!(trouble.fault.code(), TerminateCode::UNTAGGED_MSN_RANGE);
    assert_eq!(trouble.offending, Some(Offending::new(send(3), 5)));
    assert_eq!((end.memory.good, end.memory.placed.len()), (1, 0));
    // RFC 5041 §7.1: everything behind it is dropped without a word.
    let mut next = fpdu(FRAMING, &send(1), b"hello");
    let Ok(Step::Taken { delivered, .. }) = end.step(&mut next) else { panic!("taken") };
    assert_eq!((delivered.segment.place, delivered.event), (Place::Dropped, Event::None));
    assert_eq!(end.memory.placed, []);
}

#[test]
fn a_segment_shorter_than_its_header_has_nothing_to_show() {
    // RFC 5041 §7.1
    let mut end = End::new(FRAMING, &[4096]);
    let mut out = Vec::new();
    Framer::new(FRAMING).emit(&[0x41, 0x43, 0], 0, |_, _| (), &mut out);
    let trouble = end.step(&mut out).unwrap_err();
    assert_eq!(trouble.offending, None);
    assert!(end.stream.is_dead());
}

#[test]
fn a_message_without_a_receive_is_a_fault_or_waits() {
    // RFC 5041 §7.1
    let mut octets = fpdu(FRAMING, &send(1), b"hello");
    assert_eq!(End::new(FRAMING, &[]).code(&mut octets.clone()), TerminateCode::UNTAGGED_NO_BUFFER);
    let mut end = End::new(FRAMING, &[]);
    end.memory.waits = true;
    let Ok(Step::Waits { ulpdu, used }) = end.step(&mut octets) else { panic!("it waits") };
    assert_eq!((used, end.memory.good), (octets.len(), 1));
    let waiting = &octets[ulpdu];
    let (mut receiver, memory) = end.receiver();
    assert_eq!(receiver.segment(waiting, memory), Ok(None), "still");
    memory.posted.push(5);
    let delivered = receiver.segment(waiting, memory).unwrap().unwrap();
    assert_eq!((delivered.event, memory.taken), (received(5), 1));
    assert_eq!(memory.placed, [(Place::Receive { mo: 0 }, 0, b"hello".to_vec())]);
}

#[test]
fn memory_that_refuses_ends_the_stream() {
    // RFC 5040 §7.1
    let header = tagged_header(Opcode::Write, Stag(5), 0x100, true);
    let mut end = End::new(FRAMING, &[]);
    end.memory.refuses = Some(Fault::write_access(AccessError::Stag));
    let trouble = end.step(&mut fpdu(FRAMING, &header, b"octets")).unwrap_err();
    assert_eq!(trouble.fault.code(), TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(trouble.offending, Some(Offending::new(header, 6)));
    assert!(end.stream.is_dead());
}

#[test]
fn what_is_rdmaps_own_needs_no_memory() {
    // RFC 5040 §4.4
    let read = ReadRequestRepr { sink_stag: Stag(1), sink_to: 2, size: 3, src_stag: Stag(4), src_to: 5 };
    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
    let mut end = End::new(FRAMING, &[]);
    let Ok(Step::Taken { delivered, .. }) = end.step(&mut fpdu(FRAMING, &header, &read.octets())) else {
        panic!("taken");
    };
    assert_eq!(
        (delivered.event, end.stream.inbound(), end.memory.placed.len()),
        (Event::InboundRequest, 1, 0)
    );
    let empty = tagged_header(Opcode::Write, Stag(0), 0, true);
    let Ok(Step::Taken { delivered, .. }) = end.step(&mut fpdu(FRAMING, &empty, &[])) else {
        panic!("taken")
    };
    assert_eq!((delivered.event, end.memory.placed.len()), (Event::WriteDone, 0));
}

/// CRC of all that it covers, and its field.
fn trailer(octets: &[u8], payload_len: usize, header: &Header) -> (u32, [u8; 4]) {
    let ulpdu_len = header.len() + payload_len;
    let (covered, field) = octets.split_at(LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len));
    (crc32c(covered), field.try_into().unwrap())
}

#[test]
fn a_payload_received_elsewhere_is_counted_in_and_its_last_octets_placed() {
    let payload: Vec<u8> = (0..=200).collect();
    let header = tagged_header(Opcode::Write, Stag(5), 0x100, true);
    let octets = fpdu(FRAMING, &header, &payload);
    let mut end = End::new(FRAMING, &[]);
    let (mut receiver, memory) = end.receiver();
    let segment = receiver.announced(&octets[..16], memory).unwrap();
    let place = Place::Write { stag: Stag(5), to: 0x100 };
    assert_eq!(segment, Segment { header, place, payload_len: 201 });
    let (crc, field) = trailer(&octets, 201, &header);
    let delivered = receiver.received(segment, &payload[193..], crc, field, memory).unwrap();
    assert_eq!((delivered.event, memory.good), (Event::WriteDone, 1));
    assert_eq!(memory.placed, [(place, 193, payload[193..].to_vec())]);
    assert_eq!(end.deframer.position(), octets.len() as u64);
}

#[test]
fn a_payload_received_elsewhere_with_a_wrong_crc_is_not_delivered() {
    // RFC 5044 §4.4
    let octets = fpdu(FRAMING, &send(1), &[3; 100]);
    let mut end = End::new(FRAMING, &[4096]);
    let (mut receiver, memory) = end.receiver();
    let segment = receiver.announced(&octets, memory).unwrap();
    let (crc, field) = trailer(&octets, 100, &send(1));
    let crc = crc32c_append(crc, &[1]);
    let trouble = receiver.received(segment, &[3; 8], crc, field, memory).unwrap_err();
    assert_eq!((trouble.fault, memory.good, memory.placed.len()), (Fault::mpa(MpaError::Crc), 0, 0));
}

#[test]
fn looking_ahead_concludes_nothing() {
    // RFC 5044 §4.4
    let mut end = End::new(FRAMING, &[4096]);
    let good = fpdu(FRAMING, &send(1), &[3; 100]);
    let gap = fpdu(FRAMING, &send(2), &[3; 100]);
    let (mut receiver, memory) = end.receiver();
    for have in 0..20 {
        assert_eq!(receiver.announced(&good[..have], memory), None, "{have} octets");
    }
    assert_eq!(receiver.announced(&gap[..20], memory), None);
    let mut short = good.clone();
    short[..2].copy_from_slice(&17_u16.to_be_bytes());
    assert_eq!(receiver.announced(&short, memory), None, "a ULPDU shorter than the header in it");
    assert!(receiver.announced(&good[..20], memory).is_some());
    assert!(receiver.announced(&good[..20], memory).is_some());
    assert_eq!((memory.taken, memory.good, memory.placed.len()), (1, 0, 0), "one receive for the message");
    let Ok(Step::Taken { delivered, .. }) = end.step(&mut good.clone()) else { panic!("taken") };
    assert_eq!((delivered.event, end.memory.taken), (received(100), 1));
}

#[test]
fn markers_hide_what_is_announced() {
    let framing = Framing { markers: true, ..FRAMING };
    let octets = fpdu(framing, &send(1), &[3; 100]);
    let mut end = End::new(framing, &[4096]);
    let (mut receiver, memory) = end.receiver();
    assert_eq!(receiver.announced(&octets, memory), None);
    assert_eq!(memory.taken, 0);
}

/// A plain segment is counted in if the target takes it, and else goes the other way.
#[test]
fn plain_segments_go_the_way_that_the_target_chooses() {
    let mut end = End::new(FRAMING, &[4096]);
    let mut framer = Framer::new(FRAMING);
    for (msn, takes_plain) in [(1, true), (2, false), (3, true)] {
        end.memory.takes_plain = takes_plain;
        let mut octets = Vec::new();
        let fill = |_: usize, dst: &mut [u8]| dst.fill(7);
        framer.emit(&send(msn).octets(), 10, fill, &mut octets);
        let used = octets.len();
        match end.step(&mut octets).unwrap() {
            Step::Plain { plain: Plain::Send { .. }, payload_len: 10, used: all } if takes_plain => {
                assert_eq!(all, used);
            }
            Step::Taken { delivered, .. } if !takes_plain => assert_eq!(delivered.event, received(10)),
            step => panic!("{step:?}"),
        }
    }
    let payloads: Vec<_> = end.memory.plain.iter().map(|(_, payload)| payload.as_slice()).collect();
    assert_eq!((payloads, end.memory.placed.len(), end.memory.good), (vec![&[7; 10][..]; 2], 1, 3));
}

/// RFC 5044 §4.4: nothing is taken of an FPDU with a wrong CRC.
#[test]
fn a_damaged_plain_segment_is_not_offered() {
    let mut end = End::new(FRAMING, &[4096]);
    end.memory.takes_plain = true;
    let mut octets = fpdu(FRAMING, &send(1), &[7; 10]);
    octets[25] ^= 1;
    assert!(end.step(&mut octets).is_err());
    assert_eq!((end.memory.plain.len(), end.memory.good), (0, 0));
}
