//! The startup on a TCP connection of the program's own (`QueuePair::begin`).

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, EventQueue, QpState, RecvWr, Rtr, RtrSet, SendWr,
    Status,
};
use rddp_test_support::read_to_end;
use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{End, PATIENCE, connected};
use crate::frames::REQUEST;

pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (active, listener.accept().unwrap().0)
}

fn options(private_data: &[u8]) -> ConnectOptions {
    ConnectOptions { private_data: private_data.to_vec(), ..Default::default() }
}

/// Returns an end whose events go to a queue of their own.
fn end() -> (End, EventQueue) {
    let events = EventQueue::new().unwrap();
    (End::with(|config| config.events = Some(events.clone())), events)
}

fn begins(end: &End, socket: TcpStream, options: &ConnectOptions, active: bool) {
    end.qp.begin(socket, options, active).unwrap();
}

/// Returns the reason why the QP was not connected.
fn refusal(end: &End, events: &EventQueue) -> ConnectError {
    let event = events.wait(Some(PATIENCE)).unwrap().expect("no event came");
    assert_eq!((event.qp, event.kind), (end.qp.num(), AsyncEventKind::NotConnected));
    end.qp.begun().unwrap().unwrap_err()
}

#[test]
fn both_ends_connect_over_sockets_of_their_own() {
    let ((active, its_events), (passive, events)) = (end(), end());
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let (one, other) = pair();
    begins(&passive, other, &options(b"to you"), false);
    assert!(passive.qp.begun().is_none());
    assert!(!passive.qp.await_begun(Duration::from_millis(1)));
    begins(&active, one, &options(b"to me"), true);
    for (end, events, said) in [(&active, &its_events, b"to you" as &[u8]), (&passive, &events, b"to me")] {
        assert!(end.qp.await_begun(PATIENCE));
        let event = events.wait(Some(PATIENCE)).unwrap().expect("no event came");
        assert_eq!(event.kind, AsyncEventKind::Connected);
        assert_eq!(end.qp.begun().unwrap().unwrap().private_data, said);
        assert!(end.rnic.async_event().is_none(), "the device's own queue has none of it");
    }
    active.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    active.success();
    assert_eq!((passive.success().byte_len, inbox.read(0, 5).unwrap()), (5, b"hello".to_vec()));
}

/// iWARP needs a TCP connection: a device asks the kernel what it gets.
#[test]
fn what_is_no_tcp_connection_is_refused() {
    let (end, _) = end();
    let other = connected(&options(b""));
    let agreed = other.0.qp.negotiated().unwrap();
    let refused: [fn() -> OwnedFd; 6] = [
        || File::open("/dev/zero").unwrap().into(),
        || UnixStream::pair().unwrap().0.into(),
        || UnixDatagram::pair().unwrap().0.into(),
        || UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        || TcpListener::bind("127.0.0.1:0").unwrap().into(),
        || {
            Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))
                .map_or_else(|_| UnixStream::pair().unwrap().0.into(), OwnedFd::from)
        },
    ];
    for (number, made) in refused.into_iter().enumerate() {
        let ways = [
            end.qp.attach(made(), agreed.clone(), &options(b""), true),
            end.qp.begin(made(), &options(b""), false),
            end.qp.begin_asking(made(), &options(b"")),
        ];
        for refusal in ways {
            assert!(matches!(refusal, Err(ConnectError::Tcp(_))), "{number}: {refusal:?}");
        }
        assert_eq!(end.qp.state(), QpState::Idle);
    }
    for socket in [
        UnixListener::bind_addr(&unnamed()).unwrap().into(),
        OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()),
    ] {
        assert!(end.rnic.listen_on(socket, 16, &options(b"")).is_err());
    }
}

/// Returns an address of the kernel's choice, without a file.
fn unnamed() -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("rddp-own-{}", std::process::id());
    std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

#[test]
fn a_startup_waits_for_tcp_to_be_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    // Mostly this returns "in progress": then no peer has answered yet.
    let _ = socket.connect(&listener.local_addr().unwrap().into());
    let ((active, _), (passive, _)) = (end(), end());
    active.qp.begin(socket, &options(b""), true).unwrap();
    begins(&passive, listener.accept().unwrap().0, &options(b""), false);
    assert!(active.qp.await_begun(PATIENCE) && passive.qp.await_begun(PATIENCE));
    assert!(active.qp.begun().unwrap().is_ok() && passive.qp.begun().unwrap().is_ok());
}

