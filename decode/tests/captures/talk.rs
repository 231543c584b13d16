//! A connection made by hand: SDP over RDMAP, with an advert that is read, and a Terminate.

use rddp_ddp::Stag;
use rddp_mpa::{Frame, FrameKind, Framing, Revision};
use rddp_rdmap::{ReadRequestRepr, TerminateCode};
use rddp_sdp::wire::{Addresses, Advert, Body, Capabilities, Hello, HelloAck, Message, Mode, Version};
use rddp_test_support::{Fpdus, pattern, segment};

/// Octets in the order in which the ends sent them.
pub(crate) type Talk = Vec<(usize, Vec<u8>)>;

/// Makes the octets of both ends.
pub(crate) struct Talker {
    pub(crate) talk: Talk,
    fpdus: [Fpdus; 2],
    msn: [u32; 2],
    pub(crate) mseq: [u32; 2],
}

impl Talker {
    /// Does the startup. `markers` are those that the initiator sends: the responder wants them.
    pub(crate) fn new(crc: bool, markers: bool) -> Self {
        let addresses = Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() };
        let hello = Hello {
            version: Version::OURS,
            bufs: 64,
            capabilities: Capabilities::default(),
            max_adverts: 8.try_into().unwrap(),
            desired_remote_size: 4096,
            local_size: 32_784,
            port: 40_000,
            addresses,
            ext_max_adverts: 0,
            rddp: true,
        };
        let ack =
            HelloAck { version: Version::OURS, bufs: 9, max_adverts: 1, actual_size: 4096, rddp: false };
        Self::with(crc, markers, &hello.octets(), &ack.octets())
    }

    /// Does the startup with this private data.
    pub(crate) fn with(crc: bool, markers: bool, request: &[u8], reply: &[u8]) -> Self {
        let frame = |kind, markers, crc, private_data: &[u8]| {
            let (revision, rejected, enhanced) = (Revision::One, false, None);
            Frame { kind, markers, crc, rejected, large_fpdus: false, revision, enhanced, private_data }
                .emit()
                .unwrap()
                .to_vec()
        };
        let request = frame(FrameKind::Request, false, crc, request);
        let reply = frame(FrameKind::Reply, markers, false, reply);
        let (active, passive) = (Framing { crc, markers }, Framing { crc, markers: false });
        Talker {
            talk: vec![(0, request), (1, reply)],
            fpdus: [Fpdus::new(active, passive), Fpdus::new(passive, active)],
            msn: [0; 2],
            mseq: [0; 2],
        }
    }

    pub(crate) fn ulpdu(&mut self, from: usize, ulpdu: &[u8]) {
        let octets = self.fpdus[from].frame(ulpdu);
        self.talk.push((from, octets));
    }

    /// Sends octets as one message, in segments of at most `most` octets.
    pub(crate) fn send(&mut self, from: usize, octets: &[u8], most: usize) {
        self.msn[from] += 1;
        let pieces: Vec<_> = octets.chunks(most).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let last = number + 1 == pieces.len();
            let ulpdu = segment::send(self.msn[from], (number * most) as u32, last, piece);
            self.ulpdu(from, &ulpdu);
        }
    }

    /// Sends a message of SDP.
    pub(crate) fn say(&mut self, from: usize, body: Body, payload: &[u8]) {
        self.mseq[from] += 1;
        let mut message = Message::new(body, payload.len());
        message.header.bufs = 8;
        (message.header.mseq, message.header.mseq_ack) = (self.mseq[from], self.mseq[1 - from]);
        let octets = [&message.emit(), payload].concat();
        self.send(from, &octets, 1000);
    }
}

const SOURCE: Stag = Stag(0x1234_5600);
const SINK: Stag = Stag(0x6543_2100);

