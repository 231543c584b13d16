//! FPDUs of a peer made by hand, and what a byte stream makes of them.

use std::convert::Infallible;
use std::mem::offset_of;

use rddp_ddp::{OpenTagged, Stag};
use rddp_iwarp::Delivered;
use rddp_mpa::{CRC_LEN, Framing, LENGTH_LEN, crc32c_append};
use rddp_octets::{Batch, Format, Incoming, Left, Meaning, Plain, Position, Step, Stop, Terms};
use rddp_rdmap::{AccessError, Fault, InvalidateError, ReadRequestRepr, Stream, TerminateCode};
use rddp_test_support::{Fpdus, pattern_from, segment};

const TERMS: Terms = Terms { crc: true, markers: false, ird: 8, ord: 1 };

/// Returns the FPDUs of these ULPDUs.
fn arrive(framing: Framing, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut peer = Fpdus::new(framing, framing);
    ulpdus.iter().flat_map(|ulpdu| peer.frame(ulpdu)).collect()
}

fn framed(ulpdus: &[Vec<u8>]) -> Vec<u8> {
    arrive(TERMS.framing(), ulpdus)
}

/// Takes what is there into `memory`; returns how much of it was filled.
fn take(at: &Position, octets: &mut [u8], memory: &mut [u8]) -> (usize, Batch<Infallible>) {
    take_as(&mut Plain, at, octets, memory)
}

fn take_as<F: Format>(
    format: &mut F,
    at: &Position,
    octets: &mut [u8],
    memory: &mut [u8],
) -> (usize, Batch<F::Apart>) {
    let mut incoming = Incoming::new(&TERMS, at, 1 << 16, format);
    let (all, mut room) = (memory.len(), memory);
    let batch = Batch::of(&mut incoming, octets, &mut room, 0, format);
    (all - room.len(), batch)
}

/// Returns the fault by which a stream ends with these ULPDUs.
fn fault(at: &Position, ulpdus: &[Vec<u8>]) -> Fault {
    match take(at, &mut framed(ulpdus), &mut [0; 64]).1.stop {
        Stop::Trouble(trouble) => trouble.fault,
        stop => panic!("{stop:?}"),
    }
}

#[test]
fn octets_of_whole_fpdus_come_in_order_and_a_part_says_what_it_needs() {
    let send = segment::send;
    let mut octets = framed(&[
        send(1, 0, true, b"abc"),
        send(2, 0, true, b""),
        send(3, 0, true, b"defgh"),
        send(4, 0, true, b"late"),
    ]);
    let cut = octets.len() - 3;
    let mut memory = [0; 16];
    let (count, batch) = take(&Position::FIRST, &mut octets[..cut], &mut memory);
    assert_eq!(&memory[..count], b"abcdefgh");
    assert!(matches!(batch.stop, Stop::Need(total) if batch.used + total == cut + 3));
    let at = batch.at.unwrap();
    assert_eq!((at.msn, at.octets, at.is_open), (4, batch.used as u64, false));
    let (count, batch) = take(&at, &mut octets[batch.used..], &mut memory);
    assert_eq!((&memory[..count], batch.at.unwrap().msn), (&b"late"[..], 5));
}

#[test]
fn a_position_is_all_that_a_stream_needs_between_two_calls() {
    for markers in [false, true] {
        let terms = Terms { markers, ..TERMS };
        let payloads: Vec<_> =
            [600, 100, 3].into_iter().enumerate().map(|(n, len)| pattern_from(n * 1000, len)).collect();
        let mut mo = 0;
        let ulpdus = payloads.iter().enumerate().map(|(n, payload)| {
            let ulpdu = segment::send(1, mo, n == 2, payload);
            mo += payload.len() as u32;
            ulpdu
        });
        let octets = arrive(terms.framing(), &ulpdus.collect::<Vec<_>>());
        let (mut at, mut from, mut got) = (Position::FIRST, 0, Vec::new());
        while from < octets.len() {
            // A look changes the octets where markers stand, as one at the kernel's does not.
            let mut seen = octets[from..].to_vec();
            let mut incoming = Incoming::new(&terms, &at, 1 << 16, &Plain);
            let step = incoming.step(&mut seen, &mut Plain).unwrap();
            let used = step.used();
            let Step::Data { payload, .. } = step else { panic!() };
            got.extend_from_slice(&seen[payload]);
            (at, from) = (incoming.position(), from + used);
            assert_eq!(at.is_open, from < octets.len());
            assert_eq!(at.octets, from as u64);
        }
        assert_eq!((got, at.msn), (payloads.concat(), 2), "markers: {markers}");
    }
}

