//! Output for people and for programs: forms of JSON, times, and words about failures.

use std::process::Stdio;

use serde_json::Value;

use crate::peer::Peer;
use crate::program::{Server, command, free_port, run};

fn object(line: &str) -> Value {
    let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert_eq!(object["schema"], 1, "{line}");
    object
}

/// Checks a time as RFC 3339 writes it, in UTC.
#[track_caller]
fn is_time(text: &str) {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert!(shape.starts_with("0000-00-00T00:00:00.") && shape.ends_with('Z'), "{text}");
}

fn serve(more: &[&str]) -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "octets").unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    (dir, Server::start(&[&["serve", &path, "--port", "0", "--json"], more].concat()))
}

#[test]
fn failures_are_objects_where_results_are() {
    let nobody = free_port().to_string();
    for args in [&["ping", &nobody, "--json"][..], &["get", &format!("{nobody}/file"), "--json"]] {
        let ended = run(args);
        let error = &object(&ended.stderr)["error"];
        assert_eq!((ended.code, &error["exit_code"], &error["kind"]), (3, &3.into(), &"peer".into()));
        assert_eq!(error["cause"], format!("nothing listens on {nobody}"));
        assert!(error["remedy"].is_string() && ended.stdout.is_empty(), "{ended:?}");
    }
    let ended = run(&["ping", "host", "--size", "1", "--json"]);
    let error = &object(&ended.stderr)["error"];
    assert_eq!((ended.code, &error["exit_code"], &error["kind"]), (2, &2.into(), &"usage".into()));
    run(&["ping", "--help", "--json"]).ok();
    let ended = run(&["perf", "client", "-J"]);
    let error = &object(&ended.stderr)["error"];
    assert_eq!(error["cause"], "the following required arguments were not provided: <HOST[:PORT]>");
    assert_eq!(error["remedy"], "rddp perf client --json <HOST[:PORT]>");
}

#[test]
fn a_servers_objects_have_times() {
    let (_dir, mut server) = serve(&[]);
    is_time(server.listening["time"].as_str().unwrap());
    assert_eq!(server.listening["schema"], 1);
    let host = server.host();
    let got = run(&["get", &format!("{host}/file"), "-"]).ok();
    assert_eq!(got.stdout, "octets");
    assert!(got.stderr.contains(" MB/s (") && got.stderr.contains(" Gbit/s)"), "{got:?}");
    let served = object(&server.line());
    is_time(served["time"].as_str().unwrap());
    assert_eq!(served["op"], "get");
    run(&["get", &format!("{host}/missing"), "-"]).failed(5, &["no such file"]);
    let refused = object(&server.complaint());
    is_time(refused["time"].as_str().unwrap());
    assert_eq!(refused["error"]["cause"], "missing: no such file");
}

#[test]
fn a_servers_lines_have_times() {
    use std::io::{BufRead, BufReader};
    let mut server = command(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--count", "1"]);
    let mut server = server.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    let host = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    run(&["ping", host, "--count", "1"]).ok();
    for line in std::iter::once(line).chain(lines) {
        is_time(line.split(' ').next().unwrap());
    }
    assert_eq!(crate::program::wait(&mut server), 0);
}

/// The served directory itself has no name of its own.
#[test]
fn the_server_names_the_tree_that_it_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let [served, sent] = ["served", "sent"].map(|name| dir.path().join(name));
    std::fs::create_dir(&served).unwrap();
    std::fs::create_dir(&sent).unwrap();
    std::fs::write(sent.join("file"), "octets").unwrap();
    let mut server =
        Server::start(&["serve", served.to_str().unwrap(), "--writable", "--port", "0", "--json"]);
    let remote = format!("{}/", server.host());
    let put = run(&["put", "-r", sent.to_str().unwrap(), &remote]).ok();
    assert!(put.stdout.starts_with("1 file: "), "{}", put.stdout);
    let told = object(&server.line());
    assert_eq!((&told["op"], &told["file"], &told["files"]), (&"put".into(), &".".into(), &1.into()));
}

