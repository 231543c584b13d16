//! Connecting by address without sleeping: what `connect` does, in the background.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use rddp_rnic::{AsyncEventKind, ConnectError, ConnectOptions, QpState, QueuePair, Revision};
use rddp_test_support::{accept_request, read_to_end};
use socket2::{Domain, SockRef, Socket, Type};

use crate::common::raw::client_server;
use crate::common::{End, PATIENCE};
use crate::frames::{C, R, REPLY, REQUEST, S, depths, frame, options};
use crate::own::pair;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// RFC 6581 §10: a peer that refuses revision 2, by closing, by a reset or by a plain Reply, gets
/// revision 1.
#[test]
fn a_peer_that_refuses_revision_two_gets_revision_one_in_the_background() {
    for way in 0..3 {
        let (end, (listener, addr)) = (End::new(), listener());
        end.qp.begin_to(addr, &ConnectOptions::default()).unwrap();
        let (mut first, request) = accept_request(&listener);
        assert_eq!((request[17], request[16] & S != 0), (2, true));
        match way {
            0 => {}
            1 => SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap(),
            _ => first.write_all(&frame(REPLY, C, 1, b"")).unwrap(),
        }
        assert!(end.qp.begun().is_none());
        drop(first);
        let (mut second, request) = accept_request(&listener);
        assert_eq!((request[17], request[16] & S != 0), (1, false));
        second.write_all(&frame(REPLY, C, 1, b"")).unwrap();
        assert_eq!(end.event(), AsyncEventKind::Connected);
        let negotiated = end.qp.begun().unwrap().unwrap().negotiated.unwrap();
        assert_eq!((negotiated.revision, end.qp.state()), (Revision::One, QpState::ReadyToSend));
    }
}

/// A connection goes from the address that the program names, also while another socket keeps its
/// port; one with revision 1, for which that port may still be taken, from the same address.
#[test]
fn a_connection_goes_from_the_address_that_is_named() {
    let (end, (listener, addr)) = (End::new(), listener());
    let keeper = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    keeper.set_reuse_address(true).unwrap();
    keeper.bind(&SocketAddr::from(([127, 0, 0, 9], 0)).into()).unwrap();
    let source = keeper.local_addr().unwrap().as_socket();
    end.qp.begin_to(addr, &ConnectOptions { source, ..ConnectOptions::default() }).unwrap();
    let (mut first, request) = accept_request(&listener);
    assert_eq!((request[17], first.peer_addr().ok()), (2, source));
    first.write_all(&frame(REPLY, C, 1, b"")).unwrap();
    let (second, request) = accept_request(&listener);
    assert_eq!((request[17], second.peer_addr().unwrap().ip()), (1, source.unwrap().ip()));
}

/// A server that is about to listen, or to listen again, is met where the program says so; else, or
/// when that takes too long, the refusal is reported.
#[test]
fn a_refused_connection_is_tried_again_for_as_long_as_is_said() {
    let (listener, addr) = listener();
    drop(listener);
    for patience in [Duration::ZERO, Duration::from_millis(20)] {
        let end = End::new();
        let options = ConnectOptions { retry_refused: patience, ..client_server() };
        end.qp.begin_to(addr, &options).unwrap();
        assert_eq!(end.event(), AsyncEventKind::NotConnected);
        let error = end.qp.begun().unwrap().unwrap_err();
        assert!(matches!(&error, ConnectError::Tcp(why) if why.kind() == ErrorKind::ConnectionRefused));
    }
    let end = End::new();
    let options = ConnectOptions { retry_refused: PATIENCE, timeout: PATIENCE, ..client_server() };
    end.qp.begin_to(addr, &options).unwrap();
    assert!(!end.qp.await_begun(Duration::from_millis(20)));
    let (mut peer, request) = accept_request(&TcpListener::bind(addr).unwrap());
    assert_eq!(request[17], 2);
    peer.write_all(&frame(REPLY, C | S, 2, &depths(1, 1))).unwrap();
    assert_eq!(end.event(), AsyncEventKind::Connected);
}

