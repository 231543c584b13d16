//! Two blocking sockets over the software RNIC, on loopback.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rddp_sdp::socket::{Config, Options, Times};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_test_support::{pattern, pattern_from};

fn pair(config: Config, scheme: Scheme) -> (SdpStream, SdpStream) {
    let device = SdpDevice::open(config, scheme).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let connected = device.connect(addr).unwrap();
        (connected, accepting.join().unwrap())
    })
}

fn policy(threshold: Option<usize>, pipelined: bool) -> Config {
    Config {
        source_threshold: threshold,
        sink_threshold: threshold,
        sink_adverts: pipelined,
        pipelined,
        // A receive that is late on a loaded machine still has its octets Read into place.
        times: Times { read_ahead: Duration::from_secs(600), ..Times::default() },
        ..Config::default()
    }
}

const CACHE: Scheme = Scheme::Cache { entries: 16, octets: 64 << 20 };
const POOL: Scheme = Scheme::Pool { blocks: 3, octets: 10_000 };

/// Octets arrive as they were sent, in sizes from 64 octets to 4 MiB, copied and not.
#[test]
fn octets_of_every_size_arrive_copied_and_read_and_written() {
    for scheme in [Scheme::PerCall, CACHE, POOL] {
        for (threshold, pipelined) in [(None, false), (Some(0), false), (Some(0), true), (Some(4096), true)] {
            let (mut a, mut b) = pair(policy(threshold, pipelined), scheme);
            for len in [64, 1000, 4096, 65_536, 1 << 20, 4 << 20] {
                let octets = pattern(len, len as u8);
                std::thread::scope(|scope| {
                    scope.spawn(|| a.write_all(&octets).unwrap());
                    let mut got = vec![0; len];
                    b.read_exact(&mut got).unwrap();
                    assert!(got == octets, "{len} octets, threshold {threshold:?}");
                });
            }
        }
    }
}

#[test]
fn both_ends_send_and_receive_at_once() {
    let (a, b) = pair(policy(Some(2048), true), CACHE);
    std::thread::scope(|scope| {
        for (out, into) in [(&a, &b), (&b, &a)] {
            scope.spawn(move || {
                let (mut out, mut at) = (out, 0);
                while at < 3 << 20 {
                    let len = (1 + at * 7919 % 200_000).min((3 << 20) - at);
                    out.write_all(&pattern_from(at, len)).unwrap();
                    at += len;
                }
            });
            scope.spawn(move || {
                let (mut into, mut at, mut octets) = (into, 0, vec![0; 100_000]);
                while at < 3 << 20 {
                    let len = (1 + at * 104_729 % 100_000).min((3 << 20) - at);
                    let count = into.read(&mut octets[..len]).unwrap();
                    assert!(octets[..count] == pattern_from(at, count), "at {at}");
                    at += count;
                }
            });
        }
    });
}

/// Without `ZCopy` each octet is copied twice; with it none is, apart from those inline.
#[test]
fn adverts_save_the_copies_through_private_buffers() {
    let len = 1 << 20;
    let mut copies = Vec::new();
    for threshold in [None, Some(0)] {
        let (mut a, mut b) = pair(policy(threshold, false), CACHE);
        let octets = pattern(len, 1);
        let mut got = vec![0; len];
        std::thread::scope(|scope| {
            scope.spawn(|| a.write_all(&octets).unwrap());
            let all = Options { wait_all: true, ..Options::default() };
            assert_eq!(b.receive(&mut got, all).unwrap(), len);
        });
        assert!(got == octets);
        b.write_all(b"x").unwrap();
        a.read_exact(&mut [0]).unwrap();
        assert_eq!((a.delivered(), b.delivered()), (1, len as u64));
        copies.push(a.octets().copied + b.octets().copied);
    }
    assert!(copies[0] >= 2 * len as u64, "{copies:?}");
    assert!(copies[1] < 4096, "{copies:?}");
}

#[test]
fn memory_that_is_sent_again_and_again_is_registered_once() {
    let (mut a, b) = pair(policy(Some(0), false), CACHE);
    if !a.registry().sees_changes() {
        return;
    }
    let octets = pattern(100_000, 1);
    let mut got = vec![0; octets.len()];
    for _ in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| a.write_all(&octets).unwrap());
            let all = Options { wait_all: true, ..Options::default() };
            b.receive(&mut got, all).unwrap();
        });
    }
    let counters = a.registry().counters();
    assert!(counters.hits >= 9, "{counters:?}");
    assert!(counters.pins <= 12, "{counters:?}");
}

