//! MPA startups of the listening end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rddp_ddp::Stag;
use rddp_mpa::StartupConfig;
use rddp_rdmap::Opcode;
use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, QpState, RecvWr, Revision, Rtr, SendWr, Status,
};
use rddp_test_support::{plain, random_octets, read_to_end, segment};

use crate::common::raw::{self, Role, client_server, with_raw};
use crate::common::{End, PATIENCE};
use crate::frames::{
    A, C, M, R, REPLY, REQUEST, RTR_READ, RTR_SEND, RTR_WRITE, S, SHORT, depths, dial, frame, good_request,
    listener, options, still_listens,
};

/// Sends `octets` to a listener, which must close without sending anything, and serve the next.
fn is_closed(octets: &[u8]) {
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    let begin = Instant::now();
    socket.write_all(octets).unwrap();
    assert_eq!(read_to_end(&socket), b"", "an answer to {octets:02x?}");
    assert!(begin.elapsed() < PATIENCE / 2, "closed by the time limit only");
    assert!(listener.try_accept().is_none());
    still_listens(&listener);
}

/// Reads exactly one Reply.
fn reply(socket: &mut TcpStream) -> Vec<u8> {
    let mut octets = vec![0; 20];
    socket.read_exact(&mut octets).unwrap();
    let len = usize::from(u16::from_be_bytes([octets[18], octets[19]]));
    octets.resize(20 + len, 0);
    socket.read_exact(&mut octets[20..]).unwrap();
    octets
}

/// RFC 5044 §7.1.1, §7.1.2 rule 5: a wrong key closes at once, without a word.
#[test]
fn octets_that_are_no_request_close_the_connection() {
    is_closed(b"GET / HTTP/1.1\r\n\r\n");
    is_closed(&[0; 100]);
    is_closed(b"MPA ID Req FramE");
    is_closed(b"X");
    let noise = random_octets(1, 4000);
    is_closed(&noise);
}

/// RFC 5044 §7.1.2 rule 8: two responders are told apart by the key.
#[test]
fn a_reply_is_closed() {
    is_closed(&frame(REPLY, C | S, 2, &depths(8, 8)));
}

/// RFC 5044 §7.1.1: unsupported revisions are closed.
#[test]
fn other_revisions_are_closed() {
    for revision in [0, 3, 4, 255] {
        is_closed(&frame(REQUEST, C, revision, b""));
        is_closed(&frame(REQUEST, C | S, revision, &depths(1, 1)));
    }
}

/// RFC 5044 §7.1.1, RFC 5042 §6.4.1: refused when the length is there, before anything of it.
#[test]
fn too_much_private_data_is_closed_at_the_header() {
    for len in [513u16, 0x7fff, 0xffff] {
        let mut octets = frame(REQUEST, C, 1, b"");
        octets[18..20].copy_from_slice(&len.to_be_bytes());
        is_closed(&octets);
    }
}

/// RFC 6581 §6: an enhanced frame holds at least the four octets.
#[test]
fn an_enhanced_request_without_its_data_is_closed() {
    for len in 0..4 {
        is_closed(&frame(REQUEST, C | S, 2, &vec![0; len]));
    }
}

/// RFC 5044 §7.1.5: nothing follows a Request before the Reply.
#[test]
fn octets_glued_behind_the_request_are_closed() {
    is_closed(&[good_request(), vec![0]].concat());
    let fpdu = b"\x00\x0e\xc1\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xa3\x05\x72\xab";
    is_closed(&[&*good_request(), fpdu].concat());
}

/// RFC 5044 §7.1.2 rule 9: a frame that ends too early.
#[test]
fn a_fin_in_the_middle_of_the_request_is_closed() {
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let whole = frame(REQUEST, C | S, 2, &[&depths(8, 8)[..], b"private"].concat());
    for cut in 0..whole.len() {
        let mut socket = dial(&listener);
        socket.write_all(&whole[..cut]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&socket), b"");
    }
    assert!(listener.try_accept().is_none());
    still_listens(&listener);
}

