//! Writes of a program as the peer gets them, whatever TCP takes of them at a time.

use std::convert::Infallible;
use std::mem::offset_of;

use rddp_ddp::{Msn, Stag};
use rddp_iwarp::{Gather, Record};
use rddp_octets::{After, Batch, Incoming, Limits, Outgoing, Payload, Plain, Position, Terms};
use rddp_rdmap::{Opcode, untagged_header};
use rddp_test_support::{Fpdus, Random, pattern, segment};

/// Octets of a train, in room for so many, and the number of pieces that were lent.
struct Train(Vec<u8>, usize, usize);

impl Train {
    fn new(most: usize) -> Self {
        Self(Vec::new(), most, 0)
    }
}

impl Gather for Train {
    type Mark = usize;

    fn mark(&self) -> usize {
        self.0.len()
    }

    fn cut_back(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let from = self.0.len();
        if self.1 < from + len {
            return None;
        }
        self.0.resize(from + len, 0xee);
        Some(write(&mut self.0[from..]))
    }
}

/// Octets that are lent in pieces of so many, up to one that cannot be had.
#[derive(Clone)]
struct Pieces<'a> {
    octets: &'a [u8],
    piece: usize,
    good: usize,
}

impl Payload<Train> for Pieces<'_> {
    type Error = &'static str;

    fn left(&self) -> usize {
        self.octets.len()
    }

    fn copy(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        self.good = self.good.checked_sub(out.len()).ok_or("gone")?;
        Payload::<Train>::copy(&mut self.octets, out).map_err(|gone| match gone {})
    }

    fn copies(&self, train: &Train, _: usize) -> bool {
        train.0.is_empty()
    }

    fn lend(&mut self, train: &mut Train, count: usize, crc: Option<&mut u32>) -> Result<bool, Self::Error> {
        let from = train.0.len();
        train.0.resize(from + count, 0);
        self.copy(&mut train.0[from..])?;
        train.2 += count.div_ceil(self.piece);
        if let Some(crc) = crc {
            *crc = rddp_mpa::crc32c_append(*crc, &train.0[from..]);
        }
        Ok(train.2 < 8)
    }
}

const LIMITS: Limits = Limits { mulpdu: 118, max_send: 1 << 20 };

fn outgoing(crc: bool, markers: bool) -> Outgoing {
    Outgoing { crc, markers, ..Outgoing::FIRST }
}

/// Returns the FPDUs of these ULPDUs.
fn framed(outgoing: &Outgoing, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let framing = Terms { crc: outgoing.crc, markers: outgoing.markers, ..Terms::default() }.framing();
    let mut peer = Fpdus::new(framing, framing);
    ulpdus.iter().flat_map(|ulpdu| peer.frame(ulpdu)).collect()
}

/// Returns the train of a write, all of which TCP takes.
fn written(outgoing: &mut Outgoing, limits: Limits, octets: &[u8]) -> Vec<u8> {
    let (mut train, mut records, mut rest) = (Train::new(1 << 20), [Record::default(); 64], octets);
    let mut load = outgoing.load(1 << 20, &mut records);
    load.write(&mut train, limits, &mut rest, None).unwrap();
    assert_eq!(rest, b"");
    let taken = outgoing.took(load.records(), train.0.len());
    assert_eq!(taken.last().and_then(|record| record.after.message), None);
    train.0
}

#[test]
fn a_write_is_one_send_whose_segments_are_full() {
    // RFC 5041 §5.2
    for (crc, markers) in [(false, false), (true, false), (true, true)] {
        let (mut outgoing, octets) = (outgoing(crc, markers), pattern(250, 1));
        let expected = framed(
            &outgoing,
            &[
                segment::send(1, 0, false, &octets[..100]),
                segment::send(1, 100, false, &octets[100..200]),
                segment::send(1, 200, true, &octets[200..]),
                segment::send(2, 0, true, b"next"),
            ],
        );
        let mut octets = written(&mut outgoing, LIMITS, &octets);
        octets.extend(written(&mut outgoing, LIMITS, b"next"));
        assert_eq!(octets, expected);
        assert_eq!(outgoing, Outgoing { octets: octets.len() as u64, fpdus: 4, msn: 3, ..outgoing });
    }
}

