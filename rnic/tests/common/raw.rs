//! A peer made of a plain TCP socket and the frames of `rddp_mpa`: it says whatever a test wants it to say.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::{
    Deframer, Framer, Framing, Initiator, InitiatorStep, Negotiated, Responder, ResponderStep, Revision,
    RtrSet, StartupConfig, Step,
};
use rddp_rdmap::{
    AtomicOp, AtomicRequestRepr, AtomicResponseRepr, Opcode, ReadRequestRepr, TerminateCode, TerminateRepr,
    tagged_header, untagged_header,
};
use rddp_rnic::{ConnectOptions, Connected, MemoryRegion};
use socket2::SockRef;

use super::{End, PATIENCE};

/// Which side the engine under test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The engine connects, the raw peer listens.
    Active,
    /// The engine listens, the raw peer connects.
    Passive,
}

pub const BOTH: [Role; 2] = [Role::Active, Role::Passive];

/// A connected raw peer.
pub struct Raw {
    pub socket: TcpStream,
    pub framer: Framer,
    deframer: Deframer,
    inbox: Vec<u8>,
}

/// What the raw peer says of itself: the plainest of client-server connections.
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
    }
}

/// The engine's settings towards a raw peer: no RTR and no nudge, so that it sees nothing that it did not ask for.
pub fn client_server() -> ConnectOptions {
    ConnectOptions { peer_to_peer: false, nudge: false, ..Default::default() }
}

/// The engine's end and a raw peer, connected.
pub fn with_raw(role: Role, options: &ConnectOptions, startup: &StartupConfig) -> (End, Raw) {
    let end = End::new();
    let raw = connect_raw(role, &end, options, startup);
    (end, raw)
}

/// The same with the plainest settings, ready to send from either side.
pub fn with_plain_raw(role: Role) -> (End, Raw) {
    let (end, mut raw) = with_raw(role, &client_server(), &plain());
    raw.open_for(&end);
    (end, raw)
}

/// Connects the QP of `end` to a raw peer.
pub fn connect_raw(role: Role, end: &End, options: &ConnectOptions, startup: &StartupConfig) -> Raw {
    match role {
        Role::Active => listen_for(end, options, startup).0,
        Role::Passive => connect_to(end, options, startup),
    }
}

/// The engine listens.
fn connect_to(end: &End, options: &ConnectOptions, startup: &StartupConfig) -> Raw {
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let mut initiator = Initiator::new(startup, b"").unwrap();
    let mut socket = tcp(listener.local_addr().unwrap());
    socket.write_all(initiator.request()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("no Request came");
    request.accept(&end.qp, &options.private_data).unwrap();
    let mut reply = Vec::new();
    loop {
        match initiator.handle(&reply).unwrap() {
            InitiatorStep::Need { total } => read_to(&mut socket, &mut reply, total),
            InitiatorStep::Accepted { negotiated, .. } => return Raw::new(socket, &negotiated),
            InitiatorStep::Rejected { .. } => panic!("rejected"),
        }
    }
}

/// The engine connects.
pub fn listen_for(end: &End, options: &ConnectOptions, startup: &StartupConfig) -> (Raw, Connected) {
    listen_on(&TcpListener::bind("127.0.0.1:0").unwrap(), end, options, startup)
}

/// The same, to this socket.
pub fn listen_on(
    listener: &TcpListener,
    end: &End,
    options: &ConnectOptions,
    startup: &StartupConfig,
) -> (Raw, Connected) {
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| end.qp.connect(addr, options).unwrap());
        let raw = accept(listener, startup);
        (raw, connecting.join().unwrap())
    })
}

/// The responder's part of the startup.
pub fn accept(listener: &TcpListener, startup: &StartupConfig) -> Raw {
    let (mut socket, octets) = accept_request(listener);
    let ResponderStep::Request { request, .. } = Responder::new().handle(&octets).unwrap() else {
        panic!("half a Request");
    };
    let (reply, negotiated) = request.accept(startup, b"").unwrap();
    socket.write_all(&reply).unwrap();
    Raw::new(socket, &negotiated)
}

