//! `rddp portmap`, the server and the client, over the loopback at a port of the test's own.

use std::net::UdpSocket;
use std::time::Duration;

use rddp_iwarp::port_mapper::{Frame, Kind};

use crate::program::{Server, run};

fn server(bind: &str, mappings: &[&str]) -> Server {
    Server::start(&[&["portmap", "--json", "--port", "0", "--bind", bind], mappings].concat())
}

fn ask(server: &Server, service: &str) -> crate::program::Ended {
    let (host, port) = (server.addr.ip().to_string(), server.addr.port().to_string());
    run(&["portmap", "--ask", &host, service, "--port", &port, "--json"])
}

#[test]
fn a_service_is_found_at_the_port_that_it_was_mapped_to() {
    for host in ["127.0.0.1", "::1"] {
        let server = server(host, &["5001=49200", "7174=7174"]);
        let found = ask(&server, "5001").ok().json();
        assert_eq!((found["port"].as_u64(), &found["answered"]), (Some(49200), &true.into()), "{found}");
        assert_eq!(ask(&server, "7174").ok().json()["port"], 7174);
        ask(&server, "80").failed(5, &["knows of no service 80"]);
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn with_all_each_service_is_where_it_is_known_to_be() {
    let server = server("127.0.0.1", &["--all"]);
    assert_eq!(ask(&server, "5001").ok().json()["port"], 5001);
    assert_eq!(server.stop(), 0);
}

#[test]
fn without_mappings_there_is_help_and_no_server() {
    run(&["portmap"]).failed(2, &["Usage: rddp portmap", "--all"]);
    run(&["portmap", "--port", "0"]).failed(2, &["required", "--all"]);
    run(&["portmap", "--all", "5001=49200"]).failed(2, &["cannot be used with"]);
}

#[test]
fn a_host_without_a_port_mapper_is_said_to_have_none() {
    // Nobody else may have this port, and nobody answers at it.
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    taken.connect(taken.local_addr().unwrap()).unwrap();
    let ended = run(&["portmap", "--ask", "127.0.0.1", "5001", "--port", &port, "--json"]);
    assert_eq!(ended.json()["answered"], false);
    ended.failed(3, &["no port mapper answers"]);
    run(&["portmap", "--ask", "127.0.0.1", "many"]).failed(2, &["is no port"]);
    run(&["portmap", "5001"]).failed(2, &["5001=49200"]);
}

/// A hand-made client: what is malformed is dropped, and a Request that comes twice is answered
/// twice alike.
#[test]
fn the_server_answers_requests_and_nothing_else() {
    let server = server("127.0.0.1", &["5001=49200"]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.addr).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = Frame {
        kind: Kind::Request,
        time: 0,
        ap: "127.0.0.1:5001".parse().unwrap(),
        cp: "127.0.0.1:40000".parse().unwrap(),
        handle: 0x0102_0304_0506_0708,
        mapped_cp: Some("127.0.0.1:49999".parse().unwrap()),
    };
    let mut wrong_version = request.octets().to_vec();
    wrong_version[0] |= 0x40;
    for dropped in [&wrong_version, &request.octets()[..47], &[][..]] {
        client.send(dropped).unwrap();
    }
    let accepted =
        Frame { kind: Kind::Accept, mapped_cp: None, ap: "127.0.0.1:49200".parse().unwrap(), ..request };
    let mut octets = [0; 100];
    for _ in 0..2 {
        client.send(&request.octets()).unwrap();
        let len = client.recv(&mut octets).unwrap();
        assert_eq!(octets[..len], *accepted.octets());
    }
    assert_eq!(server.stop(), 0);
}
