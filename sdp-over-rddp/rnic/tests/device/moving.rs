//! Octets in each way, on each kind of device.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_rnic::ConnectOptions;
use rddp_sdp::socket::Options;
use rddp_sdp::transport::Transport;
use rddp_sdp_rnic::{Endpoint, EndpointConfig, Registry, Scheme, SdpStream};
use rddp_test_support::{pattern, pattern_from};

use crate::support::{KINDS, LONGEST_ADVERT, WAYS, Way, host, quirk};

const ALL: Options = Options { non_blocking: false, peek: false, wait_all: true, urgent: false };

#[test]
fn octets_of_every_size_arrive_both_ways() {
    for kind in KINDS {
        for way in WAYS {
            let host = host(&format!("sizes{way:?}"), kind, 0);
            let (a, b) = host.pair(way.config());
            for len in [1, 64, 1000, 4096, 65_536, 300_000, 4 << 20] {
                for (mut out, mut into) in [(&a, &b), (&b, &a)] {
                    let octets = pattern(len, len as u8);
                    std::thread::scope(|scope| {
                        scope.spawn(|| out.write_all(&octets).unwrap());
                        let mut got = vec![0; len];
                        into.read_exact(&mut got).unwrap();
                        assert!(got == octets, "{len} octets, {way:?} on {kind:?}");
                    });
                }
            }
            drop((a, b));
            host.until_nothing_is_left();
        }
    }
}

/// Completions come late, and beside what they are asked for.
#[test]
fn both_ends_send_and_receive_at_once_on_slow_devices() {
    const LEN: usize = 1 << 20;
    for kind in KINDS {
        let host = host("at_once", kind, quirk::LATE | quirk::IDLE_EVENTS | quirk::SLOW);
        for way in WAYS {
            let (a, b) = host.pair(way.config());
            std::thread::scope(|scope| {
                for (out, into) in [(&a, &b), (&b, &a)] {
                    scope.spawn(move || send_in_pieces(out, LEN));
                    scope.spawn(move || receive_in_pieces(into, LEN));
                }
            });
        }
    }
}

fn send_in_pieces(mut out: &SdpStream, all: usize) {
    let mut at = 0;
    while at < all {
        let len = (1 + at * 7919 % 200_000).min(all - at);
        out.write_all(&pattern_from(at, len)).unwrap();
        at += len;
    }
}

fn receive_in_pieces(mut into: &SdpStream, all: usize) {
    let (mut at, mut octets) = (0, vec![0; 100_000]);
    while at < all {
        let len = (1 + at * 104_729 % 100_000).min(all - at);
        let count = into.read(&mut octets[..len]).unwrap();
        assert!(octets[..count] == pattern_from(at, count), "at {at}");
        at += count;
    }
}

/// Adverts name memory as the device does: Reads and Writes of it copy nothing.
#[test]
fn reads_and_writes_save_the_copies() {
    const LEN: usize = LONGEST_ADVERT as usize;
    for kind in KINDS {
        for way in WAYS {
            let host = host(&format!("copies{way:?}"), kind, 0);
            let (a, b) = host.pair(way.config());
            // A send of several adverts makes way for those of receives.
            transfer(&a, &b, 4 * LEN);
            let (before, pins) = (octets(&a, &b), b.registry().counters().pins);
            transfer_when(&a, &b, LEN, || way != Way::Written || has_advertised(&b, pins));
            let after = octets(&a, &b);
            let expected = match way {
                Way::Copied => [2 * LEN, 0, 0],
                // An octet goes with the advert.
                Way::Read => [2, LEN - 1, 0],
                Way::Written => [0, 0, LEN],
            };
            let moved = [0, 1, 2].map(|at| (after[at] - before[at]) as usize);
            assert_eq!(moved, expected, "{way:?} on {kind:?}");
        }
    }
}

/// Returns the octets that were copied, Read and Written.
fn octets(a: &SdpStream, b: &SdpStream) -> [u64; 3] {
    let (a, b) = (a.octets(), b.octets());
    [a.copied + b.copied, a.read + b.read, a.written + b.written]
}

/// Returns whether a receive has told the peer where to Write: there were `pins` before.
fn has_advertised(stream: &SdpStream, pins: u64) -> bool {
    let has_registered = stream.registry().counters().pins > pins;
    // Who has registered it holds the lock until the advert is posted.
    let _ = stream.octets();
    has_registered
}

