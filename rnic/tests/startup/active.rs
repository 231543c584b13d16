//! MPA startups of the connecting end.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rddp_mpa::{Responder, ResponderStep, StartupError};
use rddp_rdmap::{Opcode, TerminateRepr};
use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, Connected, QpState, RecvWr, Revision, Rtr, RtrSet,
    SendWr, TerminateCode,
};
use rddp_test_support::{Peer, accept_request, plain, read_to_end, segment};
use socket2::SockRef;

use crate::common::raw::{client_server, listen_for};
use crate::common::{End, PATIENCE};
use crate::frames::{A, C, REPLY, REQUEST, RTR_READ, RTR_SEND, RTR_WRITE, S, SHORT, depths, frame, options};
use crate::own::pair;

/// Connects to a peer that calls `answer` with each connection; returns the result.
fn against(
    options: &ConnectOptions,
    connections: usize,
    answer: impl Fn(usize, TcpStream, Vec<u8>),
) -> (End, Result<Connected, ConnectError>) {
    let end = End::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let result = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, options));
        for attempt in 0..connections {
            let (socket, request) = accept_request(&listener);
            answer(attempt, socket, request);
        }
        connecting.join().unwrap()
    });
    (end, result)
}

fn no_fall_back() -> ConnectOptions {
    ConnectOptions { fall_back: false, ..Default::default() }
}

/// Returns the error that this Reply leads to at the active end, and the octets sent behind the
/// Request.
fn refuses(options: &ConnectOptions, reply: &[u8]) -> (StartupError, Vec<u8>) {
    let wire = std::sync::Mutex::new(Vec::new());
    let (end, result) = against(options, 1, |_, mut socket, _| {
        socket.write_all(reply).unwrap();
        *wire.lock().unwrap() = read_to_end(&socket);
    });
    assert_eq!(end.qp.state(), QpState::Idle);
    match result {
        Err(ConnectError::Startup(error)) => (error, wire.into_inner().unwrap()),
        result => panic!("{result:?} to {reply:02x?}"),
    }
}

fn is_closed_without_a_word(reply: &[u8]) -> StartupError {
    let (error, wire) = refuses(&no_fall_back(), reply);
    assert_eq!(wire, b"", "{error}");
    error
}

/// RFC 5044 §7.1.2 rules 3 and 8, §7.1.1.
#[test]
fn a_frame_that_is_no_reply_closes_the_connection() {
    assert_eq!(is_closed_without_a_word(b"HTTP/1.1 400 Bad Request\r\n"), StartupError::BadKey);
    // At the first wrong octet, whether more comes or not.
    assert_eq!(is_closed_without_a_word(b"HTTP"), StartupError::BadKey);
    assert_eq!(is_closed_without_a_word(&frame(REQUEST, C, 1, b"")), StartupError::WrongRole);
    assert_eq!(is_closed_without_a_word(&frame(REPLY, C, 0, b"")), StartupError::Revision(0));
    assert_eq!(is_closed_without_a_word(&frame(REPLY, C, 3, b"")), StartupError::Revision(3));
    let mut long = frame(REPLY, C, 1, b"");
    long[18..20].copy_from_slice(&513u16.to_be_bytes());
    assert_eq!(is_closed_without_a_word(&long), StartupError::PrivateDataTooLong { len: 513 });
    assert_eq!(is_closed_without_a_word(&frame(REPLY, C | S, 2, b"123")), StartupError::PrefixMissing);
    // RFC 6581 §10: enhanced to enhanced.
    assert_eq!(is_closed_without_a_word(&frame(REPLY, C, 2, b"")), StartupError::UnenhancedReply);
    let one = ConnectOptions { revision: Revision::One, ..Default::default() };
    let (error, wire) = refuses(&one, &frame(REPLY, C | S, 2, &depths(1, 1)));
    assert_eq!((error, wire), (StartupError::RevisionMismatch, Vec::new()));
}

/// Returns the FPDU of a Terminate without headers, as an LLP error has it (RFC 6581 §9).
fn terminate_fpdu(code: u16) -> Vec<u8> {
    let mut ulpdu = b"\x41\x47\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0".to_vec();
    ulpdu.extend(code.to_be_bytes());
    ulpdu.extend([0, 0]);
    let mut fpdu = [&22u16.to_be_bytes()[..], &ulpdu].concat();
    let crc = rddp_mpa::crc32c(&fpdu);
    fpdu.extend(crc.to_le_bytes());
    fpdu
}

