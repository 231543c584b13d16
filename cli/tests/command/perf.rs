//! `rddp perf`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::program::{Ended, Server, command, free_port, on_processor, plain_service, run};

const FAST: [&str; 2] = ["--duration", "0.05"];

fn local(args: &[&str]) -> Vec<Value> {
    let found = run(&[&["perf", "local", "--json"], &FAST[..], args].concat()).ok().json();
    assert_eq!(found.as_object().unwrap().keys().collect::<Vec<_>>(), ["results", "schema"]);
    found["results"].as_array().unwrap().clone()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn results_have_the_documented_form() {
    let results = local(&["--op", "tcp,write", "--op", "send,read", "--size", "64,4K"]);
    let found: Vec<_> =
        results.iter().map(|one| (one["op"].as_str().unwrap(), one["size"].as_u64().unwrap())).collect();
    let ops = ["tcp", "write", "send", "read"];
    assert_eq!(found, [64, 4096].map(|size| ops.map(|op| (op, size))).concat());
    for one in &results {
        let names = [
            "op",
            "device",
            "transport",
            "placement",
            "direction",
            "size",
            "qps",
            "depth",
            "crc",
            "markers",
            "mss",
            "congestion",
            "large_fpdus",
            "stable",
            "wait",
            "batch",
            "waited",
            "messages",
            "bytes_per_s",
            "msgs_per_s",
            "lat_us",
            "cpu_s_per_gb",
        ];
        assert_eq!(keys(one), BTreeSet::from(names));
        assert_eq!(keys(&one["lat_us"]), BTreeSet::from(["p50", "p99", "p999"]));
        assert_eq!((&one["qps"], &one["depth"], &one["wait"]), (&1.into(), &64.into(), &"poll".into()));
        assert_eq!(one["crc"], one["op"] != "tcp");
        let [p50, p99, p999] = ["p50", "p99", "p999"].map(|name| one["lat_us"][name].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{one}");
        for name in ["bytes_per_s", "msgs_per_s", "cpu_s_per_gb"] {
            assert!(one[name].as_f64().unwrap() > 0.0, "{name}: {one}");
        }
    }
}

#[test]
fn settings_reach_both_ends() {
    let settings =
        ["--crc", "off", "--markers", "on", "--mss", "1448", "--place-before-crc", "--wait", "event"];
    let more = ["--qps", "3", "--depth", "8", "--size", "100,100K", "--op", "write,send,read,tcp"];
    for one in local(&[&settings[..], &more, &["--congestion", "reno"]].concat()) {
        assert_eq!(one["congestion"], "reno");
        assert_eq!((&one["qps"], &one["depth"], &one["wait"]), (&3.into(), &8.into(), &"event".into()));
        assert_eq!((&one["crc"], &one["markers"]), (&false.into(), &(one["op"] != "tcp").into()));
        assert_eq!((&one["mss"], &one["stable"]), (&1448.into(), &false.into()));
        assert!(one["bytes_per_s"].as_f64().unwrap() > 0.0, "{one}");
    }
}

/// The smallest messages, one at a time; and one that is longer than all buffers together.
#[test]
fn extremes_work() {
    for args in [["--size", "1", "--depth", "1"], ["--size", "4M", "--depth", "2"]] {
        for wait in ["poll", "event"] {
            let results = local(&[&args[..], &["--wait", wait]].concat());
            assert_eq!(results.len(), 4);
        }
    }
}

/// Results alone: a row for each.
#[test]
fn a_quiet_measurement_prints_its_rows_alone() {
    let args = ["perf", "local", "-q", "--op", "tcp,write", "--size", "64,4K", "--duration", "0.05"];
    let rows = run(&args).ok().stdout;
    assert!(rows.lines().all(|row| row.starts_with("tcp ") || row.starts_with("write ")), "{rows}");
    assert_eq!(rows.lines().count(), 4, "{rows}");
}

#[test]
fn the_table_says_how_many_times_tcp() {
    let ended = run(&[&["perf", "local", "--op", "tcp,write", "--size", "4K"], &FAST[..]].concat()).ok();
    let tcp = ended.stdout.lines().find(|line| line.starts_with("tcp")).unwrap();
    assert!(tcp.split_whitespace().any(|cell| cell == "1.00"), "{ended:?}");
}

#[test]
fn atomic_operations_have_eight_octets() {
    for wait in ["poll", "event"] {
        let results = local(&["--op", "fetch-add,cmp-swap", "--qps", "2", "--wait", wait]);
        assert_eq!(results.len(), 2);
        for (one, op) in results.iter().zip(["fetch-add", "cmp-swap"]) {
            assert_eq!((&one["op"], &one["size"]), (&op.into(), &8.into()));
            assert!(one["messages"].as_u64().unwrap() > 0 && one["lat_us"]["p50"].is_number(), "{one}");
        }
    }
    run(&["perf", "local", "--op", "fetch-add", "--size", "64"]).failed(2, &["fetch-add has 8 octets"]);
}

#[test]
fn the_server_sends_in_reverse_and_both_ends_in_both_directions() {
    let all = ["--op", "tcp,write,send,read,fetch-add", "--size", "8", "--qps", "2"];
    for (direction, name) in [("-R", "reverse"), ("--bidir", "both"), ("-b", "both")] {
        for wait in ["poll", "event"] {
            let results = local(&[&all[..], &["--wait", wait, direction]].concat());
            assert_eq!(results.len(), 5);
            for one in results {
                assert_eq!((&one["direction"], one["lat_us"].is_null()), (&name.into(), true));
                assert!(one["bytes_per_s"].as_f64().unwrap() > 0.0, "{one}");
            }
        }
    }
    run(&["perf", "local", "-R", "-b"]).failed(2, &["cannot be used with"]);
}

#[test]
fn so_many_messages_are_sent_as_were_asked_for() {
    let ops = ["--op", "tcp,write,send,read,cmp-swap", "--size", "8"];
    for (direction, sent) in [(&[][..], 301), (&["-R"], 301), (&["-b"], 602)] {
        let args = [&["perf", "local", "--json", "-n", "301"], &ops[..], direction].concat();
        let found = run(&args).ok().json();
        for one in found["results"].as_array().unwrap() {
            assert_eq!(one["messages"], sent, "{one}");
        }
    }
    run(&["perf", "local", "-n", "2", "--qps", "3"]).failed(2, &["less than the number of connections"]);
    run(&["perf", "local", "-n", "2", "-t", "1"]).failed(2, &["cannot be used with"]);
}

#[test]
fn each_interval_is_a_line_of_its_own() {
    let args = ["perf", "local", "--op", "tcp,write", "-s", "64", "-t", "0.15", "-i", "0.05"];
    let ended = run(&[&args[..], &["-J"]].concat()).ok();
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (results, intervals) = lines.split_last().unwrap();
    // Two thirds of the time, for each operation by turns.
    let ops: Vec<_> = intervals.iter().map(|line| line["interval"]["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["tcp", "write", "tcp", "write"]);
    assert!(intervals[0]["interval"]["from_s"].as_f64().unwrap().is_sign_positive(), "it prints -0.00");
    let names = ["op", "size", "from_s", "to_s", "messages", "octets", "bytes_per_s"];
    assert!(lines.iter().all(|line| line["schema"] == 1));
    for (line, next) in intervals.iter().zip(&intervals[2..]) {
        assert_eq!(keys(&line["interval"]), BTreeSet::from(names));
        assert_eq!(line["interval"]["to_s"], next["interval"]["from_s"]);
    }
    for one in results["results"].as_array().unwrap() {
        let of_op = intervals.iter().map(|line| &line["interval"]).filter(|line| line["op"] == one["op"]);
        assert_eq!(of_op.map(|line| line["messages"].as_u64().unwrap()).sum::<u64>(), one["messages"]);
    }
    let text = run(&args).ok().stdout;
    assert_eq!(text.lines().filter(|line| line.contains(" Gbit/s)")).count(), 4, "{text}");
    // An interval that is longer than the time ends with it.
    let args = ["perf", "local", "--op", "write", "-s", "64", "-t", "0.15", "-i", "60", "-J"];
    let text = run(&args).ok().stdout;
    let interval: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(interval["interval"]["to_s"].as_f64().unwrap() < 30.0, "{text}");
}

#[test]
fn options_of_perftest_and_iperf3_are_known() {
    let server = server();
    let port = server.addr.port().to_string();
    for more in [["-s", "64", "-D", "0.05"], ["-l", "64", "-t", "0.05"]] {
        let args = [&["perf", "client", "127.0.0.1", "-p", &port, "-P", "2", "-M", "1448", "-J"], &more[..]];
        let found = run(&args.concat()).ok().json();
        for one in found["results"].as_array().unwrap() {
            assert_eq!((&one["size"], &one["qps"]), (&64.into(), &2.into()));
        }
    }
}

#[test]
fn the_table_says_how_many_messages_a_call_of_tcp_has() {
    for (size, says) in [("64", true), ("1M", false)] {
        let ended = run(&[&["perf", "local", "--op", "tcp,write", "--size", size], &FAST[..]].concat()).ok();
        let told =
            |op| ended.stdout.lines().any(|row| row.starts_with(op) && row.contains("16 messages a call"));
        assert_eq!((told("tcp"), told("write")), (says, false), "{ended:?}");
    }
}

#[test]
fn figures_of_spinning_threads_on_one_processor_are_called_spoiled() {
    let args = ["perf", "local", "--op", "tcp,write", "--size", "64", "--duration", "0.3"];
    let ended = Ended::from(on_processor(0, &command(&args)).output().unwrap()).ok();
    let spoiled = ended.stdout.lines().filter(|row| row.contains("% for a processor")).count();
    assert_eq!(spoiled, 2, "{ended:?}");
    assert!(ended.stdout.contains("Spoiled by load"), "{ended:?}");
}

#[test]
fn what_was_asked_for_is_told() {
    let asked =
        ["perf", "local", "--pin", "--large-fpdus", "--stable", "--op", "read", "--size", "64K", "-n", "20"];
    if std::thread::available_parallelism().unwrap().get() < 2 {
        run(&asked).failed(1, &["--pin needs two processors"]);
        return;
    }
    let told = run(&asked).ok();
    assert!(told.stdout.contains("asked for: large FPDUs, stable memory"), "{told:?}");
}

const MESSAGES: [&str; 4] = ["udp", "qp-raw", "qp-record", "qp-udp"];

/// Queue pairs over plain TCP and UDP, and plain UDP sockets.
#[test]
fn other_wires_are_measured_beside_tcp() {
    let ops = ["--op", "tcp,udp,qp-raw,qp-record,qp-udp", "--size", "1,1400"];
    let plain = [&["--qps", "2"][..], &["--depth", "1"], &["-6"], &["-R"], &["-b"]];
    for (more, wait) in plain.iter().flat_map(|more| [(more, "poll"), (more, "event")]) {
        let results = local(&[&ops[..], more, &["--wait", wait]].concat());
        assert_eq!(results.len(), 10);
        for one in &results {
            let op = one["op"].as_str().unwrap();
            assert_eq!(one["lost"].is_u64(), op.ends_with("udp"), "{one}");
            assert!(one["messages"].as_u64().unwrap() > 0, "{one}");
            assert_eq!((&one["crc"], &one["markers"]), (&false.into(), &false.into()));
            let times = !matches!(more, ["-R" | "-b"]);
            assert_eq!(one["lat_us"]["p50"].as_f64().is_some_and(|time| time > 0.0), times, "{one}");
            // A plain socket of UDP sends each by a call of its own.
            assert_eq!(one["batch"] == 1, op == "udp" || one["depth"] == 1, "{one}");
        }
    }
}

#[test]
fn so_many_messages_arrive_by_other_wires_as_were_asked_for() {
    let ops = MESSAGES.join(",");
    let found = run(&["perf", "local", "--json", "-n", "301", "--op", &ops, "-s", "64"]).ok().json();
    for one in found["results"].as_array().unwrap() {
        assert_eq!(one["messages"], 301, "{one}");
    }
    // Longer than all buffers together.
    let long = local(&["--op", "qp-raw,qp-record", "--size", "4M", "--depth", "2"]);
    assert!(long.iter().all(|one| one["messages"].as_u64().unwrap() > 0), "{long:?}");
    run(&["perf", "local", "--op", "tcp,udp", "-s", "64K"]).failed(2, &["at most 65507 octets"]);
}

/// Loading a program into the kernel is not for any client to ask for.
#[test]
fn a_server_has_the_kernel_place_only_if_it_was_told_to() {
    for (more, says) in
        [(None, "start rddp perf server with --placement"), (Some("--placement"), "feature `kernel`")]
    {
        let args = ["perf", "server", "--bind", "127.0.0.1", "--port", "0", "--json"];
        let server = Server::start(&args.into_iter().chain(more).collect::<Vec<_>>());
        let begin = r#"{"Begin":{"version":2,"setup":{"op":"write","size":64,"qps":1,"depth":1,"crc":true,
            "markers":false,"place_before_crc":false,"mss":null,"placement":"auto","wait":"poll"},"places":[]}}"#;
        let mut stream = TcpStream::connect(server.addr).unwrap();
        stream.write_all(&[&(begin.len() as u32).to_be_bytes(), begin.as_bytes()].concat()).unwrap();
        let mut said = String::new();
        // Messages are text behind a length of four octets.
        while !said.contains("Refused") {
            let mut octets = [0; 1024];
            let count = stream.read(&mut octets).unwrap();
            assert!(count > 0, "{said}");
            said += &String::from_utf8_lossy(&octets[..count]);
        }
        assert!(said.contains(says), "{said}");
    }
}

/// The tests' build has no eBPF program.
#[test]
fn placement_in_the_kernel_is_refused_where_it_cannot_be() {
    let server =
        Server::start(&["perf", "server", "--bind", "127.0.0.1", "--port", "0", "--json", "--placement"]);
    let host = server.host();
    let client = ["perf", "client", &host, "--op", "write", "--size", "4K", "--placement"];
    let refused = run(&[&client[..], &["kernel"]].concat());
    refused.failed(1, &["placement in the kernel", "feature `kernel`", "rddp doctor"]);
    run(&[&client[..], &["auto", "--markers", "on"]].concat()).failed(2, &["leave out"]);
    // A plain socket has nothing to place.
    let tcp = ["perf", "client", &host, "--op", "tcp", "-t", "0.05", "--placement", "auto", "--json"];
    assert_eq!(run(&tcp).ok().json()["results"][0]["placement"], "user");
    // Nothing gets lost between two processes of one host.
    let local = run(&["perf", "local", "--placement", "auto"]);
    local.failed(2, &["nothing is lost", "rddp perf server --placement", "rddp perf client"]);
    let found = run(&["perf", "local", "--op", "write", "--size", "64", "-t", "0.05", "--json"]).ok().json();
    let one = &found["results"][0];
    assert_eq!((&one["placement"], one.get("kernel_placed_bytes")), (&"user".into(), None));
}

fn server() -> Server {
    Server::start(&["perf", "server", "--bind", "127.0.0.1", "--port", "0", "--json"])
}

fn client(server: &Server) {
    let host = server.host();
    let found = run(&[&["perf", "client", &host, "--json", "--size", "64"], &FAST[..]].concat()).ok().json();
    assert_eq!(found["results"].as_array().unwrap().len(), 4);
}

#[test]
fn a_server_survives_bad_clients() {
    let server = server();
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\x02{}", b"\xff\xff\xff\xff", b""] {
        TcpStream::connect(server.addr).unwrap().write_all(rubbish).unwrap();
    }
    let silent = TcpStream::connect(server.addr).unwrap();
    client(&server);
    let rdma = server.listening["rdma"].as_str().unwrap();
    run(&["ping", rdma]).failed(5, &["this is rddp perf"]);
    drop(silent);
    client(&server);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_server_survives_clients_that_die() {
    let server = server();
    for op in ["tcp", "write", "send", "read"].into_iter().chain(MESSAGES) {
        for wait in ["poll", "event"] {
            let settings = ["--op", op, "--wait", wait, "--duration", "60", "--qps", "2", "--size", "64"];
            // In one of them, the server is the end that sends.
            let direction: &[&str] = if wait == "poll" { &["-R"] } else { &[] };
            let host = server.host();
            let args = [&["perf", "client", &host], &settings[..], direction].concat();
            let mut dying = command(&args).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(150));
            dying.kill().unwrap();
            dying.wait().unwrap();
        }
    }
    client(&server);
}

