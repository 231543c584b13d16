//! A peer whose messages are made by hand.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Frame, Initiator, InitiatorStep, StartupConfig};
use rddp_rdmap::{Opcode, untagged_header};
use rddp_stream::{Errno, Options};
use rddp_test_support::Peer;

use crate::common::{End, responder, tcp_pair};
use crate::{sdp, with};

/// A Hello of version 2.2, IPv4, with one advert; 64 buffers of 32784 octets (`sdp_vectors.json`:
/// `hello_v22_ipv4`).
pub(crate) const HELLO: &str = concat!(
    "000000400000005c0000000000000000",
    "2240000100008010000080109c400000000000000000000000000000c0000201",
    "000000000000000000000000c00002020000000000000000000000000000000000000000000000000000000000",
);

pub(crate) fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Returns a Hello with the whole length, and something changed.
pub(crate) fn hello(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut hello = octets(HELLO);
    hello.resize(92, 0);
    change(&mut hello);
    hello
}

/// The peer, which counts its messages.
pub(crate) struct Sdp {
    pub(crate) peer: Peer,
    msn: u32,
    pub(crate) mseq: u32,
    /// Message of ours that it acknowledges, and its buffers.
    pub(crate) ack: u32,
    pub(crate) bufs: u16,
}

/// Sends a Request with this Hello to an end of ours. Returns the Reply.
pub(crate) fn request(hello: &[u8], options: &Options) -> (TcpStream, End, Initiator) {
    let (mut tcp, other) = tcp_pair();
    let end = End::new(other, options);
    let config = StartupConfig { crc: true, ..StartupConfig::default() };
    let initiator = Initiator::new(&config, hello).unwrap();
    tcp.write_all(initiator.request()).unwrap();
    (tcp, end, initiator)
}

impl Sdp {
    /// Returns a peer that has connected to an end of ours, and sent its first message.
    pub(crate) fn connected() -> (Self, End) {
        let mut options = sdp(responder());
        options = with(options, rddp_stream::SdpOptions { size: 4000, bufs: 256, ..Default::default() });
        Self::connected_to(&options)
    }

    pub(crate) fn connected_to(options: &Options) -> (Self, End) {
        Self::connected_by(&hello(|_| ()), options)
    }

    /// Returns a peer that has said this Hello.
    pub(crate) fn connected_by(hello: &[u8], options: &Options) -> (Self, End) {
        let (tcp, end, mut initiator) = request(hello, options);
        assert_eq!(end.stream().greet(), Ok(true));
        let mut reply = [0; Frame::MAX_LEN];
        let mut have = 0;
        let negotiated = loop {
            have += std::io::Read::read(&mut &tcp, &mut reply[have..]).unwrap();
            match initiator.handle(&reply[..have]).unwrap() {
                InitiatorStep::Accepted { negotiated, private_data, .. } => {
                    assert_eq!(
                        (private_data.len(), private_data[0], &private_data[192..]),
                        (196, 1, &b"rddp"[..])
                    );
                    break negotiated;
                }
                InitiatorStep::Need { .. } => {}
                InitiatorStep::Rejected { .. } => panic!("rejected"),
            }
        };
        let mut peer = Self { peer: Peer::new(tcp, negotiated), msn: 1, mseq: 0, ack: 0, bufs: 64 };
        peer.message(0xff, &[], b"");
        (peer, end)
    }

    /// Returns the octets of the next message.
    pub(crate) fn front(&mut self, mid: u8, len: usize) -> Vec<u8> {
        self.mseq += 1;
        let mut message = vec![mid, 0];
        message.extend(self.bufs.to_be_bytes());
        message.extend((16 + len as u32).to_be_bytes());
        message.extend(self.mseq.to_be_bytes());
        message.extend(self.ack.to_be_bytes());
        message
    }

    /// Sends the next message: its MID, extended header and payload.
    pub(crate) fn message(&mut self, mid: u8, extension: &[u8], payload: &[u8]) {
        let mut message = self.front(mid, extension.len() + payload.len());
        message.extend(extension);
        message.extend(payload);
        self.raw(&message);
    }

    pub(crate) fn data(&mut self, payload: &[u8]) {
        self.message(0xff, &[], payload);
    }

    /// Sends a Send of these octets.
    pub(crate) fn raw(&mut self, message: &[u8]) {
        self.cut(message, message.len());
    }

    /// Sends a Send in segments of `cut` octets.
    pub(crate) fn cut(&mut self, message: &[u8], cut: usize) {
        for (at, part) in message.chunks(cut).enumerate() {
            let (mo, last) = (at * cut, at * cut + part.len() == message.len());
            let header = untagged_header(Opcode::Send, Stag(0), Msn(self.msn), mo as u32, last);
            self.peer.send_segment(&header, part);
        }
        self.msn += 1;
    }

    /// Sends the first segment of a Send that goes on behind it.
    pub(crate) fn begin(&mut self, octets: &[u8]) {
        let header = untagged_header(Opcode::Send, Stag(0), Msn(self.msn), 0, false);
        self.peer.send_segment(&header, octets);
    }

    /// Sends the last segment of the Send that [`begin`](Self::begin) began.
    pub(crate) fn go_on(&mut self, at: usize, octets: &[u8]) {
        let header = untagged_header(Opcode::Send, Stag(0), Msn(self.msn), at as u32, true);
        self.peer.send_segment(&header, octets);
        self.msn += 1;
    }

    /// Sends a Send without octets.
    pub(crate) fn empty(&mut self) {
        let header = untagged_header(Opcode::Send, Stag(0), Msn(self.msn), 0, true);
        self.peer.send_segment(&header, &[]);
        self.msn += 1;
    }

    /// Returns the next message of ours.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let (_, payload) = self.peer.segment().expect("a message");
        self.ack = number(&payload, 8);
        payload
    }

    /// Checks that the transport ends when both halves have: by the next call of the end's that
    /// finds that TCP has acknowledged everything.
    pub(crate) fn expect_fin(&mut self, end: &End) {
        let since = Instant::now();
        while self.peer.is_silent(Duration::from_millis(5)) {
            assert!(since.elapsed() < Duration::from_secs(20), "no FIN comes");
            assert_eq!(end.read(1), Ok(vec![]));
        }
        assert!(self.peer.recv().is_none(), "a message behind both halves");
    }

    /// Expects that the end finds a rule broken, and that this peer gets a reset.
    pub(crate) fn expect_refusal(mut self, end: &End, rule: &str) {
        let got = loop {
            match end.recv(&mut [0; 100], 0) {
                // Octets and their end, behind which the breach stands, may be told first.
                Ok(_) => {}
                got => break got,
            }
        };
        let ended = end.state.ended().map(|ended| ended.to_string());
        assert_eq!(got, Err(Errno::PROTOCOL), "{ended:?}");
        assert!(ended.as_ref().is_some_and(|ended| ended.contains(rule)), "{ended:?}");
        let mut rest = [0; 1000];
        let reset = loop {
            match std::io::Read::read(&mut self.peer.socket, &mut rest) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(reset, Some(std::io::ErrorKind::ConnectionReset));
    }
}

/// Returns the number of four octets at `at`.
pub(crate) fn number(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}
