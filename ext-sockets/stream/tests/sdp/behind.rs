//! Sends behind a spill that nobody has read, and receives of the octets in front of an advert.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rddp_rdmap::{AccessError, Fault};
use rddp_stream::{Errno, SdpOptions};
use rddp_test_support::random_octets;

use crate::advertising::{RD_COMPL, SEND_SM};
use crate::common::{End, initiator, responder};
use crate::lending::help;
use crate::peer::Sdp;
use crate::reading::{Advert, connected};
use crate::{pair, with};

/// Returns two ends, the first of which has left a spill of some octets behind.
fn with_a_spill(octets: &[u8]) -> (End, End) {
    let lending = SdpOptions { threshold: 0, ..SdpOptions::DEFAULT };
    let (a, b) = pair(&with(initiator(), lending), &with(responder(), lending));
    a.state.set_send_timeout(Some(Duration::from_millis(10)));
    a.send_all(octets);
    assert!(a.stream().has_obligation());
    (a, b)
}

#[test]
fn sends_behind_a_spill_return_and_keep_their_order() {
    let octets = random_octets(1, 2000);
    let (a, b) = with_a_spill(&octets[..10]);
    a.state.set_send_timeout(None);
    for part in octets[10..].chunks(10) {
        let mut lent = part.to_vec();
        assert_eq!(a.poll(libc::POLLOUT, Duration::ZERO).0, libc::POLLOUT);
        a.send_all(&lent);
        lent.fill(0xee);
    }
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.send(b"no more"), Err(Errno::BROKEN_PIPE));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| help(&a, &over));
        assert_eq!(b.read_to_end(300), Ok(octets));
        over.store(true, Ordering::Relaxed);
    });
    a.stream().meet_obligation();
    assert!(!a.stream().has_obligation());
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

#[test]
fn the_memory_behind_a_spill_has_a_bound_and_is_used_again() {
    let (a, b) = with_a_spill(b"in front");
    let octets = random_octets(2, 100_000);
    let piece = |end: &End| end.stream().send(&[IoSlice::new(&octets)], libc::MSG_DONTWAIT);
    for _ in 0..2 {
        let mut sent = 0;
        while a.poll(libc::POLLOUT, Duration::ZERO).0 != 0 {
            let count = piece(&a).unwrap();
            sent += count;
            assert!(sent <= 2 << 20, "{sent} octets are queued");
            if count < octets.len() {
                break;
            }
        }
        assert!(sent >= 1 << 20, "room for {sent} octets");
        while a.poll(libc::POLLOUT, Duration::ZERO).0 != 0 {
            sent += piece(&a).unwrap();
        }
        assert_eq!(piece(&a), Err(Errno::WOULD_BLOCK));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&a, &over));
            let got = b.recv(&mut vec![0; 8 + sent], libc::MSG_WAITALL);
            assert_eq!(got, Ok(8 + sent));
            over.store(true, Ordering::Relaxed);
        });
        let until = Instant::now() + Duration::from_secs(20);
        while a.stream().has_obligation() && Instant::now() < until {
            a.stream().meet_obligation();
        }
        // What is sent now waits for nothing.
        a.state.set_send_timeout(Some(Duration::from_millis(10)));
        a.send_all(b"in front");
    }
    assert_eq!((a.state.ended(), b.state.ended()), (None, None));
}

#[test]
fn memory_that_is_not_mapped_is_not_queued() {
    let (a, _b) = with_a_spill(b"in front");
    // SAFETY: nobody reads it but the kernel and the stream, which find that it is not mapped.
    let nowhere = unsafe { std::slice::from_raw_parts(4096 as *const u8, 10) };
    assert_eq!(a.send(nowhere), Err(Errno::FAULT));
    a.send_all(b"behind");
}

/// Returns an end that has spilled, and queued octets behind that; its peer, with the advert; all
/// octets of both.
fn queued() -> (Sdp, End, Advert, Vec<u8>) {
    let (mut peer, end) = connected(0);
    let octets = random_octets(3, 5000);
    end.state.set_send_timeout(Some(Duration::from_millis(10)));
    end.send_all(&octets[..3000]);
    end.send_all(&octets[3000..4000]);
    end.send_all(&octets[4000..]);
    let advert = peer.advert().0;
    assert_eq!(advert.len, 3000);
    (peer, end, advert, octets)
}

#[test]
fn what_is_queued_comes_as_data_behind_what_is_read() {
    let (mut peer, end, advert, octets) = queued();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| help(&end, &over));
        peer.ask(1, advert.stag, 1, 2999);
        assert_eq!(peer.response(1), octets[1..3000]);
        peer.message(RD_COMPL, &2999_u32.to_be_bytes(), &[]);
        assert_eq!(peer.copied(2000), octets[3000..]);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!((end.state.ended(), end.stream().has_obligation()), (None, false));
}

#[test]
fn what_is_queued_comes_as_data_behind_what_is_refused() {
    let (mut peer, end, _, octets) = queued();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| help(&end, &over));
        peer.message(SEND_SM, &[], &[]);
        assert_eq!(peer.copied(4999), octets[1..]);
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!((end.state.ended(), end.stream().has_obligation()), (None, false));
}

#[test]
fn what_is_queued_cannot_be_read() {
    let (mut peer, end, _, _) = queued();
    peer.ask(1, 0, 0, 10);
    end.stream().meet_obligation();
    let ended = end.state.ended().expect("the connection is over");
    assert_eq!(ended.code, Fault::read_source(AccessError::Stag).code());
}

#[test]
fn a_receive_has_more_of_an_advert_than_its_first_octet() {
    let lending = SdpOptions { threshold: 0, ..SdpOptions::DEFAULT };
    let (a, b) = pair(&with(initiator(), lending), &with(responder(), lending));
    let octets = random_octets(4, 64);
    thread::scope(|scope| {
        scope.spawn(|| (0..100).for_each(|_| a.send_all(&octets)));
        for _ in 0..100 {
            assert_eq!(b.read(64), Ok(octets.clone()));
        }
    });
}

#[test]
fn a_receive_does_not_wait_for_ever_for_the_rest_of_an_advert() {
    for (flags, limit) in [(0, None), (0, Some(Duration::from_millis(20))), (libc::MSG_DONTWAIT, None)] {
        let (mut peer, end) = Sdp::connected();
        end.state.set_receive_timeout(limit);
        peer.advertise(5000, b"first");
        assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
        let mut room = [0; 100];
        assert_eq!((end.recv(&mut room, flags), &room[..5]), (Ok(5), &b"first"[..]));
        assert_eq!(end.state.ended(), None);
    }
}