/// RFC 5044 §7.1.2 rule 10: a peer that stops half-way is closed when the time is
/// over, however far it came.
#[test]
fn half_a_request_and_silence_is_closed_in_time() {
    let end = End::new();
    let listener = listener(&end, &options(SHORT));
    let whole = good_request();
    let begin = Instant::now();
    let sockets: Vec<_> = [0, 1, 15, 16, 19, 20, 23]
        .map(|cut| {
            let mut socket = dial(&listener);
            socket.write_all(&whole[..cut]).unwrap();
            socket
        })
        .into();
    for socket in &sockets {
        assert_eq!(read_to_end(socket), b"");
    }
    assert!(begin.elapsed() >= SHORT, "closed before the time was up");
    still_listens(&listener);
}

/// RFC 5042 §6.4.2: the limit is on the whole startup, not on each octet.
#[test]
fn an_octet_now_and_then_gains_no_time() {
    let end = End::new();
    let listener = listener(&end, &options(SHORT));
    let mut socket = dial(&listener);
    let begin = Instant::now();
    for octet in good_request() {
        std::thread::sleep(SHORT / 6);
        if socket.write_all(&[octet]).is_err() || begin.elapsed() > 2 * SHORT {
            break;
        }
    }
    assert_eq!(read_to_end(&socket), b"");
    assert!(listener.try_accept().is_none());
}

/// RFC 5044 §7.1: TCP may cut a frame anywhere.
#[test]
fn a_request_one_octet_at_a_time_is_taken() {
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    for octet in frame(REQUEST, C | S, 2, &[&depths(8, 8)[..], b"hello"].concat()) {
        socket.write_all(&[octet]).unwrap();
    }
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(request.private_data(), b"hello");
    request.accept(&end.qp, b"").unwrap();
    assert_eq!(reply(&mut socket)[17], 2);
}

/// RFC 5044 §7.1.1, RFC 6581 §10: in the revision and the form of the Request;
/// reserved bits change nothing.
#[test]
fn the_reply_mirrors_the_request() {
    let requests = [
        (frame(REQUEST, C, 1, b""), frame(REPLY, C, 1, b"")),
        (frame(REQUEST, 0, 1, b""), frame(REPLY, C, 1, b"")),
        (frame(REQUEST, C, 2, b""), frame(REPLY, C, 2, b"")),
        (frame(REQUEST, C | S, 2, &depths(4, 2)), frame(REPLY, C | S, 2, &depths(2, 4))),
        (frame(REQUEST, M | C | S | 0x0f, 2, &depths(4, 2)), frame(REPLY, C | S, 2, &depths(2, 4))),
        // RFC 5044 §7.1.1: R is not looked at in a Request.
        (frame(REQUEST, R | C, 1, b""), frame(REPLY, C, 1, b"")),
        // RFC 6581 §9.2: with A, one kind of the offer: Read before Write before Send.
        (
            frame(REQUEST, C | S, 2, &depths(A | RTR_SEND | 4, RTR_WRITE | RTR_READ)),
            frame(REPLY, C | S, 2, &depths(A | 1, RTR_READ | 4)),
        ),
        (
            frame(REQUEST, C | S, 2, &depths(A | 4, RTR_WRITE)),
            frame(REPLY, C | S, 2, &depths(A, RTR_WRITE | 4)),
        ),
        // RFC 6581 §9.2: without A the kinds are ignored.
        (
            frame(REQUEST, C | S, 2, &depths(RTR_SEND | 4, RTR_WRITE | 2)),
            frame(REPLY, C | S, 2, &depths(2, 4)),
        ),
        // RFC 6581 §9.1: 0x3fff is answered by itself, and the other depth is negotiated.
        (frame(REQUEST, C | S, 2, &depths(0x3fff, 2)), frame(REPLY, C | S, 2, &depths(2, 0x3fff))),
        (frame(REQUEST, C | S, 2, &depths(4, 0x3fff)), frame(REPLY, C | S, 2, &depths(0x3fff, 4))),
    ];
    for (request, expected) in requests {
        let end = End::new();
        let listener = listener(&end, &options(PATIENCE));
        let mut socket = dial(&listener);
        socket.write_all(&request).unwrap();
        listener.accept(Some(PATIENCE)).unwrap().unwrap().accept(&end.qp, b"").unwrap();
        assert_eq!(reply(&mut socket), expected, "to {request:02x?}");
    }
}

