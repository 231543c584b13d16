//! Octets that a program sends before the startup is over: taken as TCP takes them, and framed
//! after it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rddp_ddp::Stag;
use rddp_mpa::{Initiator, StartupConfig};
use rddp_rdmap::{Opcode, tagged_header};
use rddp_stream::{Errno, Options, Phase, Plain};
use rddp_test_support::{Peer, random_octets};

use crate::common::{End, answered, fresh_pair, initiator, kernel_poll, responder, tcp_pair};

const LONG: Duration = Duration::from_secs(20);
const LIMIT: usize = 16 * 1024;

fn both_go_on(a: &End, b: &End) {
    a.poll(0, Duration::ZERO);
    b.poll(0, Duration::ZERO);
}

fn read_all(from: &End, other: &End, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        match from.read(count - all.len()) {
            Ok(octets) if octets.is_empty() => break,
            Ok(octets) => all.extend(octets),
            Err(error) => assert_eq!(error, Errno::WOULD_BLOCK),
        }
        both_go_on(from, other);
    }
    all
}

#[test]
fn a_fresh_connection_takes_octets_and_one_thread_may_have_both_ends() {
    let (a, b) = fresh_pair(&initiator(), &responder());
    a.nonblocking();
    b.nonblocking();
    let (of_a, of_b) = (random_octets(1, LIMIT + 5), random_octets(2, LIMIT + 5));
    for (end, all) in [(&a, &of_a), (&b, &of_b)] {
        assert_eq!(end.poll(libc::POLLOUT, LONG).0, libc::POLLOUT);
        assert_eq!(end.send(&all[..10]), Ok(10));
        assert_eq!(end.send(&all[10..]), Ok(LIMIT - 10));
        assert_eq!(end.send(b"more"), Err(Errno::WOULD_BLOCK));
        assert_eq!(end.stream().unsent(), LIMIT);
        assert_eq!(end.poll(libc::POLLOUT, Duration::ZERO).0, 0, "there is no room");
    }
    assert!(read_all(&b, &a, LIMIT) == of_a[..LIMIT]);
    assert!(read_all(&a, &b, LIMIT) == of_b[..LIMIT]);
    for end in [&a, &b] {
        assert_eq!(end.poll(libc::POLLOUT, LONG).0, libc::POLLOUT);
        assert_eq!((end.send(b"more"), end.stream().unsent()), (Ok(4), 0));
    }
    assert_eq!((read_all(&b, &a, 4), read_all(&a, &b, 4)), (b"more".to_vec(), b"more".to_vec()));
}

// Octets of a responder wait for the initiator's first FPDU (RFC 5044 §7.1.2 r4).
#[test]
fn early_octets_of_a_responder_wait_for_the_first_fpdu() {
    let (mut tcp, other) = tcp_pair();
    let end = End::new(other, &responder());
    end.nonblocking();
    end.send_all(b"banner");
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
    assert_eq!(kernel_poll(&tcp, libc::POLLIN, Duration::ZERO), 0);
    tcp.write_all(initiator.request()).unwrap();
    end.poll(0, Duration::ZERO);
    assert_eq!(end.state.phase(), Phase::Framed);
    let mut peer = Peer::after_request(tcp, initiator);
    assert_eq!(kernel_poll(&peer.socket, libc::POLLIN | libc::POLLRDHUP, Duration::from_millis(20)), 0);
    peer.send_segment(&tagged_header(Opcode::Write, Stag(0), 0, true), b"");
    end.poll(libc::POLLIN, Duration::from_millis(100));
    assert_eq!(peer.segment().unwrap().1, b"banner");
    assert!(peer.segment().is_none(), "the end follows");
}

/// Returns how many segments with octets have come, as TCP counts them.
fn data_segments(tcp: &TcpStream) -> u32 {
    // SAFETY: all zeros is a valid value, and the kernel writes no more of `tcp_info` than there is
    // room for.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut len = size_of_val(&info) as libc::socklen_t;
        let at = (&raw mut info).cast();
        assert_eq!(libc::getsockopt(tcp.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len), 0);
        info.tcpi_data_segs_in
    }
}

