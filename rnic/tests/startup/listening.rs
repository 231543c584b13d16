//! Listening on a socket of the program's own.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rddp_rnic::{ConnectOptions, Error};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::common::{End, PATIENCE, exchange};
use crate::frames::{dial, good_request};

fn bound(addr: &str) -> Socket {
    let addr: SocketAddr = addr.parse().unwrap();
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(addr)).unwrap();
    socket
}

#[test]
fn a_socket_of_the_programs_own_takes_connections() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (active, passive) = (End::new(), End::new());
        let socket = bound(addr);
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let options = ConnectOptions::default();
        let listener = passive.rnic.listen_on(socket, 1, &options).unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        std::thread::scope(|scope| {
            scope.spawn(|| active.qp.connect(addr, &options).unwrap());
            let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
            request.accept(&passive.qp, b"").unwrap();
        });
        exchange(&active, &passive);
    }
}

/// Connections inherit the MSS and keepalive of the socket on which they came.
#[test]
fn connections_of_such_a_socket_have_the_options_of_the_listener() {
    let end = End::new();
    let options = ConnectOptions { mss: Some(700), ..ConnectOptions::default() };
    let listener = end.rnic.listen_on(bound("127.0.0.1:0"), 8, &options).unwrap();
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    assert!(listener.accept(Some(PATIENCE)).unwrap().is_some());
    assert!(Socket::from(socket).tcp_mss().unwrap() <= 700);
}

/// A connection has the listener's congestion control until it is accepted with another.
#[test]
fn a_connection_is_accepted_with_a_congestion_control_of_its_own() {
    let end = End::new();
    let options = |name: &str| ConnectOptions { congestion: Some(name.into()), ..ConnectOptions::default() };
    let listener = end.rnic.listen_on(bound("127.0.0.1:0"), 8, &options("reno")).unwrap();
    let mut socket = dial(&listener);
    socket.write_all(&good_request()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    let refused = request.accept_with(&end.qp, &options("of-no-host")).unwrap_err().to_string();
    assert!(refused.contains("\"of-no-host\": this host has none"), "{refused}");
}

#[test]
fn a_socket_that_cannot_listen_is_refused() {
    let end = End::new();
    let other = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let connected = Socket::from(TcpStream::connect(other.local_addr().unwrap()).unwrap());
    let datagrams = Socket::from(OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap()));
    for socket in [connected, datagrams] {
        let refused = end.rnic.listen_on(socket, 8, &ConnectOptions::default());
        assert!(matches!(refused, Err(Error::Host { what: "listening", .. })), "{refused:?}");
    }
}
