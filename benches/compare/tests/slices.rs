//! Both ends as the script runs them: every kind of lane carries its slices to the end,
//! and reports their contents.
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Ends {
    server: Child,
    client: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Ends {
    fn start() -> Self {
        Self::start_as(&command)
    }

    /// Starts both ends with the library for sockets in DDPMODE, which lies beside the tests.
    fn start_preloaded() -> Self {
        let library = std::env::current_exe().unwrap().with_file_name("librddp_sockets.so");
        Self::start_as(&|arguments| {
            let mut command = command(arguments);
            command.env("LD_PRELOAD", &library);
            command
        })
    }

    fn start_as(command: &dyn Fn(&[&str]) -> Command) -> Self {
        let mut server = command(&["server", "127.0.0.1"]).spawn().unwrap();
        let mut printed = BufReader::new(server.stdout.take().unwrap()).lines();
        let addr = format!("127.0.0.1:{}", printed.next().unwrap().unwrap());
        let mut client = command(&["client", &addr]).stdin(Stdio::piped()).spawn().unwrap();
        let commands = client.stdin.take().unwrap();
        let answers = BufReader::new(client.stdout.take().unwrap()).lines();
        Ends { server, client, commands, answers }
    }

    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let answer = self.answers.next().unwrap_or_else(|| panic!("no answer to {command}"));
        serde_json::from_str(&answer.unwrap()).unwrap()
    }

    fn open(&mut self, spec: &Value) -> Value {
        self.ask(&json!({ "open": spec }))
    }

    fn slice(&mut self, lane: usize, kind: &str) -> Value {
        self.ask(&json!({ "slice": { "lane": lane, "kind": kind, "ms": 3 } }))
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            // A process that has ended need not be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rddp-compare"));
    command.args(arguments).stdout(Stdio::piped());
    command
}

#[test]
fn lanes_of_every_kind_take_turns() {
    let mut ends = Ends::start();
    let mut lanes = 0;
    for op in ["tcp", "send", "write", "read"] {
        for wait in ["poll", "sleep", "channel"] {
            for size in [64, 100_000] {
                let opened =
                    ends.open(&json!({ "op": op, "size": size, "wait": wait, "depth": 8, "batch": 2 }));
                assert_eq!(opened["lane"], lanes);
                lanes += 1;
            }
        }
    }
    for lane in (0..lanes).chain(0..lanes) {
        let report = ends.slice(lane, "bandwidth");
        assert!(report["messages"].as_u64().unwrap() > 0, "{lane}: {report}");
    }
}

#[test]
fn windows_are_answered_and_messages_may_lie_in_pieces() {
    let mut ends = Ends::start();
    let mut lane = 0;
    for wait in ["poll", "sleep"] {
        for (size, pieces) in [(1, 1), (100_000, 1), (100_000, 17), (5000, 1024)] {
            ends.open(&json!({ "op": "tcp", "size": size, "wait": wait, "depth": 5, "pieces": pieces }));
            for _ in 0..2 {
                let report = ends.slice(lane, "window");
                // The last message ends the slice.
                assert_eq!(report["messages"].as_u64().unwrap() % 5, 1, "{report}");
                assert!(report["active"]["latency_ns"]["count"].as_u64().unwrap() > 0, "{report}");
                assert!(ends.slice(lane, "bandwidth")["messages"].as_u64().unwrap() > 0);
            }
            lane += 1;
        }
    }
}

#[test]
fn the_same_program_moves_messages_in_ddpmode() {
    let mut ends = Ends::start_preloaded();
    let mut lane = 0;
    for wait in ["poll", "sleep"] {
        for (size, pieces, gather, crc) in [
            (1, 1, "writev", true),
            (200_000, 1, "copy", false),
            (5000, 1024, "cork", true),
            (64, 2, "writev", false),
        ] {
            ends.open(&json!({
                "op": "ddp", "size": size, "wait": wait, "depth": 3, "pieces": pieces, "gather": gather, "crc": crc
            }));
            for kind in ["latency", "window", "bandwidth", "latency"] {
                let report = ends.slice(lane, kind);
                assert!(kind == "latency" || report["messages"].as_u64().unwrap() > 0, "{report}");
            }
            lane += 1;
        }
    }
}

#[test]
fn one_message_at_a_time_is_timed_by_the_end_that_can_tell() {
    let mut ends = Ends::start();
    let kinds = [("tcp", "latency"), ("send", "latency"), ("write", "latency"), ("read", "latency")];
    for (lane, (op, kind)) in kinds.into_iter().enumerate() {
        ends.open(&json!({ "op": op, "size": 5000 }));
        let report = ends.slice(lane, kind);
        assert!(report["active"]["latency_ns"]["count"].as_u64().unwrap() > 0, "{op}: {report}");
    }
    ends.open(&json!({ "op": "tcp", "size": 64, "wait": "sleep" }));
    for lane in [4, 2, 4, 2] {
        let report = ends.slice(lane, "notice");
        assert!(report["passive"]["latency_ns"]["count"].as_u64().unwrap() > 0, "{lane}: {report}");
    }
}

#[test]
fn messages_of_several_sizes_take_turns_behind_headers() {
    let mut ends = Ends::start();
    let sizes = [64, 5000, 1, 100_000];
    let sum: u64 = sizes.iter().sum();
    for (lane, op) in ["tcp", "tcp", "send", "write", "read"].into_iter().enumerate() {
        let wait = if lane == 0 { "sleep" } else { "poll" };
        ends.open(&json!({
            "op": op, "sizes": sizes, "header": 20, "depth": 12, "batch": 2, "connections": 3, "wait": wait
        }));
        for _ in 0..2 {
            let report = ends.slice(lane, "bandwidth");
            let (messages, octets) =
                (report["messages"].as_u64().unwrap(), report["octets"].as_u64().unwrap());
            assert!(messages > 0 && octets == messages / 4 * sum, "{op}: {report}");
        }
    }
}

#[test]
fn each_request_has_a_connection_of_its_own() {
    let mut ends = Ends::start();
    for (lane, op) in ["tcp", "send"].into_iter().enumerate() {
        ends.open(&json!({ "op": op, "size": 2000, "header": 20, "wait": "sleep" }));
        for _ in 0..2 {
            let report = ends.slice(lane, "request");
            assert!(report["active"]["latency_ns"]["count"].as_u64().unwrap() > 0, "{op}: {report}");
            assert!(ends.slice(lane, "bandwidth")["messages"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn watching_memory_uses_up_no_receives() {
    let mut ends = Ends::start();
    ends.open(&json!({ "op": "write", "size": 64 }));
    for _ in 0..40 {
        for kind in ["latency", "watch"] {
            let report = ends.slice(0, kind);
            assert!(report["active"]["latency_ns"]["count"].as_u64().unwrap() > 0, "{kind}: {report}");
        }
    }
}

#[test]
fn options_reach_the_wire_and_idle_connections_stay_idle() {
    let mut ends = Ends::start();
    let plain = ends.open(&json!({ "op": "write", "crc": false }));
    assert_eq!((&plain["crc"], &plain["markers"]), (&json!(false), &json!(false)));
    let marked = ends.open(&json!({ "op": "write", "crc": true, "markers": true }));
    assert_eq!((&marked["crc"], &marked["markers"]), (&json!(true), &json!(true)));
    ends.open(&json!({ "op": "send", "connections": 12, "active": 3, "depth": 4 }));
    let report = ends.slice(2, "bandwidth");
    let fpdus = report["active"]["fpdus_sent"].as_u64().unwrap();
    // Each message is one FPDU, and so is the end of the slice on each active connection.
    assert_eq!(fpdus, report["messages"].as_u64().unwrap() + 3);
}
