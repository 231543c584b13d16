//! A peer made by hand that breaks one rule at a time: the connection ends with an error of the
//! protocol, and no memory is touched but that of live adverts.

use std::io::{Read, Write};
use std::net::SocketAddr;

use rddp_rdmap::Opcode;
use rddp_rnic::Stag;
use rddp_sdp::socket::{Config, Options};
use rddp_sdp_rnic::{Scheme, SdpDevice, SdpListener, SdpStream};
use rddp_test_support::sdp::{SdpPeer, advert, hello, mid};
use rddp_test_support::{connect, pattern, plain, segment};

const BUFFERS: u16 = 16;
const SIZE: u32 = 4112;

fn config(threshold: Option<usize>) -> Config {
    Config {
        buffers: BUFFERS,
        buffer_size: SIZE,
        max_adverts: 2,
        source_threshold: threshold,
        sink_threshold: Some(0),
        ..Config::default()
    }
}

fn listen(config: Config) -> (SdpListener, SocketAddr) {
    let device = SdpDevice::open(config, Scheme::PerCall).unwrap();
    let listener = device.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Returns the socket under test, and a peer that has said its first message.
fn pair(threshold: Option<usize>) -> (SdpStream, SdpPeer) {
    let (listener, addr) = listen(config(threshold));
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap());
        let mut peer = SdpPeer::active(connect(addr), &plain(), &hello(BUFFERS, SIZE, 2));
        peer.send(mid::DATA, b"");
        (accepting.join().unwrap(), peer)
    })
}

const EPROTO: std::io::ErrorKind = std::io::ErrorKind::InvalidData;

