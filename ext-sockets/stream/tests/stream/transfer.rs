//! Octets arrive as they were sent, with any settings and however they are cut.

use std::io::IoSlice;
use std::thread;

use rddp_mpa::Revision;
use rddp_stream::{Errno, Gather, Options};
use rddp_test_support::random_octets;

use crate::common::{End, fresh_pair, initiator, pair, responder};
use crate::exchange::both_ways_on;

fn both_ways(active: &Options, passive: &Options, count: usize) {
    let (a, b) = fresh_pair(active, passive);
    both_ways_on(&a, &b, count);
}

#[test]
fn octets_arrive_whatever_was_agreed_on() {
    for bits in 0..16 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let active = Options {
            crc: on(0),
            markers: on(1),
            revision: if on(3) { Revision::One } else { Revision::Two },
            ..initiator()
        };
        let passive = Options { crc: on(0), markers: on(2), ..responder() };
        both_ways(&active, &passive, 300_000);
    }
}

#[test]
fn octets_arrive_however_they_are_gathered() {
    for gather in [Gather::Copy, Gather::Vectored, Gather::Cork] {
        for max_send in [100, 3000, 65_536, 1_000_000] {
            let options = |options: Options| Options { gather, max_send, ..options };
            both_ways(&options(initiator()), &options(responder()), 200_000);
        }
    }
}

#[test]
fn octets_arrive_with_and_without_a_first_fpdu_that_was_agreed_on() {
    for peer_to_peer in [false, true] {
        both_ways(&Options { peer_to_peer, ..initiator() }, &responder(), 10_000);
    }
}

// The receiver takes only octets that its program has asked for, so TCP's window stops the sender.
#[test]
fn a_receiver_that_does_not_read_stops_the_sender() {
    let (a, b) = pair(&initiator(), &responder());
    a.nonblocking();
    let data = random_octets(7, 64 << 20);
    let mut sent = 0;
    while sent < data.len() {
        let end = (sent + 100_000).min(data.len());
        match a.send(&data[sent..end]) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error, Errno::WOULD_BLOCK);
                break;
            }
        }
    }
    assert!(sent < data.len(), "the sender was never stopped");
    assert_eq!(a.send(b"more"), Err(Errno::WOULD_BLOCK));
    thread::scope(|scope| {
        let reader = scope.spawn(|| b.read_to_end(50_000).unwrap());
        assert!(a.stream().finish(std::time::Duration::from_secs(20)));
        a.stream().shutdown(libc::SHUT_WR).unwrap();
        assert!(
            reader.join().unwrap() == data[..sent],
            "what was counted as sent arrives, no more and no less"
        );
    });
}

// A short write leaves the rest of an FPDU to the next call, which may be a read: a peer that waits
// for it would otherwise wait for ever.
#[test]
fn owed_octets_go_out_with_any_call() {
    let (a, b) = pair(&initiator(), &responder());
    let sent = send_until_owing(&a);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut got = Vec::new();
            while got.len() < sent.len() {
                got.extend(b.read(100_000).unwrap());
            }
            b.send_all(b"all of it");
            got
        });
        // This thread is blocked in a read, with something to send.
        assert_eq!(a.read(100).unwrap(), b"all of it");
        assert!(other.join().unwrap() == sent);
    });
}

// This program never waits, neither in a read nor in a poll.
#[test]
fn owed_octets_go_out_with_reads_that_find_nothing() {
    let (a, b) = pair(&initiator(), &responder());
    let sent = send_until_owing(&a);
    b.nonblocking();
    let mut got = Vec::new();
    for _ in 0..10_000 {
        assert_eq!(a.recv(&mut [0; 100], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
        got.extend(b.read(100_000).unwrap_or_default());
        if got.len() == sent.len() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(got == sent, "{} of {}", got.len(), sent.len());
}

/// Makes writes that do not wait, up to one that stops inside an FPDU. Returns the octets that they
/// counted.
fn send_until_owing(end: &End) -> Vec<u8> {
    let block = random_octets(8, 300_000);
    let mut sent = Vec::new();
    while let Ok(count) = end.stream().send(&[IoSlice::new(&block)], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    {
        sent.extend(&block[..count]);
        if end.stream().owes() {
            break;
        }
    }
    assert!(end.stream().owes(), "the last FPDU was cut");
    sent
}

// A program that exits after a blocking write leaves no FPDU incomplete.
#[test]
fn a_write_that_may_wait_owes_nothing() {
    let data = random_octets(9, 300_000);
    for _ in 0..30 {
        let (a, b) = pair(&initiator(), &responder());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..20 {
                    a.send_all(&data);
                    assert!(!a.stream().owes());
                }
                drop(a);
            });
            let got = b.read_to_end(40_000).unwrap();
            assert_eq!(got.len(), 20 * data.len());
            writer.join().unwrap();
        });
    }
}

#[test]
fn many_small_writes_keep_their_order() {
    let (a, b) = pair(&initiator(), &responder());
    let writer = thread::spawn(move || {
        for number in 0u32..20_000 {
            a.send_all(&number.to_be_bytes());
        }
        a
    });
    let mut got = Vec::new();
    while got.len() < 80_000 {
        got.extend(b.read(4096).unwrap());
    }
    let numbers: Vec<u32> =
        got.chunks(4).map(|octets| u32::from_be_bytes(octets.try_into().unwrap())).collect();
    assert!(numbers.iter().copied().eq(0..20_000));
    drop(writer.join().unwrap());
}
