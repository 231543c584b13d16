//! Two sockets joined by the transport in memory: every delay that a device allows, by seed.

mod closing;
mod crossings;
mod mock;
mod options;
mod sinks;
mod world;

use std::time::Duration;

use mock::{Faults, Octets};
use rddp_sdp::machine::Urgent;
use rddp_sdp::socket::{Config, Error, OperationId, Options, Socket};
use world::{DATA, Pair, SEND_SM, SINK_AVAIL, SRC_AVAIL, SRC_AVAIL_CANCEL, pattern, small, with_thresholds};

#[test]
fn octets_go_through_private_buffers_in_order() {
    for seed in 0..200 {
        let mut pair = Pair::new(seed, with_thresholds(None, None));
        let octets = pattern(20_000, seed);
        let id = pair.send(0, &octets);
        let mut got = Vec::new();
        while got.len() < octets.len() {
            let (id, memory) =
                pair.receive(1, 1 + (seed as usize * 37 + got.len()) % 3000, Options::default());
            pair.run();
            let ended = pair.outcome(1, id).expect("octets are on their way");
            assert_eq!(ended.error, None);
            got.extend_from_slice(&memory.octets.borrow()[..ended.octets]);
        }
        assert_eq!(got, octets, "seed {seed}");
        assert_eq!(pair.outcome(0, id).unwrap().octets, octets.len());
        assert!(!pair.mids(0).contains(&SRC_AVAIL));
    }
}

/// Z1, threshold: shorter sends go as Data, others are advertised.
#[test]
fn a_send_is_advertised_from_the_threshold_on() {
    for (len, advertised) in [(999, false), (1000, true)] {
        let mut pair = Pair::new(1, with_thresholds(Some(1000), Some(0)));
        let octets = pattern(len, 5);
        let id = pair.send(0, &octets);
        let wait_all = Options { wait_all: true, ..Options::default() };
        let (_, memory) = pair.receive(1, len, wait_all);
        pair.run();
        assert_eq!(pair.outcome(0, id).unwrap().octets, len);
        assert_eq!(*memory.octets.borrow(), octets);
        assert_eq!(pair.mids(0).contains(&SRC_AVAIL), advertised);
    }
}

#[test]
fn non_blocking_sends_are_never_advertised() {
    let mut pair = Pair::new(1, with_thresholds(Some(0), Some(0)));
    let options = Options { non_blocking: true, ..Options::default() };
    let id = pair.send_with(0, &pattern(100_000, 1), options);
    let ended = pair.outcome(0, id).expect("it ends at once");
    assert!(ended.octets > 0 && ended.octets < 100_000);
    assert!(!pair.mids(0).contains(&SRC_AVAIL));
    let id = pair.send_with(0, b"more", options);
    assert_eq!(pair.outcome(0, id).unwrap().error, Some(Error::WouldBlock));
}

