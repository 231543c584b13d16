//! System calls of a connection, at either end, and of reading in small pieces.
//!
//! The calls that `strace` sees are split by connection. The number of waits in a startup depends
//! on how busy the machine is, so the cheapest of several connections is compared with the limits.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

type Calls = BTreeMap<String, usize>;

const CONNECTIONS: usize = 12;

fn has_strace() -> bool {
    let has = Command::new("strace").arg("-V").output().is_ok();
    if !has {
        eprintln!("not checked: there is no strace here");
    }
    has
}

/// Returns a command that runs the program in DDPMODE and writes its calls to `trace`.
fn traced(program: &Path, folder: &Path, trace: &Path, arguments: &[&str]) -> Command {
    let mut run = command(Path::new("strace"), false, folder);
    let preload = format!("LD_PRELOAD={}", crate::support::library().display());
    run.args(["-f", "-qq", "-o"]).arg(trace).args(["-E", &preload, "-E", "RDDP_FAMILY=ddp"]);
    run.arg(program).args(arguments);
    run
}

/// Returns the names of the calls of a trace, each with the rest of its line; a call whose line is
/// cut in two by another thread's counts once.
fn calls(trace: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(trace).unwrap();
    let call = |line: &str| {
        let (name, rest) = line.split_once(' ')?.1.trim_start().split_once('(')?;
        let is_name = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
        is_name.then(|| (name.to_owned(), rest.to_owned()))
    };
    text.lines().filter_map(call).collect()
}

/// Splits calls at each one of the given kind.
fn connections(calls: &[(String, String)], first: impl Fn(&str, &str) -> bool) -> Vec<Calls> {
    let mut all: Vec<Calls> = Vec::new();
    for (name, rest) in calls {
        if first(name, rest) {
            all.push(Calls::new());
        }
        if let Some(connection) = all.last_mut() {
            *connection.entry(name.clone()).or_default() += 1;
        }
    }
    // The calls behind the last one belong to the end of the program.
    all.pop();
    all
}

#[track_caller]
fn within(who: &str, mut connections: Vec<Calls>, limits: &[(&str, usize)]) {
    assert!(connections.len() + 1 >= CONNECTIONS, "{who}: {} connections", connections.len());
    connections.sort_by_key(|calls| calls.values().sum::<usize>());
    let cheapest = &connections[0];
    for (name, limit) in limits {
        let count = cheapest.get(*name).copied().unwrap_or(0);
        assert!(count <= *limit, "{who}: {count} x {name}, at most {limit}: {cheapest:?}");
    }
}

#[test]
fn a_connection_costs_a_bounded_number_of_system_calls() {
    if !has_strace() {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let program = compile(&["cost.c"], scratch.path(), &["-pthread"]);
    let (of_server, of_client) = (scratch.path().join("server"), scratch.path().join("client"));
    let count = CONNECTIONS.to_string();
    let mut server = traced(&program, scratch.path(), &of_server, &["server", &count])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    succeeded(
        &traced(&program, scratch.path(), &of_client, &["client", port.trim(), &count]).output().unwrap(),
    );
    assert!(server.wait().unwrap().success());
    let accepts = |name: &str, _: &str| name == "accept4";
    within("server", connections(&calls(&of_server), accepts), SERVER);
    let connects = |name: &str, rest: &str| name == "socket" && rest.starts_with("AF_INET, ");
    within("client", connections(&calls(&of_client), connects), CLIENT);
}

// Each limit leaves room for two waits more than the fewest possible.
const SERVER: &[(&str, usize)] = &[
    ("rt_sigprocmask", 16),
    ("getpid", 2),
    ("geteuid", 1),
    ("getsockopt", 5),
    ("setsockopt", 4),
    ("recvfrom", 13),
    ("recvmsg", 1),
    ("sendto", 2),
    ("epoll_ctl", 1),
    ("epoll_wait", 5),
];

const CLIENT: &[(&str, usize)] = &[
    ("rt_sigprocmask", 32),
    ("getpid", 5),
    ("geteuid", 1),
    ("getsockopt", 15),
    ("setsockopt", 5),
    ("process_vm_readv", 0),
    ("recvfrom", 12),
    ("recvmsg", 1),
    ("sendto", 3),
    ("epoll_ctl", 8),
    ("epoll_wait", 4),
    ("ppoll", 1),
];

#[test]
fn reading_small_pieces_looks_at_the_queue_once_an_fpdu() {
    if !has_strace() {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let program = compile(&["cost.c"], scratch.path(), &["-pthread"]);
    let trace = scratch.path().join("reader");
    succeeded(&traced(&program, scratch.path(), &trace, &["reader"]).output().unwrap());
    let all = calls(&trace);
    let marks: Vec<usize> = (0..all.len()).filter(|at| all[*at].0 == "getppid").collect();
    let of_reads = &all[marks[0] + 1..marks[1]];
    let looks = of_reads.iter().filter(|(_, rest)| rest.contains("MSG_PEEK")).count();
    // 100,000 octets are three or four FPDUs on loopback, and thirteen pieces.
    assert!(looks <= 12, "{looks} looks");
    assert!(of_reads.len() <= 26, "{} calls", of_reads.len());
    // After the first FPDU the receiver knows that they are large.
    let short_look = of_reads.iter().position(|(_, rest)| rest.contains(", 64, MSG_PEEK"));
    let behind = &of_reads[short_look.expect("a look at the front alone")..];
    let pieces = behind.iter().filter(|(_, rest)| rest.contains(", 8192, MSG_DONTWAIT")).count();
    assert_eq!(pieces, 0, "what is left of an FPDU is read from memory");
}

#[test]
fn fionread_counts_every_octet_when_asked_twice() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["cost.c"], scratch.path(), &["-pthread"]);
    for family in ["tcp", "ddp"] {
        let mut command = command(&program, true, scratch.path());
        succeeded(&command.arg("twice").env("RDDP_FAMILY", family).output().unwrap());
    }
}

// POSIX: a handler may call `close`, `getsockopt` and `fork`, whatever it interrupts.
#[test]
fn handlers_may_call_in_the_middle_of_our_calls() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["cost.c"], scratch.path(), &["-pthread"]);
    for family in ["tcp", "ddp"] {
        let mut command = command(&program, true, scratch.path());
        succeeded(&command.args(["interrupted", "100"]).env("RDDP_FAMILY", family).output().unwrap());
    }
}
