//! Modes that the settings ask for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rddp_stream::{Errno, Options, SdpMode, SdpOptions};
use rddp_test_support::{Random, random_octets};

use crate::advertising::{DATA, MODE_CHANGE};
use crate::common::{End, initiator, responder};
use crate::lending::{help, receive_in_pieces, send_in_pieces};
use crate::peer::Sdp;
use crate::{pair, with};

const ALL: [SdpMode; 3] = [SdpMode::Buffered, SdpMode::Combined, SdpMode::Pipelined];
/// The place of the octets of Reads among the counters.
const READ: usize = 6;

fn asking(options: Options, mode: Option<SdpMode>, threshold: u64) -> Options {
    with(options, SdpOptions { mode, threshold, ..SdpOptions::DEFAULT })
}

fn send_mode(end: &End) -> SdpMode {
    end.stream().sdp_info().unwrap().send_mode
}

fn octets_read(end: &End) -> u64 {
    end.stream().sdp_info().unwrap().counters[READ]
}

/// Sends so many octets, which the other end receives in one call.
fn cross(from: &End, to: &End, size: usize) {
    let octets = random_octets(size as u64, size);
    thread::scope(|scope| {
        scope.spawn(|| from.send_all(&octets));
        let mut got = vec![0; size];
        assert_eq!(to.recv(&mut got, libc::MSG_WAITALL), Ok(size));
        assert!(got == octets);
    });
}

#[test]
fn a_mode_that_is_asked_for_is_said_before_the_first_octets() {
    for mode in ALL {
        let (mut peer, end) = Sdp::connected_to(&asking(responder(), Some(mode), u64::MAX));
        end.send_all(b"first");
        if mode != SdpMode::Combined {
            let message = peer.next();
            assert_eq!((message[0], message[16]), (MODE_CHANGE, (mode as u8) << 4));
        }
        let message = peer.next();
        assert_eq!((message[0], &message[16..]), (DATA, &b"first"[..]));
        assert_eq!(send_mode(&end), mode);
        end.send_all(b"second");
        assert_eq!(peer.next()[0], DATA, "it is said once");
    }
}

#[test]
fn both_ends_ask_for_a_mode() {
    for mode in ALL {
        let (a, b) =
            pair(&asking(initiator(), Some(mode), u64::MAX), &asking(responder(), Some(mode), u64::MAX));
        cross(&a, &b, 8);
        cross(&b, &a, 6);
        for end in [&a, &b] {
            let info = end.stream().sdp_info().unwrap();
            assert_eq!((info.send_mode, info.receive_mode), (mode, mode));
        }
    }
}

#[test]
fn buffered_has_no_adverts_until_the_sink_wants_some() {
    let (a, b) = pair(&asking(initiator(), Some(SdpMode::Buffered), 0), &asking(responder(), None, u64::MAX));
    cross(&a, &b, 10_000);
    assert_eq!((send_mode(&a), octets_read(&a)), (SdpMode::Buffered, 0));
    let (ahead, behind) = (random_octets(1, 50_000), random_octets(2, 50_000));
    thread::scope(|scope| {
        // A call with room for an advert, which waits.
        let reading = scope.spawn(|| {
            let mut got = vec![0; 100_000];
            assert_eq!(b.recv(&mut got, libc::MSG_WAITALL), Ok(100_000));
            got
        });
        while send_mode(&a) == SdpMode::Buffered {
            let _ = a.poll(libc::POLLIN, Duration::from_millis(10));
            assert_eq!(a.recv(&mut [0; 1], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
        }
        a.send_all(&ahead);
        a.send_all(&behind);
        assert!(reading.join().unwrap() == [ahead, behind].concat());
    });
    assert_eq!(send_mode(&a), SdpMode::Combined, "it is not contradicted");
    assert!(octets_read(&a) > 0);
}

#[test]
fn combined_is_kept_where_several_adverts_would_be_pipelined() {
    for (mode, ends_in) in [(None, SdpMode::Pipelined), (Some(SdpMode::Combined), SdpMode::Combined)] {
        let (a, b) = pair(&asking(initiator(), mode, 0), &asking(responder(), None, 0));
        cross(&a, &b, 5 << 20);
        assert_eq!(send_mode(&a), ends_in);
        assert!(octets_read(&a) > 0);
    }
}

#[test]
fn a_mode_may_be_asked_for_on_a_connection() {
    let (a, b) = pair(&asking(initiator(), None, u64::MAX), &asking(responder(), None, u64::MAX));
    let steps = [SdpMode::Pipelined, SdpMode::Combined, SdpMode::Pipelined, SdpMode::Buffered];
    for mode in steps {
        a.state.set_mode(Some(mode));
        // From Pipelined to Buffered there are two changes, the first of which the peer sees first.
        for _ in 0..3 {
            cross(&a, &b, 100);
            cross(&b, &a, 100);
        }
        assert_eq!(send_mode(&a), mode);
        assert_eq!(b.stream().sdp_info().unwrap().receive_mode, mode);
    }
}

#[test]
fn octets_cross_while_modes_change_at_random() {
    for seed in 0..3 {
        let threshold = [0, 5000, u64::MAX][seed as usize];
        let (a, b) = pair(&asking(initiator(), None, threshold), &asking(responder(), None, threshold));
        let (to_b, to_a) = (random_octets(2 * seed, 4 << 20), random_octets(2 * seed + 1, 4 << 20));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&a, &over));
            scope.spawn(|| help(&b, &over));
            scope.spawn(|| {
                let mut random = Random::new(seed);
                while !over.load(Ordering::Relaxed) {
                    let mode = ALL.get(random.below(4)).copied();
                    [&a, &b][random.below(2)].state.set_mode(mode);
                    thread::sleep(Duration::from_micros(300));
                }
            });
            scope.spawn(|| send_in_pieces(&a, &to_b, seed + 10));
            scope.spawn(|| send_in_pieces(&b, &to_a, seed + 20));
            let at_b = scope.spawn(|| receive_in_pieces(&b, seed + 30));
            let at_a = scope.spawn(|| receive_in_pieces(&a, seed + 40));
            let (at_b, at_a) = (at_b.join(), at_a.join());
            over.store(true, Ordering::Relaxed);
            assert!(at_b.unwrap() == to_b && at_a.unwrap() == to_a);
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None), "seed {seed}");
    }
}
