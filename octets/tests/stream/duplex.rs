//! Two ends over a TCP that takes what it likes and delivers it in pieces.

use rddp_ddp::{Header, UntaggedRepr};
use rddp_octets::{End, HandshakeOptions};
use rddp_rdmap::{ReadRequestRepr, TerminateCode};
use rddp_test_support::{Fpdus, Random, pattern_from, segment};

use crate::ends::{Side, agreed, options};

/// Puts octets, and gives TCP at most so many.
fn send(from: &mut Side, to: &mut Side, octets: usize, tcp: usize) {
    from.put(octets);
    from.pay(to, tcp);
}

/// Gets octets of TCP, and takes those of the peer.
fn receive(side: &mut Side, tcp: usize, room: usize) {
    side.deliver(tcp);
    side.take(room);
}

fn pair() -> [Side; 2] {
    agreed([options(true, false), options(true, false)]).map(|agreed| Side::new(&agreed))
}

#[test]
fn what_was_put_is_what_is_taken() {
    for seed in 1..40 {
        let mut random = Random::new(seed);
        let mut with = || random.below(2) == 0;
        let ends = agreed([options(with(), with()), options(with(), with())]);
        let [mut a, mut b] = ends.map(|agreed| Side::new(&agreed));
        for end in [&mut a, &mut b] {
            end.duplex.set_emss([536, 1448, 9000, 65_483][random.below(4)]);
        }
        for round in 0.. {
            let (last, most) = (round >= 50, [30, 3000, 100_000][random.below(3)]);
            let (here, there) = if round % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
            send(here, there, if last { 0 } else { random.below(most) }, random.below(most + 1));
            if last {
                here.duplex.finish();
            }
            receive(here, random.below(most + 1), random.below(most + 1));
            if here.duplex.end().is_some() && there.duplex.end().is_some() {
                break;
            }
            assert!(round < 10_000, "seed {seed}: the two never come to an end");
        }
        for (here, there) in [(&a, &b), (&b, &a)] {
            assert_eq!((here.taken, here.duplex.end()), (there.put, Some(End::Finished)), "seed {seed}");
            assert!(here.duplex.is_finished() && here.put > 1000, "seed {seed}: {}", here.put);
        }
    }
}

#[test]
fn the_trailer_of_the_fpdu_in_front_leaves_with_its_last_octet() {
    let (mut side, mut peer) = responder();
    for (msn, octets) in (1..).zip(pattern_from(0, 6).chunks(3)) {
        side.wire.extend(peer.frame(&segment::send(msn, 0, true, octets)));
    }
    side.deliver(1000);
    (0..6).for_each(|_| side.take(1));
    assert_eq!((side.taken, side.duplex.end()), (6, None));
}

#[test]
fn tcp_is_owed_each_octet_that_it_did_not_take() {
    let [mut active, _] = pair();
    active.put(100);
    let all = active.duplex.owed().to_vec();
    for count in 1..=all.len() {
        active.duplex.paid(1);
        assert_eq!(active.duplex.owed(), &all[count..]);
    }
}

#[test]
fn a_responder_sends_nothing_before_the_initiators_first_fpdu() {
    // RFC 5044 §7.1.2
    let [mut active, mut passive] = pair();
    send(&mut passive, &mut active, 10, 1000);
    assert_eq!((passive.put, active.wire.len()), (0, 0));
    send(&mut active, &mut passive, 0, 1000);
    // Without a look of the program at what has come.
    let count = passive.wire.len();
    passive.duplex.space()[..count].copy_from_slice(passive.wire.make_contiguous());
    passive.duplex.filled(count);
    send(&mut passive, &mut active, 10, 1000);
    assert_eq!(passive.put, 10);
}

/// Returns the responder of a pair, and a peer made by hand.
fn responder() -> (Side, Fpdus) {
    let [active, passive] = agreed([options(true, false), options(true, false)]);
    (Side::new(&passive), Fpdus::new(active.outgoing.framing(), active.outgoing.framing()))
}