/// RFC 6581 §9.1: 0x3fff leaves the depth to the program; everything else is held to what the
/// device has.
#[test]
fn depths_stay_within_the_device() {
    let cases = [(0x3fff, 0x3fff, 32, 32), (1, 0, 0, 1), (0x3ffe, 0x3ffe, 1024, 32)];
    for (ird, ord, our_ird, our_ord) in cases {
        let end = End::new();
        let listener = listener(&end, &options(PATIENCE));
        let mut socket = dial(&listener);
        socket.write_all(&frame(REQUEST, C | S, 2, &depths(ird, ord))).unwrap();
        let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
        assert_eq!(
            (request.request().unwrap().peer_ird, request.request().unwrap().peer_ord),
            (Some(ird), Some(ord))
        );
        let negotiated = request.accept(&end.qp, b"").unwrap().unwrap();
        assert_eq!((negotiated.ird, negotiated.ord), (our_ird, our_ord));
    }
}

/// RFC 5044 §7.1.2 rule 4: messages that the program posts wait for the initiator's first FPDU.
#[test]
fn a_responder_is_silent_until_the_first_fpdu() {
    let (end, mut raw) = with_raw(Role::Passive, &client_server(), &plain());
    end.qp.post_send(&SendWr::send_inline(1, b"early")).unwrap();
    assert!(raw.is_silent(Duration::from_millis(100)), "a responder sent first");
    raw.open();
    assert_eq!(raw.expect(Opcode::Send).1, b"early");
    assert_eq!(end.event(), AsyncEventKind::Established);
    end.success();
}

/// A program may have its messages go all the same; those of a peer that owes an RTR wait for it.
#[test]
fn a_responder_that_speaks_first_does_not_wait() {
    let options = ConnectOptions { speaks_first: true, ..client_server() };
    let (end, mut raw) = with_raw(Role::Passive, &options, &plain());
    end.qp.post_send(&SendWr::send_inline(1, b"first")).unwrap();
    assert_eq!(raw.expect(Opcode::Send).1, b"first");
    end.success();

    let owes_rtr = StartupConfig { peer_to_peer: true, ..plain() };
    let (end, mut raw) = with_raw(Role::Passive, &options, &owes_rtr);
    end.qp.post_send(&SendWr::send_inline(1, b"early")).unwrap();
    assert!(raw.is_silent(Duration::from_millis(100)), "a responder sent before the RTR");
}

/// RFC 5044 §7.1.2 rule 4: nothing valid has arrived, so nothing may be sent, not even a Terminate.
#[test]
fn a_broken_first_fpdu_is_closed_without_a_terminate() {
    let (end, mut raw) = with_raw(Role::Passive, &client_server(), &plain());
    let mut octets = raw.frame(&segment::send(1, 0, true, b"data"));
    *octets.last_mut().unwrap() ^= 1;
    raw.octets(&octets);
    assert_eq!(raw.recv(), None);
    assert!(matches!(end.event(), AsyncEventKind::Fault(_)));
    assert_eq!((end.qp.terminate_sent(), end.qp.negotiated().is_some()), (None, true));
}