/// A connection and the Request that came on it.
pub fn accept_request(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut socket, _) = listener.accept().unwrap();
    prepare(&socket);
    let mut octets = Vec::new();
    while let ResponderStep::Need { total } = Responder::new().handle(&octets).unwrap() {
        read_to(&mut socket, &mut octets, total);
    }
    (socket, octets)
}

/// A TCP connection.
pub fn tcp(addr: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(addr).unwrap();
    prepare(&socket);
    socket
}

fn prepare(socket: &TcpStream) {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
}

fn read_to(socket: &mut TcpStream, octets: &mut Vec<u8>, total: usize) {
    let have = octets.len();
    octets.resize(total, 0);
    socket.read_exact(&mut octets[have..]).unwrap();
}

/// Everything that comes until the other end closes (or resets).
pub fn read_to_end(mut socket: &TcpStream) -> Vec<u8> {
    let (mut octets, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match socket.read(&mut chunk) {
            Ok(0) => return octets,
            Ok(count) => octets.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return octets,
            Err(error) => panic!("the other end does not close: {error}"),
        }
    }
}

impl Raw {
    pub fn new(socket: TcpStream, negotiated: &Negotiated) -> Self {
        let crc = negotiated.crc;
        Raw {
            socket,
            framer: Framer::new(Framing { crc, markers: negotiated.markers_tx }),
            deframer: Deframer::new(Framing { crc, markers: negotiated.markers_rx }),
            inbox: Vec::new(),
        }
    }

    /// The first FPDU, which lets a responder send: a Write of no octets (RFC 5044 §7.1.2).
    pub fn open(&mut self) {
        self.send(&write(Stag(1), 0, true, b""));
    }

    /// The same, and waits until the engine has it.
    pub fn open_for(&mut self, end: &End) {
        self.open();
        let deadline = Instant::now() + PATIENCE;
        while end.qp.counters().fpdus_received == 0 {
            assert!(Instant::now() < deadline, "the first FPDU is not taken");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The next FPDU's octets.
    pub fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let fill = |offset: usize, out: &mut [u8]| out.copy_from_slice(&ulpdu[offset..offset + out.len()]);
        self.framer.emit(b"", ulpdu.len(), fill, &mut out);
        out
    }

    pub fn send(&mut self, ulpdu: &[u8]) {
        self.send_all(&[ulpdu]);
    }

    /// Several FPDUs in one write.
    pub fn send_all(&mut self, ulpdus: &[&[u8]]) {
        let octets: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| self.frame(ulpdu)).collect();
        self.octets(&octets);
    }

    pub fn octets(&mut self, octets: &[u8]) {
        self.socket.write_all(octets).unwrap();
    }

    /// The same, for when the other end may have gone already.
    pub fn try_octets(&mut self, octets: &[u8]) {
        let _ = self.socket.write_all(octets);
    }

    /// One octet at a time, each in a TCP segment of its own.
    pub fn trickle(&mut self, ulpdu: &[u8]) {
        for octet in self.frame(ulpdu) {
            self.octets(&[octet]);
        }
    }

    /// The next ULPDU; `None` when the engine has closed.
    pub fn recv(&mut self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Step::Fpdu { ulpdu, used } = self.deframer.step(&mut self.inbox).unwrap() {
                let ulpdu = self.inbox[ulpdu].to_vec();
                self.inbox.drain(..used);
                return Some(ulpdu);
            }
            assert!(Instant::now() < deadline, "no FPDU came");
            let mut chunk = vec![0; 1 << 16];
            match self.socket.read(&mut chunk) {
                Ok(0) => return self.at_end(),
                Ok(count) => self.inbox.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return self.at_end(),
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    fn at_end(&self) -> Option<Vec<u8>> {
        assert!(self.inbox.is_empty(), "the stream ends in the middle of an FPDU");
        None
    }

    /// Whether nothing has come that was not taken, and nothing comes for a while.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.inbox.is_empty() {
            return false;
        }
        self.socket.set_read_timeout(Some(time)).unwrap();
        let silent = self
            .socket
            .peek(&mut [0])
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }

