//! One message from a QP to another over each of the wires, both ends: a receive is posted, a
//! request is posted, and both complete.

use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rddp_benches::Pair;
use rddp_rnic::Transport;

use crate::Scenario;
use crate::count::measured;

const ALONE: u32 = 1;
/// Messages that are posted by one call.
const TOGETHER: u32 = 64;

/// A datagram has no more.
const LARGE_DATAGRAM: usize = 65_000;

/// Time of a loop whose cost is measured without callgrind.
const TIME: Duration = Duration::from_secs(2);

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "iwarp_64", ops: ALONE, prepare: || message("iwarp_64") },
    Scenario { name: "iwarp_64_by_64", ops: TOGETHER, prepare: || message("iwarp_64_by_64") },
    Scenario { name: "iwarp_64k", ops: ALONE, prepare: || message("iwarp_64k") },
    Scenario { name: "raw_64", ops: ALONE, prepare: || message("raw_64") },
    Scenario { name: "raw_64_by_64", ops: TOGETHER, prepare: || message("raw_64_by_64") },
    Scenario { name: "raw_64k", ops: ALONE, prepare: || message("raw_64k") },
    Scenario { name: "record_64", ops: ALONE, prepare: || message("record_64") },
    Scenario { name: "record_64_by_64", ops: TOGETHER, prepare: || message("record_64_by_64") },
    Scenario { name: "record_64k", ops: ALONE, prepare: || message("record_64k") },
    Scenario { name: "udp_64", ops: ALONE, prepare: || message("udp_64") },
    Scenario { name: "udp_64_by_64", ops: TOGETHER, prepare: || message("udp_64_by_64") },
    Scenario { name: "udp_64k", ops: ALONE, prepare: || message("udp_64k") },
];

/// Returns the ends of a scenario, and the number of messages of a call.
fn pair(name: &str) -> (Pair, usize) {
    let (wire, size) = name.split_once('_').expect("the name of a wire");
    let transport = match wire {
        "iwarp" => Transport::Iwarp,
        "raw" => Transport::Tcp,
        "record" => Transport::Record,
        _ => Transport::Udp,
    };
    let (count, len) = match size {
        "64" => (ALONE, 64),
        "64_by_64" => (TOGETHER, 64),
        _ if transport == Transport::Udp => (ALONE, LARGE_DATAGRAM),
        _ => (ALONE, 64 * 1024),
    };
    (Pair::new(transport, len), count as usize)
}

/// Sends messages by one call, and polls once they have arrived.
fn message(name: &str) -> Box<dyn FnMut()> {
    let (mut pair, count) = pair(name);
    let list = pair.messages(count);
    Box::new(move || {
        let before = pair.octets_sent();
        measured(&mut || pair.send(&list));
        pair.await_octets((pair.octets_sent() - before) as usize);
        measured(&mut || pair.receive(count));
    })
}

/// Prints what a message of a scenario costs when nothing is counted: its system calls, and the
/// process's time in microseconds.
pub(crate) fn print_costs(name: &str) {
    let (mut pair, count) = pair(name);
    let list = pair.messages(count);
    let mut rounds = |most: u32| {
        for _ in 0..most {
            pair.send(&list);
            pair.receive(count);
        }
        pair.calls()
    };
    let calls = rounds(1000);
    let (mut after_calls, mut messages) = (calls, 0);
    let (usage, until) = (usage(), Instant::now() + TIME);
    while Instant::now() < until {
        after_calls = rounds(100);
        messages += 100 * count;
    }
    let (after, (sends, receives)) = (self::usage(), after_calls);
    let each = |value: u64| value as f64 / messages as f64;
    let micros = |before: i64, after: i64| (after - before) as f64 / messages as f64;
    println!(
        "{{\"send_calls\":{},\"receive_calls\":{},\"user_us\":{},\"system_us\":{}}}",
        each(sends - calls.0),
        each(receives - calls.1),
        micros(usage.user_time().num_microseconds(), after.user_time().num_microseconds()),
        micros(usage.system_time().num_microseconds(), after.system_time().num_microseconds()),
    );
}

fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_SELF).expect("a process has its usage")
}
