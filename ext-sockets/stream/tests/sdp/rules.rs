//! Rules for the messages of a peer: each breach ends the connection, and the rest goes on.

use std::io::{IoSlice, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rddp_mpa::InitiatorStep;
use rddp_stream::{Errno, Options, Phase, Plain};
use rddp_test_support::pattern;

use crate::common::{CALLS, End, fresh_pair, initiator, responder};
use crate::peer::{Sdp, hello, number, request};
use crate::{Stream, sdp};

const DATA: u8 = 0xff;
const DISCONN: u8 = 2;

fn answer(hello: &[u8], options: &Options) -> (Result<bool, Errno>, End, bool) {
    let (mut tcp, end, mut initiator) = request(hello, options);
    let greeted = end.stream().greet();
    let mut reply = vec![0; 1024];
    let mut have = 0;
    loop {
        have += tcp.read(&mut reply[have..]).unwrap();
        match initiator.handle(&reply[..have]).unwrap() {
            InitiatorStep::Need { .. } => {}
            InitiatorStep::Accepted { .. } => return (greeted, end, true),
            InitiatorStep::Rejected { .. } => return (greeted, end, false),
        }
    }
}

#[test]
fn a_bad_hello_is_rejected() {
    let cases = [
        hello(|hello| hello.truncate(91)),
        hello(|hello| hello.push(0)),
        hello(|hello| hello[0] = 1),
        hello(|hello| hello[7] = 93),
        hello(|hello| hello[16] = 0x32),
        hello(|hello| hello[17] = 0x50),
        hello(|hello| hello[19] = 0),
        b"hello".to_vec(),
        vec![],
    ];
    for case in cases {
        let (greeted, end, accepted) = answer(&case, &sdp(responder()));
        assert_eq!((greeted, accepted), (Err(Errno::PROTOCOL), false), "{case:?}");
        let why = end.state.ended().unwrap().to_string();
        assert_eq!(why, "the peer does not speak SDP");
    }
    let (greeted, end, accepted) = answer(&hello(|hello| hello[16] = 0x11), &sdp(responder()));
    assert_eq!((greeted, accepted, end.state.ended()), (Ok(true), true, None));
}

#[test]
fn a_client_with_a_bad_hello_is_rejected_and_goes_on_where_plain_octets_are_allowed() {
    let options = Options { plain: Plain::Allowed, ..sdp(responder()) };
    let (greeted, end, accepted) = answer(b"hello", &options);
    assert_eq!((greeted, accepted, end.state.phase()), (Err(Errno::PLAIN), false, Phase::Plain));
}

#[test]
fn an_end_of_plain_octets_does_not_answer_hello() {
    let (a, b) = fresh_pair(&sdp(initiator()), &responder());
    assert_eq!(a.stream().greet(), Ok(false));
    let octets = rddp_stream::Stream::new(b.tcp.as_raw_fd(), &b.state, &CALLS).unwrap();
    assert_eq!(octets.greet(), Ok(true));
    assert_eq!(a.stream().start(None), Err(Errno::PROTOCOL));
    assert_eq!(a.state.ended().unwrap().to_string(), "the peer does not speak SDP");
}

// The shared state has places for them.
#[test]
fn no_more_reads_are_allowed_than_are_served() {
    let (mut tcp, end, _) = request(&hello(|_| {}), &Options { ird: 100, ..sdp(responder()) });
    assert_eq!(end.stream().greet(), Ok(true));
    let mut reply = [0; 24];
    tcp.read_exact(&mut reply).unwrap();
    let ird = u16::from_be_bytes([reply[20], reply[21]]) & 0x3fff;
    assert_eq!(ird, 8, "of 100 that the program allows");
}

#[test]
fn a_client_of_sdp_is_rejected_and_goes_on_where_plain_octets_are_allowed() {
    let options = Options { plain: Plain::Allowed, ..responder() };
    for (data, greeted) in [(hello(|_| {}), Err(Errno::PLAIN)), (b"hello".to_vec(), Ok(true))] {
        let (_tcp, end, _) = request(&data, &options);
        let octets = rddp_stream::Stream::new(end.tcp.as_raw_fd(), &end.state, &CALLS).unwrap();
        assert_eq!(octets.greet(), greeted, "{data:?}");
    }
}

#[test]
fn a_state_of_one_kind_is_not_opened_as_another() {
    let (a, b) = fresh_pair(&sdp(initiator()), &responder());
    let as_octets = rddp_stream::Stream::new(a.tcp.as_raw_fd(), &a.state, &CALLS);
    assert_eq!(as_octets.map(drop), Err(Errno::INVALID));
    assert_eq!(Stream::new(b.tcp.as_raw_fd(), &b.state, &CALLS).map(drop), Err(Errno::INVALID));
}

#[test]
fn a_send_without_octets_is_refused() {
    let (mut peer, end) = Sdp::connected();
    peer.data(b"before");
    peer.empty();
    peer.expect_refusal(&end, "a form that SDP does not know");
}

#[test]
fn messages_may_be_cut_into_segments() {
    let (mut peer, end) = Sdp::connected();
    let octets = pattern(3000, 1);
    for cut in [16, 17, 100, 2999, 3016] {
        let mut message = peer.front(DATA, octets.len());
        message.extend(&octets);
        peer.cut(&message, cut);
        let mut got = vec![0; 3000];
        assert_eq!(end.recv(&mut got, libc::MSG_WAITALL), Ok(3000));
        assert!(got == octets, "cut by {cut}");
    }
    // Each buffer is free again: more messages come than there are buffers.
    for _ in 0..600 {
        peer.data(b"x");
        assert_eq!(end.read(5), Ok(b"x".to_vec()));
    }
    assert_eq!(end.state.ended(), None);
}

#[test]
fn what_breaks_a_rule_ends_the_connection() {
    type Breach = fn(&mut Sdp);
    let cases: [(&str, Breach); 12] = [
        ("form", |peer| peer.message(0x1d, &[], b"")),
        ("form", |peer| peer.message(0, &[0; 76], b"")),
        ("form", |peer| peer.raw(&[DATA, 0, 0])),
        ("form", |peer| peer.message(DISCONN, &[], b"octets")),
        ("Len", |peer| {
            let message = peer.front(DATA, 4);
            peer.raw(&[&message[..], b"fivey"].concat());
        }),
        ("Len", |peer| {
            let message = peer.front(DATA, 4);
            peer.raw(&[&message[..], b"one"].concat());
        }),
        ("Len", |peer| {
            let message = peer.front(DATA, 10);
            peer.cut(&[&message[..], &[1; 40]].concat(), 20);
        }),
        ("Len", |peer| {
            let message = peer.front(DATA, 10);
            peer.begin(&[&message[..], &[1; 40]].concat());
        }),
        ("MSeq ", |peer| {
            peer.mseq += 1;
            peer.data(b"x");
        }),
        ("MSeqAck", |peer| {
            peer.ack = 1;
            peer.data(b"x");
        }),
        ("DisConn", |peer| {
            peer.message(DISCONN, &[], b"");
            peer.data(b"late");
        }),
        ("half-connection", |peer| peer.message(6, &[0, 0, 0, 1], b"")),
    ];
    for (rule, breach) in cases {
        let (mut peer, end) = Sdp::connected();
        breach(&mut peer);
        peer.expect_refusal(&end, rule);
    }
}

#[test]
fn a_peer_that_sends_without_credits_is_aborted() {
    let (mut peer, end) = Sdp::connected();
    // The end has no credits, and takes everything to find some.
    peer.bufs = 2;
    // Of short messages it would give buffers back.
    for _ in 0..257 {
        peer.data(&[b'x'; 4000 - 16]);
    }
    let error = loop {
        match end.stream().send(&[IoSlice::new(b"y")], libc::MSG_DONTWAIT) {
            Ok(_) | Err(Errno::WOULD_BLOCK) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::PROTOCOL);
    peer.expect_refusal(&end, "without a credit");
}

#[test]
fn messages_of_ours_have_numbers_and_credits() {
    let (mut peer, end) = Sdp::connected();
    end.send_all(b"octets");
    let message = peer.next();
    assert_eq!((message[0], number(&message, 4), &message[16..]), (DATA, 22, &b"octets"[..]));
    assert_eq!((number(&message, 8), number(&message, 12)), (1, 1));
    assert_eq!(u16::from_be_bytes([message[2], message[3]]), 256);
    // 64 buffers: two credits are kept.
    for _ in 1..62 {
        end.send_all(b"x");
    }
    assert_eq!(end.stream().send(&[IoSlice::new(b"x")], libc::MSG_DONTWAIT), Err(Errno::WOULD_BLOCK));
    for _ in 1..62 {
        peer.next();
    }
    assert!(peer.peer.is_silent(Duration::from_millis(20)), "nothing goes without credits");
    peer.data(b"");
    assert_eq!(end.poll(libc::POLLOUT, Duration::from_secs(20)).0, libc::POLLOUT);
    end.send_all(b"again");
    assert_eq!(peer.next()[16..], *b"again");
}

#[test]
fn half_of_the_buffers_are_told_at_once() {
    let (mut peer, end) = Sdp::connected();
    for round in 0..1000 {
        peer.data(b"x");
        assert_eq!(end.read(5), Ok(b"x".to_vec()), "round {round}");
    }
    let update = peer.next();
    assert_eq!((update[0], number(&update, 4)), (DATA, 16));
    let bufs = u32::from(u16::from_be_bytes([update[2], update[3]]));
    assert_eq!((bufs, number(&update, 12) % 128), (256, 0));
}

#[test]
fn an_advert_is_refused_and_its_first_octets_are_delivered() {
    // An end that may not Read.
    let (mut peer, end) = Sdp::connected_to(&sdp(Options { ord: 0, ..responder() }));
    let advert = [&1000u32.to_be_bytes()[..], &7u32.to_be_bytes(), &0u64.to_be_bytes()].concat();
    peer.message(0xfe, &advert, b"inline");
    assert_eq!(end.read(100), Ok(b"inline".to_vec()));
    assert_eq!(peer.next()[0], 4, "SendSm");
    peer.data(b" and the rest");
    assert_eq!((end.read(100), end.state.ended()), (Ok(b" and the rest".to_vec()), None));
}

#[test]
fn a_request_for_larger_buffers_is_answered() {
    let (mut peer, end) = Sdp::connected();
    peer.message(0x0b, &100_000u32.to_be_bytes(), b"");
    peer.data(b"x");
    assert_eq!(end.read(5), Ok(b"x".to_vec()));
    let answer = peer.next();
    assert_eq!((answer[0], number(&answer, 16)), (0x0c, 4000));
}

#[test]
fn an_abort_behind_disconn_is_a_reset() {
    let (mut peer, end) = Sdp::connected();
    peer.message(DISCONN, &[], b"");
    peer.message(3, &[], b"");
    while end.state.ended().is_none() {
        end.stream().step();
        let _ = end.recv(&mut [0; 1], libc::MSG_DONTWAIT);
    }
    assert_eq!(end.state.ended().unwrap().errno, Errno::RESET);
    let (mut peer, end) = Sdp::connected();
    peer.message(3, &[], b"");
    peer.expect_refusal(&end, "half-connection");
}

#[test]
fn credits_come_behind_the_peers_end() {
    let (mut peer, end) = Sdp::connected();
    peer.message(DISCONN, &[], b"");
    assert_eq!(end.read(5), Ok(vec![]));
    for _ in 0..3 {
        let mut sent = 0;
        while end.stream().send(&[IoSlice::new(b"x")], libc::MSG_DONTWAIT).is_ok() {
            sent += 1;
        }
        assert!((61..=62).contains(&sent), "{sent}");
        (0..sent).for_each(|_| drop(peer.next()));
        peer.data(b"");
        assert_eq!(end.poll(libc::POLLOUT, Duration::from_secs(20)).0, libc::POLLOUT);
    }
    assert_eq!(end.read(5), Ok(vec![]));
    end.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(peer.next()[0], DISCONN);
    peer.expect_fin(&end);
}