    /// The next ULPDU, taken apart.
    pub fn segment(&mut self) -> (Header, Vec<u8>) {
        let ulpdu = self.recv().expect("the engine has closed");
        let header = Header::parse(&ulpdu).unwrap();
        (header, ulpdu[header.len()..].to_vec())
    }

    /// The next ULPDU, which is of this opcode.
    pub fn expect(&mut self, opcode: Opcode) -> (Header, Vec<u8>) {
        let (header, payload) = self.segment();
        assert_eq!(Opcode::from_number(header.control() & 0xf), Some(opcode), "{header:?}");
        (header, payload)
    }

    /// Skips what comes before it; then the Terminate, behind which nothing comes but the end (RFC 5040 §5.4).
    pub fn terminate(&mut self) -> TerminateRepr {
        let mut before = self.recv().expect("closed without a Terminate");
        while before[1] & 0xf != Opcode::Terminate as u8 {
            before = self.recv().expect("closed without a Terminate");
        }
        let terminate = TerminateRepr::parse(&before[Header::MAX_LEN..]).unwrap();
        assert_eq!(self.recv(), None, "something follows the Terminate");
        terminate
    }

    pub fn terminate_code(&mut self) -> TerminateCode {
        self.terminate().code
    }

    /// The Read Request that comes next.
    pub fn read_request(&mut self) -> ReadRequestRepr {
        ReadRequestRepr::parse(&self.expect(Opcode::ReadRequest).1).unwrap()
    }

    pub fn fin(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets TCP.
    pub fn reset(self) {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

fn ulpdu(header: &Header, payload: &[u8]) -> Vec<u8> {
    [header.octets().as_ref(), payload].concat()
}

pub fn send(msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::Send, Stag(0), Msn(msn), mo, last), payload)
}

pub fn send_invalidate(msn: u32, stag: Stag, payload: &[u8]) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::SendInvalidate, stag, Msn(msn), 0, true), payload)
}

pub fn write(stag: Stag, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&tagged_header(Opcode::Write, stag, to, last), payload)
}

/// A Write to `offset` of a region of the engine's.
pub fn write_to(region: &MemoryRegion, offset: usize, payload: &[u8]) -> Vec<u8> {
    let remote = region.remote(offset);
    write(remote.stag, remote.to, true, payload)
}

pub fn response(stag: Stag, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    ulpdu(&tagged_header(Opcode::ReadResponse, stag, to, last), payload)
}

pub fn read(msn: u32, request: &ReadRequestRepr) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::ReadRequest, Stag(0), Msn(msn), 0, true), &request.octets())
}

/// A Read of `size` octets of a region of the engine's, to a sink that the raw peer does not care about.
pub fn read_from(msn: u32, region: &MemoryRegion, size: u32) -> Vec<u8> {
    let (sink_stag, sink_to) = (Stag(0x0a0b_0c0d), 0x2000);
    let source = region.remote(0);
    read(msn, &ReadRequestRepr { sink_stag, sink_to, size, src_stag: source.stag, src_to: source.to })
}

pub fn fetch_add(msn: u32, region: &MemoryRegion, add: u64) -> Vec<u8> {
    let (op, target) = (AtomicOp::FetchAdd { add, mask: 0 }, region.remote(0));
    atomic(msn, &AtomicRequestRepr { op, request_id: msn, stag: target.stag, to: target.to })
}

pub fn atomic_response(msn: u32, request_id: u32, original: u64) -> Vec<u8> {
    let response = AtomicResponseRepr { request_id, original };
    ulpdu(&untagged_header(Opcode::AtomicResponse, Stag(0), Msn(msn), 0, true), &response.octets())
}

pub fn terminate(code: TerminateCode) -> Vec<u8> {
    terminate_with(&TerminateRepr::bare(code))
}

pub fn terminate_with(terminate: &TerminateRepr) -> Vec<u8> {
    let header = untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true);
    ulpdu(&header, terminate.octets().as_ref())
}

pub fn atomic(msn: u32, request: &AtomicRequestRepr) -> Vec<u8> {
    ulpdu(&untagged_header(Opcode::AtomicRequest, Stag(0), Msn(msn), 0, true), &request.octets())
}
