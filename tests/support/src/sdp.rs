//! An SDP peer made by hand: messages octet by octet, with numbers that a test may set as it likes.

use std::io::{Read, Write};
use std::net::TcpStream;

use rddp_mpa::{Initiator, InitiatorStep, StartupConfig};
use rddp_rdmap::Opcode;

use crate::Peer;

/// Identifiers of messages, as on the wire.
pub mod mid {
    #![allow(missing_docs)]
    pub const HELLO: u8 = 0x00;
    pub const HELLO_ACK: u8 = 0x01;
    pub const DIS_CONN: u8 = 0x02;
    pub const ABORT_CONN: u8 = 0x03;
    pub const SEND_SM: u8 = 0x04;
    pub const RDMA_WR_COMPL: u8 = 0x05;
    pub const RDMA_RD_COMPL: u8 = 0x06;
    pub const MODE_CHANGE: u8 = 0x07;
    pub const SRC_AVAIL_CANCEL: u8 = 0x08;
    pub const SINK_AVAIL_CANCEL: u8 = 0x09;
    pub const SINK_CANCEL_ACK: u8 = 0x0a;
    pub const CH_RCV_BUF: u8 = 0x0b;
    pub const CH_RCV_BUF_ACK: u8 = 0x0c;
    pub const SUSP_COMM: u8 = 0x0d;
    pub const SUSP_COMM_ACK: u8 = 0x0e;
    pub const SINK_AVAIL: u8 = 0xfd;
    pub const SRC_AVAIL: u8 = 0xfe;
    pub const DATA: u8 = 0xff;
}

/// A message with its base header, field by field.
#[derive(Clone, Debug)]
pub struct SdpMessage {
    /// The identifier.
    pub mid: u8,
    /// The flags.
    pub flags: u8,
    /// Receive buffers that the sender claims.
    pub bufs: u16,
    /// `Len`; the true length when `None`.
    pub len: Option<u32>,
    /// The number.
    pub mseq: u32,
    /// The number acknowledged.
    pub mseq_ack: u32,
    /// Everything behind the base header.
    pub rest: Vec<u8>,
}

impl SdpMessage {
    /// Returns the octets.
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let len = self.len.unwrap_or(16 + self.rest.len() as u32);
        let mut octets = vec![self.mid, self.flags];
        octets.extend(self.bufs.to_be_bytes());
        for word in [len, self.mseq, self.mseq_ack] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend(&self.rest);
        octets
    }

    /// Takes a message apart; the base header has to be whole.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Self {
        let word = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
        SdpMessage {
            mid: octets[0],
            flags: octets[1],
            bufs: u16::from_be_bytes([octets[2], octets[3]]),
            len: Some(word(4)),
            mseq: word(8),
            mseq_ack: word(12),
            rest: octets[16..].to_vec(),
        }
    }

    /// Returns the advert of a `SrcAvail` or `SinkAvail`: length, `STag` and Tagged Offset.
    #[must_use]
    pub fn advert(&self) -> (u32, u32, u64) {
        let word = |at: usize| u32::from_be_bytes(self.rest[at..at + 4].try_into().unwrap());
        (word(0), word(4), u64::from_be_bytes(self.rest[8..16].try_into().unwrap()))
    }
}

/// Returns the extended header of a `SrcAvail`, and of a `SinkAvail` up to its `NonDiscards`.
#[must_use]
pub fn advert(len: u32, stag: u32, to: u64) -> Vec<u8> {
    [&len.to_be_bytes()[..], &stag.to_be_bytes(), &to.to_be_bytes()].concat()
}

/// Returns a Hello of a peer with `bufs` buffers of `size` octets, which takes `adverts`.
#[must_use]
pub fn hello(bufs: u16, size: u32, adverts: u8) -> Vec<u8> {
    let mut rest = vec![0; 76];
    rest[0] = 0x22;
    rest[1] = 0x40;
    rest[3] = adverts;
    rest[4..8].copy_from_slice(&size.to_be_bytes());
    rest[8..12].copy_from_slice(&size.to_be_bytes());
    rest[28..32].copy_from_slice(&[127, 0, 0, 1]);
    rest[44..48].copy_from_slice(&[127, 0, 0, 1]);
    SdpMessage { mid: mid::HELLO, flags: 0, bufs, len: None, mseq: 0, mseq_ack: 0, rest }.octets()
}

