//! `rddp ping`, both roles.

use std::process::Stdio;

use crate::program::{Server, command, free_port, interrupt, plain_service, run};

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
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(client.stdout.take().unwrap()));
    assert!(lines.by_ref().any(|line| line.unwrap().contains("round=2")));
    assert_eq!(interrupt(&mut client), 0);
    assert!(lines.any(|line| line.unwrap().contains("no octet different")));
}

#[test]
fn nobody_there_is_named_as_such() {
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
