//! The ends of directions and connections.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use libc::{POLLHUP, POLLIN, pollfd};
use rddp_stream::{Errno, Leaving, SdpOptions};
use rddp_test_support::random_octets;
use socket2::SockRef;

use crate::advertising::SRC_AVAIL;
use crate::behind::JOINS;
use crate::common::{End, initiator, responder, tcp_pair};
use crate::crossings::DIS_CONN;
use crate::peer::{Sdp, hello, request};
use crate::reading::connected;
use crate::{pair, sdp, with};

#[test]
fn a_direction_ends_and_the_other_goes_on() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    a.send_all(b"the last words");
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.send(b"x"), Err(Errno::BROKEN_PIPE));
    assert_eq!(b.recv(&mut [0; 4], libc::MSG_PEEK), Ok(4));
    assert_eq!(b.read(100), Ok(b"the last words".to_vec()));
    for _ in 0..3 {
        assert_eq!(
            b.poll(libc::POLLIN | libc::POLLRDHUP, Duration::from_secs(20)).0,
            libc::POLLIN | libc::POLLRDHUP
        );
        assert_eq!(b.read(100), Ok(vec![]), "the end stays readable");
    }
    // More than the credits of an end at once: updates come through.
    let octets = random_octets(5, 3 << 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            for part in octets.chunks(1000) {
                b.send_all(part);
            }
            b.stream().shutdown(libc::SHUT_WR).unwrap();
        });
        assert!(a.read_to_end(5000).unwrap() == octets);
    });
    for end in [&a, &b] {
        assert_eq!((end.read(9), end.state.ended()), (Ok(vec![]), None));
    }
}

#[test]
fn the_end_comes_behind_octets_and_credits() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    b.send_all(b"unread");
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.poll(libc::POLLIN | libc::POLLRDHUP, Duration::from_secs(20)).0, libc::POLLIN);
    assert_eq!(a.read(3), Ok(b"unr".to_vec()));
    b.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.read_to_end(2), Ok(b"ead".to_vec()));
    assert_eq!(b.read_to_end(2), Ok(vec![]));
}

/// Credits that come behind octets which the program does not read let its end go, as a window lets
/// TCP's FIN.
#[test]
fn an_end_without_credits_goes_by_those_behind_unread_octets() {
    let (mut peer, end) = Sdp::connected();
    end.send_all(b"octets");
    assert_eq!(peer.next()[16..], *b"octets");
    // The peer's buffers are full.
    peer.bufs = 0;
    peer.data(b"unread");
    assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "a message without credits");
    peer.bufs = 64;
    peer.data(b"");
    // The step that a socket takes while its program calls for others.
    end.stream().step();
    assert_eq!(peer.next()[0], DIS_CONN);
    assert_eq!(end.read(9), Ok(b"unread".to_vec()));
    peer.message(DIS_CONN, &[], &[]);
    assert_eq!(end.read(9), Ok(vec![]));
}

/// A look takes the head alone of a large message. Credits behind it let go what waits for them:
/// the end, and octets in front of it.
#[test]
fn an_end_without_credits_goes_by_those_behind_a_large_unread_message() {
    for (joined, by_the_helper) in [(0, false), (100, false), (100, true)] {
        let (mut peer, end) = Sdp::connected_to(&with(responder(), JOINS));
        peer.bufs = 0;
        peer.data(&[7; 10_000]);
        assert_eq!(end.recv(&mut [0; 10_000], libc::MSG_WAITALL), Ok(10_000));
        (0..joined).for_each(|_| end.send_all(b"x"));
        end.stream().shutdown(libc::SHUT_WR).unwrap();
        peer.data(&[8; 10_000]);
        peer.bufs = 64;
        peer.data(b"");
        assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
        if by_the_helper {
            end.stream().meet_obligation();
        } else {
            end.stream().step();
        }
        if joined > 0 {
            assert_eq!(peer.next()[16..], vec![b'x'; joined]);
        }
        assert_eq!(peer.next()[0], DIS_CONN);
        assert_eq!(end.read(20_000), Ok(vec![8; 10_000]));
    }
}

#[test]
fn a_closed_receiving_direction_reads_as_ended() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    a.stream().shutdown(libc::SHUT_RD).unwrap();
    assert_eq!(a.read(5), Ok(vec![]));
    b.send_all(b"late");
    assert_eq!(a.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    // As over TCP on Linux, octets that come are delivered.
    a.send_all(b"still open");
    assert_eq!(b.read(100), Ok(b"still open".to_vec()));
}