#[test]
fn a_batch_stands_behind_its_last_fpdu() {
    let mut octets = framed(&[segment::send(1, 0, true, b"one"), segment::send(2, 0, false, b"two")]);
    let (_, batch) = take(&Position::FIRST, &mut octets, &mut [0; 9]);
    let at = batch.at.unwrap();
    assert_eq!((at.octets, at.msn, at.mo, at.is_open), (octets.len() as u64, 2, 3, true));
}

#[test]
fn a_batch_ends_where_the_room_does_and_names_what_is_left() {
    let mut octets = framed(&[segment::send(1, 0, true, b"abcd"), segment::send(2, 0, true, b"efgh")]);
    let mut memory = [0; 6];
    let (count, mut batch) = take(&Position::FIRST, &mut octets, &mut memory);
    assert_eq!((count, &memory), (6, b"abcdef"));
    let Left { from, to, end } = batch.left.unwrap();
    assert_eq!((&octets[from..to], end), (&b"gh"[..], batch.used));
    assert!(matches!(batch.stop, Stop::Full));
    assert_eq!((batch.largest, batch.last, batch.used), (4, octets.len() / 2, octets.len()));
    // It can be left where it is; two of its octets are with the program.
    assert_eq!(batch.leave_last(), 2);
    assert_eq!((batch.used, batch.at.unwrap().msn, batch.left), (octets.len() / 2, 2, None));
    let (mut incoming, mut rest) = (Incoming::new(&TERMS, &batch.at.unwrap(), 64, &Plain), [0; 8]);
    let again = Batch::of(&mut incoming, &mut octets[batch.used..], &mut &mut rest[..], 2, &mut Plain);
    assert_eq!((&rest[..2], again.left, again.at.unwrap().msn), (&b"gh"[..], None, 3));
}

#[test]
fn the_first_fpdu_can_be_left_where_it_is_and_the_stream_has_not_moved() {
    let mut octets = framed(&[segment::send(1, 0, true, b"abcd")]);
    let (_, mut batch) = take(&Position::FIRST, &mut octets, &mut [0; 3]);
    assert_eq!(batch.leave_last(), 3);
    assert_eq!((batch.used, batch.at, batch.left), (0, None, None));
}

/// Processes of one build share positions, and their library tells others' builds by these offsets.
#[test]
fn positions_and_terms_lie_as_they_are_shared() {
    let at = [
        offset_of!(Position, octets),
        offset_of!(Position, mo),
        offset_of!(Position, msn),
        offset_of!(Position, request_msn),
        offset_of!(Position, is_open),
        offset_of!(Position, open_ulp),
        offset_of!(Position, rtr_read),
    ];
    assert_eq!((at, size_of::<Position>()), ([0, 8, 16, 20, 24, 25, 26], 32));
    let terms =
        [offset_of!(Terms, crc), offset_of!(Terms, markers), offset_of!(Terms, ird), offset_of!(Terms, ord)];
    assert_eq!((terms, size_of::<Terms>()), ([0, 1, 4, 8], 12));
}

#[test]
fn fpdus_without_octets_are_taken_though_there_is_no_room() {
    let mut octets = framed(&[segment::send(1, 0, true, b"ab"), segment::send(2, 0, true, b"")]);
    let mut at = Position::FIRST;
    let (_, batch) = take(&at, &mut octets[..], &mut [0; 2]);
    assert_eq!((batch.at.unwrap().msn, &batch.stop), (2, &Stop::Full));
    at = batch.at.unwrap();
    let (_, batch) = take(&at, &mut octets[batch.used..], &mut []);
    assert_eq!((batch.at.unwrap().msn, batch.left), (3, None));
}

#[test]
fn a_fault_behind_good_fpdus_is_told_behind_their_octets() {
    let mut octets = framed(&[segment::send(1, 0, true, b"good"), segment::send(2, 0, true, b"bad")]);
    *octets.last_mut().unwrap() ^= 1;
    let mut memory = [0; 16];
    let (count, batch) = take(&Position::FIRST, &mut octets, &mut memory);
    assert_eq!((&memory[..count], batch.at.unwrap().msn), (&b"good"[..], 2));
    assert!(matches!(batch.stop, Stop::Trouble(_)));
    // RFC 5044 §7.1.2: a responder may tell of it, for the first FPDU was good.
    let first = octets.len() / 2;
    for (range, is_good) in [(first..2 * first, false), (0..first, true)] {
        let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Plain);
        assert_eq!(incoming.step(&mut octets[range], &mut Plain).is_ok(), is_good);
        assert_eq!(incoming.has_good_fpdu(), is_good);
    }
}