#[test]
fn a_write_longer_than_the_longest_send_is_several_that_fill_their_segments() {
    let (mut outgoing, octets) = (outgoing(true, false), pattern(250, 2));
    let expected = framed(
        &outgoing,
        &[
            segment::send(1, 0, true, &octets[..100]),
            segment::send(2, 0, false, &octets[100..200]),
            segment::send(2, 100, true, &octets[200..]),
        ],
    );
    assert_eq!(written(&mut outgoing, Limits { max_send: 150, ..LIMITS }, &octets), expected);
    // One that is shorter than a segment cannot fill it.
    let mut outgoing = Outgoing { msn: 1, octets: 0, fpdus: 0, ..outgoing };
    let ulpdus: Vec<_> =
        octets.chunks(70).zip(1..).map(|(octets, msn)| segment::send(msn, 0, true, octets)).collect();
    let expected = framed(&outgoing, &ulpdus);
    assert_eq!(written(&mut outgoing, Limits { max_send: 70, ..LIMITS }, &octets), expected);
    let mut outgoing = Outgoing { msn: 1, octets: 0, fpdus: 0, ..outgoing };
    // 200, 200 and 100.
    written(&mut outgoing, Limits { max_send: 299, ..LIMITS }, &pattern(500, 2));
    assert_eq!(outgoing.msn, 4);
}

#[test]
fn a_message_that_is_open_says_how_much_of_it_is_left() {
    let (mut outgoing, octets) = (outgoing(true, false), pattern(250, 2));
    let (mut train, mut records) = (Train::new(1 << 20), [Record::default(); 1]);
    let mut load = outgoing.load(1 << 20, &mut records);
    load.write(&mut train, LIMITS, &mut &octets[..], None).unwrap();
    let message = outgoing.took(load.records(), 1).last().unwrap().after.message.unwrap();
    assert_eq!(message.left(), 150);
}

#[test]
fn octets_where_they_lie_make_the_fpdus_of_copies() {
    let octets = pattern(300, 3);
    let (mut outgoing, mut train, mut records) =
        (outgoing(true, false), Train::new(1 << 20), [Record::default(); 9]);
    let mut lent = Pieces { octets: &octets, piece: 30, good: 300 };
    let mut load = outgoing.load(1 << 20, &mut records);
    assert_eq!(load.send(&mut train, b"in front", &mut lent, 100), Ok(true));
    assert_eq!(load.send(&mut train, b"of", &mut lent, 100), Ok(true));
    assert_eq!(load.send(&mut train, b"", &mut lent, 0), Ok(true));
    // Its pieces are too many.
    assert_eq!(load.send(&mut train, b"none", &mut lent, 100), Ok(false));
    let records = load.records();
    assert_eq!(records.iter().map(|record| record.after.payload).collect::<Vec<_>>(), [100, 200, 200]);
    let expected = framed(
        &outgoing,
        &[
            segment::send(1, 0, true, &[b"in front", &octets[..100]].concat()),
            segment::send(2, 0, true, &[b"of", &octets[100..200]].concat()),
            segment::send(3, 0, true, b""),
        ],
    );
    assert_eq!((train.0, train.2 > 0), (expected, true));
    let _ = outgoing.took(records, records[2].end);
    assert_eq!((outgoing.msn, outgoing.fpdus), (4, 3));
}

#[test]
fn what_goes_in_front_may_be_longer_than_the_octets_between_two_markers() {
    // RFC 5044 §4.3
    let (outgoing, front) = (outgoing(true, true), pattern(1300, 4));
    let (mut train, mut records) = (Train::new(1 << 20), [Record::default(); 9]);
    let mut load = outgoing.load(1 << 20, &mut records);
    assert_eq!(load.send(&mut train, &front, &mut &b"behind"[..], 6), Ok(true));
    assert_eq!(train.0, framed(&outgoing, &[segment::send(1, 0, true, &[&front[..], b"behind"].concat())]));
}