/// RFC 6581 §8, §9.2: no RTR that both know.
#[test]
fn no_common_rtr_is_terminated() {
    let reply = frame(REPLY, C | S, 2, &depths(A | RTR_SEND | 8, 8));
    let (error, wire) = refuses(&no_fall_back(), &reply);
    assert!(matches!(error, StartupError::NoCommonRtr { .. }), "{error}");
    assert_eq!(wire, terminate_fpdu(0x2007));
}

/// RFC 6581 §9.2: A is answered by A.
#[test]
fn a_client_server_reply_to_a_peer_to_peer_request_is_terminated() {
    let (error, wire) = refuses(&no_fall_back(), &frame(REPLY, C | S, 2, &depths(8, 8)));
    assert_eq!(error, StartupError::ConnectionModel { got: false });
    assert_eq!(wire, terminate_fpdu(0x2007));
    let (error, wire) = refuses(&client_server(), &frame(REPLY, C | S, 2, &depths(A | 8, RTR_WRITE | 8)));
    assert_eq!(error, StartupError::ConnectionModel { got: true });
    assert_eq!(wire, terminate_fpdu(0x2007));
}

/// RFC 6581 §8, §9.1: the peer asks for more Reads than this end can take.
#[test]
fn an_ord_beyond_the_device_is_terminated() {
    let (error, wire) = refuses(&no_fall_back(), &frame(REPLY, C | S, 2, &depths(A | 8, RTR_WRITE | 1025)));
    assert_eq!(error, StartupError::InsufficientIrd { ord: 1025, max_ird: 1024 });
    assert_eq!(wire, terminate_fpdu(0x2006));
}

/// RFC 6581 §9.1: the depths that the Reply asks for are granted up to the device's limit; 0x3fff
/// asks for nothing.
#[test]
fn depths_follow_the_reply() {
    let cases = [(8, 1024, 1024, 8), (0, 0, 32, 0), (0x3fff, 0x3fff, 32, 32), (100, 64, 64, 32)];
    for (ird, ord, our_ird, our_ord) in cases {
        let reply = frame(REPLY, C | S, 2, &depths(ird, ord));
        let (_end, result) =
            against(&client_server(), 1, |_, mut socket, _| socket.write_all(&reply).unwrap());
        let negotiated = result.unwrap().negotiated.unwrap();
        assert_eq!((negotiated.ird, negotiated.ord), (our_ird, our_ord), "{ird} {ord}");
        assert_eq!((negotiated.peer_ird, negotiated.peer_ord), (Some(ird), Some(ord)));
    }
}

/// RFC 5044 §7.1: TCP may cut a frame anywhere; and siw sets reserved bits.
#[test]
fn a_reply_one_octet_at_a_time_is_taken() {
    let reply = frame(REPLY, C | S | 0x0f, 2, &[&depths(8, 8)[..], b"welcome"].concat());
    let (_end, result) = against(&client_server(), 1, |_, mut socket, _| {
        socket.set_nodelay(true).unwrap();
        reply.iter().for_each(|octet| socket.write_all(&[*octet]).unwrap());
    });
    assert_eq!(result.unwrap().private_data, b"welcome");
}

/// RFC 5044 §7.1.2 rule 10, RFC 5042 §6.4.2: one time limit for the whole startup,
/// however far the peer came.
#[test]
fn half_a_reply_and_silence_is_given_up_in_time() {
    let whole = frame(REPLY, C | S, 2, &depths(8, 8));
    for cut in [0, 1, 16, 20, 23] {
        let begin = Instant::now();
        let (end, result) = against(&options(SHORT), 1, |_, mut socket, _| {
            socket.write_all(&whole[..cut]).unwrap();
            assert_eq!(read_to_end(&socket), b"");
        });
        let Err(ConnectError::TimedOut(limit)) = result else { panic!("{result:?}") };
        assert_eq!((limit, end.qp.state()), (SHORT, QpState::Idle));
        assert!(begin.elapsed() >= SHORT && begin.elapsed() < PATIENCE);
    }
    let (_end, result) = against(&options(SHORT), 1, |_, mut socket, _| {
        for octet in &whole {
            std::thread::sleep(SHORT / 6);
            if socket.write_all(&[*octet]).is_err() {
                break;
            }
        }
    });
    assert!(matches!(result, Err(ConnectError::TimedOut(_))), "{result:?}");
}