#[test]
fn a_server_names_the_reason_of_a_refusal() {
    let server = server();
    let setup = r#"{"op":"write","reverse":false,"size":4000000000,"qps":200,"depth":1,"crc":true,"markers":false,"place_before_crc":false,"mss":null,"wait":"poll"}"#;
    let answer =
        first_answer(&server, &format!(r#"{{"Begin":{{"version":2,"setup":{setup},"places":[]}}}}"#));
    assert!(answer.contains("Refused") && answer.contains("of memory at each end"), "{answer}");
    let unknown =
        setup.replace(r#""mss":null"#, r#""mss":null,"congestion":"of-no-host""#).replace("4000000000", "64");
    let answer =
        first_answer(&server, &format!(r#"{{"Begin":{{"version":2,"setup":{unknown},"places":[]}}}}"#));
    assert!(answer.contains("of-no-host") && answer.contains("this host has none"), "{answer}");
    let old = setup.replace(r#""reverse":false,"#, "");
    let answer = first_answer(&server, &format!(r#"{{"Begin":{{"version":1,"setup":{old},"places":[]}}}}"#));
    assert!(answer.contains("the client speaks version 1, this server 2"), "{answer}");
}

/// Sends a first message to a server, and returns the answer.
fn first_answer(server: &Server, begin: &str) -> String {
    let mut channel = TcpStream::connect(server.addr).unwrap();
    channel.write_all(&u32::try_from(begin.len()).unwrap().to_be_bytes()).unwrap();
    channel.write_all(begin.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut len = [0; 4];
    std::io::Read::read_exact(&mut channel, &mut len).unwrap();
    std::io::Read::read_to_string(&mut channel, &mut answer).unwrap();
    answer
}

#[test]
fn a_missing_server_is_told_from_another_service() {
    let addr = free_port().to_string();
    run(&["perf", "client", &addr]).failed(3, &["nothing listens on", "rddp perf server"]);
    let addr = plain_service(b"220 mail.example ESMTP\r\n").to_string();
    run(&["perf", "client", &addr]).failed(3, &["no rddp perf"]);
    // One that closes without a word.
    let addr = plain_service(b"").to_string();
    run(&["perf", "client", &addr]).failed(3, &["is it rddp perf server that listens on", &addr]);
}
