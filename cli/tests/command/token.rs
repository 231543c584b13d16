//! Access to `rddp serve`: by default from this host only and without put; with a token, only for
//! clients that have it.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use rddp_rnic::{ConnectError, ConnectOptions, ConnectRequest, Listener, Rnic};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::peer::{FILES, Peer};
use crate::program::{Ended, Server, command, run};

const SECRET: &str = "tell nobody of this";

/// A served directory with a file in it, tokens, and room for other files.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        let dir = Dir(tempfile::tempdir().unwrap());
        fs::create_dir(dir.path("served")).unwrap();
        fs::write(dir.path("served/file"), "octets").unwrap();
        dir.token("token", &format!("{SECRET}\n"), 0o600);
        dir.token("other", "another of sixteen octets", 0o640);
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn token(&self, name: &str, text: &str, mode: u32) -> String {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        self.text(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, more: &[&str]) -> Server {
        Server::start(&[&["serve", &self.text("served"), "--port", "0", "--json"], more].concat())
    }

    fn get(&self, host: &str, more: &[&str]) -> Ended {
        run(&[&["get", &format!("{host}/file"), &self.text("got")], more].concat())
    }
}

fn listen() -> (Listener, String) {
    let listener = Rnic::open().unwrap().listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default());
    let listener = listener.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    (listener, host)
}

fn accept(listener: &Listener) -> ConnectRequest {
    listener.accept(Some(Duration::from_secs(60))).unwrap().unwrap()
}

fn mac(nonce: &[u8], request: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(nonce);
    mac.update(request.as_bytes());
    mac.finalize().into_bytes().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn hello(flags: u8) -> Vec<u8> {
    [b"rddp-files 3", &[flags][..]].concat()
}

#[test]
fn nobody_puts_unless_the_server_is_told_so() {
    let dir = Dir::new();
    let server = dir.serve(&[]);
    dir.get(&server.host(), &[]).ok();
    let remote = format!("{}/new", server.host());
    let put = |remote: &str| run(&["put", &dir.text("token"), remote]);
    put(&remote).failed(5, &["read-only", "try: ", "--writable"]);
    let root = format!("{}/", server.host());
    run(&["put", "-r", &dir.text("token"), &root]).failed(5, &["the server: .: this server is read-only"]);
    assert_eq!(fs::read_dir(dir.path("served")).unwrap().count(), 1);
    let server = dir.serve(&["--writable"]);
    put(&format!("{}/new", server.host())).ok();
}

#[test]
fn nobody_else_connects_unless_the_server_is_told_so() {
    let dir = Dir::new();
    assert_eq!(dir.serve(&[]).addr.ip(), IpAddr::from([127, 0, 0, 1]));
    assert_eq!(dir.serve(&["--bind", "0.0.0.0"]).addr.ip(), IpAddr::from([0, 0, 0, 0]));
}

#[test]
fn a_token_is_needed_where_there_is_one_and_only_there() {
    let dir = Dir::new();
    let (token, other) = (dir.text("token"), dir.text("other"));
    let server = dir.serve(&["--token", &token, "--writable"]);
    let host = server.host();
    dir.get(&host, &["--token", &token]).ok();
    assert_eq!(fs::read(dir.path("got")).unwrap(), b"octets");
    run(&["put", &other, &format!("{host}/put"), "--token", &token]).ok();
    dir.get(&host, &[]).failed(5, &["asks for a token", "--token"]);
    dir.get(&host, &["--token", &other]).failed(5, &["not the server's token"]);
    let put = run(&["put", &other, &format!("{host}/no"), "--token", &other]);
    put.failed(5, &["not the server's token"]);
    assert!(!dir.path("served/no").exists());
    let open = dir.serve(&[]);
    dir.get(&open.host(), &["--token", &token]).failed(5, &["has no token", "--token"]);
}

#[test]
fn a_token_file_that_others_can_read_or_that_is_empty_is_refused() {
    let dir = Dir::new();
    let cases = [
        (dir.token("open", SECRET, 0o604), "others can read it", "chmod"),
        (dir.token("written", SECRET, 0o602), "or write to it", "chmod"),
        (dir.token("empty", "\n", 0o600), "it is empty", "--new-token"),
        (dir.token("long", &"x".repeat(5000), 0o600), "longer than 4096 octets", "--new-token"),
        (dir.token("short", "fifteen octets!", 0o600), "shorter than 16 octets", "--new-token"),
        (dir.text("none"), "no such file", "--new-token"),
        (dir.text("served"), "not a regular file", ""),
    ];
    for (token, cause, remedy) in cases {
        let served = dir.text("served");
        run(&["serve", &served, "--port", "0", "--token", &token]).failed(1, &[&token, cause, remedy]);
        dir.get("127.0.0.1:1", &["--token", &token]).failed(1, &[&token, cause, remedy]);
    }
}

#[test]
fn a_new_token_is_made_for_its_user_alone_and_named_by_the_environment() {
    let dir = Dir::new();
    let [new, newer] = ["new", "newer"].map(|name| dir.text(name));
    for path in [&new, &newer] {
        run(&["serve", "--new-token", path]).ok();
        let made = fs::metadata(path).unwrap();
        assert_eq!((made.permissions().mode() & 0o777, made.len()), (0o600, 65));
    }
    assert_ne!(fs::read(&new).unwrap(), fs::read(&newer).unwrap());
    run(&["serve", "--new-token", &new]).failed(1, &["it is there already", "another file"]);
    run(&["serve", "--new-token", &dir.text("none/new")]).failed(1, &["No such file"]);
    let served = dir.text("served");
    let serve = ["serve", &served, "--port", "0", "--json"];
    let server = Server::by(command(&serve).env("RDDP_TOKEN_FILE", &new));
    dir.get(&server.host(), &[]).failed(5, &["asks for a token"]);
    dir.get(&server.host(), &["--token", &new]).ok();
    let remote = format!("{}/", server.host());
    for (variable, more, code) in
        [(&new, &[][..], 0), (&newer, &[], 5), (&newer, &["--token", &new], 0), (&String::new(), &[], 5)]
    {
        let args = [&["ls", &remote][..], more].concat();
        let ended = Ended::from(command(&args).env("RDDP_TOKEN_FILE", variable).output().unwrap());
        assert_eq!(ended.code, code, "{variable} {ended:?}");
    }
}

/// A limit of the process stands for a full disk.
#[test]
fn nothing_is_left_of_a_token_that_could_not_be_written() {
    let dir = Dir::new();
    let new = dir.text("new");
    let make = command(&["serve", "--new-token", &new]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]).arg(make.get_program());
    let ended = Ended::from(limited.args(make.get_args()).output().unwrap());
    ended.failed(1, &[&new, "File too large", "try: make room there"]);
    assert!(!dir.path("new").exists());
}

