//! Runs the examples over loopback.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const CLIENT_SERVER: &str = env!("CARGO_BIN_EXE_client_server");
const SHARED_RECEIVES: &str = env!("CARGO_BIN_EXE_shared_receives");
const KV: &str = env!("CARGO_BIN_EXE_kv");
const MESSAGES: &str = env!("CARGO_BIN_EXE_messages");
const KV_TCP: &str = env!("CARGO_BIN_EXE_kv_tcp");

/// A server, which ends with this.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    addr: String,
}

impl Server {
    fn start(program: &str, word: &str, more: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args([word, "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut out, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        out.read_line(&mut line).unwrap();
        let addr = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Server { child, out, addr }
    }

    /// Runs a client to its end.
    fn client(&self, program: &str, word: &str, more: &[&str]) -> Output {
        Command::new(program).args([word, &self.addr]).args(more).output().unwrap()
    }

    /// Returns what a client prints that is to succeed.
    fn says(&self, program: &str, word: &str, more: &[&str]) -> String {
        let output = self.client(program, word, more);
        assert!(output.status.success(), "{more:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_writes_and_the_server_answers() {
    let server = Server::start(CLIENT_SERVER, "server", &[]);
    for text in ["hello", "hello again"] {
        assert_eq!(server.says(CLIENT_SERVER, "client", &[text]), format!("{}\n", text.to_uppercase()));
    }
}

#[test]
fn messages_of_all_clients_come_by_one_queue() {
    let mut server = Server::start(SHARED_RECEIVES, "server", &["6"]);
    for texts in [["a", "b"], ["c", "d"], ["e", "f"]] {
        server.says(SHARED_RECEIVES, "client", &texts);
    }
    let mut printed = String::new();
    server.out.read_to_string(&mut printed).unwrap();
    let lines: Vec<(&str, &str)> = printed.lines().map(|line| line.split_once(": ").unwrap()).collect();
    let mut texts: Vec<&str> = lines.iter().map(|(_, text)| *text).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["a", "b", "c", "d", "e", "f"]);
    let of = |text| lines.iter().find(|line| line.1 == text).unwrap().0;
    assert!(of("a") == of("b") && of("a") != of("c") && of("a").starts_with("client "), "{printed}");
}

#[test]
fn a_value_is_found_by_a_read_as_it_is_by_tcp() {
    for program in [KV, KV_TCP] {
        let server = Server::start(program, "serve", &[]);
        assert!(!server.client(program, "get", &["colour"]).status.success());
        server.says(program, "put", &["colour", "red"]);
        assert_eq!(server.says(program, "get", &["colour"]), "red\n");
        server.says(program, "put", &["colour", "bright blue"]);
        server.says(program, "put", &["shape", "round"]);
        assert_eq!(server.says(program, "get", &["colour"]), "bright blue\n");
        assert_eq!(server.says(program, "get", &["shape"]), "round\n");
    }
}

#[test]
fn datagrams_are_echoed_and_records_go_to_all_others() {
    let server = Server::start(MESSAGES, "serve", &[]);
    let program = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut talkers = [0, 1, 2].map(|_| TcpStream::connect(&server.addr).unwrap());
    for talker in &mut talkers {
        let mut begun = [1; 4];
        talker.read_exact(&mut begun).unwrap();
        assert_eq!(begun, [0; 4]);
    }
    for round in 1..4 {
        let (len, octet) = (100 * round, round as u8);
        program.send_to(&vec![octet; len], &server.addr).unwrap();
        let mut octets = vec![0; 512];
        assert_eq!(program.recv(&mut octets).unwrap(), len);
        assert_eq!(octets[..len], vec![octet; len]);
        let record = [&(len as u32).to_be_bytes()[..], &vec![octet; len]].concat();
        talkers[0].write_all(&record).unwrap();
        for talker in &mut talkers[1..] {
            let mut octets = vec![0; record.len()];
            talker.read_exact(&mut octets).unwrap();
            assert_eq!(octets, record);
        }
    }
}

#[test]
fn an_entry_that_is_too_long_is_refused() {
    let server = Server::start(KV, "serve", &[]);
    assert!(!server.client(KV, "put", &["key", &"x".repeat(300)]).status.success());
    server.says(KV, "put", &["key", &"x".repeat(240)]);
    assert_eq!(server.says(KV, "get", &["key"]).len(), 241);
}
