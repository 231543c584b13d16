//! Settings of sockets: modes, sizes of buffers, the low-water mark, the urgent octet.

use std::time::Duration;

use rddp_sdp::machine::Urgent;
use rddp_sdp::socket::{Config, Error, Options};

use crate::world::{
    CH_RCV_BUF_ACK, DATA, MODE_CHANGE, Pair, RDMA_RD_COMPL, SRC_AVAIL, pattern, small, with_thresholds,
};

const ALL: Options = Options { non_blocking: false, peek: false, wait_all: true, urgent: false };

fn transfer(pair: &mut Pair, len: usize) {
    let id = pair.send(0, &pattern(len, 3));
    let (_, memory) = pair.receive(1, len, ALL);
    pair.run();
    assert_eq!(pair.outcome(0, id).unwrap().octets, len);
    assert!(*memory.octets.borrow() == pattern(len, 3));
}

#[test]
fn a_half_without_adverts_is_buffered_until_the_peer_wants_them() {
    for wanted in [None, Some(0)] {
        let source = Config { buffered: true, ..with_thresholds(None, None) };
        let mut pair = Pair::with(2, [source, with_thresholds(None, wanted)]);
        pair.run();
        assert_eq!(pair.mids(0).iter().filter(|mid| **mid == MODE_CHANGE).count(), 1);
        transfer(&mut pair, 5000);
        assert_eq!(pair.mids(1).contains(&MODE_CHANGE), wanted.is_some());
        pair.ends[0].set_source_threshold(Some(0));
        transfer(&mut pair, 5000);
        // In Buffered mode there is no advert, whatever the threshold.
        assert_eq!(pair.mids(0).contains(&SRC_AVAIL), wanted.is_some());
        assert_eq!(pair.mids(0).iter().filter(|mid| **mid == MODE_CHANGE).count(), 1);
    }
}

#[test]
fn an_idle_half_returns_to_combined() {
    let config = Config { pipelined: true, returns_to_combined: true, ..with_thresholds(Some(0), Some(0)) };
    let mut pair = Pair::new(1, config);
    for round in 1..4 {
        for n in 0..3 {
            pair.send(0, &pattern(2000, n));
        }
        pair.receive(1, 6000, ALL);
        pair.run();
        assert_eq!(pair.mids(0).iter().filter(|mid| **mid == MODE_CHANGE).count(), 2 * round);
    }
}

#[test]
fn buffers_grow_for_a_peer_that_asks() {
    let source = Config { send_size: 3000, ..with_thresholds(None, None) };
    let sink = Config { largest_buffer: 2500, ..with_thresholds(None, None) };
    for seed in 0..50 {
        let mut pair = Pair::with(seed, [source, sink]);
        transfer(&mut pair, 20_000);
        assert!(pair.mids(1).contains(&CH_RCV_BUF_ACK));
        let before = pair.mids(0).iter().filter(|mid| **mid == DATA).count();
        transfer(&mut pair, 2484 * 10);
        let messages = pair.mids(0).iter().filter(|mid| **mid == DATA).count() - before;
        assert!((10..15).contains(&messages), "{messages} messages of 2484 octets");
    }
    // Buffers that do not grow: the size in force is the answer.
    for largest_buffer in [0, sink.buffer_size] {
        let mut pair = Pair::with(1, [source, Config { largest_buffer, ..sink }]);
        transfer(&mut pair, 20_000);
        assert!(pair.mids(1).contains(&CH_RCV_BUF_ACK), "{largest_buffer}");
    }
}

#[test]
fn a_receive_waits_for_the_low_water_mark() {
    for threshold in [None, Some(0)] {
        let config = Config { pipelined: true, sink_adverts: true, ..with_thresholds(threshold, Some(0)) };
        let mut pair = Pair::new(3, config);
        for _ in 0..3 {
            pair.send(0, &pattern(1500, 9));
        }
        pair.receive(1, 4500, ALL);
        pair.run();
        pair.ends[1].set_low_water(100);
        let (id, memory) = pair.receive(1, 200, Options::default());
        pair.send(0, &pattern(60, 1));
        pair.run();
        assert_eq!(pair.outcome(1, id), None);
        pair.send(0, &pattern(60, 2));
        pair.run();
        assert_eq!(pair.outcome(1, id).unwrap().octets, 120);
        assert_eq!(memory.octets.borrow()[..120], [pattern(60, 1), pattern(60, 2)].concat());
        // Less room than the mark is enough.
        let (id, _) = pair.receive(1, 50, Options::default());
        pair.send(0, &pattern(50, 1));
        pair.run();
        assert_eq!(pair.outcome(1, id).unwrap().octets, 50);
        // The end of the stream is an end.
        let (id, _) = pair.receive(1, 200, Options::default());
        pair.send(0, b"rest");
        pair.ends[0].shutdown_send();
        pair.run();
        assert_eq!(pair.outcome(1, id).unwrap().octets, 4);
    }
}

