//! A peer over TCP whose frames are made by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rddp_ddp::{Header, Msn, Stag};
use rddp_mpa::Negotiated;
use rddp_rdmap::{Opcode, ReadRequestRepr, TerminateCode, TerminateRepr, untagged_header};
use socket2::SockRef;

use crate::startup::prepare;
use crate::{Fpdus, PATIENCE, segment};

/// A connected peer, which may send anything, but insists that what it reads is right.
///
/// [`frame`](Self::frame) and [`send`](Self::send) take a ULPDU, `frame_segment` and `send_segment`
/// a header and a payload, `frame_message` and `send_message` the payload of the next Send;
/// [`octets`](Self::octets) sends anything at all.
#[derive(Debug)]
pub struct Peer {
    /// The connection.
    pub socket: TcpStream,
    /// The framing of both directions.
    pub fpdus: Fpdus,
    /// The outcome of the startup, as this peer sees it.
    pub negotiated: Negotiated,
    /// The MSN of the next message.
    msn: Msn,
}

impl Peer {
    /// Makes a peer whose startup is over.
    #[must_use]
    pub fn new(socket: TcpStream, negotiated: Negotiated) -> Self {
        prepare(&socket);
        let fpdus = Fpdus::negotiated(&negotiated);
        Peer { socket, fpdus, negotiated, msn: Msn::FIRST }
    }

    /// Sends the first FPDU, which lets a responder send: a Write of no octets (RFC 5044 §7.1.2).
    pub fn open(&mut self) {
        self.send(&segment::write(Stag(1), 0, true, b""));
    }

    /// Returns the octets of the next FPDU.
    pub fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        self.fpdus.frame(ulpdu)
    }

    /// Returns the octets of the next FPDU, which carries this segment.
    pub fn frame_segment(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        self.frame(&segment::ulpdu(header, payload))
    }

    /// Returns the octets of the next FPDU, which carries the next message, a Send.
    pub fn frame_message(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = untagged_header(Opcode::Send, Stag(0), self.msn, 0, true);
        self.msn = self.msn.next();
        self.frame_segment(&header, payload)
    }

    /// Sends a ULPDU.
    pub fn send(&mut self, ulpdu: &[u8]) {
        self.send_all(&[ulpdu]);
    }

    /// Sends several ULPDUs in one write.
    pub fn send_all(&mut self, ulpdus: &[&[u8]]) {
        let octets: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| self.frame(ulpdu)).collect();
        self.octets(&octets);
    }

    /// Sends a segment.
    pub fn send_segment(&mut self, header: &Header, payload: &[u8]) {
        let octets = self.frame_segment(header, payload);
        self.octets(&octets);
    }

    /// Sends the next message, a Send of one segment.
    pub fn send_message(&mut self, payload: &[u8]) {
        let octets = self.frame_message(payload);
        self.octets(&octets);
    }

    /// Sends octets as they are.
    pub fn octets(&mut self, octets: &[u8]) {
        self.socket.write_all(octets).unwrap();
    }

    /// Sends octets to an end that may have gone already.
    pub fn try_octets(&mut self, octets: &[u8]) {
        let _ = self.socket.write_all(octets);
    }

    /// Sends a ULPDU one octet at a time, each in a TCP segment of its own.
    pub fn trickle(&mut self, ulpdu: &[u8]) {
        for octet in self.frame(ulpdu) {
            self.octets(&[octet]);
        }
    }

    /// Returns the next ULPDU; `None` when the other end has closed.
    pub fn recv(&mut self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut chunk = vec![0; 1 << 16];
        loop {
            if let Some(ulpdu) = self.fpdus.next_ulpdu() {
                return Some(ulpdu);
            }
            assert!(Instant::now() < deadline, "no FPDU came");
            match self.socket.read(&mut chunk) {
                Ok(0) => return self.at_end(),
                Ok(count) => self.fpdus.take(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return self.at_end(),
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    fn at_end(&self) -> Option<Vec<u8>> {
        assert!(self.fpdus.is_empty(), "the stream ends in the middle of an FPDU");
        None
    }

    /// Returns whether everything that arrived was taken, and nothing arrives for a while.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.fpdus.is_empty() {
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

    /// Returns the next segment's header and payload; `None` when the other end has closed.
    pub fn segment(&mut self) -> Option<(Header, Vec<u8>)> {
        let ulpdu = self.recv()?;
        let header = Header::parse(&ulpdu).unwrap();
        Some((header, ulpdu[header.len()..].to_vec()))
    }

    /// Returns the next segment, which has to be of this opcode.
    pub fn expect(&mut self, opcode: Opcode) -> (Header, Vec<u8>) {
        let (header, payload) = self.segment().expect("the other end has closed");
        assert_eq!(opcode_of(&header), Some(opcode), "{header:?}");
        (header, payload)
    }

    /// Returns the Read Request that has to come next.
    pub fn read_request(&mut self) -> ReadRequestRepr {
        ReadRequestRepr::parse(&self.expect(Opcode::ReadRequest).1).unwrap()
    }

    /// Returns at least `count` octets of payload, those of whole segments.
    pub fn payload(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.segment().expect("the stream goes on").1);
        }
        all
    }

    /// Skips everything before the Terminate and returns it; only the end of the stream may
    /// follow it (RFC 5040 §5.4).
    pub fn terminate(&mut self) -> TerminateRepr {
        self.ended().expect("closed without a Terminate")
    }

    /// Returns the code of the [`terminate`](Self::terminate).
    pub fn terminate_code(&mut self) -> TerminateCode {
        self.terminate().code
    }

    /// Reads to the end of the stream, and returns the Terminate if there was one in front of it.
    pub fn ended(&mut self) -> Option<TerminateRepr> {
        let mut terminate = None;
        while let Some((header, payload)) = self.segment() {
            assert_eq!(terminate, None, "something follows the Terminate");
            if opcode_of(&header) == Some(Opcode::Terminate) {
                terminate = Some(TerminateRepr::parse(&payload).expect("a good Terminate"));
            }
        }
        terminate
    }

    /// Closes this direction.
    pub fn fin(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets TCP.
    pub fn reset(self) {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

fn opcode_of(header: &Header) -> Option<Opcode> {
    Opcode::from_number(header.control() & 0xf)
}

/// Returns everything that arrives until the other end closes or resets.
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
