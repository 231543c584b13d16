//! The cases in which messages of the two ends cross: each by name, with each control message of
//! either end held back in turn, and in many orders.

use std::time::Duration;

use rddp_sdp::socket::{Config, Error, OperationId, Options};
use rddp_sdp::transport::Lost;

use crate::mock::Faults;
use crate::world::{
    DATA, DIS_CONN, MODE_CHANGE, Pair, RDMA_RD_COMPL, RDMA_WR_COMPL, SEND_SM, SINK_AVAIL, SINK_AVAIL_CANCEL,
    SINK_CANCEL_ACK, SRC_AVAIL, SRC_AVAIL_CANCEL, pattern, with_thresholds,
};

const MESSAGES: [u8; 11] = [
    DATA,
    DIS_CONN,
    SEND_SM,
    RDMA_WR_COMPL,
    RDMA_RD_COMPL,
    MODE_CHANGE,
    SRC_AVAIL_CANCEL,
    SINK_AVAIL_CANCEL,
    SINK_CANCEL_ACK,
    SINK_AVAIL,
    SRC_AVAIL,
];

const ALL: Options = Options { non_blocking: false, peek: false, wait_all: true, urgent: false };

fn combined() -> Config {
    with_thresholds(Some(0), Some(0))
}

fn pipelined() -> Config {
    Config { pipelined: true, sink_adverts: true, ..combined() }
}

/// Runs a case in many orders. It returns whether its messages crossed, which at least one must.
fn each(config: Config, case: impl Fn(&mut Pair) -> bool) {
    let mut crossed = 0;
    let held = MESSAGES.iter().flat_map(|mid| [Some((0, *mid)), Some((1, *mid))]);
    for held in held.chain([None]) {
        for seed in 0..8 {
            let mut pair = Pair::new(seed, config);
            if config.pipelined {
                to_pipelined(&mut pair);
            }
            pair.wire.borrow_mut().held = held;
            crossed += usize::from(case(&mut pair));
            assert!(pair.ends.iter().all(|end| end.error().is_none_or(|e| e == Error::Closed)), "{held:?}");
        }
    }
    assert!(crossed > 0, "the messages never crossed");
}

/// Takes both halves to Pipelined, with nothing left under way.
fn to_pipelined(pair: &mut Pair) {
    for end in 0..2 {
        for _ in 0..3 {
            pair.send(end, &pattern(1500, 9));
        }
        pair.receive(1 - end, 4500, ALL);
        pair.run();
    }
    assert!(pair.lent.is_empty());
}

/// Lets some things happen, as many as the seed says.
fn some(pair: &mut Pair, most: u64) {
    let count = pair.wire.borrow_mut().random() % most;
    for _ in 0..count {
        pair.wire.borrow_mut().step();
        for end in 0..2 {
            pair.ends[end].progress(pair.now);
        }
        pair.collect();
    }
}

/// Returns the octets of this send that count as sent.
fn sent(pair: &Pair, end: usize, id: OperationId) -> usize {
    pair.outcome(end, id).expect("the send has ended").octets
}

fn count(pair: &Pair, end: usize, mid: u8) -> usize {
    pair.mids(end).iter().filter(|of| **of == mid).count()
}

/// Receives exactly these octets at an end, and no more are there.
fn receives(pair: &mut Pair, end: usize, expected: &[u8]) {
    if !expected.is_empty() {
        let (id, memory) = pair.receive(end, expected.len(), ALL);
        pair.run_for(Duration::from_secs(5));
        assert_eq!(pair.outcome(end, id).map(|ended| ended.octets), Some(expected.len()));
        assert!(*memory.octets.borrow() == expected);
    }
    let look = Options { non_blocking: true, ..Options::default() };
    let (id, _) = pair.receive(end, 1, look);
    pair.run();
    assert_eq!(pair.outcome(end, id).unwrap().octets, 0, "more octets than were sent");
}

#[test]
fn src_avail_crosses_sink_avail() {
    each(pipelined(), |pair| {
        let before = [count(pair, 0, SRC_AVAIL), count(pair, 1, SINK_AVAIL)];
        let (first, memory) = pair.receive(1, 2500, Options::default());
        let octets = [pattern(2500, 1), pattern(3000, 2)];
        let ids = [0, 1].map(|n| pair.send(0, &octets[n]));
        let crosses = count(pair, 0, SRC_AVAIL) > before[0] && count(pair, 1, SINK_AVAIL) > before[1];
        pair.run_for(Duration::from_millis(10));
        let got = pair.outcome(1, first).expect("octets have come").octets;
        let all = octets.concat();
        assert_eq!(memory.octets.borrow()[..got], all[..got]);
        receives(pair, 1, &all[got..]);
        assert!(ids.iter().zip(&octets).all(|(id, octets)| sent(pair, 0, *id) == octets.len()));
        crosses
    });
}

