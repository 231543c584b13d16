//! Counts as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rddp_rnic::TerminateCode;
use rddp_stat::{Counter, Counts, TerminateCount};
use serde::Serialize;

use super::irdma;
use super::process::Process;
use super::sample::{Joined, Sample};
use super::tcp_info::TcpInfo;

#[derive(Serialize)]
pub(super) struct Processes {
    /// Seconds from 1970 on.
    time: f64,
    processes: Vec<OneProcess>,
}

#[derive(Serialize)]
struct OneProcess {
    pid: u32,
    command: String,
    /// Counts of all connections, of those that have ended too.
    total: BTreeMap<&'static str, u64>,
    terminates: Vec<Terminate>,
    connections: Vec<OneConnection>,
}

#[derive(Serialize)]
struct Terminate {
    code: String,
    name: String,
    sent: u64,
    received: u64,
}

#[derive(Serialize)]
pub(super) struct OneConnection {
    pid: u32,
    command: String,
    kind: &'static str,
    number: u32,
    state: &'static str,
    active: bool,
    /// The socket's cookie, as a text: 64 bits are more than a number of JSON has in many programs.
    cookie: String,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Seconds from 1970 on; streams do not tell.
    since: Option<f64>,
    terminate_sent: Option<String>,
    terminate_received: Option<String>,
    counters: BTreeMap<&'static str, u64>,
    irdma: BTreeMap<&'static str, u64>,
    tcp: Option<TcpInfo>,
}

pub(super) fn processes(sample: &Sample) -> Processes {
    let process = |(process, joined): &(Process, Vec<Joined>)| OneProcess {
        pid: process.pid,
        command: process.command.clone(),
        total: counters(&process.total(), |counter| process.counts(counter)),
        terminates: process.terminates.iter().map(terminate).collect(),
        connections: joined.iter().map(|joined| connection(process, joined)).collect(),
    };
    Processes { time: seconds(sample.time), processes: sample.processes.iter().map(process).collect() }
}

pub(super) fn connection(process: &Process, joined: &Joined) -> OneConnection {
    let rddp = &joined.rddp;
    let name = |code: Option<u16>| code.map(|code| TerminateCode(code).to_string());
    OneConnection {
        pid: process.pid,
        command: process.command.clone(),
        kind: rddp.identity.kind.name(),
        number: rddp.identity.number,
        state: rddp.phase.name(),
        active: rddp.identity.active,
        cookie: format!("{:x}", rddp.identity.cookie),
        local: rddp.identity.local,
        peer: rddp.identity.peer,
        since: (rddp.identity.since != 0).then(|| seconds(rddp.identity.since)),
        terminate_sent: name(rddp.terminate_sent),
        terminate_received: name(rddp.terminate_received),
        counters: counters(&rddp.counts, |counter| rddp.identity.kind.counts(counter)),
        irdma: irdma::aliases(rddp, joined.tcp.as_ref()).into_iter().collect(),
        tcp: joined.tcp,
    }
}

fn terminate(count: &TerminateCount) -> Terminate {
    let TerminateCount { code, sent, received } = *count;
    Terminate { code: format!("{code:#06x}"), name: TerminateCode(code).to_string(), sent, received }
}

/// Returns those of the counts that there are.
fn counters(counts: &Counts, is_counted: impl Fn(Counter) -> bool) -> BTreeMap<&'static str, u64> {
    let counted = counts.iter().filter(|(counter, _)| is_counted(*counter));
    counted.map(|(counter, value)| (counter.name(), value)).collect()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
