//! Runs one hot path many times for `benches/instructions/run`, which counts its
//! instructions under callgrind.
//!
//! `instructions --list` names the scenarios and the number of operations in a round of each;
//! `instructions NAME` runs one, and `instructions --costs NAME` says what a message of it costs
//! without callgrind. Callgrind counts inside [`count::measured`] alone, and writes the count at
//! the end of each [`count::one_round`], so neither preparations nor other threads are in it.
#![deny(unsafe_code)]

mod count;
mod device;
mod engine;
#[path = "../../verbs-device/tests/devices/fake.rs"]
#[allow(dead_code, unsafe_code, reason = "functions of a library that is loaded")]
mod fake;
mod message;
mod octets;
mod protocol;
mod stream;

use std::process::ExitCode;

use count::{ROUNDS, one_round};

/// A hot path.
struct Scenario {
    name: &'static str,
    /// Number of operations in one round.
    ops: u32,
    /// Prepares the scenario, and returns a function that runs a round.
    prepare: fn() -> Box<dyn FnMut()>,
}

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let mut scenarios = protocol::SCENARIOS
        .iter()
        .chain(engine::SCENARIOS)
        .chain(message::SCENARIOS)
        .chain(octets::SCENARIOS)
        .chain(stream::SCENARIOS)
        .chain(device::SCENARIOS);
    if argument == "--list" {
        scenarios.for_each(|scenario| println!("{} {}", scenario.name, scenario.ops));
        return ExitCode::SUCCESS;
    }
    if argument == "--costs" {
        message::print_costs(&std::env::args().nth(2).unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    let Some(scenario) = scenarios.find(|scenario| scenario.name == argument) else {
        eprintln!("usage: instructions --list | --costs NAME | NAME");
        return ExitCode::FAILURE;
    };
    let mut round = (scenario.prepare)();
    for _ in 0..ROUNDS {
        one_round(&mut round);
    }
    ExitCode::SUCCESS
}