/// A startup ends in the pause between two attempts as at any other time.
#[test]
fn a_pause_after_a_refusal_can_be_ended() {
    let (listener, addr) = listener();
    drop(listener);
    let end = End::new();
    let options = ConnectOptions { retry_refused: PATIENCE, timeout: PATIENCE, ..client_server() };
    end.qp.begin_to(addr, &options).unwrap();
    end.qp.await_begun(Duration::from_millis(20));
    end.qp.abort();
    assert!(matches!(end.qp.begun().unwrap(), Err(ConnectError::GivenUp)));
    assert_eq!((end.qp.state(), end.rnic.async_event()), (QpState::Error, None));
}

/// The first answer tells more than what revision 1 comes to, in whatever way that fails.
#[test]
fn a_second_refusal_is_told_as_the_first() {
    for way in 0..2 {
        let (end, (listener, addr)) = (End::new(), listener());
        end.qp.begin_to(addr, &options(Duration::from_secs(2))).unwrap();
        let (mut first, _) = accept_request(&listener);
        first.write_all(&frame(REPLY, C, 1, b"")).unwrap();
        let second = accept_request(&listener).0;
        // Silent, or closed.
        let second = Some(second).filter(|_| way == 0);
        assert_eq!(end.event(), AsyncEventKind::NotConnected);
        let error = end.qp.begun().unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::Startup(_)), "{error:?}");
        drop(second);
        assert!(end.qp.begun().is_none() && end.rnic.async_event().is_none());
    }
}

/// One that was refused by the peer's program says so, and may be connected again.
#[test]
fn a_rejection_is_told_and_the_qp_stays_idle() {
    let (end, (listener, addr)) = (End::new(), listener());
    for _ in 0..2 {
        end.qp.begin_to(addr, &ConnectOptions::default()).unwrap();
        let again = end.qp.begin_to(addr, &ConnectOptions::default());
        assert!(matches!(again, Err(ConnectError::NotIdle(_))), "{again:?}");
        let (mut peer, _) = accept_request(&listener);
        let reply = frame(REPLY, C | R | S, 2, &[&depths(8, 8)[..], b"no"].concat());
        peer.write_all(&reply).unwrap();
        assert_eq!(end.event(), AsyncEventKind::NotConnected);
        let error = end.qp.begun().unwrap().unwrap_err();
        assert!(
            matches!(&error, ConnectError::Rejected { private_data } if private_data == b"no"),
            "{error:?}"
        );
    }
}

/// A program that asks for the result in a loop may begin again before it looks at its events.
#[test]
fn the_event_is_there_as_soon_as_the_result() {
    let (end, (listener, closed)) = (End::new(), listener());
    drop(listener);
    let options = ConnectOptions { fall_back: false, ..client_server() };
    for _ in 0..300 {
        end.qp.begin_to(closed, &options).unwrap();
        while end.qp.begun().is_none() {
            std::hint::spin_loop();
        }
        assert_eq!(end.rnic.async_event().map(|event| event.kind), Some(AsyncEventKind::NotConnected));
    }
}

/// The caller of `connect` knows the end.
#[test]
fn a_connect_that_sleeps_reports_nothing() {
    let (end, (listener, addr)) = (End::new(), listener());
    let options = ConnectOptions { timeout: Duration::MAX, ..client_server() };
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, &options).unwrap());
        let (mut peer, _) = accept_request(&listener);
        peer.write_all(&frame(REPLY, C | S, 2, &depths(8, 8))).unwrap();
        connecting.join().unwrap();
        assert!(end.rnic.async_event().is_none() && end.qp.begun().is_none());
    });
}

#[test]
fn what_was_begun_can_be_ended() {
    let ends: [fn(&QueuePair); 3] = [QueuePair::abort, QueuePair::disconnect, QueuePair::terminate];
    for ends in ends {
        let (end, (listener, addr)) = (End::new(), listener());
        end.qp.begin_to(addr, &ConnectOptions { timeout: Duration::MAX, ..client_server() }).unwrap();
        let (peer, _) = accept_request(&listener);
        ends(&end.qp);
        let result = end.qp.begun().unwrap();
        assert!(matches!(result, Err(ConnectError::GivenUp)), "{result:?}");
        assert_eq!(read_to_end(&peer), b"");
        assert_eq!((end.qp.state(), end.rnic.async_event()), (QpState::Error, None));
    }
}

