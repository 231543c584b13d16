//! Two streams over MPA, joined by an octet stream that is cut and merged by seed: markers
//! and CRC on and off in each direction, all operations mixed, within ORD and IRD, compared
//! with a model of the outcome.
#![allow(clippy::unwrap_used, reason = "a test")]

mod end;
mod plan;
#[path = "../support/mod.rs"]
mod support;

use end::End;
use plan::Plan;
use rddp_mpa::Framing;
use rddp_rdmap::{StreamConfig, TerminateCode, TerminateRepr};
use rddp_test_support::Random;

/// Parameters that both directions of a connection agreed on.
struct Agreement {
    framing: [Framing; 2],
    depth: [u32; 2],
    extensions: bool,
}

impl Agreement {
    /// Returns the agreement of a seed: every combination of markers and CRC occurs, the rest by
    /// chance.
    fn of(seed: u64, random: &mut Random) -> Self {
        let bit = |at: u64| seed >> at & 1 == 1;
        Self {
            framing: [Framing { crc: bit(0), markers: bit(1) }, Framing { crc: bit(2), markers: bit(3) }],
            depth: [random.below(4) as u32 + 1, random.below(4) as u32 + 1],
            extensions: random.below(4) > 0,
        }
    }

    /// Returns an end's configuration: depth 0 limits the Reads of the first end,
    /// depth 1 those of the second.
    fn config(&self, end: usize) -> StreamConfig {
        StreamConfig { ord: self.depth[end], ird: self.depth[1 - end], extensions: self.extensions }
    }
}

/// The two ends, and the octets on their way to each.
struct Pair {
    ends: [End; 2],
    wires: [Vec<u8>; 2],
    random: Random,
}

impl Pair {
    fn new(seed: u64, operations: usize) -> Self {
        let mut random = Random::new(seed);
        let agreement = Agreement::of(seed, &mut random);
        let plans = [0, 1].map(|_| Plan::new(&mut random, operations, agreement.extensions));
        let ends = [0, 1].map(|end| {
            let (tx, rx) = (agreement.framing[end], agreement.framing[1 - end]);
            End::new(agreement.config(end), tx, rx, plans[end].clone(), &plans[1 - end])
        });
        Self { ends, wires: [Vec::new(), Vec::new()], random }
    }

    /// Has one end do one thing: send a segment, or receive some octets.
    fn step(&mut self) {
        let end = self.random.below(2);
        if self.random.below(2) == 0 {
            self.ends[end].send(&mut self.random, &mut self.wires[1 - end]);
        } else {
            let chunk = self.random.chunk(self.wires[end].len());
            let octets: Vec<u8> = self.wires[end].drain(..chunk).collect();
            self.ends[end].receive(&mut self.random, &octets);
        }
    }

    fn run(&mut self) {
        for _ in 0..1_000_000 {
            self.step();
            if self.wires.iter().all(Vec::is_empty) && self.ends.iter().all(End::is_done) {
                return;
            }
        }
        panic!("the two never came to an end");
    }
}

#[test]
fn whatever_the_cuts_both_ends_see_what_was_sent() {
    // RFC 5040 §5.5, RFC 5041 §5.3, §5.4, RFC 5044 §4
    for seed in 0..160 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed, 60);
        pair.run();
        pair.ends.iter_mut().for_each(End::check);
    }
}

#[test]
fn a_terminate_in_mid_traffic_is_the_last_thing_that_is_heard() {
    // RFC 5040 §5.4
    let mut dropped = 0;
    for seed in 0..32 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed, 40);
        (0..300).for_each(|_| pair.step());
        let terminate = TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC);
        let [sender, receiver] = &mut pair.ends;
        sender.terminate(&terminate, &mut pair.wires[1]);
        let sent = std::mem::take(&mut pair.wires[1]);
        receiver.receive(&mut pair.random, &sent);
        assert_eq!(receiver.terminated, Some(terminate));
        // Everything that it still sends is dropped there.
        let before = (receiver.memory.clone(), receiver.heard);
        let mut more = Vec::new();
        (0..50).for_each(|_| sender.send(&mut pair.random, &mut more));
        dropped += more.len();
        receiver.receive(&mut pair.random, &more);
        assert_eq!((receiver.memory.clone(), receiver.heard), before);
    }
    assert!(dropped > 10_000, "{dropped} octets to be dropped make a poor test");
}
