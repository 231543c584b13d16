//! Waits on a socket that is readable by octets for somebody else sleep until something happens.

use std::io::IoSlice;
use std::thread;
use std::time::Duration;

use libc::{MSG_WAITALL, POLLIN, POLLOUT, POLLRDHUP, SHUT_WR};
use rddp_stream::SdpOptions;

use crate::common::{End, initiator, responder};
use crate::peer::Sdp;
use crate::{pair, with};

const LONG: Duration = Duration::from_secs(60);
const FEW: SdpOptions = SdpOptions { bufs: 1, size: 2000, ..SdpOptions::DEFAULT };

fn few() -> (End, End) {
    pair(&with(initiator(), FEW), &with(responder(), FEW))
}

fn use_up_credits(end: &End) -> usize {
    let mut count = 0;
    while let Ok(1) = end.stream().send(&[IoSlice::new(b"x")], libc::MSG_DONTWAIT) {
        count += 1;
    }
    count
}

/// Messages of the peer that come while a wait sleeps; each may wake it once.
const ARRIVALS: usize = 20;
/// Looks of a wait besides those: the first, and what TCP's own events bring (room, once).
const MORE: usize = 3;

#[test]
fn a_wait_for_credits_wakes_once_an_arrival() {
    let (a, b) = few();
    let sent = use_up_credits(&b);
    a.send_all(&[1; 500]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| b.poll(POLLOUT, LONG));
        for _ in 0..ARRIVALS {
            thread::sleep(Duration::from_millis(3));
            a.send_all(&[2; 100]);
        }
        let mut octets = vec![0; sent];
        assert_eq!(a.recv(&mut octets, MSG_WAITALL), Ok(sent));
        let (told, swallowed) = waiting.join().unwrap();
        assert_eq!(told, POLLOUT);
        assert!(swallowed <= ARRIVALS + MORE, "{swallowed}");
    });
    let mut octets = vec![0; 500 + ARRIVALS * 100];
    assert_eq!(b.recv(&mut octets, MSG_WAITALL), Ok(octets.len()));
    assert!(!b.readable());
}

#[test]
fn a_wait_for_the_peers_end_alone_learns_of_disconn() {
    for wanted in [POLLRDHUP, POLLRDHUP | libc::POLLPRI] {
        let (a, b) = few();
        a.send_all(&[1; 500]);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| b.poll(wanted, LONG));
            for _ in 0..ARRIVALS {
                thread::sleep(Duration::from_millis(2));
                a.send_all(&[2; 100]);
            }
            a.stream().shutdown(SHUT_WR).unwrap();
            let (told, swallowed) = waiting.join().unwrap();
            assert_eq!(told, POLLRDHUP);
            assert!(swallowed <= ARRIVALS + MORE, "{swallowed}");
        });
        // It goes on to hold, and the octets are there.
        assert_eq!(b.poll(wanted, LONG).0, POLLRDHUP);
        assert_eq!(b.poll(POLLIN | POLLRDHUP, LONG).0, POLLIN | POLLRDHUP);
        let mut octets = vec![0; 500 + ARRIVALS * 100];
        assert_eq!(b.recv(&mut octets, MSG_WAITALL), Ok(octets.len()));
        assert_eq!(b.read(1), Ok(vec![]));
        assert_eq!(b.poll(wanted, LONG).0, POLLRDHUP);
    }
}

#[test]
fn a_sender_without_credits_wakes_when_another_thread_takes_them() {
    let (a, b) = few();
    for round in 0..300 {
        let sent = use_up_credits(&b);
        assert!(sent > 0);
        a.send_all(&[3; 700]);
        thread::scope(|scope| {
            let sending = scope.spawn(|| b.send(&[4; 10]));
            // A reader of the same socket, which may take the credits.
            let reading = scope.spawn(|| {
                let mut octets = vec![0; 1400];
                assert_eq!(b.recv(&mut octets, MSG_WAITALL), Ok(1400));
            });
            let mut octets = vec![0; sent];
            assert_eq!(a.recv(&mut octets, MSG_WAITALL), Ok(sent), "round {round}");
            a.send_all(&[3; 700]);
            assert_eq!(sending.join().unwrap(), Ok(10));
            reading.join().unwrap();
        });
        let mut octets = [0; 10];
        assert_eq!(a.recv(&mut octets, MSG_WAITALL), Ok(10));
    }
}

#[test]
fn a_wait_is_told_of_no_room_that_a_few_messages_fill() {
    let (a, b) = few();
    let wants = |end: &End| end.poll(POLLOUT, Duration::ZERO).0;
    let mut sent = 0;
    while wants(&b) == POLLOUT {
        b.send_all(b"x");
        sent += 1;
    }
    // A send that is not waited for goes on, as long as there are credits for one message.
    let left = use_up_credits(&b);
    assert!((20..40).contains(&left) && sent > 200, "{sent} messages, then {left}");
    let mut octets = vec![0; sent + left];
    thread::scope(|scope| {
        let waiting = scope.spawn(|| b.poll(POLLOUT, LONG).0);
        assert_eq!(a.recv(&mut octets[..100], MSG_WAITALL), Ok(100));
        assert!(!waiting.is_finished());
        assert_eq!(a.recv(&mut octets[100..], MSG_WAITALL), Ok(sent + left - 100));
        assert_eq!(waiting.join().unwrap(), POLLOUT);
    });
    // The last ones are told when half of the buffers are free again.
    assert!(use_up_credits(&b) > 100);
}

/// A large message that nobody needs stays in front, unlooked at; one that waits for room needs
/// what is behind it.
#[test]
fn credits_behind_a_large_message_are_found_while_there_are_few() {
    let large = SdpOptions { size: 20_000, bufs: 256, ..SdpOptions::DEFAULT };
    let (mut peer, end) = Sdp::connected_to(&with(responder(), large));
    peer.data(&[1; 16_000]);
    assert_eq!(end.read(16_000), Ok(vec![1; 16_000]));
    peer.data(&[2; 16_000]);
    let mut sent = 0;
    while end.poll(POLLOUT, Duration::ZERO).0 == POLLOUT {
        end.send_all(b"x");
        sent += 1;
    }
    assert!(end.readable());
    for _ in 0..sent {
        peer.next();
    }
    peer.data(b"");
    assert_eq!(end.poll(POLLOUT, Duration::from_secs(20)).0, POLLOUT);
    assert_eq!(end.read(16_000), Ok(vec![2; 16_000]));
}

#[test]
fn a_send_that_may_wait_takes_the_last_credits() {
    let (a, b) = few();
    while b.poll(POLLOUT, Duration::ZERO).0 == POLLOUT {
        b.send_all(b"x");
    }
    // As many as are left go without a wait.
    b.state.set_send_timeout(Some(Duration::from_millis(50)));
    (0..20).for_each(|_| b.send_all(b"y"));
    assert!(a.readable());
}