/// Octets that cannot lie next to a header, and are lent to nobody.
#[derive(Clone)]
struct Kept;

impl Payload<Train> for Kept {
    type Error = Infallible;

    fn left(&self) -> usize {
        9
    }

    fn copy(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn copies(&self, _: &Train, _: usize) -> bool {
        false
    }
}

#[test]
fn octets_that_nobody_lends_have_no_room_in_a_train() {
    let (mut train, mut records) = (Train::new(1 << 20), [Record::default(); 9]);
    let mut load = outgoing(true, false).load(1 << 20, &mut records);
    assert_eq!(load.send(&mut train, b"", &mut Kept, 9), Ok(false));
    assert_eq!(train.0.len(), 0);
}

#[test]
fn tagged_segments_take_no_number() {
    let (mut outgoing, mut train, mut records) =
        (outgoing(true, true), Train::new(1 << 20), [Record::default(); 9]);
    let mut load = outgoing.load(1 << 20, &mut records);
    let header = rddp_rdmap::tagged_header(Opcode::Write, Stag(7), 9, true);
    assert_eq!(load.tagged(&mut train, &header, &mut &b"octets"[..], 6), Ok(true));
    assert_eq!(load.send(&mut train, b"", &mut &b"send"[..], 4), Ok(true));
    let expected = [segment::write(Stag(7), 9, true, b"octets"), segment::send(1, 0, true, b"send")];
    assert_eq!(train.0, framed(&outgoing, &expected));
    let _ = outgoing.took(load.records(), train.0.len());
    assert_eq!((outgoing.msn, outgoing.fpdus), (2, 2));
}

#[test]
fn octets_that_cannot_be_had_are_told() {
    let outgoing = outgoing(true, false);
    let (mut train, mut records) = (Train::new(1 << 20), [Record::default(); 9]);
    let mut lent = Pieces { octets: &[1; 300], piece: 300, good: 250 };
    let mut load = outgoing.load(1 << 20, &mut records);
    assert_eq!(load.write(&mut train, LIMITS, &mut lent, None), Err("gone"));
    assert_eq!((load.records().len(), train.0.len()), (2, 2 * 124));
}

#[test]
fn a_train_is_full_by_octets_by_records_and_by_its_own_room() {
    let outgoing = outgoing(false, false);
    let fpdus = |most, room, records: usize| {
        let (mut train, mut octets) = (Train::new(room), &[1; 1000][..]);
        let mut records = vec![Record::default(); records];
        let mut load = outgoing.load(most, &mut records);
        load.write(&mut train, LIMITS, &mut octets, None).unwrap();
        let count = load.records().len();
        assert_eq!((1000 - octets.len(), train.0.len()), (count * 100, count * 124));
        count
    };
    assert_eq!((fpdus(1 << 20, 1 << 20, 3), fpdus(248, 1 << 20, 9), fpdus(249, 1 << 20, 9)), (3, 2, 3));
    assert_eq!((fpdus(1 << 20, 495, 9), fpdus(1 << 20, 496, 9)), (3, 4));
}

#[test]
fn an_fpdu_without_room_changes_nothing() {
    let header = untagged_header(Opcode::Send, Stag(0), Msn(1), 0, true);
    let before = outgoing(true, false);
    let (mut now, mut room) = (before, [0; 27]);
    assert_eq!((now.emit(&header, b"abc", &mut room), now.send(b"abc", &mut room)), (None, None));
    assert_eq!((now, room), (before, [0; 27]));
    let mut room = [0; 40];
    let len = now.send(b"abc", &mut room);
    assert_eq!((len, now.msn, now.fpdus, now.octets), (Some(28), 2, 1, 28));
    assert_eq!(room[..28], framed(&before, &[segment::send(1, 0, true, b"abc")]));
}

#[test]
fn an_fpdu_whose_ulpdu_would_be_too_long_changes_nothing() {
    // RFC 5044 §3
    let (before, mut room) = (outgoing(true, true), vec![0; 80_000]);
    let (mut now, octets) = (before, pattern(70_000, 1));
    let most = rddp_mpa::MAX_ULPDU - rddp_ddp::UntaggedRepr::LEN;
    for count in [most + 1, 65_536, 70_000] {
        assert_eq!((now.send(&octets[..count], &mut room), now), (None, before), "{count}");
    }
    let len = now.send(&octets[..most], &mut room).unwrap();
    assert_eq!(room[..len], framed(&before, &[segment::send(1, 0, true, &octets[..most])]));
}

/// Writes octets to a TCP that takes a part now and then; returns how many count as sent.
fn write(outgoing: &mut Outgoing, octets: &[u8], random: &mut Random, wire: &mut Vec<u8>) -> usize {
    let limits = Limits { mulpdu: 19 + random.below(300), max_send: random.below(1000) as u32 };
    let (mut done, mut open) = (0, None);
    loop {
        let (mut train, mut records) = (Train::new(random.below(4000)), [Record::default(); 5]);
        let mut load = outgoing.load(1 + random.below(2000), &mut records);
        // Now and then fewer octets are known to be there.
        let reach = if random.below(3) == 0 { random.below(octets.len() - done) + 1 } else { usize::MAX };
        let mut rest = &octets[done..][..reach.min(octets.len() - done)];
        load.write(&mut train, limits, &mut rest, open).unwrap();
        let all = train.0.len();
        let took = if random.below(3) == 0 { random.below(all + 1) } else { all };
        let taken = outgoing.took(load.records(), took);
        wire.extend_from_slice(&train.0[..took]);
        wire.extend_from_slice(&train.0[taken.owed()]);
        if let Some(After { payload, message, .. }) = taken.last().map(|record| record.after) {
            (done, open) = (done + payload, message);
        }
        if took < all || all == 0 || done == octets.len() {
            break;
        }
    }
    if let Some(message) = open {
        let (some, mut out) = (message.left().min(random.below(50)), [0; 256]);
        let len = outgoing.end(message, &octets[done..done + some], &mut out).unwrap();
        wire.extend_from_slice(&out[..len]);
        done += some;
    }
    done
}

#[test]
fn what_a_write_counts_is_what_the_peer_gets_whatever_tcp_takes() {
    let (mut cut, mut ended) = (0, 0);
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let terms = Terms { crc: seed % 2 == 0, markers: seed % 3 == 0, ird: 0, ord: 0 };
        let (mut outgoing, mut wire, mut sent) = (outgoing(terms.crc, terms.markers), Vec::new(), Vec::new());
        for _ in 0..random.below(9) {
            let octets = pattern(random.below(3000), random.below(256) as u8);
            let count = write(&mut outgoing, &octets, &mut random, &mut wire);
            cut += usize::from(count < octets.len());
            sent.extend_from_slice(&octets[..count]);
            ended += 1;
        }
        let mut memory = vec![0; sent.len() + 1];
        let mut incoming = Incoming::new(&terms, &Position::FIRST, 1000, &Plain);
        let batch = Batch::of(&mut incoming, &mut wire, &mut &mut memory[..], 0, &mut Plain);
        assert_eq!((batch.used, &memory[..sent.len()]), (wire.len(), &sent[..]), "seed {seed}");
        let at = incoming.position();
        // No message is left open.
        assert_eq!((at.octets, at.msn, at.is_open), (outgoing.octets, outgoing.msn, false), "seed {seed}");
    }
    assert!(cut > 100 && ended - cut > 100, "{cut} of {ended}");
}

/// Processes of one build share it, and their library tells others' builds by these offsets.
#[test]
fn the_sending_direction_lies_as_it_is_shared() {
    let out = [
        offset_of!(Outgoing, octets),
        offset_of!(Outgoing, fpdus),
        offset_of!(Outgoing, msn),
        offset_of!(Outgoing, crc),
        offset_of!(Outgoing, markers),
    ];
    assert_eq!((out, size_of::<Outgoing>()), ([0, 8, 16, 20, 21], 24));
}
