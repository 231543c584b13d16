//! Ends of connections: in order, by a reset, and without a word.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rddp_rnic::Keepalive;
use rddp_sdp::socket::Options;
use rddp_test_support::pattern;

use crate::support::{KINDS, Kind, WAYS, Way, host, quirk};

#[test]
fn a_half_that_was_closed_refuses_octets_and_the_other_goes_on() {
    for kind in KINDS {
        let host = host("half", kind, 0);
        let (mut a, mut b) = host.pair(Way::Read.config());
        a.shutdown_send();
        assert_eq!(b.read(&mut [0]).unwrap(), 0, "{kind:?}");
        assert_eq!(a.write(b"late").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let octets = pattern(300_000, 1);
        let mut got = vec![0; octets.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| b.write_all(&octets).unwrap());
            a.read_exact(&mut got).unwrap();
        });
        assert!(got == octets);
    }
}

/// Dropped at once: everything and the end still arrive, and nothing is left with the device.
#[test]
fn the_end_of_the_stream_follows_the_last_octet() {
    for kind in KINDS {
        for way in WAYS {
            let host = host(&format!("end{way:?}"), kind, quirk::SLOW);
            let sockets = host.sockets(way.config());
            let (a, mut b) = host.pair_of(&sockets);
            let writer = std::thread::spawn(move || {
                (&a).write_all(&pattern(300_000, 3)).unwrap();
                drop(a);
            });
            let mut got = Vec::new();
            b.read_to_end(&mut got).unwrap();
            assert!(got == pattern(300_000, 3), "{way:?} on {kind:?}");
            writer.join().unwrap();
            drop(b);
            // Both are closed in order, by the thread.
            while sockets.serves() {
                std::thread::yield_now();
            }
            drop(sockets);
            host.until_nothing_is_left();
        }
    }
}

/// A drop that lingers ends when the peer has closed, too.
#[test]
fn a_drop_that_lingers_waits_for_the_peer() {
    for kind in KINDS {
        let host = host("lingers", kind, 0);
        let (mut a, mut b) = host.pair(Way::Copied.config());
        a.set_linger(Some(Duration::from_secs(600)));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                a.write_all(b"before").unwrap();
                drop(a);
            });
            let mut got = Vec::new();
            b.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"before");
            drop(b);
        });
    }
}

/// The peer resets while a send waits for it to read: the send ends with an error.
#[test]
fn a_reset_by_the_peer_ends_a_send_that_waits() {
    for kind in KINDS {
        let host = host("reset", kind, 0);
        let mut config = Way::Read.config();
        config.times.advert = Duration::from_secs(600);
        let (mut a, b) = host.pair(config);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| a.write(&pattern(100_000, 1)));
            // The octet that goes with the advert shows that it is out.
            let peek = Options { peek: true, ..Options::default() };
            assert!(b.receive(&mut [0], peek).unwrap() > 0);
            b.abort();
            let outcome = sending.join().unwrap();
            // One octet went inline, so that the call may report it.
            assert!(outcome.as_ref().map_or(true, |count| *count < 100_000), "{kind:?}: {outcome:?}");
        });
        assert!(a.write(b"more").is_err());
        assert!(b.receive(&mut [0; 2], Options::default()).is_err());
    }
}

/// Behind this end's own end, the abort is a message.
#[test]
fn an_abort_behind_the_end_of_the_stream_is_told() {
    for kind in KINDS {
        let host = host("told", kind, 0);
        let (a, mut b) = host.pair(Way::Copied.config());
        a.shutdown_send();
        assert_eq!(b.read(&mut [0]).unwrap(), 0);
        a.abort();
        while b.write(b"x").is_ok() {}
        assert!(a.receive(&mut [0], Options::default()).is_err(), "{kind:?}");
    }
}

/// On InfiniBand what is sent is acknowledged, or the connection ends.
#[test]
fn a_peer_that_vanishes_ends_the_connection() {
    for kind in [Kind::Rxe, Kind::Adapter] {
        let host = host("vanishes", kind, 0);
        let mut sockets = host.sockets(Way::Read.config());
        let idle = Duration::from_millis(100);
        sockets.options.keepalive = Some(Keepalive { idle, ..Keepalive::default() });
        let (mut a, _b) = host.pair_of(&sockets);
        host.cut();
        // Nothing is sent: the connection asks by itself.
        assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{kind:?}");
    }
}

#[test]
fn a_device_that_is_removed_ends_its_connections() {
    for kind in KINDS {
        let host = host("removed", kind, 0);
        let (mut a, mut b) = host.pair(Way::Read.config());
        host.remove();
        for end in [&mut a, &mut b] {
            assert_eq!(end.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{kind:?}");
        }
    }
}