/// The octet is apart from the stream, and is received once, as over TCP.
#[test]
fn the_urgent_octet_is_received_apart_from_the_stream() {
    let mut pair = Pair::new(2, with_thresholds(None, None));
    assert_eq!(pair.ends[1].receive_urgent(false), Err(Error::NoUrgent));
    pair.send(0, b"before");
    pair.send_with(0, b"ab!", Options { urgent: true, ..Options::default() });
    pair.send(0, b"behind");
    pair.run();
    assert_eq!(pair.ends[1].urgent(), Urgent::Mark(8));
    assert_eq!(pair.ends[1].receive_urgent(true), Ok(b'!'));
    assert_eq!(pair.ends[1].receive_urgent(false), Ok(b'!'));
    assert_eq!(pair.ends[1].receive_urgent(false), Err(Error::NoUrgent));
    for expected in [&b"beforeab"[..], b"behind"] {
        let peek = Options { peek: true, ..Options::default() };
        for options in [peek, Options::default()] {
            let (id, memory) = pair.receive(1, 100, options);
            pair.run();
            assert_eq!(memory.octets.borrow()[..pair.outcome(1, id).unwrap().octets], *expected);
        }
    }
    assert_eq!(pair.ends[1].urgent(), Urgent::None);
}

/// An urgent octet alone is nothing that a receive would return.
#[test]
fn an_urgent_octet_alone_is_not_readable() {
    let mut pair = Pair::new(2, with_thresholds(None, None));
    pair.send_with(0, b"!", Options { urgent: true, ..Options::default() });
    pair.run();
    assert!(!pair.ends[1].is_readable());
    let (id, _) = pair.receive(1, 10, Options { non_blocking: true, ..Options::default() });
    assert_eq!(pair.outcome(1, id).unwrap().error, Some(Error::WouldBlock));
}

#[test]
fn an_urgent_octet_that_has_not_come_is_waited_for() {
    let mut pair = Pair::new(2, with_thresholds(None, None));
    pair.send(0, &pattern(20_000, 1));
    pair.send_with(0, b"!", Options { urgent: true, ..Options::default() });
    let (_, first) = pair.receive(1, 3000, ALL);
    pair.run();
    assert_eq!(pair.ends[1].urgent(), Urgent::Announced);
    assert_eq!(pair.ends[1].receive_urgent(false), Err(Error::WouldBlock));
    assert_eq!(first.octets.borrow()[..], pattern(20_000, 1)[..3000]);
    let (_, rest) = pair.receive(1, 17_000, ALL);
    pair.run();
    assert_eq!(pair.ends[1].receive_urgent(false), Ok(b'!'));
    assert_eq!(rest.octets.borrow()[..], pattern(20_000, 1)[3000..]);
}

/// An advert for which no receive comes is Read into private memory after a while, so that its send
/// ends though the program computes.
#[test]
fn an_advert_is_read_ahead_after_a_while() {
    let mut pair = Pair::new(1, with_thresholds(Some(0), Some(0)));
    let id = pair.send(0, &pattern(5000, 1));
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.outcome(0, id), None);
    assert!(!pair.mids(1).contains(&RDMA_RD_COMPL));
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.outcome(0, id).unwrap().octets, 5000);
    let (_, memory) = pair.receive(1, 5000, ALL);
    pair.run();
    assert_eq!(*memory.octets.borrow(), pattern(5000, 1));
}

/// Two ends with full buffers do not answer each other's updates without end.
#[test]
fn updates_of_two_full_ends_are_paced() {
    // With three buffers each, an end that waits for credits asks for them by an update.
    let mut pair = Pair::new(5, Config { read_ahead: 0, buffers: 3, ..with_thresholds(None, None) });
    let ids = [pair.send(0, &pattern(20_000, 1)), pair.send(1, &pattern(20_000, 2))];
    pair.run();
    for end in 0..2 {
        pair.receive(end, 3000, ALL);
    }
    let before = pair.mids(0).len() + pair.mids(1).len();
    pair.run();
    let at_once = pair.mids(0).len() + pair.mids(1).len() - before;
    pair.run_for(Duration::from_secs(10));
    let in_all = pair.mids(0).len() + pair.mids(1).len() - before;
    assert!(in_all > at_once, "nothing was held back");
    assert!(in_all - at_once <= 2 * 41, "{} messages in 10 s", in_all - at_once);
    for end in 0..2 {
        pair.receive(1 - end, 20_000, ALL);
    }
    pair.run_for(Duration::from_secs(1));
    assert!((0..2).all(|end| pair.outcome(end, ids[end]).is_some()));
    assert_eq!(small().buffers, 8);
}
