//! The startup: done by the first call that needs it, with a time limit, and with a clean answer to
//! a peer that does not speak MPA.

use std::io::{Read, Write};
use std::time::Duration;

use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Responder, ResponderStep, Revision, Rtr, RtrSet, StartupConfig};
use rddp_rdmap::{Opcode, ReadRequestRepr, untagged_header};
use rddp_stream::{Errno, Found, Options, Phase, Plain, PrivateData, Slots, Why};
use rddp_test_support::random_octets;

use crate::common::{
    CALLS, End, by_initiator, by_ready_initiator, by_responder, fresh_pair, initiator, responder, tcp_pair,
};

#[test]
fn connecting_does_not_wait_for_the_peer() {
    let (a, b) = fresh_pair(&initiator(), &responder());
    // One thread has both ends, so that neither call may wait.
    assert_eq!(a.stream().greet(), Ok(false));
    assert_eq!(b.stream().greet(), Ok(true));
    assert_eq!(a.stream().greet(), Ok(true));
    a.send_all(b"one thread");
    assert_eq!(b.read(100).unwrap(), b"one thread");
}

#[test]
fn the_error_of_a_failed_connect_is_left_to_the_program() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.connect(&closed.into()).unwrap_err().raw_os_error(), Some(libc::EINPROGRESS));
    let end = End::new(socket.into(), &initiator());
    for _ in 0..3 {
        let (told, _) = end.poll(libc::POLLOUT, Duration::from_secs(5));
        assert_eq!(told & (libc::POLLERR | libc::POLLHUP), libc::POLLERR | libc::POLLHUP);
        end.stream().step();
        assert_eq!(end.stream().deadline(), None);
    }
    assert_eq!(end.tcp.take_error().unwrap().unwrap().raw_os_error(), Some(libc::ECONNREFUSED));
    assert_eq!((end.read(1).unwrap(), end.send(b"x")), (vec![], Err(Errno::BROKEN_PIPE)));
    assert_eq!((end.state.phase(), end.state.ended()), (Phase::Starting, None));
}

#[test]
fn private_data_is_told_to_the_other_end() {
    let data = |text: &[u8]| PrivateData::new(text, Revision::Two).unwrap();
    let active = Options { private_data: data(b"hello"), ..initiator() };
    let passive = Options { private_data: data(&[7; 508]), ..responder() };
    let (a, b) = crate::common::pair(&active, &passive);
    assert_eq!(b.state.peer_private_data().unwrap().as_ref(), b"hello");
    assert_eq!(a.state.peer_private_data().unwrap().as_ref(), [7; 508]);
    assert!(PrivateData::new(&[0; 509], Revision::Two).is_err());
}

#[test]
fn a_request_an_octet_at_a_time_is_answered() {
    let (mut tcp, other) = tcp_pair();
    let end = End::new(other, &responder());
    let mut initiator = rddp_mpa::Initiator::new(&StartupConfig::default(), &[1; 100]).unwrap();
    let request = initiator.request().to_vec();
    for (at, octet) in request.iter().enumerate() {
        assert_eq!((end.poll(libc::POLLIN, Duration::ZERO).0, at), (0, at));
        tcp.write_all(&[*octet]).unwrap();
        end.poll(libc::POLLIN, Duration::from_millis(1));
    }
    end.poll(libc::POLLIN, Duration::from_millis(50));
    assert_eq!(end.state.phase(), Phase::Framed);
    let mut reply = [0; 24];
    tcp.read_exact(&mut reply).unwrap();
    assert!(matches!(initiator.handle(&reply), Ok(rddp_mpa::InitiatorStep::Accepted { .. })));
}

// RFC 5044 §7.1.2 r5: another key closes the connection.
#[test]
fn a_plain_client_is_reset_and_its_octets_reach_no_program() {
    let (mut plain, other) = tcp_pair();
    let end = End::new(other, &responder());
    plain.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(end.read(100), Err(Errno::PROTOCOL));
    assert_eq!(end.state.ended().unwrap().why, Why::NotMpa);
    assert_eq!(plain.read(&mut [0; 10]).unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
    assert_eq!((end.read(100).unwrap(), end.send(b"x")), (vec![], Err(Errno::BROKEN_PIPE)), "told once");
}

#[test]
fn a_plain_client_is_served_plainly_where_that_is_allowed() {
    let (mut plain, other) = tcp_pair();
    let mut end = End::new(other, &Options { plain: Plain::Allowed, ..responder() });
    plain.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(end.read(100), Err(Errno::PLAIN));
    assert_eq!(end.state.phase(), Phase::Plain);
    let mut octets = [0; 16];
    end.tcp.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"GET / HTTP/1.1\r\n", "not an octet was taken");
    assert_eq!(end.send(b"x"), Err(Errno::PLAIN));
    // The kernel wakes for one octet again.
    plain.write_all(b"y").unwrap();
    assert_eq!(end.poll(libc::POLLIN, Duration::from_secs(5)).0, libc::POLLIN);
}