#[test]
fn the_rtr_and_the_first_octets_are_one_segment() {
    let (a, b) = fresh_pair(&initiator(), &responder());
    a.nonblocking();
    b.nonblocking();
    a.send_all(b"request");
    both_go_on(&b, &b);
    assert_eq!(data_segments(&b.tcp), 1, "the Request");
    a.poll(0, Duration::ZERO);
    assert_eq!(b.poll(libc::POLLIN, LONG).0, libc::POLLIN);
    assert_eq!((data_segments(&b.tcp), b.read(10)), (2, Ok(b"request".to_vec())));
}

#[test]
fn early_octets_of_an_initiator_follow_its_first_fpdu() {
    let (active, tcp) = tcp_pair();
    let end = End::new(active, &Options { crc: false, markers: true, ..initiator() });
    end.nonblocking();
    end.send_all(b"GET /");
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    let config = StartupConfig { markers: true, ..StartupConfig::default() };
    let mut peer = answered(tcp, &config, &end);
    assert_ne!(Opcode::from_number(peer.segment().unwrap().0.control() & 0xf), Some(Opcode::Send), "the RTR");
    assert_eq!(peer.segment().unwrap().1, b"GET /");
    assert!(peer.segment().is_none());
}

#[test]
fn early_octets_to_a_plain_client_go_plain_and_in_order() {
    let (mut plain, other) = tcp_pair();
    let options = Options { plain: Plain::Allowed, plain_after: Duration::from_millis(30), ..responder() };
    let end = End::new(other, &options);
    end.nonblocking();
    let said = random_octets(3, LIMIT);
    end.send_all(&said);
    assert_eq!(end.poll(libc::POLLOUT, Duration::ZERO).0, 0);
    assert_eq!(end.poll(libc::POLLOUT, LONG).0, libc::POLLOUT);
    assert_eq!((end.state.phase(), end.send(b"x")), (Phase::Plain, Err(Errno::PLAIN)));
    let mut got = vec![0; LIMIT];
    plain.read_exact(&mut got).unwrap();
    assert!(got == said);
}

#[test]
fn a_client_that_may_fall_back_sends_nothing_early() {
    let (active, _plain) = tcp_pair();
    let end = End::new(active, &Options { plain: Plain::Allowed, ..initiator() });
    end.nonblocking();
    assert_eq!((end.poll(libc::POLLOUT, Duration::ZERO).0, end.send(b"x")), (0, Err(Errno::WOULD_BLOCK)));
}

#[test]
fn a_startup_that_fails_is_reported_once() {
    type Call = fn(&End) -> Result<usize, Errno>;
    let calls: [Call; 2] = [|end| end.send(b"x"), |end| end.recv(&mut [0], 0)];
    for call in calls {
        let (active, mut plain) = tcp_pair();
        let end = End::new(active, &initiator());
        end.nonblocking();
        end.send_all(b"GET /");
        plain.write_all(b"220 an older protocol").unwrap();
        let (told, _) = end.poll(libc::POLLIN, LONG);
        assert_eq!(told & (libc::POLLERR | libc::POLLHUP), libc::POLLERR | libc::POLLHUP);
        assert_eq!(call(&end), Err(Errno::PROTOCOL));
        assert_eq!((end.send(b"x"), end.read(1)), (Err(Errno::BROKEN_PIPE), Ok(vec![])));
        assert!(end.stream().finishes(), "nothing is waited for");
    }
}

// If the peer takes the connection and sends nothing, or closes, octets that were taken are given
// up in the end.
#[test]
fn early_octets_end_with_the_startups_time() {
    let quickly = Duration::from_millis(50);
    for says in [&b""[..], b"MPA ID"] {
        let (active, mut silent) = tcp_pair();
        let end = End::new(active, &Options { startup_timeout: quickly, ..initiator() });
        end.nonblocking();
        end.send_all(b"anyone?");
        silent.write_all(says).unwrap();
        let (told, _) = end.poll(libc::POLLIN, LONG);
        assert_eq!(told & (libc::POLLERR | libc::POLLHUP), libc::POLLERR | libc::POLLHUP);
        assert_eq!(end.read(1), Err(Errno::TIMED_OUT));
        assert_eq!(end.stream().unsent(), 0);
    }
}
