//! `rddp ping`, both roles.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use rddp_rnic::{ConnectOptions, Rnic};

use crate::peer::Peer;
use crate::program::{Server, command, free_port, interrupt, nobody, plain_service, run, until};

const SERVER: [&str; 6] = ["ping", "--server", "--bind", "127.0.0.1", "--port", "0"];

fn server(more: &[&str]) -> Server {
    Server::start(&[&SERVER[..], &["--json"], more].concat())
}

#[test]
fn rounds_are_counted_and_timed() {
    let server = server(&["--count", "2"]);
    for size in ["64", "65535"] {
        let found = run(&["ping", &server.host(), "--count", "20", "--size", size, "--json"]).ok().json();
        assert_eq!((found["rounds"].as_u64(), found["size"].to_string()), (Some(20), size.to_owned()));
        assert_eq!(found["agreed"]["crc"], true);
        let us = &found["us"];
        let [min, p50, max] = ["min", "p50", "max"].map(|name| us[name].as_f64().unwrap());
        assert!(0.0 < min && min <= p50 && p50 <= max * 1.01, "{us}");
    }
    assert_eq!(server.ended(), 0);
}

#[test]
fn connections_of_an_rnic_are_not_framed_once_more() {
    let rddp = env!("CARGO_BIN_EXE_rddp");
    for family in ["--ddp", "--both"] {
        let switched = ["run", family, "--", rddp];
        // If only one end framed its RDMA connection once more, the other would not understand it.
        for [server, client] in [[&switched[..], &[]], [&[], &switched[..]], [&switched[..]; 2]] {
            let server = Server::start(&[server, &SERVER, &["--json", "--count", "1"]].concat());
            let host = server.host();
            let ended = run(&[client, &["ping", &host, "--count", "3", "--json"]].concat()).ok();
            assert_eq!(ended.json()["rounds"].as_u64(), Some(3));
            assert_eq!(server.ended(), 0);
        }
    }
}

#[test]
fn each_round_is_a_line_for_people() {
    let server = server(&[]);
    let port = server.addr.port().to_string();
    let ended = run(&["ping", "127.0.0.1", "--port", &port, "--count", "3"]).ok();
    assert_eq!(ended.stdout.lines().filter(|line| line.contains("round=")).count(), 3, "{ended:?}");
    assert!(ended.stdout.contains("3 rounds, no octet different"), "{ended:?}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn clients_are_served_at_the_same_time() {
    let server = server(&[]);
    let host = server.host();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| run(&["ping", &host, "--count", "20"]).ok());
        }
    });
}

#[test]
fn a_client_that_breaks_the_protocol_hurts_nobody_else() {
    use std::io::Write;
    let server = server(&[]);
    let mut rubbish = std::net::TcpStream::connect(server.addr).unwrap();
    rubbish.write_all(&[0xff; 100]).unwrap();
    let silent = std::net::TcpStream::connect(server.addr).unwrap();
    run(&["ping", &server.host(), "--count", "3"]).ok();
    drop(silent);
}

#[test]
fn ctrl_c_ends_with_the_summary() {
    let server = server(&[]);
    let mut client =
        command(&["ping", &server.host(), "--interval", "0.01"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().contains("round=2")));
    assert_eq!(interrupt(&mut client), 0);
    assert!(lines.any(|line| line.unwrap().contains("no octet different")));
}

#[test]
fn a_connection_that_ends_between_two_rounds_ends_the_ping() {
    for graceful in [true, false] {
        let mut server = server(&[]);
        let client = command(&["ping", &server.host(), "--interval", "3600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut client = client.unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("round=0")));
        if graceful {
            assert_eq!(server.stop(), 0);
        } else {
            server.child().kill().unwrap();
        }
        assert_eq!(crate::program::wait(&mut client), 3);
        let said = std::io::read_to_string(client.stderr.take().unwrap()).unwrap();
        assert!(said.contains("closed the connection, or it was lost"), "{said}");
    }
}

#[test]
fn a_missing_server_is_named_as_such() {
    let addr = free_port().to_string();
    run(&["ping", &addr]).failed(3, &[&format!("nothing listens on {addr}"), "try: start"]);
}

#[test]
fn a_server_that_is_no_iwarp_listener_is_named_as_such() {
    for greeting in [&b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"[..], b""] {
        let addr = plain_service(greeting).to_string();
        run(&["ping", &addr]).failed(3, &[&addr, "MPA", "try: is it an iWARP listener"]);
    }
}

/// rping checks the length of what it receives: 16 octets.
#[test]
fn an_answer_of_another_length_is_refused() {
    let listener = Rnic::open().unwrap().listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default());
    let listener = listener.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    for len in [0, 1, 15] {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| run(&["ping", &addr, "--count", "1"]));
            let server = Peer::accept(listener.accept(Some(Duration::from_secs(60))).unwrap().unwrap(), b"");
            assert_eq!(server.next().map(|(_, len)| len), Some(16));
            server.say(&vec![0; len]);
            client.join().unwrap().failed(3, &[&format!("a message of {len} octets, not rping's 16")]);
        });
    }
}

#[test]
fn a_ping_server_whose_output_nobody_reads_goes_on() {
    let mut server = command(&SERVER).stdout(Stdio::piped()).stderr(nobody()).spawn().unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let host = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    for _ in 0..3 {
        // The line about this client goes to standard error.
        Peer::connect(host.parse().unwrap(), b"").say(b"rubbish");
        run(&["ping", host, "--count", "3"]).ok();
    }
    assert_eq!(interrupt(&mut server), 0);
}

#[test]
fn a_server_that_tells_in_detail_goes_on_when_nobody_reads() {
    let mut server = command(&[&["-vv"], &SERVER[..], &["--json"]].concat());
    let mut server = server.stdout(Stdio::piped()).stderr(nobody()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let host = line["listening"].as_str().unwrap();
    let ended = [(); 3].map(|()| run(&["ping", host, "--count", "3"]).code);
    assert_eq!((interrupt(&mut server), ended), (0, [0; 3]));
}

#[test]
fn a_client_whose_output_nobody_reads_ends_as_by_sigpipe() {
    let server = server(&[]);
    let mut client = command(&["ping", &server.host(), "--interval", "0.01"]);
    let mut client = client.stdout(nobody()).stderr(Stdio::piped()).spawn().unwrap();
    let mut code = None;
    until("it ends", || {
        code = client.try_wait().unwrap();
        code.is_some()
    });
    assert_eq!(code.unwrap().code(), Some(141));
    assert_eq!(std::io::read_to_string(client.stderr.take().unwrap()).unwrap(), "");
}

#[test]
fn a_failure_that_nobody_reads_keeps_its_exit_code() {
    let mut client = command(&["ping", &free_port().to_string()]).stderr(nobody()).spawn().unwrap();
    assert_eq!(crate::program::wait(&mut client), 3);
}
