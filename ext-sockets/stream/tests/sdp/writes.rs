//! `SinkAvail`s of an end of ours: what a peer writes, in any order, and reports.

use std::thread;
use std::time::Duration;

use rddp_rdmap::{Opcode, TerminateCode, TerminateRepr};
use rddp_stream::Errno;
use rddp_test_support::{Random, random_octets};

use crate::advertising::{SINK_CANCEL, WR_COMPL};
use crate::common::End;
use crate::peer::Sdp;

const DISCONN: u8 = 2;

/// Returns a peer in Pipelined.
fn connected() -> (Sdp, End) {
    let (mut peer, end) = Sdp::connected();
    peer.pipelined();
    (peer, end)
}

fn wait_all(end: &End, count: usize) -> Vec<u8> {
    let mut octets = vec![0; count];
    assert_eq!(end.recv(&mut octets, libc::MSG_WAITALL), Ok(count));
    octets
}

#[test]
fn a_call_that_waits_offers_its_room() {
    for len in [16 << 10, 100_000, 1 << 20] {
        let (mut peer, end) = connected();
        let octets = random_octets(1, len);
        thread::scope(|scope| {
            let reading = scope.spawn(|| wait_all(&end, len));
            let (room, stag) = peer.offered();
            assert_eq!(room, len);
            for (at, part) in octets.chunks(30_000).enumerate() {
                peer.write(stag, at as u64 * 30_000, true, part);
            }
            peer.wrote(len);
            assert!(reading.join().unwrap() == octets);
        });
        assert_eq!(end.state.ended(), None);
    }
}

#[test]
fn a_call_that_sleeps_offers_its_room_when_the_peer_becomes_pipelined() {
    let (mut peer, end) = Sdp::connected();
    let octets = random_octets(3, 40_000);
    thread::scope(|scope| {
        let reading = scope.spawn(|| wait_all(&end, octets.len()));
        assert!(peer.peer.is_silent(Duration::from_millis(50)), "the call sleeps");
        peer.pipelined();
        let (room, stag) = peer.offered();
        assert_eq!(room, octets.len());
        peer.write(stag, 0, true, &octets);
        peer.wrote(room);
        assert!(reading.join().unwrap() == octets);
    });
}

#[test]
fn a_small_call_and_one_that_does_not_wait_offer_nothing() {
    let (mut peer, end) = connected();
    assert_eq!(end.recv(&mut vec![0; 100_000], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.read(16_383));
        assert!(peer.peer.is_silent(Duration::from_millis(50)));
        peer.data(b"data");
        assert_eq!(reading.join().unwrap(), Ok(b"data".to_vec()));
    });
}

#[test]
fn writes_in_any_order_are_the_octets_of_the_buffer() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (mut peer, end) = connected();
        let len = 60_000 + random.below(40_000);
        let octets = random_octets(seed, len);
        let mut starts: Vec<usize> = (0..len).step_by(7_000).collect();
        for at in (1..starts.len()).rev() {
            starts.swap(at, random.below(at + 1));
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| wait_all(&end, len + 5));
            let (room, stag) = peer.offered();
            assert_eq!(room, len + 5);
            for start in &starts {
                let stop = (start + 7_000).min(len);
                peer.write(stag, *start as u64, true, &octets[*start..stop]);
            }
            // Octets that were written are written again.
            peer.write(stag, 0, true, &octets[..9_000]);
            // A short advert is complete.
            peer.wrote(len);
            peer.data(b"after");
            let got = reading.join().unwrap();
            assert!(got[..len] == octets && got.ends_with(b"after"), "seed {seed}");
        });
        assert_eq!((end.readable(), end.state.ended()), (false, None));
    }
}

#[test]
fn a_peer_that_writes_where_it_may_not_is_cut_off() {
    type Breach = fn(&mut Sdp, u32, u64);
    let cases: [(&str, Breach, TerminateCode); 5] = [
        ("no STag", |peer, stag, _| peer.write(stag ^ 1, 0, true, b"x"), TerminateCode(0x1100)),
        ("beyond", |peer, stag, len| peer.write(stag, len, true, b"x"), TerminateCode(0x1101)),
        ("over the end", |peer, stag, len| peer.write(stag, len - 1, true, b"xy"), TerminateCode(0x1101)),
        ("wraps", |peer, stag, _| peer.write(stag, u64::MAX, true, b"xy"), TerminateCode(0x1103)),
        (
            "after the report",
            |peer, stag, _| {
                peer.wrote(0);
                peer.write(stag, 0, true, b"x");
            },
            TerminateCode(0x1100),
        ),
    ];
    for (name, breach, code) in cases {
        let (mut peer, end) = connected();
        thread::scope(|scope| {
            let reading = scope.spawn(|| end.recv(&mut vec![0; 50_000], libc::MSG_WAITALL));
            let (len, stag) = peer.offered();
            breach(&mut peer, stag, len as u64);
            assert_eq!(reading.join().unwrap(), Err(Errno::RESET), "{name}");
        });
        let terminate = loop {
            let (header, payload) = peer.peer.segment().expect(name);
            if header.control() & 0xf == Opcode::Terminate as u8 {
                break TerminateRepr::parse(&payload).unwrap();
            }
        };
        assert_eq!(terminate.code, code, "{name}");
    }
}