#[test]
fn a_plain_client_that_waits_to_be_spoken_to_is_spoken_to() {
    let (mut plain, other) = tcp_pair();
    let options = Options { plain: Plain::Allowed, plain_after: Duration::from_millis(30), ..responder() };
    let end = End::new(other, &options);
    assert_eq!(end.send(b"220 ready"), Ok(9), "it goes out by itself");
    let mut octets = [0; 9];
    plain.read_exact(&mut octets).unwrap();
    assert_eq!((&octets, end.send(b"more")), (b"220 ready", Err(Errno::PLAIN)));
    assert_eq!(end.poll(libc::POLLOUT, Duration::from_secs(5)).0, libc::POLLOUT);
}

#[test]
fn a_beginning_that_looks_like_a_request_and_is_none_is_plain() {
    let (mut plain, other) = tcp_pair();
    let options = Options { plain: Plain::Allowed, plain_after: Duration::from_millis(50), ..responder() };
    let mut end = End::new(other, &options);
    plain.write_all(b"MPA ID").unwrap();
    assert_eq!(end.read(100), Err(Errno::PLAIN));
    let mut octets = [0; 6];
    end.tcp.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"MPA ID");
}

#[test]
fn a_plain_server_is_told_from_one_of_ours() {
    let (active, mut plain) = tcp_pair();
    let end = End::new(active, &initiator());
    plain.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap();
    assert_eq!(end.read(100), Err(Errno::PROTOCOL));
    assert_eq!(end.state.ended().unwrap().why, Why::NotMpa);
}

#[test]
fn a_server_that_closes_on_the_request_is_reported_as_such() {
    let (active, plain) = tcp_pair();
    let end = End::new(active, &initiator());
    assert_eq!(end.stream().greet(), Ok(false));
    drop(plain);
    let error = end.read(100).unwrap_err();
    assert!(matches!(error, Errno::RESET), "{error}");
}

// RFC 5044 §7.1.2 r10
#[test]
fn a_peer_that_does_not_answer_is_waited_for_only_so_long() {
    let quickly = Duration::from_millis(50);
    let (active, _silent) = tcp_pair();
    let end = End::new(active, &Options { startup_timeout: quickly, ..initiator() });
    assert_eq!(end.read(1), Err(Errno::TIMED_OUT));
    assert_eq!(end.state.ended().unwrap().why, Why::NoAnswer);
    let (_silent, passive) = tcp_pair();
    let end = End::new(passive, &Options { startup_timeout: quickly, ..responder() });
    let (told, _) = end.poll(libc::POLLIN, Duration::from_secs(5));
    assert_ne!(told & libc::POLLERR, 0);
    assert_eq!(end.read(1), Err(Errno::TIMED_OUT));
}

// RFC 5044 §7.1.2 r3: TCP stays as it is.
#[test]
fn a_rejection_is_a_refusal() {
    let (active, mut tcp) = tcp_pair();
    let end = End::new(active, &initiator());
    assert_eq!(end.stream().greet(), Ok(false));
    let mut request = [0; 24];
    tcp.read_exact(&mut request).unwrap();
    let Ok(ResponderStep::Request { request, .. }) = Responder::new().handle(&request) else { panic!() };
    tcp.write_all(&request.reject(&StartupConfig::default(), b"no").unwrap()).unwrap();
    assert_eq!(end.read(1), Err(Errno::REFUSED));
    assert_eq!(end.state.ended().unwrap().why, Why::Rejected);
    assert_eq!(end.state.peer_private_data().unwrap().as_ref(), b"no");
    (&end.tcp).write_all(b"still TCP").unwrap();
    let mut octets = [0; 9];
    tcp.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"still TCP");
}

// RFC 5044 §7.1.2 r4, RFC 6581 §9.2: the initiator's first FPDU is the RTR of the Reply, or a Send
// without octets.
#[test]
fn the_initiators_first_fpdu_is_the_one_that_was_agreed_on() {
    let kinds = [
        (Some(Rtr::Write), Opcode::Write),
        (Some(Rtr::Read), Opcode::ReadRequest),
        (Some(Rtr::Send), Opcode::Send),
    ];
    for (rtr, opcode) in kinds {
        let config = StartupConfig { rtr: RtrSet::only(rtr.unwrap()), ..StartupConfig::default() };
        let (mut peer, end) = by_responder(&config, &Options { rtr: RtrSet::ALL, ..initiator() });
        assert_eq!(peer.negotiated.rtr, rtr);
        end.send_all(b"data");
        let (header, payload) = peer.segment().unwrap();
        assert_eq!(Opcode::from_number(header.control() & 0xf), Some(opcode));
        assert_eq!(payload.len(), if opcode == Opcode::ReadRequest { 28 } else { 0 });
        assert_eq!(peer.segment().unwrap().1, b"data");
    }
    let (mut peer, end) =
        by_responder(&StartupConfig::default(), &Options { revision: Revision::One, ..initiator() });
    end.send_all(b"data");
    assert_eq!(peer.segment().unwrap().1, b"");
    assert_eq!(peer.segment().unwrap().1, b"data");
}