#[test]
fn tcp_that_is_refused_is_told() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    let _ = socket.connect(&addr.into());
    let (end, events) = end();
    end.qp.begin(socket, &options(b""), true).unwrap();
    let error = refusal(&end, &events);
    assert!(
        matches!(&error, ConnectError::Tcp(error) if error.raw_os_error() == Some(libc::ECONNREFUSED)),
        "{error}"
    );
}

/// RFC 5044 §7.1.2: a peer that speaks no MPA gets no answer, and TCP is closed.
#[test]
fn peers_that_speak_something_else_are_left() {
    for active in [true, false] {
        let (end, events) = end();
        let (mut peer, own) = pair();
        begins(&end, own, &options(b""), active);
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let error = refusal(&end, &events);
        assert!(matches!(error, ConnectError::Startup(_)), "{error}");
        let said = read_to_end(&peer);
        assert_eq!(said.is_empty(), !active, "{said:?}");
        assert_eq!(end.qp.state(), QpState::Idle);
    }
}

#[test]
fn peers_that_say_nothing_or_close_are_left() {
    let (silent, its_events) = end();
    let (_peer, own) = pair();
    begins(&silent, own, &ConnectOptions { timeout: Duration::from_millis(50), ..options(b"") }, false);
    assert!(matches!(refusal(&silent, &its_events), ConnectError::TimedOut(_)));
    let (closed, events) = end();
    let (peer, own) = pair();
    begins(&closed, own, &options(b""), false);
    drop(peer);
    assert!(matches!(refusal(&closed, &events), ConnectError::Startup(_)));
}

#[test]
fn a_qp_that_goes_during_the_startup_takes_it_along() {
    let (end, _) = end();
    let (mut peer, own) = pair();
    begins(&end, own, &options(b""), true);
    let again = end.qp.begin(pair().0, &options(b""), true).unwrap_err();
    assert!(matches!(again, ConnectError::NotIdle(_)));
    assert!(again.to_string().contains("being connected already"), "{again}");
    let mut request = [0; 16];
    peer.read_exact(&mut request).unwrap();
    assert_eq!(request, REQUEST[..16]);
    drop(end.qp);
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    // The end of the stream, or a reset.
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.len() < 600);
}

/// RFC 6581 §9.2: the RTR is no request of the program's, which may close before it has been
/// answered.
#[test]
fn a_close_right_behind_the_startup_is_graceful() {
    for rtr in [Rtr::Read, Rtr::Write] {
        for _ in 0..20 {
            let ((active, its_events), (passive, events)) = (end(), end());
            let only = ConnectOptions { rtr: RtrSet::only(rtr), ..options(b"") };
            let inbox = active.region(8, Access::LOCAL_WRITE);
            active.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
            let (one, other) = pair();
            begins(&passive, other, &only, false);
            begins(&active, one, &only, true);
            assert!(active.qp.await_begun(PATIENCE));
            active.qp.disconnect();
            assert_eq!(active.cq.poll_one().unwrap().status, Status::Flushed, "at once");
            for events in [&its_events, &events] {
                let mut last = AsyncEventKind::Connected;
                while last != AsyncEventKind::CloseComplete {
                    last = events.wait(Some(PATIENCE)).unwrap().expect("no event came").kind;
                    let fine = [
                        AsyncEventKind::Connected,
                        AsyncEventKind::Established,
                        AsyncEventKind::CloseComplete,
                    ];
                    assert!(fine.contains(&last), "{last:?}");
                }
            }
        }
    }
}

/// A reset ends the connection even while another holder has the socket.
#[test]
fn a_reset_is_sent_though_the_program_keeps_its_socket() {
    let ((active, _), (passive, events)) = (end(), end());
    let (one, other) = pair();
    let _held = one.try_clone().unwrap();
    begins(&passive, other, &options(b""), false);
    begins(&active, one, &options(b""), true);
    assert!(active.qp.await_begun(PATIENCE) && passive.qp.await_begun(PATIENCE));
    active.qp.abort();
    while let Some(event) = events.wait(Some(PATIENCE)).unwrap() {
        if event.kind == AsyncEventKind::ConnectionLost {
            return;
        }
    }
    panic!("the peer was told nothing");
}