/// Sends octets in a call, and receives them in another one.
fn transfer(a: &SdpStream, b: &SdpStream, len: usize) {
    transfer_when(a, b, len, || true);
}

/// Sends octets once it is time to, which may be while they are already received.
fn transfer_when(mut a: &SdpStream, b: &SdpStream, len: usize, is_time: impl Fn() -> bool) {
    let octets = pattern(len, 1);
    let mut got = vec![0; len];
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(b.receive(&mut got, ALL).unwrap(), len));
        let since = Instant::now();
        while !is_time() {
            assert!(since.elapsed() < Duration::from_secs(20), "it is never time");
            std::thread::yield_now();
        }
        a.write_all(&octets).unwrap();
    });
    assert!(got == octets);
}

/// Each end has as many Reads under way as the other one answers.
#[test]
fn as_many_reads_are_under_way_as_was_agreed_on() {
    for kind in KINDS {
        let host = host("depths", kind, 0);
        let rnic = host.rnic();
        let pd = rnic.alloc_pd();
        let registry = Arc::new(Registry::new(&pd, Scheme::PerCall));
        for depth in [4, 0] {
            let options = ConnectOptions { ird: depth, ord: depth, ..ConnectOptions::default() };
            let listener = rnic.listen(host.address(1, 0), &options).unwrap();
            let sizes = EndpointConfig { buffers: 4, buffer_size: 4096, ..EndpointConfig::default() };
            let mut ends = [(); 2].map(|()| Endpoint::new(&rnic, &pd, &registry, sizes).unwrap());
            let [active, passive] = &ends;
            std::thread::scope(|scope| {
                scope.spawn(|| active.qp().connect(listener.local_addr().unwrap(), &options).unwrap());
                listener.accept(None).unwrap().unwrap().accept(passive.qp(), b"").unwrap();
            });
            for end in &mut ends {
                end.connected();
                assert_eq!(end.facts().reads, depth, "{kind:?}");
            }
        }
    }
}

/// Adverts are refused then, and their octets copied.
#[test]
fn octets_are_copied_where_there_are_no_reads() {
    for kind in KINDS {
        let host = host("no_reads", kind, 0);
        let mut sockets = host.sockets(Way::Read.config());
        (sockets.options.ird, sockets.options.ord) = (0, 0);
        let (a, b) = host.pair_of(&sockets);
        for (out, into) in [(&a, &b), (&b, &a)] {
            transfer(out, into, 300_000);
        }
        assert_eq!(octets(&a, &b), [4 * 300_000, 0, 0], "{kind:?}");
    }
}

/// The device registers no more than the pool, and what is left over is copied.
#[test]
fn registrations_end_with_their_use_by_each_scheme() {
    for kind in KINDS {
        for scheme in [
            Scheme::Cache { entries: 2, octets: 4 << 20 },
            Scheme::Pool { blocks: 1, octets: 10_000 },
            Scheme::Pool { blocks: 0, octets: 10_000 },
        ] {
            let host = host(&format!("{scheme:?}"), kind, 0);
            let sockets = host.sockets_by(Way::Written.config(), scheme);
            let (a, b) = host.pair_of(&sockets);
            for _ in 0..3 {
                transfer(&a, &b, 300_000);
            }
            drop((a, b, sockets));
            host.until_nothing_is_left();
        }
    }
}

#[test]
fn an_urgent_octet_comes_apart_from_the_stream() {
    let urgent = Options { urgent: true, ..Options::default() };
    for kind in KINDS {
        let host = host("urgent", kind, 0);
        let (a, mut b) = host.pair(Way::Read.config());
        a.send(b"before", Options::default()).unwrap();
        a.send(b"!", urgent).unwrap();
        a.send(b"behind", Options::default()).unwrap();
        let mut got = [0; 6];
        b.read_exact(&mut got).unwrap();
        assert_eq!(got, *b"before");
        let since = Instant::now();
        let octet = loop {
            match b.receive_urgent(false) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if since.elapsed() > Duration::from_secs(20) => panic!("{error}"),
                Err(_) => std::thread::yield_now(),
                Ok(octet) => break octet,
            }
        };
        assert_eq!(octet, b'!');
        b.read_exact(&mut got).unwrap();
        assert_eq!(got, *b"behind");
    }
}
