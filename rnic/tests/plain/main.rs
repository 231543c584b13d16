//! Queue pairs over plain TCP: octets with no framing, to and from any TCP program.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod mixed;
mod programs;
mod records;
mod stream;

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::{End, PATIENCE};
use rddp_rnic::{ConnectOptions, QpConfig, QpState, Transport};

/// Makes a queue pair over plain TCP.
fn end() -> End {
    End::with(over_tcp)
}

fn over_tcp(config: &mut QpConfig) {
    config.transport = Transport::Tcp;
}

/// Connects a queue pair to a program's socket, as the active end or as the passive one.
fn connected(end: &End, active: bool) -> TcpStream {
    let options = ConnectOptions::default();
    let peer = if active {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = end.qp.connect(listener.local_addr().unwrap(), &options).unwrap();
        assert!(connected.negotiated.is_none());
        listener.accept().unwrap().0
    } else {
        let listener = end.rnic.listen_by(Transport::Tcp, "127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let request = listener.accept(Some(PATIENCE)).unwrap().expect("nobody came");
        assert_eq!(request.peer_addr(), Some(peer.local_addr().unwrap()));
        request.accept(&end.qp, b"").unwrap();
        peer
    };
    assert_eq!(end.qp.state(), QpState::ReadyToSend);
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.set_nodelay(true).unwrap();
    peer
}

/// Time in which whoever would do something wrong has done it.
const MOMENT: Duration = Duration::from_millis(50);