#[test]
fn a_close_waits_for_the_peers_end() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    let octets = random_octets(6, 2 << 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            a.send_all(&octets);
            assert!(a.stream().is_unfinished());
            assert!(a.stream().finish(Duration::from_secs(60)));
            assert!(!a.stream().is_unfinished());
        });
        // Read slowly enough that credits come back after the close.
        let mut all = Vec::new();
        while let Ok(part) = b.read(3000) {
            if part.is_empty() {
                break;
            }
            all.extend(part);
        }
        assert!(all == octets);
        assert!(b.stream().finish(Duration::from_secs(60)));
    });
}

#[test]
fn a_close_with_octets_unread_resets() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    b.send_all(b"nobody reads this");
    assert_eq!(a.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    assert!(a.stream().finish(Duration::ZERO));
    assert_eq!(b.read(9), Err(Errno::RESET));
}

#[test]
fn a_fin_without_disconn_is_an_end_of_file() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    a.send_all(b"whole");
    let (tcp, _state) = (a.tcp, a.state);
    drop(tcp);
    assert_eq!(b.read_to_end(100), Ok(b"whole".to_vec()));
    assert_eq!(b.state.ended(), None);
}

#[test]
fn every_octet_arrives_at_a_slow_reader_after_a_close() {
    let octets = random_octets(8, 3 << 20);
    // Once with the peer's end first, which stays readable at the end that closes.
    for ends_first in [false, true] {
        let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
        if ends_first {
            b.stream().shutdown(libc::SHUT_WR).unwrap();
            assert_eq!(a.read(1), Ok(vec![]));
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                a.send_all(&octets);
                assert!(a.stream().leave_within(Duration::from_secs(60)));
                drop(a.tcp);
            });
            let mut all = Vec::new();
            while all.len() < octets.len() {
                all.extend(b.read(50_000).unwrap());
                thread::sleep(Duration::from_micros(200));
            }
            assert!(all == octets);
        });
        // The updates met a closed socket, whose reset is no error behind the end.
        let both = if ends_first { libc::POLLHUP } else { 0 };
        assert_eq!(b.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN | both);
        assert_eq!((b.read(9), b.read(9), b.state.ended()), (Ok(vec![]), Ok(vec![]), None));
    }
}

/// A peer that has closed both ways would answer by a reset, where programs leave what is unread.
#[test]
fn nothing_is_sent_behind_the_peers_fin() {
    for ends_first in [true, false] {
        let (mut peer, end) = Sdp::connected();
        peer.data(b"first");
        assert_eq!(end.read(9), Ok(b"first".to_vec()));
        if ends_first {
            end.stream().shutdown(libc::SHUT_WR).unwrap();
            assert_eq!(peer.next()[0], DIS_CONN);
        }
        let octets = random_octets(9, 20_000);
        // Most of the buffers: the end would return credits while its program reads.
        octets.chunks(100).for_each(|part| peer.data(part));
        peer.message(DIS_CONN, &[], &[]);
        peer.peer.socket.shutdown(Shutdown::Write).unwrap();
        let mut fin = libc::pollfd { fd: end.tcp.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, which lives until the call returns.
        assert_eq!(unsafe { libc::poll(&raw mut fin, 1, 20_000) }, 1);
        assert!(end.read_to_end(100).unwrap() == octets);
        end.stream().shutdown(libc::SHUT_WR).unwrap();
        assert!(peer.peer.recv().is_none(), "a message to a peer that has left");
        assert_eq!((end.read(9), end.state.ended()), (Ok(vec![]), None));
    }
}

#[test]
fn octets_for_a_closed_connection_reset_it_once_all_has_arrived() {
    for has_read_the_end in [true, false] {
        let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
        assert_eq!(a.stream().leave(), Some(Leaving::Sent));
        if has_read_the_end {
            assert_eq!(b.read(9), Ok(vec![]));
        }
        b.send_all(b"late");
        assert_eq!(a.poll(libc::POLLIN, Duration::from_secs(20)).0 & libc::POLLIN, libc::POLLIN);
        assert_eq!(a.stream().leave(), None);
        // As over TCP behind a FIN.
        assert_eq!(b.send(b"x"), Err(Errno::BROKEN_PIPE));
        assert_eq!((b.send(b"x"), b.read(9)), (Err(Errno::BROKEN_PIPE), Ok(vec![])));
    }
}

#[test]
fn a_close_with_octets_under_way_waits_for_their_acknowledgement_and_does_not_reset() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    let octets = random_octets(9, 8 << 20);
    let mut sent = 0;
    // TCP has everything at this end, and the peer's has no room for all of that.
    while !is_stuck(&a) {
        sent += a.send(&octets[sent..sent + 60_000]).unwrap();
    }
    assert_eq!(a.stream().leave(), Some(Leaving::Sent));
    assert!(!a.stream().leave_within(Duration::from_millis(30)));
    b.send_all(b"late");
    assert_eq!(a.poll(libc::POLLIN, Duration::from_secs(20)).0 & libc::POLLIN, libc::POLLIN);
    assert!(!a.stream().leave_within(Duration::from_millis(30)), "nothing was acknowledged");
    thread::scope(|scope| {
        let leaving = scope.spawn(|| a.stream().leave_within(Duration::from_secs(60)));
        assert!(b.read_to_end(50_000).unwrap() == octets[..sent]);
        assert!(leaving.join().unwrap());
    });
}

