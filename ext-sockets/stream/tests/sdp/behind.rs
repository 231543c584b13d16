//! Sends behind a spill that nobody has read, sends without credits, and receives of the octets in
//! front of an advert.

use std::io::{IoSlice, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rddp_rdmap::{AccessError, Fault};
use rddp_stream::{Errno, SdpOptions};
use rddp_test_support::random_octets;

use crate::advertising::{RD_COMPL, SEND_SM};
use crate::common::{End, initiator, responder, tcp_pair};
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
            assert!(sent <= 3 << 20, "a wait for room with {sent} octets that are queued");
            assert_eq!(count, octets.len());
        }
        while let Ok(count) = piece(&a) {
            sent += count;
        }
        assert_eq!((sent, piece(&a)), (17 << 18, Err(Errno::WOULD_BLOCK)));
        assert_eq!(a.poll(libc::POLLOUT, Duration::ZERO).0, 0);
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

pub(crate) const JOINS: SdpOptions = SdpOptions { joins: true, ..SdpOptions::DEFAULT };

fn joining() -> (End, End) {
    pair(&with(initiator(), JOINS), &with(responder(), JOINS))
}

/// Sends parts of so many octets until there is no room for more. Returns the number of octets.
fn fill(len: usize, mut send: impl FnMut(&[u8]) -> Option<usize>) -> usize {
    let part = vec![7; len];
    std::iter::from_fn(|| send(&part)).sum()
}

fn send_now(end: &End, octets: &[u8]) -> Option<usize> {
    end.stream().send(&[IoSlice::new(octets)], libc::MSG_DONTWAIT).ok()
}

#[test]
fn an_end_takes_as_many_octets_as_tcp_though_nobody_reads() {
    for len in [100, 1000, 20_000] {
        let (plain, _other) = tcp_pair();
        plain.set_nonblocking(true).unwrap();
        let over_tcp = fill(len, |octets| (&plain).write(octets).ok());
        let (a, b) = joining();
        let mut taken = 0;
        // A program that waits for room goes on as long.
        while a.poll(libc::POLLOUT, Duration::ZERO).0 != 0 {
            taken += send_now(&a, &vec![7; len]).unwrap();
        }
        taken += fill(len, |octets| send_now(&a, octets));
        assert!(taken >= over_tcp, "parts of {len}: {taken} octets, and {over_tcp} over TCP");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| help(&a, &over));
            assert_eq!(b.recv(&mut vec![0; taken], libc::MSG_WAITALL), Ok(taken));
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None));
    }
}

#[test]
fn a_send_without_credits_joins_its_short_messages() {
    let (mut peer, end) = Sdp::connected_to(&with(responder(), JOINS));
    let octets = random_octets(4, 10_000);
    octets.chunks(10).for_each(|part| end.send_all(part));
    assert!(end.stream().has_obligation());
    let short: Vec<u8> = (0..62).flat_map(|_| peer.next()[16..].to_vec()).collect();
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "a message without credits");
    peer.message(0xff, &[], &[]);
    end.stream().meet_obligation();
    let long = peer.next();
    assert!([short, long[16..].to_vec()].concat() == octets, "one message has the rest");
    assert!(!end.stream().has_obligation());
    end.send_all(b"at once");
    assert_eq!(peer.next()[16..], *b"at once");
}

#[test]
fn what_waits_for_credits_goes_before_the_end_and_makes_room_as_it_goes() {
    let (mut peer, end) = Sdp::connected_to(&with(responder(), JOINS));
    let taken = fill(10_000, |octets| send_now(&end, octets));
    assert_eq!(end.poll(libc::POLLOUT, Duration::ZERO).0, 0);
    let mut got = 0;
    while end.poll(libc::POLLOUT, Duration::ZERO).0 == 0 {
        while !peer.peer.is_silent(Duration::from_millis(20)) {
            got += peer.next().len() - 16;
        }
        peer.message(0xff, &[], &[]);
        end.stream().meet_obligation();
    }
    assert!(got < taken, "there is room before all has gone");
    let more = fill(10_000, |octets| send_now(&end, octets));
    assert!(more > 0);
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    loop {
        peer.message(0xff, &[], &[]);
        end.stream().meet_obligation();
        let message = peer.next();
        if message[0] == 2 {
            break;
        }
        got += message.len() - 16;
    }
    assert_eq!(got, taken + more);
}

#[test]
fn two_ends_that_write_short_messages_before_they_read_get_on() {
    let (a, b) = joining();
    let over = AtomicBool::new(false);
    let exchange = |end: &End| {
        end.state.set_send_timeout(Some(Duration::from_secs(20)));
        (0..1000).for_each(|_| end.send_all(b"ten octets"));
        let mut got = vec![0; 10_000];
        assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(10_000));
        assert!(got == b"ten octets".repeat(1000));
    };
    thread::scope(|scope| {
        [&a, &b].into_iter().for_each(|end| drop(scope.spawn(|| help(end, &over))));
        let of_b = scope.spawn(|| exchange(&b));
        exchange(&a);
        of_b.join().unwrap();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_writes_a_thousand_lines_before_it_reads_the_answers_gets_on() {
    let (a, b) = joining();
    let over = AtomicBool::new(false);
    a.state.set_send_timeout(Some(Duration::from_secs(20)));
    b.state.set_send_timeout(Some(Duration::from_secs(20)));
    thread::scope(|scope| {
        [&a, &b].into_iter().for_each(|end| drop(scope.spawn(|| help(end, &over))));
        let server = scope.spawn(|| {
            for _ in 0..1000 {
                let mut line = [0; 10];
                assert_eq!(b.recv(&mut line, libc::MSG_WAITALL), Ok(10));
                b.send_all(&line);
            }
        });
        (0..1000).for_each(|number| a.send_all(format!("line {number:04}\n").as_bytes()));
        let mut got = vec![0; 10_000];
        assert_eq!(a.recv(&mut got, libc::MSG_WAITALL), Ok(10_000));
        assert!(got.ends_with(b"line 0998\nline 0999\n"));
        server.join().unwrap();
        over.store(true, Ordering::Relaxed);
    });
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
        assert_eq!(end.poll(libc::POLLIN, Duration::from_millis(20)).0, 0, "a wait is for the rest");
        let mut room = [0; 100];
        assert_eq!((end.recv(&mut room, flags), &room[..5]), (Ok(5), &b"first"[..]));
        assert_eq!(end.state.ended(), None);
    }
}
