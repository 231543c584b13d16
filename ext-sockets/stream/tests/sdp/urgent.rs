//! Urgent octets have the rules of TCP on Linux (sdp.md §5.5, W6, W7).

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use libc::{MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_WAITALL, POLLIN, POLLPRI};
use rddp_stream::{Errno, Options};

use crate::common::{End, initiator, responder};
use crate::{pair, sdp, with};
use rddp_stream::{SdpMode, SdpOptions};

const LONG: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

fn ends() -> (End, End) {
    pair(&sdp(initiator()), &sdp(responder()))
}

fn send(end: &End, octets: &[u8], flags: i32) {
    assert_eq!(end.stream().send(&[IoSlice::new(octets)], flags), Ok(octets.len()));
}

fn oob(end: &End) -> Result<u8, Errno> {
    let mut octet = [0];
    end.recv(&mut octet, MSG_OOB).map(|count| if count == 1 { octet[0] } else { 0 })
}

fn at_mark(end: &End) -> bool {
    end.stream().is_at_mark().unwrap()
}

fn in_line(end: &End) {
    socket2::SockRef::from(&end.tcp).set_out_of_band_inline(true).unwrap();
}

#[test]
fn an_urgent_octet_is_neither_advertised_nor_written() {
    for mode in [None, Some(SdpMode::Pipelined)] {
        let all = SdpOptions { threshold: 0, sink_threshold: 0, mode, ..SdpOptions::DEFAULT };
        let (a, b) = pair(&with(initiator(), all), &with(responder(), all));
        send(&a, b"ab!", MSG_OOB);
        assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
        assert_eq!((oob(&b), b.read(9)), (Ok(b'!'), Ok(b"ab".to_vec())));
        // In Pipelined this end offers room.
        thread::scope(|scope| {
            let reading = scope.spawn(|| b.read(100));
            send(&a, b"cd?", MSG_OOB);
            assert_eq!(reading.join().unwrap(), Ok(b"cd".to_vec()));
        });
        assert_eq!(oob(&b), Ok(b'?'));
    }
}

#[test]
fn an_urgent_octet_is_read_out_of_order_and_reads_stop_at_its_mark() {
    let (a, b) = ends();
    assert_eq!(oob(&b), Err(Errno::INVALID), "there is none");
    send(&a, b"abc", 0);
    assert_eq!(b.poll(POLLPRI, NOW).0, 0);
    send(&a, b"xy!", MSG_OOB);
    send(&a, b"def", 0);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    assert!(!at_mark(&b));
    let mut look = [0];
    assert_eq!((b.recv(&mut look, MSG_OOB | MSG_PEEK), look), (Ok(1), *b"!"));
    assert_eq!(oob(&b), Ok(b'!'));
    assert_eq!(oob(&b), Err(Errno::INVALID), "it was read");
    assert_eq!(b.poll(POLLPRI, NOW).0, 0);
    assert_eq!(b.stream().available(), Ok(5), "up to the mark");
    assert_eq!(b.read(100), Ok(b"abcxy".to_vec()));
    assert!(at_mark(&b));
    assert_eq!(b.read(100), Ok(b"def".to_vec()));
    assert!(!at_mark(&b));
    send(&b, b"goes on", 0);
    assert_eq!(a.read(100), Ok(b"goes on".to_vec()));
}