// RFC 5044 §7.1.2 r4
#[test]
fn a_close_does_not_wait_for_a_peer_that_ended_before_its_first_message() {
    for sends in [false, true] {
        let (tcp, end, _) = request(&hello(|_| ()), &sdp(responder()));
        assert_eq!(end.stream().greet(), Ok(true));
        if sends {
            assert_eq!(end.send(b"early"), Ok(5));
        }
        assert_eq!(end.stream().leave(), Some(Leaving::Sending));
        assert!(!end.stream().finishes());
        tcp.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0 & libc::POLLIN, libc::POLLIN);
        assert!(end.stream().finishes());
        assert_eq!(end.stream().leave(), None);
    }
}

#[test]
fn a_reset_behind_the_end_reads_as_the_end_as_over_tcp() {
    let no_linger = |tcp: &TcpStream| SockRef::from(tcp).set_linger(Some(Duration::ZERO)).unwrap();
    let (one, mut other) = tcp_pair();
    one.shutdown(Shutdown::Write).unwrap();
    assert_eq!(other.read(&mut [0; 1]).unwrap(), 0);
    no_linger(&one);
    drop(one);
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(b.read(1), Ok(vec![]));
    no_linger(&a.tcp);
    let (tcp, _state) = (a.tcp, a.state);
    drop(tcp);
    for _ in 0..2 {
        assert_eq!(other.read(&mut [0; 1]).unwrap(), 0, "TCP tells the end");
        assert_eq!(b.read(1), Ok(vec![]));
    }
}

/// Place of the octets absorbed among the counters.
const ABSORBED_AT: usize = 3;

/// Sends until no credits are left and has octets come meanwhile, which the end absorbs.
fn absorb_before(ends: impl FnOnce(Sdp)) -> End {
    let (mut peer, end) = Sdp::connected();
    thread::scope(|scope| {
        let sent = scope.spawn(|| end.send(&vec![7; 8 << 20]));
        // The peer's buffers, but for two, are full, and it has acknowledged nothing.
        let acknowledged = peer.ack;
        while peer.ack < 62 {
            peer.next();
        }
        peer.ack = acknowledged;
        peer.data(b"octets");
        while end.stream().sdp_info().is_none_or(|info| info.counters[ABSORBED_AT] < 6) {
            thread::yield_now();
        }
        ends(peer);
        assert!(matches!(sent.join().unwrap(), Ok(1..)));
    });
    end
}

#[test]
fn a_sender_without_credits_meets_a_reset_behind_octets() {
    let end = absorb_before(|peer| peer.peer.reset());
    assert_eq!(end.read(3), Ok(b"oct".to_vec()));
    assert_eq!(end.read(9), Ok(b"ets".to_vec()));
    assert_eq!((end.read(9), end.read(9)), (Err(Errno::RESET), Ok(vec![])));
    assert_eq!((end.send(b"more"), end.state.ended()), (Err(Errno::BROKEN_PIPE), None));
}

// A wait for what only the peer can bring would return at once for ever.
#[test]
fn an_end_that_waits_for_a_read_of_the_peer_asks_for_no_room() {
    let (mut peer, end) = connected(0);
    end.state.set_send_timeout(Some(Duration::from_millis(10)));
    assert_eq!(end.send(b"octets"), Ok(6));
    peer.advert();
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    assert!(end.stream().owes());
    assert_eq!(end.stream().interest_to_pay(), POLLIN);
}

#[test]
fn a_reset_that_is_met_between_two_calls_is_told_once() {
    let (mut peer, end) = connected(0);
    end.state.set_send_timeout(Some(Duration::from_millis(10)));
    assert_eq!(end.send(b"octets"), Ok(6));
    peer.advert();
    peer.peer.reset();
    assert_ne!(end.poll(POLLIN, Duration::from_secs(20)).0 & POLLHUP, 0);
    end.stream().meet_obligation();
    assert_eq!((end.read(9), end.read(9)), (Err(Errno::RESET), Ok(vec![])));
}