/// A receiver may find the report of the last octets, the end of the stream and that of the
/// transport all at once.
#[test]
fn octets_that_were_written_before_the_end_count() {
    each(pipelined(), |pair| {
        let (id, memory) = pair.receive(1, 2500, ALL);
        pair.ends[1].shutdown_send();
        pair.run();
        let is_offered = pair.mids(1).ends_with(&[SINK_AVAIL, DIS_CONN]);
        let octets = pattern(2500, 1);
        pair.send(0, &octets);
        pair.ends[0].shutdown_send();
        let end_and_wire_go_on = |pair: &mut Pair| {
            while pair.wire.borrow_mut().step() {
                pair.ends[0].progress(pair.now);
                pair.collect();
            }
        };
        end_and_wire_go_on(pair);
        pair.wire.borrow_mut().cut([None, Some(Lost::Closed)]);
        end_and_wire_go_on(pair);
        pair.run();
        assert_eq!(pair.outcome(1, id).map(|ended| ended.octets), Some(octets.len()));
        assert!(*memory.octets.borrow() == octets);
        is_offered && count(pair, 0, RDMA_WR_COMPL) > 0
    });
}

/// Two receives have their adverts out. The first is written in part, the second whole, and more is
/// advertised, all before the receiver looks: the first ends short, as what comes is behind the
/// second (found by the fuzz target `sdp_pair`).
#[test]
fn a_receive_whose_advert_was_written_in_part_does_not_read_what_is_behind_the_next() {
    each(pipelined(), |pair| {
        let receives = [0, 1].map(|_| pair.receive(1, 2500, Options::default()));
        pair.run();
        let both_are_out = pair.mids(1).ends_with(&[SINK_AVAIL, SINK_AVAIL]);
        let octets = [pattern(1, 1), pattern(2500, 2), pattern(3000, 3)];
        for octets in &octets {
            pair.send(0, octets);
            while pair.wire.borrow_mut().step() {
                pair.ends[0].progress(pair.now);
                pair.collect();
            }
        }
        let crosses = both_are_out && pair.mids(0).ends_with(&[SRC_AVAIL]);
        pair.run_for(Duration::from_secs(3));
        let mut got = Vec::new();
        for (id, memory) in receives {
            let count = pair.outcome(1, id).expect("octets have come").octets;
            got.extend_from_slice(&memory.octets.borrow()[..count]);
        }
        let all = octets.concat();
        assert!(got == all[..got.len()]);
        self::receives(pair, 1, &all[got.len()..]);
        crosses
    });
}

/// The sink wins: own adverts that crossed come back, and are written.
#[test]
fn src_avails_cross_both_ways() {
    each(combined(), |pair| {
        let octets = [pattern(2500, 1), pattern(3000, 2)];
        let ids = [0, 1].map(|end| pair.send(end, &octets[end]));
        for (end, octets) in octets.iter().enumerate() {
            receives(pair, 1 - end, octets);
        }
        pair.run_for(Duration::from_secs(5));
        assert!((0..2).all(|end| sent(pair, end, ids[end]) == octets[end].len()));
        count(pair, 0, SRC_AVAIL) > 0 && count(pair, 1, SRC_AVAIL) > 0
    });
}

#[test]
fn src_avail_cancel_crosses_rdma_rd_compl() {
    each(combined(), |pair| {
        let octets = pattern(5000, 1);
        let id = pair.send(0, &octets);
        let (first, memory) = pair.receive(1, 2000, Options::default());
        some(pair, 12);
        pair.ends[0].cancel(id);
        pair.run_for(Duration::from_millis(10));
        let got = pair.outcome(1, first).map_or(0, |ended| ended.octets);
        assert_eq!(memory.octets.borrow()[..got], octets[..got]);
        // What the send says is what the peer can receive, and not an octet more.
        let len = sent(pair, 0, id);
        assert!(len >= got);
        receives(pair, 1, &octets[got..len]);
        let next = pair.send(0, b"next");
        receives(pair, 1, b"next");
        assert_eq!(sent(pair, 0, next), 4);
        count(pair, 0, SRC_AVAIL_CANCEL) > 0 && count(pair, 1, RDMA_RD_COMPL) > 0
    });
}