// A Read without octets is answered, whatever it names (RFC 5040 §5.2.1).
#[test]
fn a_read_without_octets_is_answered() {
    let config = StartupConfig { rtr: RtrSet::only(Rtr::Read), ..StartupConfig::default() };
    let (mut peer, end) = by_initiator(&config, &responder());
    let read = ReadRequestRepr { sink_stag: Stag(5), sink_to: 6, size: 0, src_stag: Stag(7), src_to: 8 };
    let mut request = [0; ReadRequestRepr::LEN];
    read.emit(&mut request);
    peer.send_segment(&untagged_header(Opcode::ReadRequest, Stag(0), Msn::FIRST, 0, true), &request);
    peer.send_message(b"and data");
    assert_eq!(end.read(100).unwrap(), b"and data");
    let (header, payload) = peer.segment().unwrap();
    assert_eq!(Opcode::from_number(header.control() & 0xf), Some(Opcode::ReadResponse));
    assert!(payload.is_empty());
    end.send_all(b"answer");
    assert_eq!(peer.segment().unwrap().1, b"answer");
}

// RFC 5040 §5.2.1, RFC 5041 §5.3: each Read is answered in order, however many come at once.
#[test]
fn many_reads_without_octets_are_answered_in_order() {
    let (mut peer, end) = by_ready_initiator();
    let mut octets = Vec::new();
    for number in 1..=20 {
        let (sink_stag, src_stag) = (Stag(number), Stag(7));
        let read = ReadRequestRepr { sink_stag, sink_to: 6, size: 0, src_stag, src_to: 8 };
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(number), 0, true);
        octets.extend(peer.frame_segment(&header, &read.octets()));
    }
    octets.extend(peer.frame_message(b"and data"));
    peer.octets(&octets);
    assert_eq!(end.read(100).unwrap(), b"and data");
    for number in 1..=20 {
        let (header, payload) = peer.segment().unwrap();
        assert_eq!(header, rddp_rdmap::tagged_header(Opcode::ReadResponse, Stag(number), 6, true));
        assert!(payload.is_empty());
    }
    end.send_all(b"answer");
    assert_eq!(peer.segment().unwrap().1, b"answer");
}

#[test]
fn the_answer_to_the_rtr_read_does_not_reach_the_program() {
    let config = StartupConfig { rtr: RtrSet::only(Rtr::Read), ..StartupConfig::default() };
    let (mut peer, end) = by_responder(&config, &initiator());
    let _ = peer.segment().unwrap();
    peer.send_segment(&rddp_rdmap::tagged_header(Opcode::ReadResponse, Stag(0), 0, true), b"");
    peer.send_message(b"data");
    assert_eq!(end.read(100).unwrap(), b"data");
    assert_eq!(end.state.ended(), None);
}

// A client that sends nothing still lets the server send.
#[test]
fn a_client_that_only_listens_gets_its_octets() {
    let (a, b) = fresh_pair(&initiator(), &responder());
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    let data = random_octets(1, 100_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            b.send_all(&data);
            assert_eq!(b.read(1).unwrap(), b"");
            b.stream().shutdown(libc::SHUT_WR).unwrap();
        });
        assert!(a.read_to_end(10_000).unwrap() == data);
    });
}

#[test]
fn a_state_in_a_file_is_found_again() {
    let (folder, user) = (tempfile::tempdir().unwrap(), nix::unistd::geteuid().as_raw());
    let find = |cookie| Slots::find(folder.path(), user, cookie);
    let (tcp, other) = tcp_pair();
    let d = End::new(other, &responder());
    assert!(matches!(find(d.stream().cookie().unwrap()), Found::Nothing), "there is no file");
    let c = {
        let cookie = End::new(tcp.try_clone().unwrap(), &initiator()).stream().cookie().unwrap();
        let slots = Slots::open(folder.path(), user).unwrap();
        End { tcp, state: slots.create(cookie, &initiator()).unwrap() }
    };
    assert_eq!(c.state.cookie(), c.stream().cookie().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| d.send_all(b"before"));
        assert_eq!(c.read(3).unwrap(), b"bef");
    });
    // Found as by another program after `exec`.
    let Found::State(found) = find(c.state.cookie()) else { panic!("it is there") };
    let again = rddp_stream::Stream::new(std::os::fd::AsRawFd::as_raw_fd(&c.tcp), &found, &CALLS).unwrap();
    let mut octets = [0; 10];
    assert_eq!(again.recv(&mut [std::io::IoSliceMut::new(&mut octets)], 0), Ok(3));
    assert_eq!(&octets[..3], b"ore");
    assert!(matches!(find(d.stream().cookie().unwrap()), Found::Nothing));
}

// A thread that ends the startup, or takes the first FPDU, is not the only one that waited for it.
#[test]
fn each_of_two_threads_of_one_end_goes_on_without_the_other() {
    for _ in 0..100 {
        let (a, b) = fresh_pair(&initiator(), &responder());
        std::thread::scope(|scope| {
            for end in [&a, &b] {
                scope.spawn(|| assert_eq!(end.read(5).unwrap(), b"hello"));
                scope.spawn(|| end.send_all(b"hello"));
            }
        });
        assert_eq!((a.state.ended(), b.state.ended()), (None, None));
    }
}