/// Returns a responder to which its peer has sent ULPDUs and then closed.
fn met(ulpdus: &[Vec<u8>], cut: usize) -> Side {
    let (mut side, mut peer) = responder();
    side.wire = ulpdus.iter().flat_map(|ulpdu| peer.frame(ulpdu)).collect();
    side.wire.truncate(side.wire.len() - cut);
    receive(&mut side, 1 << 16, 1 << 16);
    side.closed = true;
    receive(&mut side, 0, 10);
    side
}

#[test]
fn an_end_of_the_peers_is_told_behind_its_octets() {
    let octets = segment::send(1, 0, true, &pattern_from(0, 100));
    let end = |side: &Side| (side.taken, side.duplex.end().unwrap(), side.duplex.is_finished());
    assert_eq!(end(&met(std::slice::from_ref(&octets), 0)), (100, End::Finished, false));
    assert_eq!(end(&met(std::slice::from_ref(&octets), 1)), (0, End::Truncated, true));
    let open = segment::send(2, 0, false, &pattern_from(100, 5));
    assert_eq!(end(&met(&[octets.clone(), open], 0)), (105, End::Truncated, true));
    let code = TerminateCode(0x1203);
    let ended = met(&[octets.clone(), segment::terminate(code)], 0);
    assert_eq!(end(&ended), (100, End::Terminated(code), true));
    let mut ended = met(&[octets, segment::send(7, 0, true, b"wrong")], 0);
    assert!(matches!(end(&ended), (100, End::Fault(_), false)), "a Terminate is owed");
    assert!(!ended.duplex.owed().is_empty() && ended.duplex.put(b"more") == 0);
    let told = End::Terminated(code).to_string();
    assert_eq!(told, format!("the peer has ended the stream: {code}"));
}

/// Returns a Read without octets.
fn read(msn: u32) -> Vec<u8> {
    let (sink_stag, src_stag) = (rddp_ddp::Stag(1), rddp_ddp::Stag(2));
    segment::read(msn, &ReadRequestRepr { sink_stag, sink_to: 0, size: 0, src_stag, src_to: 0 })
}

#[test]
fn reads_without_octets_are_answered_and_wait_for_room() {
    let ((mut side, mut peer), mut answers) = (responder(), 0);
    for msn in 1..10_000 {
        side.wire.extend(peer.frame(&read(msn)));
    }
    for _ in 0..100 {
        for _ in 0..10 {
            receive(&mut side, 1 << 16, 10);
        }
        answers += side.duplex.owed().len();
        peer.take(side.duplex.owed());
        side.duplex.paid(1 << 20);
    }
    assert_eq!(answers, 20 * 9999);
    while let Some(ulpdu) = peer.next_ulpdu() {
        assert_eq!(ulpdu, segment::response(rddp_ddp::Stag(1), 0, true, b""));
    }
    assert!(peer.is_empty() && side.duplex.end().is_none());
}

#[test]
fn nothing_is_owed_behind_an_end_that_was_told() {
    let (mut side, mut peer) = responder();
    side.duplex.finish();
    assert!(!side.duplex.is_finished(), "the initiator's first FPDU may be a Read");
    side.wire.extend(peer.frame(&read(1)));
    receive(&mut side, 1 << 16, 10);
    assert_eq!((side.duplex.owed().len(), side.duplex.is_finished()), (20, false));
    side.duplex.paid(20);
    assert!(side.duplex.is_finished());
    for msn in 2..10_000 {
        side.wire.extend(peer.frame(&read(msn)));
    }
    side.wire.extend(peer.frame(&segment::send(7, 0, true, b"wrong")));
    while side.duplex.end().is_none() {
        let before = side.wire.len();
        receive(&mut side, 1 << 16, 10);
        assert!(side.duplex.is_finished() && side.duplex.owed().is_empty());
        assert!(side.wire.len() < before || side.duplex.end().is_some(), "the peer's octets are taken");
    }
    assert!(matches!(side.duplex.end(), Some(End::Fault(_))));
}