#[test]
fn src_avail_cancel_crosses_send_sm() {
    each(combined(), |pair| {
        pair.wire.borrow_mut().order(1, Faults { no_registration: true, ..Faults::default() });
        let octets = pattern(5000, 1);
        let id = pair.send(0, &octets);
        // A sink that cannot register refuses.
        let (first, memory) = pair.receive(1, 4000, Options::default());
        some(pair, 12);
        pair.ends[0].cancel(id);
        let crosses = count(pair, 1, SEND_SM) > 0 && pair.outcome(0, id).is_none();
        pair.run_for(Duration::from_millis(10));
        let got = pair.outcome(1, first).map_or(0, |ended| ended.octets);
        assert_eq!(memory.octets.borrow()[..got], octets[..got]);
        let len = sent(pair, 0, id);
        receives(pair, 1, &octets[got..len]);
        pair.send(0, b"next");
        receives(pair, 1, b"next");
        crosses
    });
}

/// A cancel of sinks that were all written is ended by the reports alone.
#[test]
fn sink_avail_cancel_crosses_rdma_wr_compl() {
    each(pipelined(), |pair| {
        let octets = pattern(4000, 3);
        let (first, memory) = pair.receive(1, 4000, Options::default());
        some(pair, 4);
        let id = pair.send(0, &octets);
        some(pair, 8);
        pair.ends[1].cancel(first);
        pair.collect();
        pair.run_for(Duration::from_millis(10));
        let got = pair.outcome(1, first).expect("the peer has answered").octets;
        assert_eq!(memory.octets.borrow()[..got], octets[..got]);
        receives(pair, 1, &octets[got..]);
        assert_eq!(sent(pair, 0, id), 4000);
        count(pair, 1, SINK_AVAIL_CANCEL) > 0 && count(pair, 0, RDMA_WR_COMPL) > 0
    });
}

/// A sink is withdrawn while Data is on its way that discards it.
#[test]
fn sink_avail_cancel_crosses_data() {
    each(pipelined(), |pair| {
        let (first, memory) = pair.receive(1, 4000, Options::default());
        some(pair, 4);
        pair.send_with(0, b"!", Options { urgent: true, ..Options::default() });
        pair.ends[1].set_urgent_inline(true);
        pair.ends[1].cancel(first);
        pair.collect();
        pair.run_for(Duration::from_millis(10));
        let got = pair.outcome(1, first).expect("the peer has answered").octets;
        assert_eq!(memory.octets.borrow()[..got], b"!"[..got]);
        receives(pair, 1, &b"!"[got..]);
        // The counts of what discards have not parted.
        let (next, _) = pair.receive(1, 3000, ALL);
        pair.run();
        pair.send(0, &pattern(3000, 4));
        pair.run_for(Duration::from_millis(10));
        assert_eq!(pair.outcome(1, next).unwrap().octets, 3000);
        count(pair, 1, SINK_AVAIL_CANCEL) > 0
    });
}

#[test]
fn rdma_rd_compl_crosses_mode_change() {
    // The sink would like no adverts of its own, so that the source changes back when it is idle.
    let config = Config { pipelined: true, returns_to_combined: true, ..combined() };
    for seed in 0..50 {
        for held in [None, Some((1, RDMA_RD_COMPL)), Some((0, MODE_CHANGE))] {
            let mut pair = Pair::new(seed, config);
            pair.wire.borrow_mut().held = held;
            for round in 0..3 {
                let octets: Vec<Vec<u8>> = (0..3).map(|n| pattern(2000, n + round)).collect();
                for octets in &octets {
                    pair.send(0, octets);
                }
                some(&mut pair, 10);
                receives(&mut pair, 1, &octets.concat());
            }
            // There, and back, each round.
            assert!(count(&pair, 0, MODE_CHANGE) >= 6, "{:?}", pair.mids(0));
            assert!(pair.ends.iter().all(|end| !end.is_over()));
        }
    }
}

#[test]
fn mode_changes_of_both_halves_cross() {
    let config = Config { pipelined: true, ..combined() };
    for seed in 0..50 {
        let mut pair = Pair::new(seed, config);
        let octets = pattern(2000, 1);
        for end in 0..2 {
            for _ in 0..3 {
                pair.send(end, &octets);
            }
        }
        for end in 0..2 {
            receives(&mut pair, end, &octets.repeat(3));
        }
        assert!((0..2).all(|end| count(&pair, end, MODE_CHANGE) == 1));
    }
}

#[test]
fn dis_conns_cross() {
    each(combined(), |pair| {
        let octets = [pattern(2500, 1), pattern(900, 2)];
        for (end, octets) in octets.iter().enumerate() {
            pair.send(end, octets);
            pair.ends[end].shutdown_send();
        }
        for (end, octets) in octets.into_iter().enumerate() {
            assert_eq!(pair.receive_to_end(1 - end), (octets, None));
        }
        pair.run_for(Duration::from_secs(5));
        assert!(pair.ends.iter().all(|end| end.error() == Some(Error::Closed)));
        count(pair, 0, DIS_CONN) == 1 && count(pair, 1, DIS_CONN) == 1
    });
}

