//! A hand-made peer that advertises: it answers Reads, and writes into `SinkAvail`s.

use rddp_ddp::Stag;
use rddp_rdmap::{Opcode, ReadRequestRepr, tagged_header};

use crate::peer::{Sdp, number};

pub(crate) const DATA: u8 = 0xff;
pub(crate) const SRC_AVAIL: u8 = 0xfe;
pub(crate) const SINK_AVAIL: u8 = 0xfd;
pub(crate) const SEND_SM: u8 = 4;
pub(crate) const WR_COMPL: u8 = 5;
pub(crate) const RD_COMPL: u8 = 6;
pub(crate) const MODE_CHANGE: u8 = 7;
pub(crate) const SRC_CANCEL: u8 = 8;
pub(crate) const SINK_CANCEL: u8 = 9;

/// The `STag` of the buffer that the peer advertises.
pub(crate) const STAG: u32 = 0x1234_5678;
/// The Tagged Offset of the buffer.
pub(crate) const TO: u64 = 0x1_0000_0010;

/// Something from the end of ours.
#[derive(Debug)]
pub(crate) enum Came {
    Message(Vec<u8>),
    Read(ReadRequestRepr),
}

impl Sdp {
    /// Sends a `SrcAvail` of `len` octets, with the first ones.
    pub(crate) fn advertise(&mut self, len: usize, inline: &[u8]) {
        let advert = [&(len as u32).to_be_bytes()[..], &STAG.to_be_bytes(), &TO.to_be_bytes()].concat();
        self.message(SRC_AVAIL, &advert, inline);
    }

    /// Goes to Pipelined on the half on which the peer sends.
    pub(crate) fn pipelined(&mut self) {
        self.message(MODE_CHANGE, &[0x20, 0, 0, 0], &[]);
    }

    pub(crate) fn came(&mut self) -> Came {
        let (header, payload) = self.peer.segment().expect("something");
        if header.control() & 0xf == Opcode::ReadRequest as u8 {
            return Came::Read(ReadRequestRepr::parse(&payload).unwrap());
        }
        self.ack = number(&payload, 8);
        Came::Message(payload)
    }

    pub(crate) fn read(&mut self) -> ReadRequestRepr {
        loop {
            match self.came() {
                Came::Read(read) => return read,
                // An update of credits may come first.
                Came::Message(message) => assert_eq!((message[0], message.len()), (DATA, 16)),
            }
        }
    }

    /// Returns the next message that is not an update of credits.
    pub(crate) fn told(&mut self) -> Vec<u8> {
        loop {
            match self.came() {
                Came::Message(message) if message[0] == DATA && message.len() == 16 => {}
                Came::Message(message) => return message,
                Came::Read(read) => panic!("{read:?}"),
            }
        }
    }

    /// Answers a Read with octets, in segments of `cut`.
    pub(crate) fn answer(&mut self, read: &ReadRequestRepr, octets: &[u8], cut: usize) {
        let mut at = 0;
        for part in octets.chunks(cut.max(1)) {
            self.respond(read.sink_stag, read.sink_to + at as u64, at + part.len() == octets.len(), part);
            at += part.len();
        }
    }

    pub(crate) fn respond(&mut self, stag: Stag, to: u64, last: bool, octets: &[u8]) {
        self.peer.send_segment(&tagged_header(Opcode::ReadResponse, stag, to, last), octets);
    }

    pub(crate) fn write(&mut self, stag: u32, to: u64, last: bool, octets: &[u8]) {
        self.peer.send_segment(&tagged_header(Opcode::Write, Stag(stag), to, last), octets);
    }

    /// Serves Reads of `source`, whose octets from `from` on are not inline, until all of it is
    /// reported. Returns the size of each Read.
    pub(crate) fn serve(&mut self, source: &[u8], from: usize, cut: usize) -> Vec<usize> {
        let (mut reported, mut sizes) = (from, Vec::new());
        while reported < source.len() {
            match self.came() {
                Came::Read(read) => {
                    assert_eq!((read.src_stag, read.sink_to), (Stag(STAG), 0));
                    let at = (read.src_to - TO) as usize;
                    self.answer(&read, &source[at..at + read.size as usize], cut);
                    sizes.push(read.size as usize);
                }
                Came::Message(message) if message[0] == RD_COMPL => {
                    reported += number(&message, 16) as usize;
                }
                Came::Message(message) => assert_eq!((message[0], message.len()), (DATA, 16)),
            }
        }
        sizes
    }

    /// Takes a `SinkAvail`; returns its length and `STag`.
    pub(crate) fn offered(&mut self) -> (usize, u32) {
        let message = self.told();
        assert_eq!((message[0], message.len()), (SINK_AVAIL, 36), "{message:?}");
        assert_eq!((number(&message, 24), number(&message, 28)), (0, 0), "no address on the wire");
        (number(&message, 16) as usize, number(&message, 20))
    }

    pub(crate) fn wrote(&mut self, octets: usize) {
        self.message(WR_COMPL, &(octets as u32).to_be_bytes(), &[]);
    }
}