#[test]
fn a_responder_whose_peer_closes_before_its_first_fpdu_is_over() {
    // RFC 5044 §7.1.2
    let mut side = met(&[], 0);
    assert_eq!((side.duplex.end(), side.duplex.put(b"never")), (Some(End::Finished), 0));
    assert!(side.duplex.is_finished());
}

#[test]
fn an_initiator_whose_format_is_to_begin_begins_without_octets() {
    // RFC 5044 §7.1.2
    let mut begins = HandshakeOptions { format_begins: true, ..options(true, false) };
    begins.startup.revision = rddp_mpa::Revision::One;
    let [active, passive] = agreed([begins, options(true, false)]);
    assert!(active.first.is_none() && active.may_send && !passive.may_send);
    let [mut active, mut passive] = [active, passive].map(|agreed| Side::new(&agreed));
    send(&mut active, &mut passive, 0, 1000);
    receive(&mut passive, 1000, 10);
    send(&mut passive, &mut active, 10, 1000);
    send(&mut active, &mut passive, 10, 1000);
    receive(&mut active, 1000, 10);
    receive(&mut passive, 1000, 10);
    assert_eq!(
        [&active, &passive].map(|side| (side.put, side.taken, side.duplex.end())),
        [(10, 10, None); 2]
    );
}

/// Returns the length of each FPDU of a write, and whether it ends its Send.
fn fpdus(side: &mut Side, octets: usize) -> Vec<(usize, bool)> {
    let (mut lens, before) = (Vec::new(), side.duplex.owed().len());
    side.put(octets);
    let mut rest = &side.duplex.owed()[before..];
    while let Some(len) = rest.first_chunk() {
        let len = rddp_mpa::fpdu_len(u16::from_be_bytes(*len).into());
        let header = rddp_rdmap::parse_header(&rest[2..]).unwrap();
        lens.push((len, matches!(header, Header::Untagged(UntaggedRepr { last: true, .. }))));
        rest = &rest[len..];
    }
    lens
}

#[test]
fn a_send_has_no_more_octets_than_the_longest() {
    let [mut active, _] = pair();
    let sends = |side: &mut Side, octets| {
        side.duplex.paid(1 << 20);
        fpdus(side, octets).iter().filter(|(_, last)| *last).count()
    };
    assert_eq!((sends(&mut active, 1 << 16), sends(&mut active, (1 << 16) + 1)), (1, 2));
    for (max_send, count) in [(10, 10), (95, 1), (94, 2)] {
        active.duplex.set_max_send(max_send);
        assert_eq!(sends(&mut active, 95), count);
    }
}

#[test]
fn fpdus_fill_the_segments_of_tcp() {
    // RFC 5044 §4.5
    let [mut active, _] = pair();
    assert_eq!(fpdus(&mut active, 3000), [(1448, false), (1448, false), (176, true)]);
    active.duplex.set_emss(1000);
    assert_eq!(fpdus(&mut active, 2000), [(1000, false), (1000, false), (72, true)]);
}

#[test]
fn a_program_waits_where_much_is_owed() {
    let [mut active, _] = pair();
    active.duplex.set_max_owed(4000);
    // The last one ends the message.
    assert_eq!(fpdus(&mut active, 100_000), [(1448, false), (1448, false), (1448, false), (280, true)]);
    assert_eq!(fpdus(&mut active, 1), []);
    active.duplex.paid(active.duplex.owed().len() - 3999);
    assert_eq!(fpdus(&mut active, 1), [(28, true)]);
    // However little it may be, something goes.
    active.duplex.set_max_owed(0);
    active.duplex.paid(1 << 20);
    assert_eq!(fpdus(&mut active, 10), [(36, true)]);
}

#[test]
fn octets_of_the_peer_are_taken_however_much_is_owed() {
    for emss in (200..300).step_by(4) {
        let [mut active, mut passive] = pair();
        active.pay(&mut passive, 1000);
        passive.deliver(1000);
        send(&mut passive, &mut active, 10, 1000);
        active.duplex.set_emss(emss);
        // Some octets end a message for which there is no room.
        active.put(100_000);
        receive(&mut active, 1000, 10);
        assert_eq!(active.taken, 10, "EMSS {emss}");
    }
}