/// One thread may end what another sleeps for.
#[test]
fn a_connect_that_sleeps_can_be_ended() {
    let (end, (listener, addr)) = (End::new(), listener());
    let options = ConnectOptions { timeout: Duration::MAX, ..client_server() };
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, &options));
        let _peer = accept_request(&listener);
        end.qp.abort();
        let result = connecting.join().unwrap();
        assert!(matches!(result, Err(ConnectError::GivenUp)), "{result:?}");
    });
}

/// Whichever way the one startup was begun, the QP is not connected in another way meanwhile.
#[test]
fn a_startup_keeps_its_qp_for_itself() {
    let options = ConnectOptions { timeout: Duration::MAX, ..client_server() };
    for sleeps in [false, true] {
        let (end, (silent, addr)) = (End::new(), listener());
        std::thread::scope(|scope| {
            let connecting = sleeps.then(|| scope.spawn(|| end.qp.connect(addr, &options)));
            if !sleeps {
                end.qp.begin_to(addr, &options).unwrap();
            }
            let (mut peer, _) = accept_request(&silent);
            let others = [
                end.qp.connect(addr, &options).map(drop),
                end.qp.begin_to(addr, &options),
                end.qp.begin(pair().0, &options, false),
                accepted_by(&end),
            ];
            for refused in others {
                let error = refused.unwrap_err();
                assert!(error.to_string().contains("being connected already"), "{error}");
            }
            assert!(end.qp.begun().is_none());
            peer.write_all(&frame(REPLY, C | S, 2, &depths(8, 8))).unwrap();
            match connecting {
                Some(connecting) => drop(connecting.join().unwrap().unwrap()),
                None => assert_eq!(end.event(), AsyncEventKind::Connected),
            }
            assert_eq!(end.qp.state(), QpState::ReadyToSend);
        });
    }
}

/// Has the QP accept the Request of another peer.
fn accepted_by(end: &End) -> Result<(), ConnectError> {
    let other = End::new();
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &client_server()).unwrap();
    other.qp.begin_to(listener.local_addr().unwrap(), &client_server()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
    request.accept(&end.qp, b"").map(drop)
}

/// An address of the loopback that is this process's own, and that the RNIC does not take for one
/// of the loopback, where it asks no port mapper.
fn own_host() -> (Ipv4Addr, impl Fn(u16) -> SocketAddr) {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, a | 0x80, b, c);
    (host, move |port| (host.to_ipv6_mapped(), port).into())
}

#[test]
fn the_port_that_the_mapper_names_is_connected_to() {
    const ACCEPT: u8 = 1;
    const ACKNOWLEDGE: u8 = 2;
    if let Err(error) = UdpSocket::bind("[::]:0") {
        return eprintln!("skipped: mapped addresses need IPv6 ({error})");
    }
    let (host, addr) = own_host();
    let listener = TcpListener::bind((host, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let end = End::new();
    let options = ConnectOptions { fall_back: false, ..client_server() };
    // Nobody is at the mapper's port: the port as given.
    end.qp.begin_to(addr(port), &options).unwrap();
    drop(accept_request(&listener));
    assert_eq!(end.event(), AsyncEventKind::NotConnected);

    let mapper = UdpSocket::bind((host, 3935)).unwrap();
    mapper.set_read_timeout(Some(PATIENCE)).unwrap();
    end.qp.begin_to(addr(1), &options).unwrap();
    let mut message = [0; 48];
    let (_, from) = mapper.recv_from(&mut message).unwrap();
    assert_eq!((message[0], &message[4..6]), (6, &[0, 1][..]));
    message[0] |= ACCEPT << 4;
    message[4..6].copy_from_slice(&port.to_be_bytes());
    mapper.send_to(&message, from).unwrap();
    loop {
        let mut next = [0; 48];
        mapper.recv_from(&mut next).unwrap();
        // On a busy machine the query may have been sent again.
        if next[0] >> 4 != 0 {
            assert_eq!(next[0] >> 4, ACKNOWLEDGE);
            break;
        }
    }
    let (mut peer, request) = accept_request(&listener);
    assert_eq!(request[..16], frame(REQUEST, 0, 0, b"")[..16]);
    peer.write_all(&frame(REPLY, C | S, 2, &depths(8, 8))).unwrap();
    assert_eq!(end.event(), AsyncEventKind::Connected);
}