/// One rule: its name, and what the peer sends.
type Case = (&'static str, fn(&mut SdpPeer));

fn source(inline: usize, len: u32, to: u64) -> Vec<u8> {
    [advert(len, 0x1234, to), vec![7; inline]].concat()
}

fn pipelined(peer: &mut SdpPeer) {
    peer.send(mid::MODE_CHANGE, &[0x20, 0, 0, 0]);
}

/// Breaches of a few messages each, while the socket under test waits in a receive of one octet.
const CASES: &[Case] = &[
    ("an identifier that there is not", |peer| peer.send(0x42, b"")),
    ("a late Hello", |peer| peer.send(mid::HELLO, &[0; 76])),
    ("a late HelloAck", |peer| peer.send(mid::HELLO_ACK, &[0; 180])),
    ("less than a header", |peer| peer.peer.send_message(&[mid::DATA; 15])),
    ("a Len that is too long", |peer| lie(peer, 1)),
    ("a Len that is too short", |peer| lie(peer, -1)),
    ("half an extended header", |peer| peer.send(mid::SRC_AVAIL, &[0; 15])),
    ("payload of a control message", |peer| peer.send(mid::SEND_SM, b"x")),
    ("an urgent octet in a control message", |peer| {
        let message = peer.message(mid::SRC_AVAIL_CANCEL, b"");
        peer.send_as_is(&rddp_test_support::sdp::SdpMessage { flags: 1, ..message });
    }),
    ("an urgent octet that is not there", |peer| {
        let message = peer.message(mid::DATA, b"");
        peer.send_as_is(&rddp_test_support::sdp::SdpMessage { flags: 1, ..message });
    }),
    ("a gap in the numbers", |peer| {
        peer.mseq += 1;
        peer.send(mid::DATA, b"x");
    }),
    ("a number twice", |peer| {
        peer.mseq -= 1;
        peer.send(mid::DATA, b"x");
    }),
    ("an acknowledgement of what was not sent", |peer| {
        peer.mseq_ack = 1000;
        peer.send(mid::DATA, b"");
    }),
    ("a mode that there is not", |peer| peer.send(mid::MODE_CHANGE, &[0x30, 0, 0, 0])),
    ("a change to the present mode", |peer| peer.send(mid::MODE_CHANGE, &[0x10, 0, 0, 0])),
    ("a change that is the other side's", |peer| peer.send(mid::MODE_CHANGE, &[0xa0, 0, 0, 0])),
    ("an advert without octets inline in Combined", |peer| peer.send(mid::SRC_AVAIL, &source(0, 100, 0))),
    ("an advert all inline", |peer| peer.send(mid::SRC_AVAIL, &source(100, 100, 0))),
    ("an advert longer inline than it is", |peer| peer.send(mid::SRC_AVAIL, &source(101, 100, 0))),
    ("an advert that wraps", |peer| peer.send(mid::SRC_AVAIL, &source(1, 100, u64::MAX - 50))),
    ("a second advert in Combined", |peer| {
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
    }),
    ("Data under an advert", |peer| {
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
        peer.send(mid::DATA, b"x");
    }),
    ("the end under an advert", |peer| {
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
        peer.send(mid::DIS_CONN, b"");
    }),
    ("a change to Buffered under an advert", |peer| {
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
        peer.send(mid::MODE_CHANGE, &[0x00, 0, 0, 0]);
    }),
    ("an advert in Buffered", |peer| {
        peer.send(mid::MODE_CHANGE, &[0x00, 0, 0, 0]);
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
    }),
    ("octets inline in Pipelined", |peer| {
        pipelined(peer);
        peer.send(mid::SRC_AVAIL, &source(1, 100, 0));
    }),
    ("more adverts than are taken", |peer| {
        pipelined(peer);
        for _ in 0..3 {
            peer.send(mid::SRC_AVAIL, &source(0, 100, 0));
        }
    }),
    ("an advert of no octets", |peer| {
        pipelined(peer);
        peer.send(mid::SRC_AVAIL, &source(0, 0, 0));
    }),
    ("a report of a Read of nothing", |peer| peer.send(mid::RDMA_RD_COMPL, &1_u32.to_be_bytes())),
    ("a report of a Write into nothing", |peer| peer.send(mid::RDMA_WR_COMPL, &1_u32.to_be_bytes())),
    ("a SendSm without an advert", |peer| peer.send(mid::SEND_SM, b"")),
    ("an answer to no cancel", |peer| peer.send(mid::SINK_CANCEL_ACK, b"")),
    ("a SinkAvail in Combined", |peer| {
        peer.send(mid::SINK_AVAIL, &[advert(8192, 1, 0), vec![0; 4]].concat());
    }),
    ("an AbortConn before the end", |peer| peer.send(mid::ABORT_CONN, b"")),
    ("suspension", |peer| peer.send(mid::SUSP_COMM, &[0; 8])),
    ("an answer to no suspension", |peer| peer.send(mid::SUSP_COMM_ACK, b"")),
];

fn lie(peer: &mut SdpPeer, by: i32) {
    let mut message = peer.message(mid::DATA, b"four");
    message.len = Some(20_u32.wrapping_add_signed(by));
    peer.send_as_is(&message);
}

#[test]
fn each_breach_ends_the_connection() {
    for (name, breach) in CASES {
        let (socket, mut peer) = pair(None);
        breach(&mut peer);
        // Octets that came before the breach may be delivered first, and adverts be tried.
        let outcome = loop {
            match (&socket).read(&mut [0]) {
                Ok(1) => {}
                other => break other,
            }
        };
        let error = outcome.expect_err(name);
        assert_eq!(error.kind(), EPROTO, "{name}: {error}");
        peer.expect_end();
    }
}

#[test]
fn a_second_end_of_the_stream_ends_the_connection() {
    let (socket, mut peer) = pair(None);
    peer.send(mid::DIS_CONN, b"");
    assert_eq!((&socket).read(&mut [0]).unwrap(), 0);
    peer.send(mid::DIS_CONN, b"");
    expect_end(&socket, peer);
}

#[test]
fn octets_behind_the_end_of_the_stream_end_the_connection() {
    for (what, rest) in [(mid::DATA, b"x".to_vec()), (mid::SRC_AVAIL, source(1, 100, 0))] {
        let (socket, mut peer) = pair(None);
        peer.send(mid::DIS_CONN, b"");
        peer.send(what, &rest);
        expect_end(&socket, peer);
    }
}

/// RFC 5041 §7.2, and credits: the device ends the connection of a peer that ignores them.
#[test]
fn more_messages_than_buffers_end_the_connection() {
    let (socket, mut peer) = pair(None);
    for _ in 0..2 * BUFFERS {
        let message = peer.message(mid::DATA, b"x").octets();
        let octets = peer.peer.frame_message(&message);
        peer.peer.try_octets(&octets);
    }
    peer.expect_end();
    drop(socket);
}

/// Has the socket look at what comes, without waiting for octets, until the peer has seen the end.
fn expect_end(socket: &SdpStream, mut peer: SdpPeer) {
    let ended = std::thread::spawn(move || peer.expect_end());
    while !ended.is_finished() {
        let look = Options { non_blocking: true, ..Options::default() };
        let _ = socket.receive(&mut [0], look);
        std::thread::yield_now();
    }
    ended.join().unwrap();
}

/// Begins a blocking send of an advert, and hands the advert as the peer sees it to `then`.
fn advertised(then: impl FnOnce(&mut SdpPeer, (u32, u32, u64)) + Send) -> std::io::Result<usize> {
    let (socket, mut peer) = pair(Some(0));
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || (&socket).write(&pattern(10_000, 1)));
        let message = peer.expect(mid::SRC_AVAIL);
        then(&mut peer, message.advert());
        sending.join().unwrap()
    })
}

