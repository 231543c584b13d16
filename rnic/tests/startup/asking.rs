//! Requests that the program answers, on TCP connections of its own (`QueuePair::begin_asking`).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rddp_rnic::{
    Access, Answer, AnswerError, AsyncEventKind, ConnectError, QpConfig, QpState, RecvWr, Rnic, RnicConfig,
    SendWr,
};
use rddp_test_support::read_to_end;
use socket2::Socket;

use crate::common::{End, PATIENCE};
use crate::frames::{C, R, REPLY, REQUEST, S, depths, frame, options};
use crate::own::pair;

/// Begins a startup on one end of a connection; returns the other end.
fn asked(end: &End, timeout: Duration) -> TcpStream {
    let (peer, own) = pair();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    end.qp.begin_asking(own, &options(timeout)).unwrap();
    peer
}

/// Begins a startup, and returns the peer's socket once the Request has arrived.
fn requested(end: &End, timeout: Duration) -> TcpStream {
    let mut peer = asked(end, timeout);
    peer.write_all(&frame(REQUEST, C | S, 2, &[&depths(3, 7)[..], b"may I?"].concat())).unwrap();
    assert_eq!(end.event(), AsyncEventKind::Requested);
    peer
}

/// Returns the reason why the QP was not connected.
fn refusal(end: &End) -> ConnectError {
    assert_eq!(end.event(), AsyncEventKind::NotConnected);
    end.qp.begun().unwrap().unwrap_err()
}

fn read(mut peer: &TcpStream, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    peer.read_exact(&mut octets).unwrap();
    octets
}

fn is_open(mut peer: &TcpStream) -> bool {
    peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let read = peer.read(&mut [0]);
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn the_program_accepts_a_request() {
    let (active, passive) = (End::new(), End::new());
    let inbox = passive.region(8, Access::LOCAL_WRITE);
    passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let (one, other) = pair();
    passive.qp.begin_asking(other, &options(PATIENCE)).unwrap();
    assert_eq!(passive.qp.answer(Answer::Accept, b""), Err(AnswerError::NoRequest));
    active.qp.begin(one, &options(PATIENCE), true).unwrap();
    assert_eq!(passive.event(), AsyncEventKind::Requested);
    assert!(passive.qp.request().unwrap().peer_to_peer);
    assert!(passive.qp.begun().is_none() && active.qp.begun().is_none());
    passive.qp.answer(Answer::Accept, b"you may").unwrap();
    for answer in [Answer::Accept, Answer::Reject] {
        assert_eq!(passive.qp.answer(answer, b""), Err(AnswerError::Answered));
    }
    assert!(active.qp.await_begun(PATIENCE));
    assert_eq!(active.qp.begun().unwrap().unwrap().private_data, b"you may");
    assert_eq!(passive.event(), AsyncEventKind::Connected);
    active.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    active.success();
    assert_eq!(passive.success().byte_len, 5);
}

/// RFC 5044 §7.1.2: TCP stays open behind a rejecting Reply, and the QP may be connected anew.
#[test]
fn the_program_rejects_a_request() {
    let end = End::new();
    for _ in 0..2 {
        let peer = requested(&end, PATIENCE);
        let request = end.qp.request().unwrap();
        assert_eq!((request.peer_ird, request.peer_ord), (Some(3), Some(7)));
        assert_eq!(request.private_data, b"may I?");
        assert!(end.qp.request().is_none());
        assert!(matches!(end.qp.answer(Answer::Reject, &[0; 509]), Err(AnswerError::Misuse(_))));
        end.qp.answer(Answer::Reject, &[5; 508]).unwrap();
        assert!(matches!(refusal(&end), ConnectError::Declined));
        assert_eq!(end.qp.answer(Answer::Accept, b""), Err(AnswerError::Answered));
        let reply = read(&peer, 20 + 512);
        assert_eq!((&reply[..16], reply[16], &reply[18..20]), (&REPLY[..], C | S | R, &[2, 0][..]));
        assert_eq!(reply[24..], [5; 508]);
        assert!(is_open(&peer));
        assert_eq!(end.qp.state(), QpState::Idle);
    }
}

/// RFC 5042 §6.4.2: rejected peers that do not close are bounded in number. The oldest is closed
/// before the others, which have a moment: on a machine that stops for longer than that the test
/// shows nothing.
#[test]
fn rejected_peers_that_stay_are_capped() {
    assert!((0..5).any(|_| {
        let rnic = Rnic::with_config(&RnicConfig { max_half_open: 2, ..Default::default() }).unwrap();
        let [first, second, third] = [0; 3].map(|_| rejected(&rnic));
        read_to_end(&first).is_empty() && is_open(&second) && is_open(&third)
    }));
}

fn rejected(rnic: &Rnic) -> TcpStream {
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let end = End { rnic: rnic.clone(), pd, cq, qp };
    let peer = requested(&end, PATIENCE);
    end.qp.answer(Answer::Reject, b"").unwrap();
    refusal(&end);
    assert_eq!(read(&peer, 24)[16], C | S | R);
    peer
}

#[test]
fn peers_that_do_not_wait_for_the_answer_are_left() {
    let end = End::new();
    let peer = requested(&end, PATIENCE);
    drop(peer);
    assert!(matches!(refusal(&end), ConnectError::Closed));
    let mut peer = requested(&end, PATIENCE);
    peer.write_all(b"and").unwrap();
    assert!(matches!(refusal(&end), ConnectError::Tcp(_)));
    assert!(read_to_end(&peer).is_empty());
    let peer = requested(&end, Duration::from_millis(200));
    assert!(matches!(refusal(&end), ConnectError::TimedOut(_)));
    assert!(read_to_end(&peer).is_empty());
    assert_eq!(end.qp.answer(Answer::Accept, b""), Err(AnswerError::NoRequest));
    assert_eq!(end.qp.request().unwrap().private_data, b"may I?", "what was said can be read still");
}

/// An abort at any point reaches the peer at once, though the program holds the socket, too, and
/// nothing is reported.
#[test]
fn a_startup_that_is_aborted_is_reset() {
    for (told, active) in [(false, false), (true, false), (false, true)] {
        let end = End::new();
        let (mut peer, own) = pair();
        let _held = own.try_clone().unwrap();
        let own = Socket::from(own);
        if active {
            end.qp.begin(own, &options(PATIENCE), true).unwrap();
            assert_eq!(read(&peer, 16), REQUEST);
        } else {
            end.qp.begin_asking(own, &options(PATIENCE)).unwrap();
        }
        if told {
            peer.write_all(&frame(REQUEST, C, 1, b"")).unwrap();
            assert_eq!(end.event(), AsyncEventKind::Requested);
        }
        end.qp.abort();
        assert!(end.qp.await_begun(PATIENCE));
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let rest = peer.read_to_end(&mut Vec::new());
        assert_eq!(rest.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(matches!(end.qp.begun(), Some(Err(ConnectError::GivenUp))));
        assert!(end.rnic.async_event().is_none());
    }
}