#[test]
fn a_report_that_is_not_of_what_was_written_aborts() {
    type Breach = fn(&mut Sdp, u32);
    let cases: [(&str, Breach); 6] = [
        ("more", |peer, stag| {
            peer.write(stag, 0, true, b"four");
            peer.wrote(5);
        }),
        ("less", |peer, stag| {
            peer.write(stag, 0, true, b"four");
            peer.wrote(3);
        }),
        ("longer than the buffer", |peer, _| peer.wrote(50_001)),
        ("Data over what was written", |peer, stag| {
            peer.write(stag, 0, true, b"four");
            peer.data(b"five");
        }),
        ("Data over what was written behind a gap", |peer, stag| {
            peer.write(stag, 100, true, b"four");
            peer.data(b"five");
        }),
        ("DisConn over what was written", |peer, stag| {
            peer.write(stag, 0, true, b"four");
            peer.message(DISCONN, &[], b"");
        }),
    ];
    for (name, breach) in cases {
        let (mut peer, end) = connected();
        thread::scope(|scope| {
            let reading = scope.spawn(|| end.recv(&mut vec![0; 50_000], libc::MSG_WAITALL));
            let (_, stag) = peer.offered();
            breach(&mut peer, stag);
            let got = reading.join().unwrap();
            assert!(got == Err(Errno::PROTOCOL) || got == Ok(4), "{name}: {got:?}");
        });
        assert!(end.state.ended().is_some_and(|ended| ended.errno == Errno::PROTOCOL), "{name}");
    }
}

#[test]
fn data_in_the_place_of_a_write_is_delivered() {
    let (mut peer, end) = connected();
    // The room of each is free again: all of them together are more than there is.
    for round in 0..12 {
        thread::scope(|scope| {
            let reading = scope.spawn(|| end.read(100_000));
            let (len, stag) = peer.offered();
            assert_eq!((len, stag != 0), (100_000, true), "round {round}");
            peer.data(b"an octet");
            assert_eq!(reading.join().unwrap(), Ok(b"an octet".to_vec()));
        });
    }
    assert_eq!(end.state.ended(), None);
}

#[test]
fn the_peers_end_returns_what_was_offered() {
    let (mut peer, end) = connected();
    thread::scope(|scope| {
        let reading = scope.spawn(|| end.read(20_000));
        let _ = peer.offered();
        peer.message(DISCONN, &[], b"");
        assert_eq!(reading.join().unwrap(), Ok(vec![]));
    });
    assert_eq!((end.read(20_000), end.state.ended()), (Ok(vec![]), None));
}

#[test]
fn a_call_that_has_returned_is_not_written_to() {
    let (mut peer, end) = connected();
    let octets = random_octets(3, 50_000);
    let mut buffer = vec![0; 50_000];
    end.state.set_receive_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.recv(&mut buffer, 0), Err(Errno::WOULD_BLOCK));
    let (_, stag) = peer.offered();
    peer.write(stag, 0, true, &octets[..10_000]);
    assert_eq!(end.recv(&mut buffer, libc::MSG_WAITALL), Ok(10_000));
    assert!(buffer[..10_000] == octets[..10_000]);
    buffer.fill(0xa5);
    // In order, behind a gap, and the rest.
    peer.write(stag, 10_000, true, &octets[10_000..20_000]);
    peer.write(stag, 40_000, true, &octets[40_000..]);
    assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    peer.write(stag, 20_000, true, &octets[20_000..40_000]);
    peer.wrote(50_000);
    assert!(buffer.iter().all(|octet| *octet == 0xa5), "the memory of a call that has returned");
    end.state.set_receive_timeout(None);
    let mut rest = Vec::new();
    while rest.len() < 40_000 {
        rest.extend(end.read(3_000).unwrap());
    }
    assert!(rest == octets[10_000..]);
    assert_eq!((end.readable(), end.state.ended()), (false, None));
}

#[test]
fn a_close_takes_the_offer_back() {
    let (mut peer, end) = connected();
    end.state.set_receive_timeout(Some(Duration::from_millis(30)));
    assert_eq!(end.recv(&mut vec![0; 50_000], 0), Err(Errno::WOULD_BLOCK));
    let _ = peer.offered();
    assert!(!end.stream().finish(Duration::ZERO));
    assert_eq!(peer.told()[0], SINK_CANCEL);
    assert_eq!(peer.told()[0], DISCONN);
    assert_eq!(WR_COMPL, 5);
}

#[test]
fn what_is_written_behind_the_report_is_no_octet_of_the_stream() {
    let (mut peer, end) = connected();
    let octets = random_octets(4, 30_000);
    thread::scope(|scope| {
        let reading = scope.spawn(|| wait_all(&end, 20_005));
        let (_, stag) = peer.offered();
        peer.write(stag, 10_000, true, &octets[10_000..20_005]);
        peer.write(stag, 0, true, &octets[..10_000]);
        peer.wrote(20_000);
        peer.data(b"after");
        assert!(reading.join().unwrap() == [&octets[..20_000], b"after"].concat());
    });
    assert_eq!((end.readable(), end.state.ended()), (false, None));
}