/// Both directions at once, random sizes of sends and receives, every policy; memory that was
/// returned is never touched (the mock sees to that).
#[test]
fn both_directions_keep_their_octets_with_every_policy() {
    for seed in 0..300_u64 {
        let thresholds = [None, Some(0), Some(700), Some(3000)];
        let config = Config {
            source_threshold: thresholds[seed as usize % 4],
            sink_threshold: thresholds[seed as usize / 4 % 4],
            sink_adverts: seed & 16 != 0,
            pipelined: seed & 32 != 0,
            ..small()
        };
        let mut pair = Pair::new(seed, config);
        let streams = [pattern(30_000, seed), pattern(25_000, seed + 1)];
        let (mut sent, mut got) = ([0, 0], [Vec::new(), Vec::new()]);
        let mut receiving: [Option<(OperationId, Octets)>; 2] = [None, None];
        let mut rounds = 0;
        while (0..2).any(|n| got[1 - n].len() < streams[n].len()) {
            rounds += 1;
            assert!(rounds < 100_000, "seed {seed}: stuck at {:?}", [got[0].len(), got[1].len()]);
            for end in 0..2 {
                let random = pair.wire.borrow_mut().random() as usize;
                let is_sending =
                    pair.lent.iter().filter(|(of, id, _)| *of == end && is_send(&pair, end, *id)).count();
                if sent[end] < streams[end].len() && is_sending < 1 + (seed as usize & 3) {
                    let to = streams[end].len().min(sent[end] + 1 + random % 9000);
                    pair.send(end, &streams[end][sent[end]..to]);
                    sent[end] = to;
                }
                if receiving[end].is_none() && got[end].len() < streams[1 - end].len() {
                    receiving[end] = Some(pair.receive(end, 1 + (random >> 16) % 9000, Options::default()));
                }
                pair.ends[end].progress(pair.now);
            }
            pair.collect();
            for _ in 0..rounds % 7 {
                pair.wire.borrow_mut().step();
            }
            pair.now += Duration::from_millis(1);
            for end in 0..2 {
                let Some((id, memory)) = &receiving[end] else { continue };
                let Some(ended) = pair.outcome(end, *id) else { continue };
                assert_eq!(ended.error, None, "seed {seed}");
                got[end].extend_from_slice(&memory.octets.borrow()[..ended.octets]);
                receiving[end] = None;
            }
        }
        assert_eq!(got[1], streams[0], "seed {seed}");
        assert_eq!(got[0], streams[1], "seed {seed}");
    }
}

fn is_send(pair: &Pair, end: usize, id: OperationId) -> bool {
    // Receives are at most one at a time, so every other operation under way is a send.
    pair.lent.iter().any(|(of, other, memory)| {
        (*of, *other) == (end, id) && memory.octets.borrow().iter().any(|o| *o != 0)
    })
}

#[test]
fn several_adverts_are_out_at_a_time_in_pipelined() {
    let config = Config { pipelined: true, ..with_thresholds(Some(0), Some(0)) };
    let mut pair = Pair::new(3, config);
    let octets: Vec<Vec<u8>> = (0..4).map(|n| pattern(2000, n)).collect();
    let ids: Vec<_> = octets.iter().map(|octets| pair.send(0, octets)).collect();
    for (n, octets) in octets.iter().enumerate() {
        let (_, memory) = pair.receive(1, 2000, Options { wait_all: true, ..Options::default() });
        pair.run();
        assert_eq!(*memory.octets.borrow(), *octets);
        // The first was advertised in Combined; behind it all others are at once.
        let adverts = pair.mids(0).iter().filter(|mid| **mid == SRC_AVAIL).count();
        assert_eq!(adverts, 4);
        assert_eq!(ids.iter().filter(|id| pair.outcome(0, **id).is_some()).count(), n + 1);
    }
    assert!(ids.iter().all(|id| pair.outcome(0, *id).is_some_and(|ended| ended.octets == 2000)));
}