/// The client's message contains the HMAC of nonce and request, and nothing of the token.
#[test]
fn the_token_does_not_travel() {
    let dir = Dir::new();
    let (listener, host) = listen();
    std::thread::scope(|scope| {
        let get = scope.spawn(|| dir.get(&host, &["--token", &dir.text("token")]));
        let request = accept(&listener);
        assert_eq!(request.private_data(), hello(1));
        let nonce = [7; 32];
        let server = Peer::accept(request, &[&hello(1)[..], &nonce].concat());
        let signed = server.hear().unwrap()["Signed"].clone();
        let said = signed["request"].as_str().unwrap();
        assert_eq!(signed["mac"], mac(&nonce, said));
        let asked: Value = serde_json::from_str(said).unwrap();
        assert_eq!(asked["Get"]["path"], "file");
        assert!(!signed.to_string().contains(SECRET));
        drop(server);
        get.join().unwrap().failed(3, &[]);
    });
}

fn challenge(server: &Server) -> (Peer, Vec<u8>) {
    let peer = Peer::connect(server.addr, &hello(1));
    let nonce = peer.told.strip_prefix(&hello(1)[..]).unwrap().to_vec();
    assert_eq!(nonce.len(), 32);
    (peer, nonce)
}

#[test]
fn a_request_without_the_hmac_of_this_connection_is_refused() {
    let dir = Dir::new();
    let server = dir.serve(&["--token", &dir.text("token")]);
    let request = json!({"Get": {"path": "file", "have": 0, "sha256": ""}}).to_string();
    let (peer, nonce) = challenge(&server);
    let (_, another) = challenge(&server);
    assert_ne!(nonce, another);
    peer.say_json(&json!({"Signed": {"mac": mac(&nonce, &request), "request": request}}));
    assert!(peer.hear().unwrap()["Give"].is_object());
    let nested = json!({"Signed": {"mac": mac(&nonce, &request), "request": request}}).to_string();
    for (mac, request) in [
        (mac(&nonce, &request), request.clone()),
        (mac(&another, &request), request.clone()),
        (String::new(), request.clone()),
        ("zz".repeat(32), request.clone()),
        ("é".repeat(32), request.clone()),
        ("0".repeat(1000), request.clone()),
        ("00".repeat(32), nested),
    ] {
        let (peer, _) = challenge(&server);
        peer.say_json(&json!({"Signed": {"mac": mac, "request": request}}));
        let said = peer.hear().unwrap();
        assert!(said["Refused"]["reason"].as_str().unwrap().contains("not the server's token"), "{said}");
    }
    let (peer, _) = challenge(&server);
    peer.say(request.as_bytes());
    let said = peer.hear().unwrap();
    assert!(said["Refused"]["reason"].as_str().unwrap().contains("asks for a token"), "{said}");
    let (peer, nonce) = challenge(&server);
    peer.say_json(&json!({"Signed": {"mac": mac(&nonce, "rubbish"), "request": "rubbish"}}));
    assert!(peer.hear().unwrap()["Refused"]["reason"].as_str().unwrap().contains("out of step"));
}