/// The first line of a quiet server is its address; it tells of clients only what went wrong.
#[test]
fn quiet_and_verbose_may_stand_before_the_subcommand() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "octets").unwrap();
    let path = dir.path().to_str().unwrap();
    for args in [["-q", "serve", path], ["serve", "-q", path]] {
        let mut server = Server::start(&[&args[..], &["--port", "0", "--json"]].concat());
        let remote = format!("{}/file", server.host());
        assert_eq!(run(&["-q", "get", &remote, "-"]).ok().stdout, "octets");
        assert_eq!(run(&["get", &remote, "-", "-q"]).ok().stdout, "octets");
        assert_eq!(crate::program::interrupt(server.child()), 0);
        assert_eq!(server.line(), "");
    }
    for args in [["-v", "ping", "127.0.0.1:1"], ["ping", "127.0.0.1:1", "-v"]] {
        run(&args).failed(3, &["INFO connecting"]);
    }
}

#[test]
fn a_quiet_ping_prints_its_sum_and_a_quiet_server_nothing() {
    let port = free_port().port().to_string();
    let server = ["ping", "--server", "-q", "-C", "1", "--bind", "127.0.0.1", "-p", &port];
    let server = command(&server).stdout(Stdio::piped()).spawn().unwrap();
    let pinged = loop {
        let pinged = run(&["ping", "-q", "-C", "2", "127.0.0.1", "-p", &port]);
        // The server may not listen yet.
        if !pinged.stderr.contains("nothing listens") {
            break pinged.ok();
        }
    };
    let lines: Vec<_> = pinged.stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains(": 2 rounds, no octet different"), "{lines:?}");
    assert_eq!(String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap(), "");
}

#[test]
fn a_server_of_files_is_recognised_by_others() {
    let (_dir, server) = serve(&[]);
    let is_serve = "this is rddp serve: use rddp put or rddp get";
    run(&["ping", &server.host()]).failed(5, &[is_serve]);
    let found = run(&["doctor", &server.host()]).ok();
    assert!(found.stdout.contains(is_serve), "{found:?}");
}

#[test]
fn a_path_as_scp_writes_it_is_answered_with_the_right_form() {
    run(&["put", "/etc/hostname", "host:/path"]).failed(2, &["try: write host/path"]);
    run(&["get", "host:path"]).failed(2, &["try: write host/path"]);
}

#[test]
fn a_log_filter_that_shows_nothing_is_told_of() {
    let with = |filter: &str, more: &[&str]| {
        let output = command(&[&["doctor"], more].concat()).env("RUST_LOG", filter).output().unwrap();
        crate::program::Ended::from(output).stderr
    };
    assert!(with("rddp_rnic=loud", &[]).contains("rddp: RUST_LOG: "));
    assert!(with("debgu", &[]).contains("RUST_LOG: \"debgu\" is no level"));
    let warning = object(&with("debgu", &["--json"]));
    assert!(warning["warning"].as_str().unwrap().starts_with("RUST_LOG: "), "{warning}");
    for good in ["", "error", "rddp_rnic=error,warn", "rddp_cli"] {
        assert!(!with(good, &[]).contains("RUST_LOG"), "{good}");
    }
}

#[test]
fn objects_of_all_commands_have_a_schema() {
    let ping = Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    assert_eq!(ping.listening["schema"], 1);
    object(&run(&["ping", &ping.host(), "--count", "1", "--json"]).ok().stdout);
    object(&run(&["doctor", "--json"]).ok().stdout);
    object(&run(&["perf", "local", "--duration", "0.05", "--size", "64", "--json"]).ok().stdout);
    // A client that breaks the protocol is told of as an object, too.
    let mut ping = ping;
    Peer::connect(ping.addr, b"").say(b"rubbish");
    while !ping.complaint().contains(r#""schema":1"#) {}
}