/// Everything once.
pub(crate) fn everything(crc: bool, markers: bool) -> Talk {
    let mut talker = Talker::new(crc, markers);
    talker.say(0, Body::Data, b"hello");
    let advert = Advert { len: 1600, stag: SOURCE.0, to: 0x7000 };
    talker.say(0, Body::SrcAvail { advert }, &pattern(100, 1));
    let read =
        ReadRequestRepr { sink_stag: SINK, sink_to: 0x40, size: 1500, src_stag: SOURCE, src_to: 0x7064 };
    talker.ulpdu(1, &segment::read(1, &read));
    talker.ulpdu(0, &segment::response(SINK, 0x40, false, &pattern(1000, 2)));
    talker.ulpdu(0, &segment::response(SINK, 0x40 + 1000, true, &pattern(500, 3)));
    talker.say(1, Body::RdmaRdCompl { octets: 1500 }, b"");
    talker.say(0, Body::ModeChange { of_receivers_half: false, mode: Mode::Pipelined }, b"");
    let advert = Advert { len: 8192, stag: SINK.0, to: 0x9000 };
    talker.say(1, Body::SinkAvail { advert, non_discards: 2 }, b"ping");
    talker.ulpdu(0, &segment::write(SINK, 0x9000, true, &pattern(3000, 4)));
    talker.say(0, Body::RdmaWrCompl { octets: 3000 }, b"");
    talker.say(1, Body::Data, &pattern(2500, 5));
    talker.say(0, Body::DisConn, b"");
    talker.say(1, Body::DisConn, b"");
    talker.ulpdu(1, &segment::terminate(TerminateCode::INVALID_STAG));
    talker.talk
}

/// The lines of the initiator, and of the responder.
pub(crate) const LINES: [&[&str]; 2] = [
    &[
        "MPA Request rev=1 M=0 C=1 private_data=92 SDP Hello v2.2 Bufs=64 MaxAdverts=8 LocalRcvSz=32784 \
         DesRemRcvSz=4096 port=40000 192.0.2.1 -> 192.0.2.2 rddp",
        "Send qn=0 msn=1 mo=0 len=21 L",
        "SDP Data MSeq=1 MSeqAck=0 Bufs=8 Len=21 payload=5",
        "Send qn=0 msn=2 mo=0 len=132 L",
        "SDP SrcAvail MSeq=2 MSeqAck=0 Bufs=8 Len=132 advert=1600 stag=0x12345600 to=0x7000 payload=100",
        "RDMA Read Response stag=0x65432100 to=0x40 len=1000",
        "RDMA Read Response stag=0x65432100 to=0x428 len=500 L",
        "Send qn=0 msn=3 mo=0 len=20 L",
        "SDP ModeChange MSeq=3 MSeqAck=1 Bufs=8 Len=20 of the sender's half to Pipelined",
        "RDMA Write stag=0x65432100 to=0x9000 len=3000 L",
        "Send qn=0 msn=4 mo=0 len=20 L",
        "SDP RdmaWrCompl MSeq=4 MSeqAck=2 Bufs=8 Len=20 octets=3000",
        "Send qn=0 msn=5 mo=0 len=16 L",
        "SDP DisConn MSeq=5 MSeqAck=3 Bufs=8 Len=16",
    ],
    &[
        "MPA Reply rev=1 M=0 C=0 private_data=196 SDP HelloAck v2.2 Bufs=9 MaxAdverts=1 ActRcvSz=4096",
        "RDMA Read Request qn=1 msn=1 mo=0 len=28 L read 1500 from 0x12345600+0x7064 to 0x65432100+0x40",
        "Send qn=0 msn=1 mo=0 len=20 L",
        "SDP RdmaRdCompl MSeq=1 MSeqAck=2 Bufs=8 Len=20 octets=1500",
        "Send qn=0 msn=2 mo=0 len=40 L",
        "SDP SinkAvail MSeq=2 MSeqAck=3 Bufs=8 Len=40 advert=8192 stag=0x65432100 to=0x9000 \
         NonDiscards=2 payload=4",
        "Send qn=0 msn=3 mo=0 len=1000",
        "Send qn=0 msn=3 mo=1000 len=1000",
        "Send qn=0 msn=3 mo=2000 len=516 L",
        "SDP Data MSeq=3 MSeqAck=4 Bufs=8 Len=2516 payload=2500",
        "Send qn=0 msn=4 mo=0 len=16 L",
        "SDP DisConn MSeq=4 MSeqAck=5 Bufs=8 Len=16",
        "Terminate qn=2 msn=1 mo=0 len=4 L 0x0100 (RDMAP remote protection error: invalid STag)",
    ],
];
