//! The startup of a peer that is made by hand, as either side (RFC 5044 §7.1, RFC 6581).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rddp_mpa::{Initiator, InitiatorStep, Responder, ResponderStep, Revision, RtrSet, StartupConfig};

use crate::{PATIENCE, Peer};

/// Returns the settings of a plain client-server connection: CRC, no markers, depths of 32.
#[must_use]
pub fn plain() -> StartupConfig {
    StartupConfig {
        revision: Revision::Two,
        crc: true,
        markers: false,
        ird: 32,
        ord: 32,
        max_ird: 1024,
        assumed_ird: 32,
        peer_to_peer: false,
        rtr: RtrSet::ALL,
        large_fpdus: false,
    }
}

impl Peer {
    /// Connects as the initiator on `socket`. A test that has the end under test do something
    /// between Request and Reply uses [`request`](Self::request) and
    /// [`after_request`](Self::after_request).
    #[must_use]
    pub fn initiator(socket: TcpStream, config: &StartupConfig) -> Self {
        let mut socket = socket;
        let initiator = Self::request(&mut socket, config);
        Self::after_request(socket, initiator)
    }

    /// Sends a Request without private data.
    pub fn request(socket: &mut TcpStream, config: &StartupConfig) -> Initiator {
        let initiator = Initiator::new(config, b"").unwrap();
        socket.write_all(initiator.request()).unwrap();
        initiator
    }

    /// Reads the Reply to a Request that was sent; the other end has to accept.
    #[must_use]
    pub fn after_request(mut socket: TcpStream, mut initiator: Initiator) -> Self {
        prepare(&socket);
        let mut reply = Vec::new();
        loop {
            match initiator.handle(&reply).unwrap() {
                InitiatorStep::Need { total } => read_to(&mut socket, &mut reply, total),
                InitiatorStep::Accepted { negotiated, .. } => return Peer::new(socket, negotiated),
                InitiatorStep::Rejected { .. } => panic!("rejected"),
            }
        }
    }

    /// Connects as the initiator with private data, and returns those of the Reply, too.
    #[must_use]
    pub fn initiator_with(mut socket: TcpStream, config: &StartupConfig, data: &[u8]) -> (Self, Vec<u8>) {
        prepare(&socket);
        let mut initiator = Initiator::new(config, data).unwrap();
        socket.write_all(initiator.request()).unwrap();
        let mut reply = Vec::new();
        loop {
            match initiator.handle(&reply).unwrap() {
                InitiatorStep::Need { total } => read_to(&mut socket, &mut reply, total),
                InitiatorStep::Accepted { negotiated, private_data, .. } => {
                    return (Peer::new(socket, negotiated), private_data);
                }
                InitiatorStep::Rejected { .. } => panic!("rejected"),
            }
        }
    }

    /// Connects as the responder on `socket`: reads the Request and accepts it.
    #[must_use]
    pub fn responder(mut socket: TcpStream, config: &StartupConfig) -> Self {
        prepare(&socket);
        let octets = read_request(&mut socket);
        let ResponderStep::Request { request, .. } = Responder::new().handle(&octets).unwrap() else {
            panic!("half a Request");
        };
        let (reply, negotiated) = request.accept(config, b"").unwrap();
        socket.write_all(&reply).unwrap();
        Peer::new(socket, negotiated)
    }
}

/// Opens a TCP connection for a test.
#[must_use]
pub fn connect(addr: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(addr).unwrap();
    prepare(&socket);
    socket
}

/// Accepts a connection, and returns it with the Request that arrived on it.
#[must_use]
pub fn accept_request(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut socket, _) = listener.accept().unwrap();
    prepare(&socket);
    let octets = read_request(&mut socket);
    (socket, octets)
}

/// Returns the octets of a Request, and leaves those behind it in the socket.
pub fn read_request(socket: &mut TcpStream) -> Vec<u8> {
    let mut octets = Vec::new();
    while let ResponderStep::Need { total } = Responder::new().handle(&octets).unwrap() {
        read_to(socket, &mut octets, total);
    }
    octets
}

pub(crate) fn prepare(socket: &TcpStream) {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
}

fn read_to(socket: &mut TcpStream, octets: &mut Vec<u8>, total: usize) {
    let have = octets.len();
    octets.resize(total, 0);
    socket.read_exact(&mut octets[have..]).unwrap();
}