/// A receive that waits with an advert out ends with the stream, and its memory is its own again.
#[test]
fn dis_conn_crosses_sink_avail() {
    each(pipelined(), |pair| {
        pair.ends[0].shutdown_send();
        let (first, _) = pair.receive(1, 4000, Options::default());
        let crosses = count(pair, 1, SINK_AVAIL) > 0;
        pair.run_for(Duration::from_millis(10));
        let ended = pair.outcome(1, first).expect("the stream is over");
        assert_eq!((ended.octets, ended.error), (0, None));
        pair.send(1, b"still");
        receives(pair, 0, b"still");
        crosses
    });
}

/// The last octets, the end, and a cancel of the send that they belong to.
#[test]
fn dis_conn_goes_behind_a_cancel() {
    each(combined(), |pair| {
        let octets = pattern(5000, 1);
        let id = pair.send(0, &octets);
        pair.ends[0].shutdown_send();
        some(pair, 6);
        pair.ends[0].cancel(id);
        let (got, error) = pair.receive_to_end(1);
        assert_eq!(error, None);
        assert_eq!(got, octets[..sent(pair, 0, id)]);
        count(pair, 0, SRC_AVAIL_CANCEL) > 0
    });
}

/// Data that crosses `SinkAvail`s takes the place of several, and what comes next is written to one
/// behind them: each receive has octets in front of those of the next.
#[test]
fn data_crosses_several_of_more_sink_avails() {
    each(pipelined(), |pair| {
        let memories: Vec<_> = (0..5).map(|_| pair.receive(1, 3022, Options::default())).collect();
        let short = Options { non_blocking: true, ..Options::default() };
        let mut sent = Vec::new();
        for salt in 0..3 {
            sent.push((pair.send_with(0, &pattern(10, salt), short), salt, 10));
        }
        // All of it comes before the receiver looks.
        let steps = pair.wire.borrow_mut().random() % 12;
        for _ in 0..steps {
            pair.wire.borrow_mut().step();
        }
        sent.push((pair.send(0, &pattern(9000, 3)), 3, 9000));
        pair.run();
        pair.ends[0].shutdown_send();
        let (rest, _) = pair.receive_to_end(1);
        pair.run();
        let octets = sent.iter().flat_map(|&(id, salt, len)| {
            let taken = pair.outcome(0, id).map_or(0, |ended| ended.octets);
            pattern(len, salt)[..taken].to_vec()
        });
        let octets: Vec<u8> = octets.collect();
        let mut got = Vec::new();
        for (id, memory) in &memories {
            let filled = pair.outcome(1, *id).map_or(0, |ended| ended.octets);
            got.extend_from_slice(&memory.octets.borrow()[..filled]);
        }
        got.extend(rest);
        assert_eq!(got.len(), octets.len());
        assert!(got == octets, "octets are not in their order");
        let mids = pair.mids(0);
        mids.contains(&DATA) && mids.contains(&RDMA_WR_COMPL)
    });
}

/// Data takes the place of the first `SinkAvail`, others are written, and the rest is a `SrcAvail`:
/// it is not Read into the first receive, in front of what the second has. The first one has its
/// Data even if it is cancelled.
#[test]
fn data_and_a_write_are_in_front_of_a_source_avail() {
    each(pipelined(), |pair| {
        let cancels = pair.wire.borrow_mut().random() % 2 == 0;
        let memories: Vec<_> = (0..3).map(|_| pair.receive(1, 3022, Options::default())).collect();
        pair.send_with(0, &pattern(10, 1), Options { non_blocking: true, ..Options::default() });
        let steps = pair.wire.borrow_mut().random() % 12;
        for _ in 0..steps {
            pair.wire.borrow_mut().step();
        }
        pair.send(0, &pattern(9000, 2));
        // All of it comes before the receiver looks.
        for _ in 0..60 {
            pair.wire.borrow_mut().step();
            pair.ends[0].progress(pair.now);
        }
        if cancels {
            pair.ends[1].cancel(memories[0].0);
            pair.collect();
        }
        pair.run();
        pair.ends[0].shutdown_send();
        let (rest, _) = pair.receive_to_end(1);
        let mut got = Vec::new();
        for (id, memory) in &memories {
            let filled = pair.outcome(1, *id).map_or(0, |ended| ended.octets);
            got.extend_from_slice(&memory.octets.borrow()[..filled]);
        }
        got.extend(rest);
        assert!(got == [pattern(10, 1), pattern(9000, 2)].concat(), "octets are not in their order");
        let mids = pair.mids(0);
        mids.contains(&RDMA_WR_COMPL) && mids.contains(&SRC_AVAIL)
    });
}
