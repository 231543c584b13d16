//! Events of `poll`, and the number of wake-ups without one for the program.

use std::time::Duration;

use rddp_mpa::StartupConfig;
use rddp_stream::Errno;
use rddp_test_support::random_octets;

use crate::common::{
    by_initiator, by_initiator_on, by_ready_initiator, initiator, kernel_poll, pair, responder, tcp_pair,
};
use crate::exchange::waits_for_as_many_as_the_low_water_mark;

const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn an_fpdu_an_octet_at_a_time_is_readable_when_it_is_whole() {
    for markers in [false, true] {
        let options = rddp_stream::Options { markers, ..responder() };
        let (mut peer, end) = by_initiator(&StartupConfig::default(), &options);
        let fpdu = peer.frame_message(&random_octets(1, 600));
        let mut woken = 0;
        for (at, octet) in fpdu.iter().enumerate() {
            assert!(!end.readable(), "{at} of {} octets", fpdu.len());
            peer.octets(&[*octet]);
            // Sleeps as a program would: the kernel wakes it or not.
            let last = at + 1 == fpdu.len();
            let (told, swallowed) =
                end.poll(libc::POLLIN, if last { LONG } else { Duration::from_millis(1) });
            woken += swallowed;
            assert_eq!(told & libc::POLLIN != 0, last, "{} of {} octets", at + 1, fpdu.len());
        }
        assert!(woken <= 4, "{woken} wake-ups for nothing");
        assert_eq!(end.read(1000).unwrap(), random_octets(1, 600));
        assert!(!end.readable());
    }
}

#[test]
fn a_wait_is_for_as_many_octets_as_the_low_water_mark_says() {
    waits_for_as_many_as_the_low_water_mark(pair(&initiator(), &responder()));
}

// The kernel's own state decides: no table of ours is asked.
#[test]
fn the_kernel_knows_whether_octets_are_left() {
    for markers in [false, true] {
        let options = rddp_stream::Options { markers, ..responder() };
        let (a, b) = pair(&initiator(), &options);
        a.send_all(&random_octets(2, 3000));
        assert_eq!(b.poll(libc::POLLIN, LONG).0, libc::POLLIN);
        for _ in 0..2999 {
            assert_eq!(b.read(1).unwrap().len(), 1);
            assert_eq!(kernel_poll(&b.tcp, libc::POLLIN, Duration::ZERO), libc::POLLIN);
        }
        assert_eq!(b.read(1).unwrap().len(), 1);
        assert_eq!(kernel_poll(&b.tcp, libc::POLLIN, Duration::ZERO), 0, "drained to the last octet");
    }
}

#[test]
fn an_fpdu_larger_than_the_window_arrives() {
    for (room, early) in [(2304, true), (8192, true), (40_000, true), (8192, false), (40_000, false)] {
        let tcp = tcp_pair();
        if early {
            set_receive_buffer(&tcp.1, room);
        }
        let (mut peer, end) = by_initiator_on(tcp, &StartupConfig::default(), &responder());
        set_receive_buffer(&end.tcp, room);
        let data = random_octets(3, 60_000);
        let fpdu = peer.frame_message(&data);
        let writer = std::thread::spawn(move || {
            peer.octets(&fpdu);
            peer
        });
        let (told, swallowed) = end.poll(libc::POLLIN, LONG);
        assert_eq!(told & libc::POLLIN, libc::POLLIN);
        assert!(swallowed < 2000, "{swallowed} wake-ups");
        assert_eq!(end.read(100).unwrap(), data[..100]);
        assert_eq!(kernel_poll(&end.tcp, libc::POLLIN, Duration::ZERO), libc::POLLIN, "the trailer is left");
        let mut rest = data[100..].to_vec();
        assert_eq!(end.recv(&mut rest, libc::MSG_WAITALL), Ok(59_900));
        assert_eq!(rest, data[100..]);
        assert_eq!(kernel_poll(&end.tcp, libc::POLLIN, Duration::ZERO), 0);
        drop(writer.join().unwrap());
    }
}

fn set_receive_buffer(tcp: &std::net::TcpStream, room: i32) {
    use std::os::fd::AsRawFd;
    let at = (&raw const room).cast();
    // SAFETY: an int, as SO_RCVBUF wants, which lives until the call returns.
    unsafe { libc::setsockopt(tcp.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, at, 4) };
}

// RFC 5044 §7.1.2 r4: a responder that has sent as many early octets as are kept is not writable
// before the first FPDU has come.
#[test]
fn a_responder_is_writable_when_the_first_fpdu_has_come() {
    let (mut peer, end) = by_initiator(&StartupConfig::default(), &responder());
    end.nonblocking();
    let early = random_octets(3, 16 * 1024);
    end.send_all(&early);
    let (told, swallowed) = end.poll(libc::POLLOUT, SOON);
    assert_eq!((told, end.send(b"too early")), (0, Err(Errno::WOULD_BLOCK)));
    assert!(swallowed <= 1, "{swallowed} wake-ups");
    peer.send_message(b"first");
    assert_eq!(end.poll(libc::POLLOUT, LONG).0, libc::POLLOUT);
    end.send_all(b"answer");
    assert!(peer.segment().unwrap().1 == early);
    assert_eq!(peer.segment().unwrap().1, b"answer");
    assert_eq!(end.read(10).unwrap(), b"first");
}

#[test]
fn a_full_socket_is_not_writable_and_does_not_spin() {
    let (a, b) = pair(&initiator(), &responder());
    a.nonblocking();
    let block = random_octets(4, 100_000);
    let mut sent = 0;
    while let Ok(count) = a.send(&block) {
        sent += count;
    }
    let (told, swallowed) = a.poll(libc::POLLOUT, SOON);
    assert_eq!(told, 0);
    assert!(swallowed <= 2, "{swallowed} wake-ups");
    let reader = std::thread::spawn(move || {
        let mut got = 0;
        while got < sent {
            got += b.read(100_000).unwrap().len();
        }
        b
    });
    assert_eq!(a.poll(libc::POLLOUT, LONG).0, libc::POLLOUT);
    assert!(a.send(b"x").is_ok());
    drop(reader.join().unwrap());
}

#[test]
fn messages_without_octets_do_not_wake_the_reader() {
    let (mut peer, end) = by_ready_initiator();
    for _ in 0..5 {
        peer.send_message(b"");
    }
    let (told, swallowed) = end.poll(libc::POLLIN, SOON);
    assert_eq!(told, 0);
    assert!(swallowed <= 6, "{swallowed} wake-ups");
    peer.send_message(b"!");
    assert_eq!(end.poll(libc::POLLIN, LONG).0, libc::POLLIN);
    assert_eq!(end.read(10).unwrap(), b"!");
}

#[test]
fn the_end_is_readable() {
    let (a, b) = pair(&initiator(), &responder());
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    let (told, _) = b.poll(libc::POLLIN | libc::POLLRDHUP, LONG);
    assert_eq!(told, libc::POLLIN | libc::POLLRDHUP);
    assert_eq!(b.read(1).unwrap(), b"");
}