/// Returns a `HelloAck`.
#[must_use]
pub fn hello_ack(bufs: u16, size: u32, adverts: u8) -> Vec<u8> {
    let mut rest = vec![0; 180];
    rest[0] = 0x22;
    rest[3] = adverts;
    rest[4..8].copy_from_slice(&size.to_be_bytes());
    SdpMessage { mid: mid::HELLO_ACK, flags: 0, bufs, len: None, mseq: 0, mseq_ack: 0, rest }.octets()
}

/// Asks for a connection with these private data, and returns whether it is rejected.
///
/// # Panics
///
/// When the other end makes no good Reply.
#[must_use]
pub fn is_rejected(mut socket: TcpStream, private_data: &[u8]) -> bool {
    let mut initiator = Initiator::new(&crate::plain(), private_data).unwrap();
    socket.write_all(initiator.request()).unwrap();
    let mut reply = Vec::new();
    loop {
        match initiator.handle(&reply).unwrap() {
            InitiatorStep::Need { total } => {
                let have = reply.len();
                reply.resize(total, 0);
                socket.read_exact(&mut reply[have..]).unwrap();
            }
            InitiatorStep::Accepted { .. } => return false,
            InitiatorStep::Rejected { .. } => return true,
        }
    }
}

/// A connected peer that sends SDP messages right or wrong.
#[derive(Debug)]
pub struct SdpPeer {
    /// The connection below.
    pub peer: Peer,
    /// Private data of the other end's startup frame.
    pub private_data: Vec<u8>,
    /// The number of the next message.
    pub mseq: u32,
    /// The newest number received.
    pub mseq_ack: u32,
    /// Receive buffers that messages claim.
    pub bufs: u16,
}

impl SdpPeer {
    /// Connects as the active end, with this Hello.
    #[must_use]
    pub fn active(socket: TcpStream, config: &StartupConfig, hello: &[u8]) -> Self {
        let (peer, private_data) = Peer::initiator_with(socket, config, hello);
        SdpPeer { peer, private_data, mseq: 1, mseq_ack: 0, bufs: 64 }
    }

    /// Returns the next message of this kind, with the numbers that are due.
    pub fn message(&mut self, mid: u8, rest: &[u8]) -> SdpMessage {
        let mseq = self.mseq;
        self.mseq = mseq.wrapping_add(1);
        let (bufs, mseq_ack) = (self.bufs, self.mseq_ack);
        SdpMessage { mid, flags: 0, bufs, len: None, mseq, mseq_ack, rest: rest.to_vec() }
    }

    /// Sends the next message.
    pub fn send(&mut self, mid: u8, rest: &[u8]) {
        let message = self.message(mid, rest);
        self.peer.send_message(&message.octets());
    }

    /// Sends a message as it is.
    pub fn send_as_is(&mut self, message: &SdpMessage) {
        self.peer.send_message(&message.octets());
    }

    /// Returns the next message of the other end, put together of its segments; `None` when that
    /// has closed, or said by a Terminate that it does.
    pub fn receive(&mut self) -> Option<SdpMessage> {
        let mut octets = Vec::new();
        loop {
            let (header, payload) = self.peer.segment()?;
            match Opcode::from_number(header.control() & 0xf) {
                Some(Opcode::Terminate) | None => return None,
                Some(Opcode::Send | Opcode::SendSolicited) => {}
                Some(_) => continue,
            }
            octets.extend(payload);
            if header.last() {
                let message = SdpMessage::parse(&octets);
                self.mseq_ack = message.mseq;
                return Some(message);
            }
        }
    }

    /// Returns the next message of this kind, and skips others.
    ///
    /// # Panics
    ///
    /// When the other end closes before it comes.
    pub fn expect(&mut self, mid: u8) -> SdpMessage {
        loop {
            let message = self.receive().expect("the other end goes on");
            if message.mid == mid {
                return message;
            }
        }
    }

    /// Skips messages until the other end has ended the connection.
    pub fn expect_end(&mut self) {
        while self.receive().is_some() {}
    }
}