#[test]
fn a_stream_of_plain_octets_exposes_no_memory() {
    let write = fault(&Position::FIRST, &[segment::write(Stag(7), 0, true, b"x")]);
    assert_eq!(write, Fault::write_access(AccessError::Stag));
    let request = ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size: 1, src_stag: Stag(2), src_to: 0 };
    assert_eq!(fault(&Position::FIRST, &[segment::read(1, &request)]), Fault::read_source(AccessError::Stag));
    let invalidate = fault(&Position::FIRST, &[segment::send_invalidate(1, Stag(7), b"x")]);
    assert_eq!(invalidate, Fault::invalidate(InvalidateError::Unknown));
    // RFC 5041 §5.2: a Write without octets names no buffer.
    let (_, batch) = take(&Position::FIRST, &mut framed(&[segment::write(Stag(7), 0, true, b"")]), &mut []);
    assert!(batch.at.is_some());
}

#[test]
fn reads_without_octets_are_answered_some_at_a_time() {
    let request =
        |n| ReadRequestRepr { sink_stag: Stag(n), sink_to: 5, size: 0, src_stag: Stag(0), src_to: 0 };
    let mut octets = framed(&(1..=6).map(|n| segment::read(n, &request(n))).collect::<Vec<_>>());
    let (_, batch) = take(&Position::FIRST, &mut octets, &mut []);
    let stags = batch.replies.headers().map(|header| match header {
        rddp_ddp::Header::Tagged(tagged) => tagged.stag.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(stags.collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!((batch.at.unwrap().request_msn, &batch.stop), (5, &Stop::Full));
    let (_, batch) = take(&batch.at.unwrap(), &mut octets[batch.used..], &mut []);
    assert_eq!((batch.replies.headers().count(), batch.at.unwrap().request_msn), (2, 7));
}

#[test]
fn the_response_to_the_rtr_comes_once() {
    let at = Position { rtr_read: true, ..Position::FIRST };
    let response = segment::response(Stag(0), 0, true, b"");
    let (_, batch) = take(&at, &mut framed(std::slice::from_ref(&response)), &mut []);
    assert_eq!(batch.at.map(|at| at.rtr_read), Some(false));
    // Nothing was asked for.
    fault(&batch.at.unwrap(), &[response]);
}

#[test]
fn a_terminate_ends_the_stream_behind_the_octets_before_it() {
    let code = TerminateCode(0x1203);
    let mut octets = framed(&[segment::send(1, 0, true, b"last"), segment::terminate(code)]);
    let mut memory = [0; 8];
    let (count, batch) = take(&Position::FIRST, &mut octets, &mut memory);
    assert_eq!((&memory[..count], batch.used), (&b"last"[..], octets.len()));
    assert_eq!(batch.stop, Stop::Terminated(code));
}

#[test]
fn a_send_longer_than_the_longest_is_a_fault() {
    let ulpdus = [segment::send(1, 0, false, &[1; 40]), segment::send(1, 40, true, &[2; 25])];
    let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Plain);
    let mut octets = framed(&ulpdus);
    let batch = Batch::of(&mut incoming, &mut octets, &mut &mut [0; 80][..], 0, &mut Plain);
    assert!(matches!(batch.stop, Stop::Trouble(_)) && batch.at.unwrap().mo == 40);
}

#[test]
fn a_segment_received_elsewhere_is_counted_in_as_one_that_was_looked_at() {
    let mut octets = framed(&[segment::send(1, 0, true, b"elsewhere")]);
    let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Plain);
    let announced = incoming.announced(&octets[..30], &Plain).unwrap();
    assert_eq!(announced.payload_len, 9);
    let end = octets.len() - CRC_LEN;
    let (crc, field) = (crc32c_append(0, &octets[..end]), *octets.last_chunk().unwrap());
    let position = incoming.position();
    assert!(incoming.received(announced, crc ^ 1, field, &Plain).is_err());
    let mut incoming = Incoming::new(&TERMS, &position, 64, &Plain);
    assert!(incoming.received(announced, crc, field, &Plain).is_ok() && incoming.has_good_fpdu());
    let (_, batch) = take(&Position::FIRST, &mut octets, &mut [0; 9]);
    assert_eq!(batch.at, Some(incoming.position()));
    // One that invalidates is a fault, found when all of it is looked at.
    let octets = framed(&[segment::send_invalidate(1, Stag(1), b"elsewhere")]);
    let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Plain);
    assert_eq!(incoming.announced(&octets, &Plain), None);
    assert_eq!(incoming.announced(&octets[..LENGTH_LEN], &Plain), None);
    let write = framed(&[segment::write(Stag(7), 0, true, b"elsewhere")]);
    assert_eq!(incoming.announced(&write, &Plain), None);
}