#[test]
fn the_peer_writes_into_a_receive_that_waits() {
    let config = Config { pipelined: true, sink_adverts: true, ..with_thresholds(Some(0), Some(0)) };
    let mut pair = Pair::new(4, config);
    // Several sends at once take the half to Pipelined, where a sink may advertise.
    for _ in 0..3 {
        pair.send(0, &pattern(1500, 9));
    }
    let (_, first) = pair.receive(1, 4500, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert_eq!(first.octets.borrow()[3000..], pattern(1500, 9));
    let (id, memory) = pair.receive(1, 4000, Options::default());
    pair.run();
    assert!(pair.mids(1).contains(&SINK_AVAIL));
    pair.send(0, &pattern(10, 8));
    pair.run();
    assert_eq!(pair.outcome(1, id).expect("a short Write ends it").octets, 10);
    assert_eq!(memory.octets.borrow()[..10], pattern(10, 8));
    let count = pair.mids(0).iter().filter(|mid| **mid == DATA).count();
    let (_, memory) = pair.receive(1, 4000, Options { wait_all: true, ..Options::default() });
    pair.run();
    pair.send(0, &pattern(4000, 7));
    pair.run();
    assert_eq!(*memory.octets.borrow(), pattern(4000, 7));
    let after = pair.mids(0).iter().filter(|mid| **mid == DATA).count();
    assert!(after <= count + 1, "the octets went as Writes, not as Data");
}

/// Only the first of several receives has an advert out when it waits for all of its octets.
#[test]
fn receives_that_wait_for_all_are_filled_in_order() {
    for seed in 0..50 {
        let config = Config { pipelined: true, sink_adverts: true, ..with_thresholds(Some(0), Some(0)) };
        let mut pair = Pair::new(seed, config);
        let wait_all = Options { wait_all: true, ..Options::default() };
        for _ in 0..3 {
            pair.send(0, &pattern(1500, 9));
        }
        pair.receive(1, 4500, wait_all);
        pair.run();
        // More than an advert has.
        let receives: Vec<_> = (0..3).map(|_| pair.receive(1, 9000, wait_all)).collect();
        pair.run();
        let octets = pattern(27_000, seed);
        for part in octets.chunks(5000) {
            pair.send(0, part);
        }
        pair.run();
        for (n, (id, memory)) in receives.iter().enumerate() {
            assert_eq!(pair.outcome(1, *id).map(|ended| ended.octets), Some(9000), "seed {seed}");
            assert!(memory.octets.borrow()[..] == octets[n * 9000..(n + 1) * 9000], "seed {seed}");
        }
    }
}

#[test]
fn a_send_that_is_taken_back_ends_only_when_the_peer_has_answered() {
    let mut pair = Pair::new(5, with_thresholds(Some(0), Some(0)));
    let id = pair.send(0, &pattern(5000, 1));
    pair.run();
    assert_eq!(pair.outcome(0, id), None, "nobody reads");
    pair.ends[0].cancel(id);
    pair.collect();
    assert_eq!(pair.outcome(0, id), None, "the peer may still read");
    pair.run();
    let ended = pair.outcome(0, id).expect("the peer has answered");
    // What went with the advert was sent.
    assert_eq!((ended.octets, ended.error), (1, Some(Error::Cancelled)));
    let rest = pair.send(0, b"next");
    let (_, memory) = pair.receive(1, 5, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert!(pair.outcome(0, rest).is_some() || !pair.ends[0].is_over());
    assert_eq!(memory.octets.borrow()[1..], *b"next");
}

#[test]
fn a_cancel_without_an_answer_ends_the_connection() {
    let mut pair = Pair::new(6, with_thresholds(Some(0), Some(0)));
    let id = pair.send(0, &pattern(5000, 1));
    pair.run();
    pair.ends[0].cancel(id);
    // The peer is stopped: nothing of it moves but time.
    pair.ends[0].progress(Duration::from_secs(59));
    pair.collect();
    assert_eq!(pair.outcome(0, id), None);
    pair.ends[0].progress(Duration::from_secs(61));
    pair.collect();
    assert_eq!(pair.outcome(0, id).unwrap().error, Some(Error::TimedOut));
    assert!(pair.ends[0].is_over());
}

/// Both ends send and nobody receives: the sends end as long as private buffers have room.
#[test]
fn two_senders_without_a_receiver_get_on() {
    for seed in 0..100 {
        for len in [700, 1000, 3000, 6000] {
            let mut pair = Pair::new(seed, with_thresholds(Some(0), Some(0)));
            let ids = [pair.send(0, &pattern(len, 1)), pair.send(1, &pattern(len, 2))];
            let wait_all = Options { wait_all: true, ..Options::default() };
            let mut memories = Vec::new();
            let mut is_receiving = [false; 2];
            for _ in 0..20 {
                pair.run_for(Duration::from_secs(1));
                for end in 0..2 {
                    if pair.outcome(end, ids[end]).is_some() && !is_receiving[end] {
                        is_receiving[end] = true;
                        memories.push((end, pair.receive(end, len, wait_all)));
                    }
                }
            }
            assert_eq!(memories.len(), 2, "seed {seed}, {len} octets: a send did not end");
            for (end, (id, memory)) in &memories {
                assert_eq!(
                    pair.outcome(*end, *id).map(|ended| ended.octets),
                    Some(len),
                    "seed {seed}, {len}"
                );
                assert_eq!(*memory.octets.borrow(), pattern(len, if *end == 0 { 2 } else { 1 }));
            }
        }
    }
}

#[test]
fn short_sends_of_both_ends_go_on_though_nobody_receives() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, small());
        let ids = [0, 1].map(|end| Vec::from_iter((0..1000).map(|_| pair.send(end, b"ten octets"))));
        pair.run_for(Duration::from_secs(1));
        for (end, id) in ids.iter().enumerate().flat_map(|(end, ids)| ids.iter().map(move |id| (end, *id))) {
            assert_eq!(pair.outcome(end, id).map(|ended| ended.octets), Some(10), "seed {seed}");
        }
        for end in 0..2 {
            let (_, memory) = pair.receive(end, 10_000, Options { wait_all: true, ..Options::default() });
            pair.run();
            assert!(*memory.octets.borrow() == b"ten octets".repeat(1000));
        }
    }
}