#[test]
fn reports_and_refusals_that_lie_end_the_connection() {
    // One octet went inline, so that 9,999 can be read.
    for octets in [10_000_u32, u32::MAX] {
        let outcome = advertised(|peer, _| {
            peer.send(mid::RDMA_RD_COMPL, &octets.to_be_bytes());
            peer.expect_end();
        });
        assert!(outcome.is_ok_and(|count| count == 1), "the octet that went inline was sent");
    }
    let outcome = advertised(|peer, _| {
        peer.send(mid::RDMA_RD_COMPL, &9_000_u32.to_be_bytes());
        peer.send(mid::RDMA_RD_COMPL, &1_000_u32.to_be_bytes());
        peer.expect_end();
    });
    assert_eq!(outcome.unwrap(), 9_001);
}

#[test]
fn a_sink_that_is_too_short_ends_the_connection() {
    let (socket, mut peer) = pair(Some(0));
    std::thread::scope(|scope| {
        let socket = &socket;
        // Two sends take the half to Pipelined.
        for _ in 0..3 {
            scope.spawn(move || (&mut &*socket).write(&pattern(10_000, 1)));
        }
        let first = peer.expect(mid::SRC_AVAIL);
        assert_eq!(first.advert().0, 10_000);
        peer.expect(mid::MODE_CHANGE);
        peer.send(mid::RDMA_RD_COMPL, &9_999_u32.to_be_bytes());
        peer.send(mid::SINK_AVAIL, &[advert(4095, 1, 0), vec![0; 4]].concat());
        peer.expect_end();
    });
}

/// An advert that came back is gone: a Read of it ends the connection with an access error.
#[test]
fn a_read_of_an_advert_that_was_withdrawn_is_refused() {
    let (socket, mut peer) = pair(Some(0));
    let mut stag = 0;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (&socket).write(&pattern(10_000, 1)));
        stag = peer.expect(mid::SRC_AVAIL).advert().1;
        // Refused: the rest comes as Data.
        peer.send(mid::SEND_SM, b"");
        let mut got = 1;
        while got < 10_000 {
            got += peer.expect(mid::DATA).rest.len();
        }
        assert_eq!(sending.join().unwrap().unwrap(), 10_000);
    });
    let request = rddp_rdmap::ReadRequestRepr {
        sink_stag: Stag(1),
        sink_to: 0,
        size: 100,
        src_stag: Stag(stag),
        src_to: 0,
    };
    peer.peer.send(&segment::read(1, &request));
    let code = peer.peer.terminate_code();
    assert_eq!(code, rddp_rnic::TerminateCode::INVALID_STAG);
}

