//! Messages over plain TCP, records and UDP beside plain sockets, in time.
//!
//! Both ends are in one thread, which polls. A slice of ours and one of plain sockets take turns,
//! and the ratio of each two neighbours counts: the table has the medians. Plain sockets use a call
//! for each message: `send` and `recv`, or `sendto` and `recv`.
#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::print_stdout, reason = "a bench")]

mod plain;

use std::time::{Duration, Instant};

use rddp_benches::Pair;
use rddp_rnic::Transport;

use plain::Plain;

/// Slices of each side.
const SLICES: usize = 41;

/// Length of a slice.
const SLICE: Duration = Duration::from_millis(10);

/// A row: a wire, messages of a size, and how many are sent at a time.
struct Row {
    transport: Transport,
    len: usize,
    together: usize,
    /// Least rate beside that of plain sockets.
    goal: f64,
}

const fn row(transport: Transport, len: usize, together: usize, goal: f64) -> Row {
    Row { transport, len, together, goal }
}

/// The goals: many at a time 8 times as fast, long ones as fast; a message alone at most 1.1 times
/// as slow, and 0.9 times as fast over UDP.
const ROWS: &[Row] = &[
    row(Transport::Tcp, 64, 64, 8.0),
    row(Transport::Record, 64, 64, 8.0),
    row(Transport::Udp, 64, 64, 8.0),
    row(Transport::Tcp, 64, 1, 1.0 / 1.1),
    row(Transport::Record, 64, 1, 1.0 / 1.1),
    row(Transport::Udp, 64, 1, 0.9),
    row(Transport::Tcp, 64 << 10, 1, 0.97),
    row(Transport::Tcp, 1 << 20, 1, 0.97),
    row(Transport::Record, 64 << 10, 1, 0.97),
    row(Transport::Record, 1 << 20, 1, 0.97),
    row(Transport::Udp, 1400, 64, 1.0),
];

fn main() {
    println!(
        "{:<8}{:>9}{:>10}{:>12}{:>12}{:>9}{:>9}  {:<14}{:>15}",
        "wire", "octets", "at a time", "plain, us", "ours, us", "rate, x", "goal", "", "receive calls"
    );
    ROWS.iter().for_each(measure);
}

fn measure(row: &Row) {
    let mut ours = Pair::over(row.transport, row.len, None);
    let mut plain = Plain::new(row.transport == Transport::Udp, row.len);
    let list = ours.messages(row.together);
    let one = |ours: &mut Pair| {
        ours.send(&list);
        ours.receive(row.together);
    };
    // TCP finds its window.
    slice(row.together, || one(&mut ours));
    slice(row.together, || plain.exchange(row.together));
    let (calls, mut messages) = (ours.calls().1, 0.0);
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..SLICES {
        let (of_plain, _) = slice(row.together, || plain.exchange(row.together));
        let (of_ours, count) = slice(row.together, || one(&mut ours));
        messages += count;
        times[0].push(of_plain);
        times[1].push(of_ours);
        ratios.push(of_plain / of_ours);
    }
    let receive_calls = (ours.calls().1 - calls) as f64 / messages;
    let [plain, ours] = times.map(median);
    let ratio = median(ratios);
    let verdict = if ratio >= row.goal { "" } else { "below its goal" };
    let name = match row.transport {
        Transport::Tcp => "raw",
        Transport::Record => "record",
        _ => "udp",
    };
    println!(
        "{name:<8}{:>9}{:>10}{plain:>12.3}{ours:>12.3}{ratio:>9.2}{:>9.2}  {verdict:<14}{receive_calls:>15.3}",
        row.len, row.together, row.goal
    );
}

/// Returns the time of a message in microseconds, and how many there were.
fn slice(together: usize, mut exchange: impl FnMut()) -> (f64, f64) {
    let (begun, mut messages) = (Instant::now(), 0);
    while begun.elapsed() < SLICE {
        exchange();
        messages += together;
    }
    (begun.elapsed().as_secs_f64() * 1e6 / messages as f64, messages as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