#[test]
fn the_end_that_connected_takes_its_advert_back_first() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed, with_thresholds(Some(0), Some(0)));
        let ids = [pair.send(0, &pattern(3000, 1)), pair.send(1, &pattern(3000, 2))];
        pair.run();
        assert!(pair.mids(0).contains(&SRC_AVAIL_CANCEL), "seed {seed}");
        assert!(!pair.mids(1).contains(&SRC_AVAIL_CANCEL), "seed {seed}");
        assert!(pair.outcome(0, ids[0]).is_some(), "seed {seed}: its octets fit the peer's buffers");
        let late = pair.outcome(1, ids[1]);
        assert!(late.is_none_or(|ended| ended.octets == 3000), "seed {seed}");
    }
}

/// The mock panics where a registration ends under a Read of a connection that lives.
#[test]
fn an_abort_under_a_read_ends_the_connection_before_the_registration() {
    for steps in 0..40 {
        for seed in 0..10 {
            let mut pair = Pair::new(seed, with_thresholds(Some(0), Some(0)));
            let sent = pair.send(0, &pattern(5000, 1));
            let (received, _) = pair.receive(1, 5000, Options { wait_all: true, ..Options::default() });
            for _ in 0..steps {
                pair.wire.borrow_mut().step();
                pair.ends[0].progress(pair.now);
                pair.ends[1].progress(pair.now);
            }
            pair.ends[1].abort();
            pair.run();
            assert!(pair.outcome(0, sent).is_some() && pair.outcome(1, received).is_some());
        }
    }
}

#[test]
fn more_than_all_buffers_blocks_as_over_tcp() {
    let mut pair = Pair::new(1, Config { read_ahead: 4096, ..with_thresholds(Some(0), Some(0)) });
    let ids = [pair.send(0, &pattern(1 << 20, 1)), pair.send(1, &pattern(1 << 20, 2))];
    pair.run_for(Duration::from_secs(30));
    assert!(ids.iter().enumerate().all(|(end, id)| pair.outcome(end, *id).is_none()));
    assert!(pair.ends.iter().all(|end| !end.is_over()));
}

