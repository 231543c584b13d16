//! Peers that speak RDMA correctly and break the protocol above it.

use std::fs;
use std::net::SocketAddr;

use rddp_rnic::{Access, ConnectError, QpState, Remote, SendWr, Stag};
use serde_json::{Value, json};

use crate::peer::{FILES, Peer};
use crate::program::{Ended, Server, run, until};

fn serve() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let args = ["serve", dir.path().to_str().unwrap(), "--writable", "--port", "0", "--json", "--idle", "2"];
    let server = Server::start(&args);
    (dir, server)
}

/// Begins a put of `size` octets, up to the server's description of its memory.
fn begin_put(server: &Server, size: u64) -> (Peer, Value) {
    let peer = Peer::connect(server.addr, FILES);
    peer.say_json(&json!({"Put": {"path": "file", "size": size, "mode": 0o644}}));
    let take = peer.hear().unwrap();
    peer.say_json(&json!({"From": {"offset": 0}}));
    (peer, take)
}

fn put_proof(server: &Server) -> Ended {
    let file = tempfile::NamedTempFile::new().unwrap();
    run(&["put", file.path().to_str().unwrap(), &format!("{}/proof", server.host())])
}

fn still_works(server: &Server) {
    put_proof(server).ok();
}

#[test]
fn messages_that_make_no_sense_end_the_connection_only() {
    let (dir, server) = serve();
    let long = "x".repeat(5000);
    for octets in [&b""[..], b"rubbish", b"{}", br#"{"Put":{}}"#, br#""Busy2""#, b"\xff\xff", long.as_bytes()]
    {
        let peer = Peer::connect(server.addr, FILES);
        peer.say(octets);
        let said = peer.hear().unwrap();
        assert!(said["Refused"]["reason"].as_str().unwrap().contains("out of step"), "{said}");
        drop(peer);
    }
    let peer = Peer::connect(server.addr, FILES);
    // A message longer than any receive: RFC 5041 §7.1.
    peer.say(&[b' '; 20_000]);
    peer.is_ended();
    assert_eq!(peer.qp.terminate_received().unwrap().code.0, 0x1205);
    still_works(&server);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn chunks_that_do_not_fit_are_refused() {
    let (dir, server) = serve();
    for chunk in [
        json!({"slot": 8, "offset": 0, "len": 10}),
        json!({"slot": 0, "offset": 1, "len": 1000}),
        json!({"slot": 0, "offset": 0, "len": 1_000_000_000}),
        json!({"slot": 0, "offset": 0, "len": 1001}),
        json!({"slot": 0, "offset": u64::MAX, "len": 1}),
        json!({"slot": -1, "offset": 0, "len": 1}),
    ] {
        let (peer, _) = begin_put(&server, 1000);
        peer.say_json(&json!({"Chunk": chunk}));
        let said = peer.hear().unwrap();
        assert!(said["Refused"]["reason"].as_str().unwrap().contains("out of step"), "{chunk}: {said}");
    }
    assert!(!dir.path().join("file").exists());
    still_works(&server);
}

#[test]
fn more_than_there_is_room_for_is_refused_before_it_comes() {
    let (_dir, server) = serve();
    let peer = Peer::connect(server.addr, FILES);
    peer.say_json(&json!({"Put": {"path": "file", "size": i64::MAX, "mode": 0o644}}));
    let said = peer.hear().unwrap();
    assert!(said["Refused"]["reason"].as_str().unwrap().contains("no space left"), "{said}");
    still_works(&server);
}

#[test]
fn a_path_that_is_too_long_is_refused() {
    let (_dir, mut server) = serve();
    let path = "\u{7f}".repeat(7000);
    for ask in [
        json!({"Get": {"path": path, "have": 0, "sha256": ""}}),
        json!({"Put": {"path": path, "size": 0, "mode": 0}}),
    ] {
        let peer = Peer::connect(server.addr, FILES);
        peer.say_json(&ask);
        let said = peer.hear().expect("a refusal");
        assert!(said["Refused"]["reason"].as_str().unwrap().contains("out of step"), "{said}");
        assert!(server.complaint().len() < 400);
    }
    still_works(&server);
}

#[test]
fn a_client_that_is_busy_for_ever_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--writable", "--port", "0", "--json", "--idle", "0.1"];
    let server = Server::start(&[&["serve", dir.path().to_str().unwrap()][..], &args].concat());
    let peer = Peer::connect(server.addr, FILES);
    until("the server has had enough", || {
        peer.say_json(&json!("Busy"));
        peer.qp.state() != QpState::ReadyToSend || peer.qp.terminate_received().is_some()
    });
    // On a busy machine, a client of ours may take longer than this one may here, too.
    until("the server serves others", || put_proof(&server).code == 0);
}

#[test]
fn memory_beyond_the_window_is_out_of_reach() {
    let (_dir, server) = serve();
    let (_, take) = begin_put(&server, 1000);
    let place = |take: &Value| {
        let window = &take["Take"]["window"];
        let stag = Stag(u32::try_from(window["stag"].as_u64().unwrap()).unwrap());
        Remote { stag, to: window["to"].as_u64().unwrap() }
    };
    // The memory of another connection, by its STag.
    let (peer, own) = begin_put(&server, 1000);
    let source = peer.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    peer.qp.post_send(&SendWr::write(3, source.whole(), place(&take))).unwrap();
    peer.is_ended();
    assert!(peer.qp.terminate_received().is_some());
    drop((peer, own));
    // Octets behind the end of the connection's own memory.
    let (peer, own) = begin_put(&server, 1000);
    let mut beyond = place(&own);
    beyond.to += 8 * 512 * 1024 - 63;
    let source = peer.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    peer.qp.post_send(&SendWr::write(3, source.whole(), beyond)).unwrap();
    peer.is_ended();
    assert_eq!(peer.qp.terminate_received().unwrap().code.0, 0x1101);
    drop(peer);
    // Memory that may be written to is not read from.
    let (peer, own) = begin_put(&server, 1000);
    let sink = peer.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    peer.qp.post_send(&SendWr::read(3, sink.whole(), place(&own))).unwrap();
    peer.is_ended();
    assert!(peer.qp.terminate_received().is_some());
    still_works(&server);
}

#[test]
fn a_ping_client_that_asks_for_too_much_is_let_go() {
    let server = Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    let advert = |stag: u32, len: u32| [&[0; 8][..], &stag.to_be_bytes(), &len.to_be_bytes()].concat();
    for message in [advert(7, 64), advert(7, u32::MAX), vec![0; 17], Vec::new()] {
        let peer = Peer::connect(server.addr, b"");
        peer.say(&message);
        peer.is_ended();
    }
    run(&["ping", &server.host(), "--count", "3"]).ok();
}

#[test]
fn a_data_connection_of_no_session_is_closed() {
    let server = Server::start(&["perf", "server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    let rdma: SocketAddr = server.listening["rdma"].as_str().unwrap().parse().unwrap();
    assert!(matches!(Peer::try_connect(rdma, b"hello"), Err(ConnectError::Rejected { .. })));
    assert!(Peer::try_connect(rdma, &[7; 10]).is_err());
    let args = ["perf", "client", &server.host(), "--op", "write", "--size", "64", "--duration", "0.05"];
    run(&args).ok();
}