/// Messages that begin with their kind: octets, nothing, or something else.
#[derive(Default)]
struct Kinds {
    counted: usize,
    marked: usize,
    consumed: usize,
    stops: bool,
}

impl Format for Kinds {
    type Apart = u8;

    fn meaning(&mut self, _: &Delivered, _: Option<OpenTagged>, payload: &[u8]) -> Meaning<u8> {
        self.counted += 1;
        match payload.first() {
            None | Some(b'-') => Meaning::Control,
            Some(b'o') => Meaning::Octets { from: 1 },
            Some(kind) => Meaning::Apart(*kind, 1..payload.len()),
        }
    }

    fn stops(&self) -> bool {
        self.stops
    }

    fn consumed(&mut self) {
        self.consumed += 1;
    }

    fn mark(&mut self) {
        self.marked = self.counted;
    }

    fn cut_back(&mut self) {
        self.counted = self.marked;
    }
}

#[test]
fn a_format_says_what_stands_in_the_sends() {
    let ulpdus = [&b"oab"[..], b"-", b"", b"ocd", b"x!!"];
    let ulpdus: Vec<_> =
        ulpdus.iter().enumerate().map(|(n, of)| segment::send(n as u32 + 1, 0, true, of)).collect();
    let (mut kinds, mut memory) = (Kinds::default(), [0; 8]);
    let mut octets = framed(&ulpdus);
    let (count, batch) = take_as(&mut kinds, &Position::FIRST, &mut octets, &mut memory);
    assert_eq!((&memory[..count], &batch.stop, batch.at.unwrap().msn), (&b"abcd"[..], &Stop::Apart(b'x'), 5));
    // The one apart is not taken, and not counted in.
    assert_eq!((kinds.counted, kinds.consumed), (4, 2));
    let mut incoming = Incoming::new(&TERMS, &batch.at.unwrap(), 64, &kinds);
    let rest = &mut octets[batch.used..];
    match incoming.step(rest, &mut kinds) {
        Ok(Step::Apart { what: b'x', payload, used }) => {
            assert_eq!((&rest[payload], used), (&b"!!"[..], rest.len()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_stops_where_the_format_says() {
    let mut kinds = Kinds { stops: true, ..Kinds::default() };
    let mut octets = framed(&[segment::send(1, 0, true, b"oab"), segment::send(2, 0, true, b"ocd")]);
    let (count, batch) = take_as(&mut kinds, &Position::FIRST, &mut octets, &mut [0; 8]);
    let Left { from, to, .. } = batch.left.unwrap();
    assert_eq!((count, &octets[from..to], kinds.consumed), (0, &b"ab"[..], 0));
    assert_eq!((batch.at.unwrap().msn, kinds.counted), (2, 1));
}

/// A format that exposes all of its memory.
struct Exposed;

impl Format for Exposed {
    type Apart = Infallible;

    fn check(&self, _: Stag, _: u64, _: usize) -> Result<(), AccessError> {
        Ok(())
    }
}

/// RFC 5040 §5.1
#[test]
fn octets_of_a_write_that_is_open_are_told_as_such() {
    let mut octets =
        framed(&[segment::write(Stag(7), 9, false, b"abc"), segment::write(Stag(7), 12, true, b"d")]);
    let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Exposed);
    let first = incoming.step(&mut octets, &mut Exposed).unwrap();
    assert_eq!(first, Step::Data { payload: 16..19, used: 24 });
    assert_eq!(incoming.open_tagged().and_then(|open| open.next_to), Some(12));
    assert!(incoming.step(&mut octets[24..], &mut Exposed).is_ok());
    assert_eq!(incoming.open_tagged(), None);
}

/// A format whose outstanding Reads do not fit together.
#[derive(Default)]
struct Unsound(Kinds);

impl Format for Unsound {
    type Apart = u8;

    fn resume(&self, stream: &mut Stream) {
        stream.fail();
    }

    fn meaning(&mut self, of: &Delivered, open: Option<OpenTagged>, payload: &[u8]) -> Meaning<u8> {
        self.0.meaning(of, open, payload)
    }
}

/// RFC 5041 §7.1: behind a fault everything is dropped.
#[test]
fn a_stream_that_is_over_delivers_no_octets() {
    let mut octets = framed(&[segment::send(1, 0, true, b"oab")]);
    let mut incoming = Incoming::new(&TERMS, &Position::FIRST, 64, &Unsound::default());
    let step = incoming.step(&mut octets, &mut Unsound::default());
    assert_eq!(step, Ok(Step::Silent { used: octets.len(), reply: None }));
}