#[test]
fn peeking_leaves_the_octets_and_reads_adverts_into_private_memory() {
    let mut pair = Pair::new(7, with_thresholds(Some(0), Some(0)));
    pair.send(0, &pattern(3000, 3));
    for _ in 0..2 {
        let (id, memory) = pair.receive(1, 100, Options { peek: true, ..Options::default() });
        pair.run();
        let count = pair.outcome(1, id).unwrap().octets;
        assert!(count > 0);
        assert_eq!(memory.octets.borrow()[..count], pattern(3000, 3)[..count]);
    }
    let (_, memory) = pair.receive(1, 3000, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert_eq!(*memory.octets.borrow(), pattern(3000, 3));
}

#[test]
fn a_non_blocking_receive_begins_a_read_and_finds_its_octets_later() {
    let mut pair = Pair::new(8, with_thresholds(Some(0), Some(0)));
    pair.send(0, &pattern(3000, 3));
    pair.run();
    let options = Options { non_blocking: true, ..Options::default() };
    let mut got = Vec::new();
    for _ in 0..20 {
        let (id, memory) = pair.receive(1, 1000, options);
        let ended = pair.outcome(1, id).expect("it ends at once");
        got.extend_from_slice(&memory.octets.borrow()[..ended.octets]);
        pair.run();
    }
    assert_eq!(got, pattern(3000, 3));
}

#[test]
fn without_registrations_everything_is_copied() {
    let mut pair = Pair::new(9, with_thresholds(Some(0), Some(0)));
    pair.wire.borrow_mut().order(0, Faults { no_registration: true, ..Faults::default() });
    let id = pair.send(0, &pattern(4000, 3));
    let (_, memory) = pair.receive(1, 4000, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert_eq!(pair.outcome(0, id).unwrap().octets, 4000);
    assert_eq!(*memory.octets.borrow(), pattern(4000, 3));
    assert!(!pair.mids(0).contains(&SRC_AVAIL));
}

#[test]
fn a_sink_without_registrations_refuses_and_the_octets_come_as_data() {
    let mut pair = Pair::new(9, with_thresholds(Some(0), Some(0)));
    pair.wire.borrow_mut().order(1, Faults { no_registration: true, ..Faults::default() });
    let id = pair.send(0, &pattern(4000, 3));
    let (_, memory) = pair.receive(1, 4000, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert_eq!(pair.outcome(0, id).unwrap().octets, 4000);
    assert_eq!(*memory.octets.borrow(), pattern(4000, 3));
    assert!(pair.mids(0).contains(&SRC_AVAIL) && pair.mids(1).contains(&SEND_SM));
}

#[test]
fn a_receive_that_is_taken_back_waits_for_the_end_of_its_advert() {
    for seed in 0..100 {
        let config = Config { pipelined: true, sink_adverts: true, ..with_thresholds(Some(0), Some(0)) };
        let mut pair = Pair::new(seed, config);
        for _ in 0..3 {
            pair.send(0, &pattern(1500, 9));
        }
        pair.receive(1, 4500, Options { wait_all: true, ..Options::default() });
        pair.run();
        let (id, memory) = pair.receive(1, 4000, Options::default());
        for _ in 0..seed % 5 {
            pair.wire.borrow_mut().step();
            pair.ends[0].progress(pair.now);
        }
        // Octets may be on their way into the memory, or not.
        let racing = seed % 2 == 0;
        if racing {
            pair.send(0, &pattern(2000, 5));
        }
        pair.ends[1].cancel(id);
        pair.collect();
        assert_eq!(pair.outcome(1, id), None, "the peer may still write");
        pair.run();
        let ended = pair.outcome(1, id).expect("the peer has answered");
        let mut got = memory.octets.borrow()[..ended.octets].to_vec();
        if racing {
            let (_, rest) =
                pair.receive(1, 2000 - got.len(), Options { wait_all: true, ..Options::default() });
            pair.run();
            got.extend_from_slice(&rest.octets.borrow());
            assert_eq!(got, pattern(2000, 5), "seed {seed}");
        } else {
            assert_eq!((ended.octets, ended.error), (0, Some(Error::Cancelled)));
        }
    }
}

#[test]
fn a_receive_stops_in_front_of_an_urgent_octet() {
    let mut pair = Pair::new(2, with_thresholds(None, None));
    pair.send(0, b"before");
    pair.send_with(0, b"!", Options { urgent: true, ..Options::default() });
    pair.send(0, b"behind");
    pair.ends[1].set_urgent_inline(true);
    pair.run();
    assert_eq!(pair.ends[1].urgent(), Urgent::Mark(6));
    assert_eq!(pair.ends[1].receive_urgent(false), Err(Error::NoUrgent));
    for expected in [&b"before"[..], b"!behind"] {
        let (id, memory) = pair.receive(1, 100, Options::default());
        pair.run();
        assert_eq!(memory.octets.borrow()[..pair.outcome(1, id).unwrap().octets], *expected);
    }
    assert_eq!(pair.ends[1].urgent(), Urgent::None);
}

#[test]
fn a_read_that_fails_ends_the_connection_and_every_operation() {
    let mut pair = Pair::new(10, with_thresholds(Some(0), Some(0)));
    pair.wire.borrow_mut().order(1, Faults { read_fails: true, ..Faults::default() });
    let sent = pair.send(0, &pattern(4000, 3));
    let (received, _) = pair.receive(1, 4000, Options { wait_all: true, ..Options::default() });
    pair.run();
    assert_eq!(pair.outcome(0, sent).unwrap().error, Some(Error::Reset));
    assert_eq!(pair.outcome(1, received).unwrap().error, Some(Error::Reset));
}

/// The connection is cut at each step of exchanges of every kind: every operation ends, and no
/// memory is touched afterwards.
#[test]
fn a_connection_that_is_cut_at_any_step_ends_every_operation() {
    for cut_at in 0..60 {
        for seed in 0..8 {
            let pipelined = seed & 1 != 0;
            let config = Config { pipelined, sink_adverts: pipelined, ..with_thresholds(Some(0), Some(0)) };
            let mut pair = Pair::new(seed, config);
            pair.wire.borrow_mut().cut_at = Some(cut_at);
            for end in 0..2 {
                for n in 0..3 {
                    pair.send(end, &pattern(2500, n));
                    pair.receive(end, 2000, Options::default());
                }
            }
            pair.run_for(Duration::from_secs(3));
            if pair.ends.iter().any(Socket::is_over) {
                assert!(pair.lent.is_empty(), "cut at {cut_at}, seed {seed}: an operation did not end");
            }
        }
    }
}

/// The transport refuses the request that changes the mode, or the advert behind it: the end of the
/// connection is not heard of yet.
#[test]
fn a_request_that_is_refused_ends_the_connection_and_every_send() {
    for pipelined in [false, true] {
        let mut pair = Pair::new(1, Config { pipelined, ..with_thresholds(Some(0), Some(0)) });
        pair.run();
        pair.wire.borrow_mut().cut([None; 2]);
        let ids = [pair.send(0, &pattern(20_000, 1)), pair.send(0, b"more")];
        assert!(ids.iter().all(|id| pair.outcome(0, *id).unwrap().error == Some(Error::Reset)));
    }
}

#[test]
fn the_end_of_the_stream_comes_behind_all_octets() {
    for seed in 0..100 {
        for threshold in [None, Some(0)] {
            let mut pair = Pair::new(seed, with_thresholds(threshold, Some(0)));
            pair.send(0, &pattern(9000, seed));
            pair.ends[0].shutdown_send();
            let mut got = Vec::new();
            loop {
                let (id, memory) = pair.receive(1, 2000, Options::default());
                pair.run();
                let ended = pair.outcome(1, id).expect("octets or the end");
                assert_eq!(ended.error, None);
                if ended.octets == 0 {
                    break;
                }
                got.extend_from_slice(&memory.octets.borrow()[..ended.octets]);
            }
            assert_eq!(got, pattern(9000, seed), "seed {seed}");
            let late = pair.send(0, b"late");
            assert_eq!(pair.outcome(0, late).unwrap().error, Some(Error::Closed));
            // The other half goes on, and then both are closed.
            pair.send(1, b"answer");
            let (_, memory) = pair.receive(0, 6, Options { wait_all: true, ..Options::default() });
            pair.run();
            assert_eq!(*memory.octets.borrow(), *b"answer");
            pair.ends[1].shutdown_send();
            pair.run();
            assert!(pair.ends.iter().all(|end| end.error() == Some(Error::Closed)), "seed {seed}");
        }
    }
}

#[test]
fn closing_with_unread_octets_resets() {
    let mut pair = Pair::new(1, with_thresholds(None, None));
    pair.send(0, b"unread");
    pair.run();
    pair.ends[1].close();
    pair.run();
    assert_eq!(pair.ends[0].error(), Some(Error::Reset));
}