/// RFC 5044 §8: a FIN in the middle of a Reply. That does not mean that the peer refuses
/// revision 2.
#[test]
fn a_fin_in_the_middle_of_the_reply_is_told() {
    let whole = frame(REPLY, C | S, 2, &depths(8, 8));
    for cut in [1, 17, 20, 23] {
        let (_end, result) = against(&ConnectOptions::default(), 1, |_, mut socket, _| {
            socket.write_all(&whole[..cut]).unwrap();
        });
        let Err(ConnectError::Startup(StartupError::Closed { have, .. })) = result else {
            panic!("{result:?}")
        };
        assert_eq!(have, cut);
    }
}

/// RFC 6581 §10: a peer that refuses revision 2, by closing, by a reset or by a plain Reply, gets
/// revision 1.
#[test]
fn a_peer_that_refuses_revision_two_gets_revision_one() {
    for way in 0..3 {
        let (end, result) = against(&ConnectOptions::default(), 2, |attempt, mut socket, request| {
            assert_eq!(
                (request[17], request[16] & S != 0),
                if attempt == 0 { (2, true) } else { (1, false) }
            );
            let plain = frame(REPLY, C, 1, b"");
            match (attempt, way) {
                (0, 0) => {}
                (0, 1) => SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap(),
                _ => socket.write_all(&plain).unwrap(),
            }
            std::mem::forget(socket.try_clone().ok().filter(|_| attempt == 1));
        });
        let negotiated = result.unwrap().negotiated.unwrap();
        assert_eq!((negotiated.revision, negotiated.enhanced), (Revision::One, false));
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
    }
    let (_end, result) = against(&no_fall_back(), 1, |_, _, _| {});
    assert!(result.is_err());
}

/// A responder that sends at once: its FPDU behind the Reply in one segment is not lost.
#[test]
fn an_fpdu_right_behind_the_reply_is_taken() {
    let end = End::new();
    let inbox = end.region(64, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, &client_server()).unwrap());
        let (socket, request) = accept_request(&listener);
        let step = rddp_mpa::Responder::new().handle(&request).unwrap();
        let rddp_mpa::ResponderStep::Request { request, .. } = step else { panic!("half a Request") };
        let (reply, negotiated) = request.accept(&plain(), b"hello").unwrap();
        let mut raw = Peer::new(socket, negotiated);
        let mut octets = reply.to_vec();
        octets.extend(raw.frame(&segment::send(1, 0, true, b"early")));
        raw.octets(&octets);
        assert_eq!(connecting.join().unwrap().private_data, b"hello");
        assert_eq!((end.success().byte_len, inbox.read(0, 5).unwrap()), (5, b"early".to_vec()));
    });
}

/// RFC 6581 §5, §9.2: the kind that the Reply names comes first, and makes no completion here.
#[test]
fn the_named_rtr_is_the_first_fpdu() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let end = End::new();
        let mut startup = plain();
        (startup.peer_to_peer, startup.rtr) = (true, RtrSet::only(rtr));
        let options = ConnectOptions { rtr: RtrSet::only(rtr), nudge: false, ..Default::default() };
        let (mut raw, connected) = listen_for(&end, &options, &startup);
        assert_eq!(connected.negotiated.unwrap().rtr, Some(rtr));
        let opcode = match rtr {
            Rtr::Send => Opcode::Send,
            Rtr::Write => Opcode::Write,
            Rtr::Read => Opcode::ReadRequest,
        };
        let (header, payload) = raw.expect(opcode);
        assert!(header.last());
        if rtr == Rtr::Read {
            let request = rddp_rdmap::ReadRequestRepr::parse(&payload).unwrap();
            assert_eq!(request.size, 0);
            raw.send(&segment::response(request.sink_stag, request.sink_to, true, b""));
        }
        end.qp.post_send(&rddp_rnic::SendWr::send_inline(5, b"mine")).unwrap();
        assert_eq!(raw.expect(Opcode::Send).1, b"mine");
        assert_eq!(end.success().wr_id, 5);
        assert!(end.cq.poll_one().is_none());
    }
    // RFC 6581 §9.2: of several that the Reply names, a Read before a Write.
    let reply = frame(REPLY, C | S, 2, &depths(A | RTR_SEND | 8, RTR_WRITE | RTR_READ | 8));
    let (_end, result) =
        against(&ConnectOptions::default(), 1, |_, mut socket, _| socket.write_all(&reply).unwrap());
    assert_eq!(result.unwrap().negotiated.unwrap().rtr, Some(Rtr::Read));
}