#[test]
fn an_urgent_octet_that_nobody_asks_for_is_passed_over() {
    let (a, b) = ends();
    send(&a, b"ab!", MSG_OOB);
    let mut octets = [0; 9];
    assert_eq!(b.recv(&mut octets, MSG_WAITALL), Ok(2), "also MSG_WAITALL stops");
    assert!(at_mark(&b));
    let (told, swallowed) = b.poll(POLLIN, Duration::from_millis(50));
    assert!(told == 0 && swallowed <= 2, "it is none of the stream: {told} {swallowed}");
    assert_eq!(b.poll(POLLIN | POLLPRI, LONG).0, POLLPRI);
    assert_eq!(b.recv(&mut octets, MSG_PEEK | MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    assert_eq!(oob(&b), Ok(b'!'));
    assert!(at_mark(&b));
    assert_eq!(b.recv(&mut octets, MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    assert!(!at_mark(&b), "the read has passed it");
    send(&a, b"c!", MSG_OOB);
    send(&a, b"d", 0);
    assert_eq!(b.read(9), Ok(b"c".to_vec()));
    assert_eq!((b.recv(&mut octets, MSG_PEEK), octets[0]), (Ok(1), b'd'));
    assert_eq!(b.read(9), Ok(b"d".to_vec()));
    assert_eq!(oob(&b), Err(Errno::INVALID), "it was passed");
    assert_eq!(b.poll(POLLPRI, NOW).0, 0);
}

#[test]
fn in_line_an_urgent_octet_is_one_of_the_stream() {
    let (a, b) = ends();
    in_line(&b);
    send(&a, b"ab!", MSG_OOB);
    send(&a, b"cd", 0);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    assert_eq!(oob(&b), Err(Errno::INVALID));
    assert_eq!(b.read(9), Ok(b"ab".to_vec()));
    assert!(at_mark(&b));
    assert_eq!(b.poll(POLLIN, NOW).0, POLLIN);
    assert_eq!(b.read(9), Ok(b"!cd".to_vec()));
    assert!(!at_mark(&b));
}

#[test]
fn a_second_urgent_octet_takes_the_place_of_the_first() {
    let (a, b) = ends();
    send(&a, b"a1", MSG_OOB);
    send(&a, b"b2", MSG_OOB);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    assert_eq!(oob(&b), Ok(b'2'));
    let mut octets = [0; 9];
    // The first is one like others now.
    assert_eq!((b.recv(&mut octets, 0), &octets[..3]), (Ok(3), &b"a1b"[..]));
    assert!(at_mark(&b));
}

#[test]
fn an_urgent_octet_behind_one_that_was_read_is_another() {
    let (a, b) = ends();
    send(&a, b"a1", MSG_OOB);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    assert_eq!((oob(&b), oob(&b)), (Ok(b'1'), Err(Errno::INVALID)));
    send(&a, b"b2", MSG_OOB);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    assert_eq!(oob(&b), Ok(b'2'));
}

#[test]
fn an_urgent_octet_that_is_next_leaves_when_another_comes() {
    let (a, b) = ends();
    send(&a, b"a1", MSG_OOB);
    assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
    let mut octets = [0; 9];
    assert_eq!((b.recv(&mut octets, 0), octets[0], at_mark(&b)), (Ok(1), b'a', true));
    send(&a, b"b2", MSG_OOB);
    while oob(&b) != Ok(b'2') {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((b.recv(&mut octets, 0), octets[0], at_mark(&b)), (Ok(1), b'b', true));
}

#[test]
fn the_last_octet_of_a_long_call_is_urgent() {
    for markers in [false, true] {
        let small = SdpOptions { bufs: 1, size: 2000, ..SdpOptions::DEFAULT };
        let options = |options| with(Options { markers, ..options }, small);
        let (a, b) = pair(&options(initiator()), &options(responder()));
        let long: Vec<u8> = (0..150_000_u32).map(|at| (at % 251) as u8).collect();
        send(&a, &long, MSG_OOB);
        send(&a, b"behind", 0);
        assert_eq!(b.poll(POLLPRI, LONG).0, POLLPRI);
        assert_eq!(oob(&b), Ok(long[long.len() - 1]));
        let mut octets = vec![0; 200_000];
        assert_eq!(b.recv(&mut octets, MSG_WAITALL), Ok(long.len() - 1));
        assert!(octets[..long.len() - 1] == long[..long.len() - 1]);
        assert!(at_mark(&b));
        assert_eq!(b.read(100), Ok(b"behind".to_vec()));
        assert!(b.tcp.as_raw_fd() >= 0 && b.state.ended().is_none());
    }
}

#[test]
fn an_urgent_octet_wakes_a_wait_with_octets_in_front() {
    let (a, b) = ends();
    send(&a, &[7; 1000], 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| b.poll(POLLPRI, LONG));
        send(&a, b"!", MSG_OOB);
        let (told, swallowed) = waiting.join().unwrap();
        assert_eq!(told, POLLPRI);
        assert!(swallowed <= 3, "{swallowed}");
    });
    assert_eq!(b.read(2000).map(|octets| octets.len()), Ok(1000));
    assert!(at_mark(&b));
}