#[test]
fn flags_that_the_server_does_not_know_are_missing_in_its_reply() {
    let dir = Dir::new();
    let open = dir.serve(&[]);
    for (greeting, answer) in [(hello(0), hello(0)), (hello(0xfe), hello(2))] {
        let peer = Peer::connect(open.addr, &greeting);
        assert_eq!(peer.told, answer);
        peer.say_json(&json!({"Get": {"path": "file", "have": 0, "sha256": ""}}));
        assert_eq!(peer.hear().unwrap()["Give"]["size"], 6);
    }
    let closed = dir.serve(&["--token", &dir.text("token")]);
    for greeting in [hello(0), hello(2)] {
        let refused = Peer::try_connect(closed.addr, &greeting).map(drop);
        assert!(matches!(refused, Err(ConnectError::Rejected { .. })), "{refused:?}");
    }
}

#[test]
fn a_client_of_another_version_is_told_why_and_what_to_do() {
    let dir = Dir::new();
    let token = dir.text("token");
    for mut server in [dir.serve(&[]), dir.serve(&["--token", &token])] {
        for (greeting, says) in [
            (&b"rddp-files 1"[..], "another version: run the same version of rddp at both ends"),
            (b"rddp-files 2\x1d", "another version: run the same version of rddp at both ends"),
            (b"rddp-files 3", "another version: run the same version of rddp at both ends"),
            (b"", "use rddp put or rddp get"),
        ] {
            let refused = Peer::try_connect(server.addr, greeting).map(drop);
            let Err(ConnectError::Rejected { private_data, .. }) = refused else { panic!("{refused:?}") };
            assert!(String::from_utf8(private_data).unwrap().ends_with(says), "{greeting:?}");
        }
        // One line stands for all of them.
        let told: Value = serde_json::from_str(&server.complaint()).unwrap();
        let told = told["warning"].as_str().unwrap();
        assert!(
            told.starts_with("127.0.0.1:") && told.contains(": refused, and told: rddp serve of another"),
            "{told}"
        );
    }
}

#[test]
fn a_server_of_another_version_is_told_with_the_remedy() {
    let dir = Dir::new();
    let (listener, host) = listen();
    std::thread::scope(|scope| {
        let get = scope.spawn(|| dir.get(&host, &[]));
        let request = accept(&listener);
        assert_eq!(request.private_data(), FILES);
        let server = Peer::accept(request, b"rddp-files 2\x1c");
        get.join().unwrap().failed(3, &["another version", "try: run the same version of rddp at both ends"]);
        assert!(server.next().is_none());
        // It rejects, and nobody tries again.
        let get = scope.spawn(|| dir.get(&host, &[]));
        accept(&listener).reject(b"not that").unwrap();
        get.join().unwrap().failed(5, &["not that"]);
    });
    assert!(listener.try_accept().is_none());
}

#[test]
fn an_answer_that_is_no_servers_is_not_believed() {
    let dir = Dir::new();
    let (listener, host) = listen();
    let token = dir.text("token");
    let short = [&hello(1)[..], &[7; 31]].concat();
    for (more, answer) in [
        (&["--token", &token][..], Vec::new()),
        (&["--token", &token], hello(0)),
        (&["--token", &token], hello(1)),
        (&["--token", &token], short),
        (&[], Vec::new()),
        (&[], [&hello(1)[..], &[7; 32]].concat()),
        (&[], hello(2)),
    ] {
        std::thread::scope(|scope| {
            let get = scope.spawn(|| dir.get(&host, more));
            let server = Peer::accept(accept(&listener), &answer);
            get.join().unwrap().failed(3, &["is it rddp serve"]);
            // No message was sent on this connection.
            assert!(server.next().is_none());
        });
    }
}

#[test]
fn what_is_replaced_is_told_and_can_be_kept() {
    let dir = Dir::new();
    let mut server = dir.serve(&["--writable"]);
    let put = |more: &[&str]| {
        run(&[&["put", "-I", &dir.text("token"), &format!("{}/put", server.host())], more].concat())
    };
    let replaced = |ended: Ended| ended.ok().json()["replaced"].clone();
    let got = |path: &Path| fs::read(path).unwrap();
    assert_eq!(replaced(put(&["--json", "--no-clobber"])), false);
    assert_eq!(replaced(put(&["--json"])), true);
    assert!(put(&[]).ok().stdout.contains("replaced the file that was there"));
    fs::write(dir.path("served/put"), "kept").unwrap();
    put(&["--no-clobber"]).failed(5, &["put: it is there already", "try: "]);
    assert_eq!(got(&dir.path("served/put")), b"kept");
    let get = |more: &[&str]| dir.get(&server.host(), &[&["-I"], more].concat());
    assert_eq!(replaced(get(&["--json", "--no-clobber"])), false);
    assert_eq!(replaced(get(&["--json"])), true);
    assert!(get(&[]).ok().stdout.contains("replaced the file that was there"));
    fs::write(dir.path("got"), "kept").unwrap();
    get(&["--no-clobber"]).failed(1, &["got: it is there already", "try: "]);
    assert_eq!(got(&dir.path("got")), b"kept");
    assert_eq!(fs::read_dir(dir.path("served")).unwrap().count(), 2);
    let told: Vec<Value> = (0..3).map(|_| serde_json::from_str(&server.line()).unwrap()).collect();
    assert_eq!([&told[0]["replaced"], &told[1]["replaced"]], [&json!(false), &json!(true)]);
}