/// RFC 6581 §5: an initiator that does not send the RTR it owes gets no connection.
#[test]
fn a_missing_rtr_ends_the_connection() {
    let options = options(SHORT);
    let mut startup = plain();
    startup.peer_to_peer = true;
    let (end, mut raw) = with_raw(Role::Passive, &options, &startup);
    assert_eq!(raw.recv(), None);
    assert_eq!(end.event(), AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// RFC 6581 §5: the limit is on the startup, which the RTR ends; the connection has none.
#[test]
fn a_connection_outlives_the_time_limit_of_its_rtr() {
    // Long enough for an RTR that is sent at once, however slow the machine.
    let limit = Duration::from_secs(2);
    let startup = StartupConfig { peer_to_peer: true, ..plain() };
    let (end, mut raw) = with_raw(Role::Passive, &options(limit), &startup);
    assert!(end.qp.negotiated().unwrap().rtr.is_some());
    raw.open();
    assert_eq!(end.event(), AsyncEventKind::Established);
    std::thread::sleep(limit + SHORT);
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
    end.qp.post_send(&SendWr::send_inline(1, b"still there")).unwrap();
    assert_eq!(raw.expect(Opcode::Send).1, b"still there");
    assert!(end.rnic.async_event().is_none());
}

/// RFC 6581 §9.2: whichever RTR comes first opens the responder, and each kind does
/// what its operation does.
#[test]
fn each_rtr_opens_the_responder() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let mut startup = plain();
        (startup.peer_to_peer, startup.rtr) = (true, rddp_rnic::RtrSet::only(rtr));
        let options = ConnectOptions {
            rtr: rddp_rnic::RtrSet { send: true, write: true, read: true },
            ..Default::default()
        };
        let end = End::new();
        let inbox = end.region(8, Access::LOCAL_WRITE);
        end.qp.post_recv(RecvWr::one(7, inbox.whole())).unwrap();
        let mut raw = raw::connect_raw(Role::Passive, &end, &options, &startup);
        match rtr {
            Rtr::Send => raw.send(&segment::send(1, 0, true, b"")),
            Rtr::Write => raw.send(&segment::write(Stag(1), 0, true, b"")),
            Rtr::Read => raw.send(&raw::read_from(1, &inbox, 0)),
        }
        assert_eq!(end.event(), AsyncEventKind::Established);
        if rtr == Rtr::Read {
            raw.expect(Opcode::ReadResponse);
        }
        // RFC 6581 §9.2: a Send takes a receive, the others do not.
        let next = if rtr == Rtr::Send { 2 } else { 1 };
        if rtr == Rtr::Send {
            assert_eq!(end.success().byte_len, 0);
            end.qp.post_recv(RecvWr::one(7, inbox.whole())).unwrap();
        }
        raw.send(&segment::send(next, 0, true, b"payload"));
        assert_eq!((end.next().status, inbox.read(0, 7).unwrap()), (Status::Success, b"payload".to_vec()));
    }
}

/// RFC 5044 §7.1.2: the connection request has what the peer asked for.
#[test]
fn the_program_sees_the_request() {
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    socket.write_all(&frame(REQUEST, M, 1, b"who I am")).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(request.private_data(), b"who I am");
    let asked = request.request().unwrap();
    assert_eq!(
        (asked.revision, asked.crc, asked.markers, asked.enhanced),
        (Revision::One, false, true, false)
    );
    assert_eq!(request.peer_addr(), socket.local_addr().ok());
    // Dropped: closed without an answer.
    drop(request);
    assert_eq!(read_to_end(&socket), b"");
}

#[test]
fn a_qp_that_is_not_idle_is_not_connected() {
    let (end, _raw) = with_raw(Role::Passive, &client_server(), &plain());
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    let refused = request.accept(&end.qp, b"").unwrap_err();
    assert!(matches!(refused, ConnectError::NotIdle(QpState::ReadyToSend)), "{refused}");
    assert_eq!(refused.to_string(), "the QP is in state ready to send: only an idle QP can be connected");
    assert_eq!(read_to_end(&socket), b"", "closed, so that the peer does not wait");
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
}
