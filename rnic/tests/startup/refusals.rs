//! Private data and rejections, at both ends.

use std::net::{SocketAddr, TcpListener};

use rddp_mpa::StartupMisuse;
use rddp_rnic::{ConnectError, ConnectOptions, Connected, Listener, QpState, Revision};
use rddp_test_support::{accept_request, pattern, read_to_end};

use crate::common::{End, PATIENCE};
use crate::frames::{C, R, REPLY, S, depths, dial, frame, good_request, listener, options, still_listens};

/// Connects with private data of both; `decide` returns the answer of the passive program.
fn attempt(
    active: &ConnectOptions,
    decide: impl FnOnce(rddp_rnic::ConnectRequest, &End) + Send,
) -> (Result<Connected, ConnectError>, End, Listener) {
    let (end, peer) = (End::new(), End::new());
    let listener = listener(&peer, &options(PATIENCE));
    let addr: SocketAddr = listener.local_addr().unwrap();
    let result = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, active));
        decide(listener.accept(Some(PATIENCE)).unwrap().unwrap(), &peer);
        connecting.join().unwrap()
    });
    (result, end, listener)
}

fn active(revision: Revision, private_data: Vec<u8>) -> ConnectOptions {
    ConnectOptions { revision, private_data, fall_back: false, ..Default::default() }
}

/// RFC 5044 §7.1.1, RFC 6581 §9: up to 512 octets, 508 behind the depths.
#[test]
fn private_data_reaches_the_other_program() {
    for (revision, len) in [
        (Revision::Two, 0),
        (Revision::Two, 1),
        (Revision::Two, 508),
        (Revision::One, 0),
        (Revision::One, 1),
        (Revision::One, 512),
    ] {
        let (asked, answered) = (pattern(len, 1), pattern(len, 2));
        let (result, _end, _listener) = attempt(&active(revision, asked.clone()), |request, peer| {
            assert_eq!(request.private_data(), asked);
            request.accept(&peer.qp, &answered).unwrap();
        });
        assert_eq!(result.unwrap().private_data, answered);
    }
}

/// RFC 5042 §6.4.2, RFC 5044 §7.1.2 rule 2: the reason reaches the peer's program, and the QP is
/// idle as before.
#[test]
fn a_rejection_carries_its_reason() {
    for (revision, len) in
        [(Revision::Two, 0), (Revision::Two, 508), (Revision::One, 0), (Revision::One, 512)]
    {
        let reason = pattern(len, 3);
        let (result, end, listener) = attempt(&active(revision, b"please".to_vec()), |request, _| {
            assert_eq!(request.private_data(), b"please");
            request.reject(&reason).unwrap();
        });
        let Err(ConnectError::Rejected { private_data }) = result else { panic!("{result:?}") };
        assert_eq!((private_data, end.qp.state()), (reason, QpState::Idle));
        still_listens(&listener);
    }
}

#[test]
fn too_much_private_data_is_refused_here() {
    for (revision, max) in [(Revision::Two, 508), (Revision::One, 512)] {
        let end = End::new();
        let nowhere = "127.0.0.1:9".parse().unwrap();
        let refused = end.qp.connect(nowhere, &active(revision, vec![0; max + 1])).unwrap_err();
        let ConnectError::Misuse(StartupMisuse::PrivateDataTooLong { len, max: told }) = refused else {
            panic!("{refused}")
        };
        assert_eq!((len, told, end.qp.state()), (max + 1, max, QpState::Idle));
    }
    for reject in [false, true] {
        let (result, _end, _listener) = attempt(&active(Revision::Two, Vec::new()), |request, peer| {
            let refused = match reject {
                true => request.reject(&[0; 509]),
                false => request.accept(&peer.qp, &[0; 509]).map(drop),
            };
            assert!(matches!(refused, Err(ConnectError::Misuse(_))), "{refused:?}");
            assert_eq!(peer.qp.state(), QpState::Idle);
        });
        assert!(result.is_err());
    }
}

/// siw drops the private data of a Reply that has a FIN right behind it, so the rejected initiator
/// has to close first.
#[test]
fn a_rejecting_side_lets_the_initiator_close_first() {
    use std::io::{Read, Write};
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    listener.accept(Some(PATIENCE)).unwrap().unwrap().reject(b"no").unwrap();
    let expected = frame(REPLY, R | C | S, 2, &[&depths(8, 32)[..], b"no"].concat());
    let mut reply = vec![0; expected.len()];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply, expected);
    socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(socket.read(&mut [0]).is_err(), "a FIN right behind the Reply");
}

/// A program that rejects and ends leaves its peer the time to close first.
#[test]
fn who_rejects_can_wait_for_the_initiator_to_close() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    let end = End::new();
    let listener = listener(&end, &options(PATIENCE));
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    listener.accept(Some(PATIENCE)).unwrap().unwrap().reject(b"no").unwrap();
    let closes = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            closes.store(true, Ordering::SeqCst);
            drop(socket);
        });
        end.rnic.linger(PATIENCE);
        assert!(closes.load(Ordering::SeqCst), "the wait ended while the peer had not closed");
    });
}

/// RFC 6581 §9.1: an initiator accepts a rejection in any form.
#[test]
fn a_rejection_without_depths_is_a_rejection() {
    for (flags, revision) in [(R, 1), (R | C, 2), (R | 0x0f, 1)] {
        let end = End::new();
        let raw = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = raw.local_addr().unwrap();
        let result = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| end.qp.connect(addr, &ConnectOptions::default()));
            use std::io::Write;
            let (mut socket, _) = accept_request(&raw);
            socket.write_all(&frame(REPLY, flags, revision, b"busy")).unwrap();
            assert_eq!(read_to_end(&socket), b"");
            connecting.join().unwrap()
        });
        let Err(ConnectError::Rejected { private_data }) = result else { panic!("{result:?}") };
        assert_eq!(private_data, b"busy");
    }
}

/// RFC 6581 §10: the program of a peer that knows only revision 1 may reject as well.
#[test]
fn a_rejection_of_the_second_attempt_is_what_the_program_hears() {
    let end = End::new();
    let raw = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = raw.local_addr().unwrap();
    let result = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, &ConnectOptions::default()));
        use std::io::Write;
        drop(accept_request(&raw));
        let (mut socket, request) = accept_request(&raw);
        assert_eq!(request[17], 1);
        socket.write_all(&frame(REPLY, R, 1, b"not you")).unwrap();
        connecting.join().unwrap()
    });
    let Err(ConnectError::Rejected { private_data }) = result else { panic!("{result:?}") };
    assert_eq!(private_data, b"not you");
}
