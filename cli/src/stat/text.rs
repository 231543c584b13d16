//! Tables of `rddp stat`.

use rddp_command::out::{Table, say};
use rddp_rnic::TerminateCode;
use rddp_stat::{Counter, Counts};

use super::process::Process;
use super::sample::Sample;

/// Lines with two numbers: what was sent, and what was received.
const BOTH_WAYS: &[(&str, Counter, Counter)] = &[
    ("octets", Counter::OctetsSent, Counter::OctetsReceived),
    ("FPDUs", Counter::FpdusSent, Counter::FpdusReceived),
    ("Sends", Counter::SendsSent, Counter::SendsReceived),
    ("RDMA Writes", Counter::WritesSent, Counter::WritesReceived),
    ("RDMA Reads", Counter::ReadsSent, Counter::ReadsReceived),
    ("calls of TCP", Counter::SendCalls, Counter::ReceiveCalls),
    ("Terminates", Counter::TerminatesSent, Counter::TerminatesReceived),
];

/// Counts that are shown where there are some.
const ONE_WAY: &[(&str, Counter)] = &[
    ("atomic operations", Counter::AtomicsSent),
    ("windows bound", Counter::Binds),
    ("STags invalidated", Counter::Invalidations),
    ("requests failed", Counter::RequestsFailed),
    ("connections lost", Counter::Lost),
    ("octets copied before they were sent", Counter::OctetsCopied),
    ("reads of files, at once", Counter::FileReadsAtOnce),
    ("reads of files, by other threads", Counter::FileReadsByPool),
    ("octets of files in answers", Counter::OctetsByAnswer),
    ("octets of files by naive", Counter::OctetsByNaive),
    ("octets of files by slots", Counter::OctetsBySlots),
    ("octets of files by pipelined", Counter::OctetsByPipelined),
    ("octets of files by region", Counter::OctetsByRegion),
    ("octets of files by map", Counter::OctetsByMap),
    ("registrations for clients", Counter::Registrations),
];

pub(super) fn print(sample: &Sample) {
    for (nth, (process, _)) in sample.processes.iter().enumerate() {
        if nth > 0 {
            say!();
        }
        print_process(process);
    }
    if sample.processes.is_empty() {
        sample.say_if_empty();
    }
}

fn print_process(process: &Process) {
    let alive = process.connections.iter().filter(|connection| connection.phase.is_alive()).count();
    say!("process {} ({}), connections: {alive}", process.pid, process.command);
    let total = process.total();
    let mut table = Table::default();
    table.row(["", "sent", "received"]);
    for (name, sent, received) in BOTH_WAYS {
        let [sent, received] = [sent, received].map(|of| match process.counts(*of) {
            true => total.of(*of).to_string(),
            false => "-".to_owned(),
        });
        table.row([(*name).to_owned(), sent, received]);
    }
    table.print();
    for (name, counter) in ONE_WAY {
        if total.of(*counter) > 0 {
            say!("{name}: {}", total.of(*counter));
        }
    }
    let beside = Counter::READS_BESIDE.map(|counter| total.of(counter));
    if beside[1..].iter().any(|count| *count > 0) {
        let counts = beside.map(|count| count.to_string()).join(" ");
        say!("RDMA Reads while 0, 1, 2, ... others were answered: {counts}");
    }
    for count in &process.terminates {
        let code = TerminateCode(count.code);
        say!("Terminate {code}: {} sent, {} received", count.sent, count.received);
    }
}

/// Prints what each process has done since `before`, a second.
pub(super) fn print_rates(before: &Sample, now: &Sample) {
    let seconds = now.seconds_since(before);
    let mut table = Table::default();
    table.row(["process", "conns", "out MB/s", "in MB/s", "out FPDU/s", "in FPDU/s", "Terminates"]);
    for (process, joined) in &now.processes {
        let total = process.total();
        // Who was not there before has done all of it since.
        let since = total.since(&before.total_of(process.pid).unwrap_or_default());
        let [out, in_] =
            [Counter::OctetsSent, Counter::OctetsReceived].map(|of| megabytes(&since, of, seconds));
        let [fpdus_out, fpdus_in] = [Counter::FpdusSent, Counter::FpdusReceived]
            .map(|of| format!("{:.0}", since.of(of) as f64 / seconds));
        let terminates = since.of(Counter::TerminatesSent) + since.of(Counter::TerminatesReceived);
        let name = format!("{} {}", process.pid, process.command);
        table.row([name, joined.len().to_string(), out, in_, fpdus_out, fpdus_in, terminates.to_string()]);
    }
    table.print();
    say!();
}

pub(super) fn megabytes(counts: &Counts, counter: Counter, seconds: f64) -> String {
    format!("{:.1}", counts.of(counter) as f64 / seconds / 1e6)
}
