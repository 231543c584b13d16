//! A peer made by hand with adverts that repeat and overlap, credits that lie, and Writes into
//! sinks that were withdrawn.

use std::io::{ErrorKind, Read, Write};

use rddp_rnic::{Stag, TerminateCode};
use rddp_sdp::socket::{Config, Options};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpStream};
use rddp_test_support::sdp::{SdpPeer, advert, hello, mid};
use rddp_test_support::{connect, pattern, plain, segment};

const BUFFERS: u16 = 16;
const SIZE: u32 = 4112;

/// Returns the socket under test, and a peer that has said its first message.
fn pair(threshold: Option<usize>) -> (SdpStream, SdpPeer) {
    with(Config { source_threshold: threshold, ..Config::default() })
}

fn with(config: Config) -> (SdpStream, SdpPeer) {
    let config = Config { buffers: BUFFERS, buffer_size: SIZE, sink_threshold: Some(0), ..config };
    let device = SdpDevice::open(config, Scheme::PerCall).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let mut peer = SdpPeer::active(connect(addr), &plain(), &hello(BUFFERS, SIZE, 4));
        peer.send(mid::DATA, b"");
        (accepting.join().unwrap(), peer)
    })
}

fn pipelined(peer: &mut SdpPeer) {
    peer.send(mid::MODE_CHANGE, &[0x20, 0, 0, 0]);
}

/// Waits for the next Read Request, and answers it with octets of this memory.
fn serve_read(peer: &mut SdpPeer, memory: &[u8]) {
    loop {
        let (header, payload) = peer.peer.segment().expect("the other end goes on");
        match rddp_rdmap::Opcode::from_number(header.control() & 0xf) {
            Some(rddp_rdmap::Opcode::ReadRequest) => {
                let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
                let long = |at: usize| u64::from_be_bytes(payload[at..at + 8].try_into().unwrap());
                let (from, len) = (long(20) as usize, word(12) as usize);
                let octets = &memory[from..from + len];
                let (stag, mut to) = (Stag(word(0)), long(4));
                let chunks: Vec<&[u8]> = octets.chunks(1000).collect();
                for (n, chunk) in chunks.iter().enumerate() {
                    peer.peer.send(&segment::response(stag, to, n + 1 == chunks.len(), chunk));
                    to += chunk.len() as u64;
                }
                return;
            }
            _ => peer.mseq_ack += u32::from(header.last()),
        }
    }
}

/// The same octets may be advertised twice, and others that overlap them: each is Read where the
/// stream has it.
#[test]
fn adverts_that_repeat_and_overlap_are_read_in_order() {
    // A sink of the socket would discard adverts that cross it.
    let (socket, mut peer) = with(Config { sink_adverts: false, ..Config::default() });
    let memory = pattern(10_000, 1);
    let ranges = [(0, 6000), (0, 6000), (3000, 6000), (9999, 1)];
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut got = vec![0; 18_001];
            (&socket).read_exact(&mut got).unwrap();
            got
        });
        pipelined(&mut peer);
        for (to, len) in ranges {
            peer.send(mid::SRC_AVAIL, &advert(len, 7, to));
        }
        for _ in ranges {
            serve_read(&mut peer, &memory);
        }
        let wanted: Vec<u8> = ranges
            .iter()
            .flat_map(|(to, len)| &memory[*to as usize..*to as usize + *len as usize])
            .copied()
            .collect();
        assert!(receiving.join().unwrap() == wanted);
    });
}

/// Credits without end are taken at their word: TCP holds back what the peer does not read.
#[test]
fn credits_without_end_are_no_harm() {
    let (socket, mut peer) = pair(None);
    peer.bufs = u16::MAX;
    peer.send(mid::DATA, b"");
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (&socket).write_all(&pattern(300_000, 2)).unwrap());
        let mut got = Vec::new();
        while got.len() < 300_000 {
            got.extend(peer.expect(mid::DATA).rest);
        }
        assert!(got == pattern(300_000, 2));
        sending.join().unwrap();
    });
}

/// Credits that shrink stop the sender, who does not count below none, and larger ones start it.
#[test]
fn credits_that_shrink_stop_the_sender() {
    let (socket, mut peer) = pair(None);
    (&socket).write_all(b"one").unwrap();
    assert_eq!(peer.expect(mid::DATA).rest, b"one");
    let look = Options { non_blocking: true, ..Options::default() };
    for bufs in [5, 2, 1, 0] {
        peer.bufs = bufs;
        peer.send(mid::DATA, b"x");
        (&socket).read_exact(&mut [0]).unwrap();
        if bufs < 3 {
            let refused = socket.send(b"no credit", look).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{bufs}");
        }
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (&socket).write_all(b"two").unwrap());
        peer.bufs = 8;
        peer.send(mid::DATA, b"");
        loop {
            let message = peer.expect(mid::DATA);
            if !message.rest.is_empty() {
                assert_eq!(message.rest, b"two");
                break;
            }
        }
        sending.join().unwrap();
    });
}

/// Has the socket advertise a receive of 8,000 octets, which `end` ends. Then the peer writes into
/// its sink: nothing is placed, and the connection ends with the code of an invalid STag.
fn writes_late(end: impl FnOnce(&mut SdpPeer, Stag, u64), expected: &[u8]) {
    let (socket, mut peer) = pair(None);
    let mut memory = vec![0x11; 8000];
    let mut wanted = memory.clone();
    wanted[..expected.len()].copy_from_slice(expected);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| socket.receive(&mut memory, Options::default()).unwrap());
        pipelined(&mut peer);
        let (_, stag, to) = peer.expect(mid::SINK_AVAIL).advert();
        end(&mut peer, Stag(stag), to);
        assert_eq!(receiving.join().unwrap(), expected.len());
        peer.peer.send(&segment::write(Stag(stag), to, true, &[0xee; 100]));
        assert_eq!(peer.peer.terminate_code(), TerminateCode::TAGGED_INVALID_STAG);
    });
    assert!(memory == wanted, "octets were written into memory that was its owner's again");
}

#[test]
fn a_write_into_a_sink_that_was_discarded_is_refused() {
    writes_late(|peer, _, _| peer.send(mid::DATA, b"instead"), b"instead");
}

#[test]
fn a_write_into_a_sink_that_was_completed_is_refused() {
    writes_late(
        |peer, stag, to| {
            peer.peer.send(&segment::write(stag, to, true, b"written"));
            peer.send(mid::RDMA_WR_COMPL, &7_u32.to_be_bytes());
        },
        b"written",
    );
}

#[test]
fn a_write_into_a_sink_that_the_end_withdrew_is_refused() {
    writes_late(|peer, _, _| peer.send(mid::DIS_CONN, b""), b"");
}

/// A Write beyond a sink that is out places nothing, and ends the connection and the receive.
#[test]
fn a_write_beyond_a_sink_is_refused() {
    let (socket, mut peer) = pair(None);
    let mut memory = vec![0x11; 10_000];
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| socket.receive(&mut memory[..8000], Options::default()));
        pipelined(&mut peer);
        let (len, stag, to) = peer.expect(mid::SINK_AVAIL).advert();
        peer.peer.send(&segment::write(Stag(stag), to + u64::from(len) - 50, true, &[0xee; 100]));
        peer.peer.terminate();
        assert!(receiving.join().unwrap().is_err());
    });
    assert!(memory == [0x11; 10_000]);
}
