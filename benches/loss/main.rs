//! The loss experiment: messages over a path that loses segments, with plain TCP, and with Writes
//! that are placed at user level and in the kernel. `benches/loss/run` builds and starts it.
//!
//! Each cell of the experiment has two processes, each in a network namespace of its own, and this
//! process between them, which carries the frames. Prints a line of JSON for each cell.
#![allow(missing_docs, reason = "an experiment")]

mod cell;
mod ends;
mod middle;
#[path = "../../kernel-patch/tests/common/mod.rs"]
mod path_test;
mod spec;

use std::time::Duration;

use spec::{Cell, Mode, Row};

/// Losses, of 10,000 segments.
const LOSSES: [u32; 6] = [0, 1, 10, 100, 300, 1000];
const MTUS: [u32; 2] = [1500, 9000];
const ROUND_TRIPS: [u64; 3] = [0, 1_000, 10_000];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", spec] => ends::receive(&serde_json::from_str(spec).unwrap()),
        ["send", spec, addr] => ends::send(&serde_json::from_str(spec).unwrap(), addr.parse().unwrap()),
        ["paths", rounds, seconds] => paths(rounds.parse().unwrap(), seconds.parse().unwrap(), &LOSSES),
        // More of these: the differences to be seen are small.
        ["lossless", rounds, seconds] => paths(rounds.parse().unwrap(), seconds.parse().unwrap(), &[0]),
        ["holes", rounds] => holes(rounds.parse().unwrap()),
        ["latency", rounds, seconds] => latency(rounds.parse().unwrap(), seconds.parse().unwrap()),
        _ => {
            eprintln!("usage: loss paths|lossless|latency ROUNDS SECONDS | loss holes ROUNDS");
            std::process::exit(2);
        }
    }
}

/// Bandwidth with eight Writes of 1 MiB under way, and the time of messages of 64 KiB one by one,
/// on paths of these losses and each MTU and round trip; all modes one after the other in each
/// round.
fn paths(rounds: u64, seconds: u64, losses: &[u32]) {
    for round in 0..rounds {
        for (round_trip, mtu) in ROUND_TRIPS.iter().flat_map(|trip| MTUS.map(|mtu| (*trip, mtu))) {
            for (loss, (message, depth)) in
                losses.iter().flat_map(|loss| [(1 << 20, 8), (1 << 16, 1)].map(|way| (*loss, way)))
            {
                for mode in Mode::ALL {
                    let cell = Cell {
                        mode,
                        mtu,
                        round_trip: Duration::from_micros(round_trip),
                        loss,
                        seed: 1 + round,
                        message,
                        depth,
                        time: Duration::from_secs(seconds),
                        messages: u64::MAX,
                        hole: None,
                        tuned: true,
                    };
                    cell::run(&cell).print();
                }
            }
        }
    }
}

/// The time from the arrival of a segment that was lost once to the completion of its Write of
/// 1 MiB: all of it under way at once, by the settings of the paths; and by Linux's own settings.
fn holes(rounds: u64) {
    for round in 0..rounds {
        for (tuned, mode) in [true, false].iter().flat_map(|tuned| Mode::ALL.map(|mode| (*tuned, mode))) {
            let cell = Cell {
                mode,
                mtu: 1500,
                round_trip: Duration::from_millis(10),
                loss: 0,
                seed: 1 + round,
                message: 1 << 20,
                depth: 1,
                time: Duration::from_secs(60),
                messages: 1,
                hole: Some(8),
                tuned,
            };
            cell::run(&cell).print();
        }
    }
}

/// The time of messages of 1 KiB one by one, where nothing is lost.
fn latency(rounds: u64, seconds: u64) {
    for round in 0..rounds {
        for mode in Mode::ALL {
            let cell = Cell {
                mode,
                mtu: 1500,
                round_trip: Duration::ZERO,
                loss: 0,
                seed: 1 + round,
                message: 1 << 10,
                depth: 1,
                time: Duration::from_secs(seconds),
                messages: u64::MAX,
                hole: None,
                tuned: true,
            };
            cell::run(&cell).print();
        }
    }
}

impl Row {
    fn print(&self) {
        println!("{}", serde_json::to_string(self).unwrap());
    }
}
