//! Two streams over MPA, joined by an octet stream that is cut and merged by seed: markers
//! and CRC on and off in each direction, all operations mixed, within ORD and IRD, compared
//! with a model of the outcome.

use rddp_mpa::Framing;
use rddp_rdmap::{AtomicOp, Opcode};
use rddp_test_support::Random;
use rddp_test_support::streams::{Pair, RECEIVE, Work};

/// Octets of an end's region for Writes, and of the one for its Reads.
const REGION: usize = 1 << 18;

/// Two ends, and what happens to them by chance.
struct Traffic {
    pair: Pair,
    random: Random,
}

impl Traffic {
    /// Ends that have so many operations each. Every combination of markers and CRC occurs, the
    /// rest by chance.
    fn new(seed: u64, operations: usize) -> Self {
        let mut random = Random::new(seed);
        let bit = |at: u64| seed >> at & 1 == 1;
        let framing = [Framing { crc: bit(0), markers: bit(1) }, Framing { crc: bit(2), markers: bit(3) }];
        let depth = [random.below(4) as u32 + 1, random.below(4) as u32 + 1];
        let extensions = random.below(4) > 0;
        let mut pair = Pair::new(framing, depth, extensions, REGION);
        for end in 0..2 {
            for _ in 0..operations {
                let work = work(&mut random, extensions, |at| pair.ends[1 - end].counter(at));
                pair.submit(end, work);
            }
        }
        Traffic { pair, random }
    }

    /// Has one end do one thing: send a segment, or receive some octets; or go on in a new stream.
    fn step(&mut self) {
        let Traffic { pair, random } = self;
        let end = random.below(2);
        match random.below(8) {
            0 => pair.ends[end].go_on_elsewhere(),
            1..5 => pair.send(end, random.below(2) == 0, 128 + random.below(1400)),
            _ => {
                pair.ends[end].looks = random.below(3);
                let chunk = random.chunk(pair.wires[end].len());
                pair.deliver(end, chunk);
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..1_000_000 {
            self.step();
            if self.pair.is_done() {
                return;
            }
        }
        panic!("the two never came to an end");
    }
}

fn work(random: &mut Random, extensions: bool, counter: impl Fn(usize) -> u64) -> Work {
    match random.below(if extensions { 10 } else { 7 }) {
        0..=2 => {
            let opcodes = [
                Opcode::Send,
                Opcode::SendInvalidate,
                Opcode::SendSolicited,
                Opcode::SendSolicitedInvalidate,
            ];
            Work::Send { opcode: opcodes[random.below(4)], data: data(random, RECEIVE) }
        }
        3 | 4 => Work::Write { data: data(random, 6000) },
        5 | 6 => {
            let written = random.below(2) == 1;
            Work::Read { written, at: random.below(10_000), len: data(random, 4096).len() }
        }
        7 => {
            let opcode = [Opcode::Immediate, Opcode::ImmediateSolicited][random.below(2)];
            Work::Immediate { opcode, data: random.number().to_be_bytes() }
        }
        _ => {
            let at = random.below(8);
            let op = match random.below(2) {
                0 => AtomicOp::FetchAdd { add: random.number(), mask: random.number() & random.number() },
                _ => AtomicOp::CmpSwap {
                    swap: random.number(),
                    swap_mask: random.number(),
                    compare: counter(at) ^ random.below(2) as u64,
                    compare_mask: u64::MAX,
                },
            };
            Work::Atomic { at, op }
        }
    }
}

/// Returns some octets: often none or a few, at most `max`.
fn data(random: &mut Random, max: usize) -> Vec<u8> {
    let len = match random.below(4) {
        0 => random.below(3),
        1 => random.below(200),
        _ => random.below(max + 1),
    };
    (0..len.min(max)).map(|_| random.number() as u8).collect()
}

#[test]
fn whatever_the_cuts_both_ends_see_what_was_sent() {
    // RFC 5040 §5.5, RFC 5041 §5.3, §5.4, RFC 5044 §4
    for seed in 0..160 {
        println!("seed {seed}");
        let mut traffic = Traffic::new(seed, 60);
        traffic.run();
        traffic.pair.check();
    }
}

#[test]
fn a_terminate_in_mid_traffic_is_the_last_thing_that_is_heard() {
    // RFC 5040 §5.4
    let mut dropped = 0;
    for seed in 0..32 {
        println!("seed {seed}");
        let mut traffic = Traffic::new(seed, 40);
        (0..300).for_each(|_| traffic.step());
        dropped += traffic.pair.terminate(0);
    }
    assert!(dropped > 10_000, "{dropped} octets to be dropped make a poor test");
}