#[test]
fn a_read_beyond_an_advert_is_refused() {
    let outcome = advertised(|peer, (len, stag, to)| {
        let request = rddp_rdmap::ReadRequestRepr {
            sink_stag: Stag(1),
            sink_to: 0,
            size: len,
            src_stag: Stag(stag),
            src_to: to + 1,
        };
        peer.peer.send(&segment::read(1, &request));
        while let Some((header, _)) = peer.peer.segment() {
            let opcode = Opcode::from_number(header.control() & 0xf);
            assert_ne!(opcode, Some(Opcode::ReadResponse), "octets beyond the advert were sent");
        }
    });
    assert_eq!(outcome.unwrap(), 1);
}

#[test]
fn a_write_into_a_source_is_refused() {
    let octets = pattern(10_000, 1);
    let (socket, mut peer) = pair(Some(0));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (&socket).write(&octets));
        let (_, stag, to) = peer.expect(mid::SRC_AVAIL).advert();
        peer.peer.send(&segment::write(Stag(stag), to, true, &[0xee; 100]));
        peer.peer.terminate();
        let _ = sending.join().unwrap();
    });
    assert!(octets == pattern(10_000, 1), "the peer wrote into memory that it may only read");
}

/// The peer goes away at each step of the exchange of an advert: the send ends.
#[test]
fn a_peer_that_goes_away_at_any_step_ends_a_send() {
    for step in 0..4 {
        let outcome = advertised(|peer, _| {
            if step > 0 {
                peer.send(mid::RDMA_RD_COMPL, &10_u32.to_be_bytes());
            }
            if step > 1 {
                peer.send(mid::RDMA_RD_COMPL, &10_u32.to_be_bytes());
            }
            if step == 3 {
                peer.peer.fin();
            } else {
                peer.peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
            }
        });
        let count = outcome.unwrap();
        assert!(count == 1 || count == 11 || count == 21, "step {step}: {count}");
    }
}

#[test]
fn a_hello_that_is_bad_in_any_field_is_rejected() {
    let (listener, addr) = listen(config(None));
    let good = hello(BUFFERS, SIZE, 2);
    // MID; Len; version; version of IP; MaxAdverts; receive size.
    let bad = [(0, 1), (7, 91), (16, 0x32), (17, 0x50), (19, 0)];
    std::thread::scope(|scope| {
        // The listener rejects each, and is none the worse for it.
        let accepting = scope.spawn(|| listener.accept().unwrap());
        for (at, value) in bad {
            let mut hello = good.clone();
            hello[at] = value;
            assert!(is_rejected(addr, &hello), "octet {at}");
        }
        let small = rddp_test_support::sdp::hello(BUFFERS, 20, 2);
        assert!(is_rejected(addr, &small), "buffers that hold no message");
        assert!(is_rejected(addr, &good[..60]), "too short");
        assert!(is_rejected(addr, b""), "no Hello");
        let mut peer = SdpPeer::active(connect(addr), &plain(), &good);
        peer.send(mid::DATA, b"hello");
        let socket = accepting.join().unwrap();
        let mut got = [0; 5];
        (&socket).read_exact(&mut got).unwrap();
        assert_eq!(got, *b"hello");
        assert_eq!(peer.private_data[0], mid::HELLO_ACK);
    });
}

fn is_rejected(addr: SocketAddr, hello: &[u8]) -> bool {
    let socket = connect(addr);
    rddp_test_support::sdp::is_rejected(socket, hello)
}

#[test]
fn peeking_at_an_advert_does_not_consume_it() {
    let (socket, mut peer) = pair(None);
    peer.send(mid::DATA, b"abc");
    let mut got = [0; 3];
    let peek = Options { peek: true, wait_all: true, ..Options::default() };
    for _ in 0..2 {
        assert!(socket.receive(&mut got, peek).unwrap() > 0);
    }
    (&socket).read_exact(&mut got).unwrap();
    assert_eq!(got, *b"abc");
}
