//! An initiator that hears nothing wakes its peer.

use std::thread;
use std::time::{Duration, Instant};

use rddp_stream::{Errno, Options};

use crate::common::{End, fresh_pair, initiator, responder};
use crate::sdp;

/// Octets of an FPDU that is a Write of none: MPA's length, DDP's header, and the CRC.
const NUDGE: usize = 2 + 14 + 4;
const NUDGES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns two ends, and how many octets the second one has that it has not looked at: those that
/// begin the connection.
fn deaf_pair(active: &Options) -> (End, End, usize) {
    let (a, b) = fresh_pair(active, &sdp(responder()));
    assert_eq!(a.stream().greet(), Ok(false));
    assert_eq!(b.stream().greet(), Ok(true));
    a.stream().start(None).unwrap();
    let first = unread(&b);
    (a, b, first)
}

fn unread(end: &End) -> usize {
    end.tcp.peek(&mut [0; 1000]).unwrap()
}

/// Returns whether `end` is left alone until something comes.
fn is_settled(end: &End) -> bool {
    end.state.condition().is_settled()
}

/// A passive siw reads what it has overlooked when more comes.
#[test]
fn a_silent_peer_is_nudged_a_few_times() {
    let (a, b, first) = deaf_pair(&sdp(initiator()));
    assert!(!is_settled(&a));
    let until = Instant::now() + PATIENCE;
    while !is_settled(&a) && Instant::now() < until {
        assert_eq!(a.poll(libc::POLLIN, Duration::from_millis(50)).0, 0);
    }
    assert!(is_settled(&a));
    assert_eq!(unread(&b), first + NUDGES * NUDGE);
    b.send_all(b"none of it shows to the program");
    assert_eq!(a.read(100).unwrap(), b"none of it shows to the program");
    a.send_all(b"nor to that one");
    assert_eq!(b.read(100).unwrap(), b"nor to that one");
    assert_eq!(a.state.ended(), None);
}

#[test]
fn a_receive_that_waits_nudges_too() {
    let (a, b, first) = deaf_pair(&sdp(initiator()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.read(100));
        let until = Instant::now() + PATIENCE;
        while unread(&b) < first + NUDGE && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(unread(&b) >= first + NUDGE);
        b.send_all(b"heard");
        assert_eq!(waiting.join().unwrap().unwrap(), b"heard");
    });
}

#[test]
fn a_peer_that_speaks_is_not_nudged() {
    let (a, b, _) = deaf_pair(&sdp(initiator()));
    // This takes what has come.
    b.send_all(b"at once");
    assert_eq!(a.poll(libc::POLLIN, PATIENCE).0, libc::POLLIN);
    assert!(is_settled(&a));
    b.nonblocking();
    assert_eq!(b.tcp.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_peer_that_has_left_is_not_nudged() {
    let (a, b, _) = deaf_pair(&sdp(initiator()));
    b.tcp.shutdown(std::net::Shutdown::Both).unwrap();
    while !is_settled(&a) {
        a.poll(libc::POLLIN, PATIENCE);
    }
    assert_ne!(a.read(100), Err(Errno::WOULD_BLOCK));
}