#[test]
fn a_sender_without_credits_meets_a_fin_behind_octets() {
    let end = absorb_before(drop);
    assert_eq!(end.read(9), Ok(b"octets".to_vec()));
    assert_eq!(end.read(9), Err(Errno::RESET));
}

/// An advert is out, for octets that nobody has read, and the peer has ended by a FIN alone: nobody
/// reads them any more, and the close does not wait for that.
#[test]
fn a_close_resets_where_a_peer_has_left_its_adverts_unread() {
    let lending = SdpOptions { threshold: 0, ..SdpOptions::DEFAULT };
    let (mut peer, end) = Sdp::connected_to(&with(responder(), lending));
    end.state.set_send_timeout(Some(Duration::from_millis(10)));
    end.send_all(b"nobody reads this");
    assert_eq!(peer.next()[0], SRC_AVAIL);
    peer.peer.fin();
    assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(20)).0, libc::POLLIN);
    assert_eq!(end.read(9), Ok(vec![]));
    assert_eq!(end.stream().leave(), None, "the close waits for the peer");
}

/// Closes the descriptor of an end and nothing else, as the kernel does for a process that is
/// killed, or leaves by `_exit`.
fn kill(end: End) {
    let (tcp, _state) = (end.tcp, end.state);
    drop(tcp);
}

/// Returns the number of octets in the kernel's receive queue, and whether the socket is readable.
fn in_kernel(end: &End) -> (i32, bool) {
    let (mut count, mut entry) = (0, pollfd { fd: end.tcp.as_raw_fd(), events: POLLIN, revents: 0 });
    // SAFETY: the first call writes one int; the second has one entry. Both live until it returns.
    unsafe {
        assert_eq!(libc::ioctl(entry.fd, libc::FIONREAD, &raw mut count), 0);
        assert!(libc::poll(&raw mut entry, 1, 0) >= 0);
    }
    (count, entry.revents & POLLIN != 0)
}

/// The kernel resets a connection that it closes with octets unread.
#[test]
fn an_end_that_is_killed_behind_the_peers_end_loses_nothing() {
    let (a, b) = pair(&sdp(initiator()), &sdp(responder()));
    b.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!((a.read(1), in_kernel(&a)), (Ok(vec![]), (0, true)));
    let octets = random_octets(10, 300_000);
    a.send_all(&octets);
    kill(a);
    assert!(b.read_to_end(50_000).unwrap() == octets);
    assert_eq!(b.state.ended(), None);
}

#[test]
fn the_end_stays_readable_behind_octets_that_were_moved() {
    let end = absorb_before(|mut peer| {
        peer.message(DIS_CONN, &[], &[]);
        // Goes on taking what the end sends, until that is all.
        while !peer.peer.is_silent(Duration::from_millis(100)) {
            peer.next();
            peer.data(b"");
        }
    });
    assert_eq!(in_kernel(&end), (0, true));
    assert_eq!(end.read(9), Ok(b"octets".to_vec()));
    assert_eq!((end.read(9), in_kernel(&end)), (Ok(vec![]), (0, true)));
}

/// The end makes no call after its `shutdown`: a FIN then would have the kernel answer the peer's
/// updates by a reset.
#[test]
fn a_slow_reader_gets_every_octet_where_both_have_ended() {
    let small = SdpOptions { size: 4000, bufs: 256, ..SdpOptions::DEFAULT };
    let (a, b) = pair(&sdp(initiator()), &with(sdp(responder()), small));
    SockRef::from(&b.tcp).set_recv_buffer_size(64 * 1024).unwrap();
    b.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(a.read(1), Ok(vec![]));
    let octets = random_octets(11, 3 << 20);
    let all = thread::scope(|scope| {
        scope.spawn(|| {
            a.send_all(&octets);
            a.stream().shutdown(libc::SHUT_WR).unwrap();
        });
        let mut all = Vec::new();
        loop {
            let part = b.read(3000).unwrap();
            if part.is_empty() {
                break all;
            }
            all.extend(part);
        }
    });
    assert!(all == octets);
    assert_eq!((b.state.ended(), a.state.ended()), (None, None));
}

/// Returns whether TCP has octets that the peer's has no room for. An acknowledgement may be late.
fn is_stuck(end: &End) -> bool {
    (0..20).all(|_| {
        thread::sleep(Duration::from_millis(10));
        let mut count: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, stores an int.
        assert_eq!(unsafe { libc::ioctl(end.tcp.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) }, 0);
        count > 0
    })
}