/// Both ends use one device here, and its pool.
#[test]
fn a_pool_bounds_what_is_registered_and_the_rest_is_copied() {
    for (blocks, pipelined) in [(0, false), (0, true), (1, true), (3, true), (100, true)] {
        let (mut a, mut b) = pair(policy(Some(0), pipelined), Scheme::Pool { blocks, octets: 10_000 });
        let octets = pattern(300_000, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| a.write_all(&octets).unwrap());
            let mut got = vec![0; octets.len()];
            b.read_exact(&mut got).unwrap();
            assert!(got == octets, "{blocks} blocks");
        });
        let counters = a.registry().counters();
        assert_eq!((blocks == 0, counters.hits), (counters.pins == 0, 0), "{counters:?}");
        assert!(counters.pinned_octets <= counters.pins * 10_000, "{counters:?}");
        assert!(blocks > 0 || a.octets().copied + b.octets().copied >= 2 * octets.len() as u64);
    }
}

#[test]
fn a_receive_without_octets_does_not_wait_when_it_may_not() {
    let (a, mut b) = pair(policy(None, false), Scheme::PerCall);
    let options = Options { non_blocking: true, ..Options::default() };
    assert_eq!(a.receive(&mut [0; 10], options).unwrap_err().kind(), ErrorKind::WouldBlock);
    b.write_all(b"now").unwrap();
    let mut got = [0; 3];
    (&a).read_exact(&mut got).unwrap();
    assert_eq!(got, *b"now");
}

#[test]
fn the_end_of_the_stream_follows_the_last_octet() {
    for threshold in [None, Some(0)] {
        let (a, mut b) = pair(policy(threshold, false), Scheme::PerCall);
        let writer = std::thread::spawn(move || {
            (&a).write_all(&pattern(300_000, 3)).unwrap();
            // Closed at once: everything and the end still arrive.
            drop(a);
        });
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert!(got == pattern(300_000, 3));
        writer.join().unwrap();
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn a_half_that_was_closed_refuses_octets_and_the_other_goes_on() {
    let (mut a, mut b) = pair(policy(None, false), Scheme::PerCall);
    a.shutdown_send();
    assert_eq!(b.read(&mut [0]).unwrap(), 0);
    assert_eq!(a.write(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
    b.write_all(b"answer").unwrap();
    let mut got = [0; 6];
    a.read_exact(&mut got).unwrap();
    assert_eq!(got, *b"answer");
}

/// Both ends send before they receive: what TCP's buffers would hold gets through here, too.
#[test]
fn two_blocking_senders_that_receive_later_get_on() {
    for len in [10_000, 128 * 1024, 512 * 1024] {
        let (a, b) = pair(policy(Some(0), true), CACHE);
        std::thread::scope(|scope| {
            for (end, seed) in [(&a, 1), (&b, 2)] {
                scope.spawn(move || {
                    let mut end = end;
                    end.write_all(&pattern(len, seed)).unwrap();
                    let mut got = vec![0; len];
                    end.read_exact(&mut got).unwrap();
                    assert!(got == pattern(len, 3 - seed), "{len} octets");
                });
            }
        });
    }
}

/// Both ends write a thousand short lines before they read; then one does, to a peer that answers
/// each line.
#[test]
fn ends_that_write_many_short_lines_before_they_read_get_on() {
    for answers in [false, true] {
        let (a, b) = pair(policy(None, false), CACHE);
        let write_and_read = |mut end: &SdpStream| {
            (0..1000).for_each(|_| end.write_all(b"ten octets").unwrap());
            let mut got = vec![0; 10_000];
            end.read_exact(&mut got).unwrap();
            assert!(got == b"ten octets".repeat(1000));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write_and_read(&a));
            let (mut b, mut line) = (&b, [0; 10]);
            if answers {
                for _ in 0..1000 {
                    b.read_exact(&mut line).unwrap();
                    b.write_all(&line).unwrap();
                }
            } else {
                write_and_read(b);
            }
        });
    }
}

/// The peer resets while a send waits for it to read: the send ends with an error.
#[test]
fn a_reset_by_the_peer_ends_a_send_that_waits() {
    let config = Config {
        times: Times { advert: Duration::from_secs(600), ..Times::default() },
        ..policy(Some(0), false)
    };
    let (mut a, b) = pair(config, Scheme::PerCall);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| a.write(&pattern(100_000, 1)));
        // The octet that goes with the advert shows that it is out.
        let peek = Options { peek: true, ..Options::default() };
        assert!(b.receive(&mut [0], peek).unwrap() > 0);
        b.abort();
        let outcome = sending.join().unwrap();
        // One octet went inline, so that the call may report it.
        assert!(outcome.as_ref().map_or(true, |count| *count < 100_000), "{outcome:?}");
    });
    assert!(a.write(b"more").is_err());
}

#[test]
fn nobody_listening_is_a_refusal() {
    let device = SdpDevice::open(Config::default(), Scheme::PerCall).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(device.connect(free).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
