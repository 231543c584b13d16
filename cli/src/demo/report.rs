//! The tables and the JSON that the demo prints.

use std::net::SocketAddr;

use rddp_command::device::By;
use rddp_command::out::{self, Table, say};
use rddp_command::units;
use serde::Serialize;

use super::checks::{Checks, Verdict};
use super::{LARGE, SMALL};
use crate::perf::{Op, Outcome, Wait};

pub(super) fn begin(json: bool, by: &By, addr: SocketAddr) {
    let how = if by.is_host() { format!("RDMA by {by}") } else { "RDMA over TCP".to_owned() };
    if !json {
        say!("Two processes on this host do {how}, by way of {addr}.");
        say!();
    }
}

/// Prints one row for each check, with one column for each connection.
pub(super) fn checks(json: bool, columns: &[Checks]) {
    if json {
        return;
    }
    let Some(first) = columns.first() else { return };
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Passed => "ok",
        Verdict::Lacking => "none here",
        Verdict::Failed(_) => "FAILED",
    };
    let heads = if first.agreed.by.is_host() { &[""][..] } else { &["CRC", "CRC, markers"] };
    let mut table = Table::default();
    table.row(["Every octet compared with what it should be"].iter().chain(heads).copied());
    for (row, (name, _)) in first.list.iter().enumerate() {
        table.row([*name].into_iter().chain(columns.iter().map(|column| verdict(&column.list[row].1))));
    }
    table.print();
    for (setting, column) in heads.iter().zip(columns) {
        if let Some((name, why)) = column.failure() {
            let setting = if setting.is_empty() { String::new() } else { format!(" ({setting})") };
            say!("FAILED{setting} {name}: {why}");
        }
    }
    let compared = columns.iter().map(|column| column.compared).sum();
    say!("{}; {} of memory compared.", first.agreed, units::about(compared));
    say!();
}

pub(super) fn measuring(json: bool) {
    if !json {
        say!("Beside a plain TCP socket, by turns (some seconds):");
    }
}

/// The result for `--json`.
#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    by: Option<&'a By>,
    passed: bool,
    checks: Vec<Row<'a>>,
    octets_compared: u64,
    results: &'a [Outcome],
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    markers: bool,
    passed: bool,
    /// The device does not have what the check tries.
    lacking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

pub(super) fn end(json: bool, columns: &[Checks], untouched: bool, outcomes: &[Outcome]) {
    if !json {
        measured(outcomes);
        return;
    }
    let rows = [false, true].into_iter().zip(columns).flat_map(|(markers, column)| {
        column.list.iter().map(move |(name, verdict)| Row {
            name,
            markers,
            passed: *verdict == Verdict::Passed,
            lacking: *verdict == Verdict::Lacking,
            why: if let Verdict::Failed(why) = verdict { Some(why) } else { None },
        })
    });
    out::json(&Found {
        by: columns.first().map(|column| &column.agreed.by),
        passed: untouched && columns.iter().all(Checks::passed),
        checks: rows.collect(),
        octets_compared: columns.iter().map(|column| column.compared).sum(),
        results: outcomes,
    });
}

fn measured(outcomes: &[Outcome]) {
    if outcomes.is_empty() {
        return;
    }
    let of = |op: Op, size: u32| outcomes.iter().find(|outcome| outcome.op == op && outcome.size == size);
    say!("{:<12}{:>22}{:>34}", "", "messages of 1 MiB", "64 octets, half a round trip");
    say!("{:<12}{:>12}{:>10}{:>22}{:>12}", "", "MB/s", "x TCP", "median us", "p99 us");
    for (op, name) in [(Op::Tcp, "TCP socket"), (Op::Write, "RDMA Write"), (Op::Send, "RDMA Send")] {
        let small = of(op, SMALL).and_then(|small| small.lat_us);
        if let (Some(large), Some(small)) = (of(op, LARGE), small) {
            let (rate, times) = (large.bytes_per_s / 1e6, large.times_tcp.unwrap_or_default());
            say!("{name:<12}{rate:>12.0}{times:>10.2}{:>22.1}{:>12.1}", small.p50, small.p99);
        }
    }
    if outcomes.iter().any(|outcome| outcome.wait == Wait::Event) {
        say!("Fewer than two processors were idle, so both ends slept where they would have spun.");
    }
    if let Some(share) = outcomes.iter().filter_map(Outcome::spoiled).reduce(f64::max) {
        let percent = share * 100.0;
        say!("Spoiled by load: an end waited for a processor for up to {percent:.0} % of the time.");
    }
    if cfg!(debug_assertions) {
        say!("This is a debug build: what cargo run --release measures counts.");
    }
}