/// The error says what happened and what to look at.
#[test]
fn a_host_that_does_not_answer_is_told_apart() {
    let end = End::new();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = end.qp.connect(unused, &ConnectOptions::default()).unwrap_err();
    assert!(
        matches!(&refused, ConnectError::Tcp(error) if error.kind() == std::io::ErrorKind::ConnectionRefused)
    );
    assert!(refused.to_string().contains("refused"), "{refused}");
    // No TCP connection leads to a broadcast address.
    let nowhere: SocketAddr = "127.255.255.255:5".parse().unwrap();
    let unreachable = end.qp.connect(nowhere, &ConnectOptions::default()).unwrap_err();
    assert!(unreachable.to_string().contains("nreachable"), "{unreachable}");
    let closed = against(&no_fall_back(), 1, |_, socket, _| {
        SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let message = closed.1.unwrap_err().to_string();
    assert!(message.contains("closed the connection during"), "{message}");
    assert_eq!(end.qp.state(), QpState::Idle);
}

/// RFC 5044 §7.1.2 rule 10: TCP's own connecting is within the limit.
#[test]
fn a_host_that_drops_our_syn_is_given_up_in_time() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    // One connection fills the backlog, after which SYNs are dropped.
    let _first = TcpStream::connect(addr).unwrap();
    let end = End::new();
    let result = end.qp.connect(addr, &options(SHORT));
    assert!(matches!(result, Err(ConnectError::TimedOut(_))), "{result:?}");
}

#[test]
fn a_connected_qp_is_not_connected_again() {
    let end = End::new();
    let (_raw, _) = listen_for(&end, &client_server(), &plain());
    let nowhere = "127.0.0.1:9".parse().unwrap();
    let refused = end.qp.connect(nowhere, &ConnectOptions::default()).unwrap_err();
    assert!(matches!(refused, ConnectError::NotIdle(QpState::ReadyToSend)), "{refused}");
}

/// The octets of [`terminate_fpdu`] are a Terminate.
#[test]
fn the_expected_terminate_is_one() {
    let terminate = TerminateRepr::parse(&terminate_fpdu(0x2006)[20..24]).unwrap();
    assert_eq!(terminate.code.0, 0x2006);
}

/// RFC 6581 §9.3: a failure of this end alone, after a good Reply, is reported as such. Here the QP
/// has been connected already.
#[test]
fn a_local_failure_behind_the_reply_is_told_in_a_terminate() {
    let (end, listener) = (End::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    end.qp.begin_to(listener.local_addr().unwrap(), &client_server()).unwrap();
    let (mut socket, request) = accept_request(&listener);
    let ResponderStep::Request { request, .. } = Responder::new().handle(&request).unwrap() else {
        panic!("half a Request");
    };
    let (reply, negotiated) = request.accept(&plain(), b"").unwrap();
    socket.write_all(&reply).unwrap();
    assert_eq!(end.event(), AsyncEventKind::Connected);
    let (late, theirs) = pair();
    let agreed = end.qp.negotiated().unwrap();
    let refused = end.qp.attach(late, agreed, &client_server(), true).unwrap_err();
    assert!(matches!(refused, ConnectError::NotIdle(QpState::ReadyToSend)), "{refused}");
    let mut theirs = Peer::new(theirs, negotiated.clone());
    assert_eq!(theirs.terminate_code(), TerminateCode::MPA_LOCAL_CATASTROPHIC);
    end.qp.post_send(&SendWr::send_inline(1, b"goes on")).unwrap();
    assert_eq!(Peer::new(socket, negotiated).expect(Opcode::Send).1, b"goes on");
}
