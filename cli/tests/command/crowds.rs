//! Clients that take resources from others: threads, places, the server's processor, the operator's
//! terminal.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rddp_rnic::{ConnectOptions, QpState, Rnic, SendWr};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::peer::{FILES, Peer};
use crate::program::{Ended, Server, run, until};

const ANYWHERE: [&str; 5] = ["--bind", "127.0.0.1", "--port", "0", "--json"];

fn serve(dir: &Path, more: &[&str]) -> Server {
    Server::start(&[&["serve", dir.to_str().unwrap(), "--writable"], &ANYWHERE[..], more].concat())
}

fn put(server: &Server, name: &str) -> Ended {
    let file = tempfile::NamedTempFile::new().unwrap();
    run(&["put", file.path().to_str().unwrap(), &format!("{}/{name}", server.host()), "--retry", "0"])
}

/// Limits the memory that the server can map in addition; `None` removes the limit. A thread's
/// stack needs more than one MiB.
fn limit_memory(server: &Server, more: Option<u64>) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let mapped: u64 = mapped.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = more.map_or("unlimited".to_owned(), |more| (1024 * mapped + more).to_string());
    let args = ["--pid", &server.id().to_string(), &format!("--as={limit}:")];
    assert!(Command::new("prlimit").args(args).status().unwrap().success());
}

#[test]
fn a_server_that_can_make_no_thread_refuses_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let ping = |server: &Server| run(&["ping", &server.host(), "--count", "1"]);
    let perf = |server: &Server| {
        run(&["perf", "client", &server.host(), "--op", "write", "--size", "64", "--duration", "0.05"])
    };
    let ping_server = || Server::start(&[&["ping", "--server"], &ANYWHERE[..]].concat());
    let perf_server = || Server::start(&[&["perf", "server"], &ANYWHERE[..]].concat());
    type Case<'a> = (Server, &'a dyn Fn(&Server) -> Ended);
    let cases: [Case<'_>; 3] = [
        (serve(dir.path(), &[]), &|server| put(server, "file")),
        (ping_server(), &ping),
        (perf_server(), &perf),
    ];
    for (server, ask) in cases {
        limit_memory(&server, Some(1 << 20));
        ask(&server).failed(5, &["no thread for another client"]);
        ask(&server).failed(5, &["no thread for another client"]);
        limit_memory(&server, None);
        ask(&server).ok();
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn no_work_is_done_for_a_client_that_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--max-clients", "1"]);
    // A file that takes hours to read, and occupies no blocks.
    for name in ["file.rddp.part", "file"] {
        fs::File::create(dir.path().join(name)).unwrap().set_len(8 << 40).unwrap();
    }
    let ask = [
        json!({"Put": {"path": "file", "size": 1, "mode": 0o644}}),
        json!({"Get": {"path": "file", "have": 8u64 << 40, "sha256": ""}}),
    ];
    for ask in ask {
        until("the one before has gone, and the server works", || {
            let peer = Peer::connect(server.addr, FILES);
            peer.say_json(&ask);
            peer.hear() == Some(json!("Busy"))
        });
        until("there is room for another", || put(&server, "other").code == 0);
    }
}

#[test]
fn slow_clients_make_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--max-clients", "2", "--idle", "5"]);
    let slow = || {
        let peer = Peer::connect(server.addr, FILES);
        let terms = json!({"check": "none"});
        peer.say_json(&json!({"Put": {"path": "slow", "size": 1 << 20, "mode": 0o644, "terms": terms}}));
        assert!(peer.hear().unwrap()["Take"].is_object());
        peer.say_json(&json!({"From": {"offset": 0}}));
        peer
    };
    let slow = slow();
    let mut offset = 0u64;
    until("there is room for another", || {
        // The client sends an octet at a time, so that it is never idle, until it is disconnected.
        if slow.qp.state() == QpState::ReadyToSend {
            slow.say_json(&json!({"Chunk": {"slot": 0, "offset": offset, "len": 1}}));
            offset += 1;
        }
        // Of two places, one address may have one.
        put(&server, "other").code == 0
    });
    assert!(offset > 1);
    let told = std::iter::from_fn(|| slow.hear()).find(|said| said["Refused"].is_object()).unwrap();
    assert!(told["Refused"]["reason"].as_str().unwrap().contains("others wait"), "{told}");
    assert!(!dir.path().join("slow").exists());
}

/// Sends `Busy` again and again, until the server closes.
fn talk_on(peer: &Peer) {
    let busy = SendWr::send_inline(2, br#""Busy""#);
    while peer.qp.state() == QpState::ReadyToSend && peer.qp.post_send(&busy).is_ok() {
        while peer.cq.poll_one().is_some() {}
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client that keeps talking, behind its request and before there is one.
#[test]
fn a_client_that_keeps_talking_does_not_outlive_its_place() {
    let put_slow = json!({"Put": {"path": "slow", "size": 1 << 20, "mode": 0o644}});
    for (ask, why) in [(Some(put_slow), "others wait"), (None, "asked for nothing for 5 s")] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = serve(dir.path(), &["--max-clients", "2", "--idle", "5"]);
        let talker = Peer::connect(server.addr, FILES);
        ask.iter().for_each(|ask| talker.say_json(ask));
        let talking = std::thread::spawn(move || talk_on(&talker));
        until("there is room for another", || put(&server, "other").code == 0);
        until("the talker has gone", || talking.is_finished());
        let mut complaints = std::iter::repeat_with(|| server.complaint());
        let complaint = complaints.find(|complaint| !complaint.contains("too many clients")).unwrap();
        assert!(complaint.contains(why), "{complaint}");
    }
}

/// Begins connections to a server of files from an address, and asks for nothing.
fn silent(server: &Server, addr: Ipv4Addr, count: usize) -> Vec<TcpStream> {
    // RFC 5044 §7.1: an MPA Request with the CRC, of revision 1, and the greeting.
    let request = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, 13], b"rddp-files 3\x01"].concat();
    let connect = || {
        let mut stream = Control::connect_from(addr, server).0;
        stream.write_all(&request).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    (0..count).map(|_| connect()).collect()
}

/// Returns whether the server has closed a connection, whatever it said before.
fn has_ended(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 512]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Places are for those who have proven that they have the token, and have asked for something.
#[test]
fn silent_clients_lock_nobody_out_and_have_seconds() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "octets").unwrap();
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "of sixteen octets").unwrap();
    let token = token.path().to_str().unwrap();
    let server = serve(dir.path(), &["--token", token]);
    let remote = format!("{}/file", server.host());
    let get = || run(&["get", &remote, "/dev/null", "--token", token, "--retry", "0"]);
    let from = |last| Ipv4Addr::new(127, 0, 0, last);
    let mut crowd = Vec::new();
    for _ in 0..4 {
        crowd.extend(silent(&server, from(2), 20));
        crowd.extend(silent(&server, from(3), 20));
        get().ok();
    }
    // In seconds, whatever `--idle`, which is a minute.
    until("all of them have been let go", || {
        crowd.retain_mut(|stream| !has_ended(stream));
        crowd.is_empty()
    });
    get().ok();
}

/// Returns the next warning of a server.
fn warning(server: &mut Server) -> String {
    let warning: Value = serde_json::from_str(&server.complaint()).unwrap();
    warning["warning"].as_str().unwrap().to_owned()
}

/// Without `-v`, and once for all of them.
#[test]
fn a_server_says_that_clients_have_asked_for_nothing_and_that_others_speak_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    run(&["serve", "--new-token", token.to_str().unwrap()]).ok();
    let mut server = serve(dir.path(), &["--token", token.to_str().unwrap()]);
    let connect = |octets: &[u8]| {
        let mut stream = TcpStream::connect(server.addr).unwrap();
        stream.write_all(octets).unwrap();
        stream
    };
    // Their addresses are told even though the sockets have none by then.
    let reset = |stream| Socket::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    (0..3).for_each(|_| reset(connect(b"GET / HTTP/1.1\r\n\r\n")));
    let _silent: Vec<_> = (0..300).map(|_| connect(b"")).collect();
    let _greeted = silent(&server, Ipv4Addr::new(127, 0, 0, 2), 20);
    let mut told: Vec<_> = (0..3).map(|_| warning(&mut server)).collect();
    told.sort();
    assert!(told[1].contains("no RDMA over TCP; this port serves RDMA clients alone; peer: 127"), "{told:?}");
    assert!(told[0].contains("it has connected, and asked for nothing; peer: 127.0.0.1"), "{told:?}");
    assert!(told[2].contains("turned away: the client has asked for nothing for 10 s"), "{told:?}");
    let pid = nix::unistd::Pid::from_raw(server.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(server.complaint(), "");
}

/// Octets behind a startup that are no FPDU, as a user understands it.
#[test]
fn what_came_and_what_to_do_is_said_of_octets_with_a_wrong_crc() {
    let mut server = Server::start(&[&["ping", "--server"], &ANYWHERE[..]].concat());
    let mut peer = TcpStream::connect(server.addr).unwrap();
    peer.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    peer.read_exact(&mut [0; 20]).unwrap();
    peer.write_all(&[0, 16].repeat(100)).unwrap();
    let told = server.complaint();
    assert!(told.contains("do not match their CRC") && told.contains("remedy"), "{told}");
}

/// Without `-v`, and once for many failures.
#[test]
fn a_server_without_descriptors_says_so_and_its_clients_are_told_where_to_look() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "octets").unwrap();
    let mut server = serve(dir.path(), &[]);
    let limit = |count: &str| {
        let args = ["--pid", &server.id().to_string(), &format!("--nofile={count}:")];
        assert!(Command::new("prlimit").args(args).status().unwrap().success());
    };
    let remote = format!("{}/file", server.host());
    limit("4");
    let ended = run(&["get", &remote, "/dev/null"]).failed(3, &["did not answer", "its log says"]);
    assert!(!ended.stderr.contains("start rddp serve"), "{ended:?}");
    limit("1000");
    until("it is served", || run(&["get", &remote, "/dev/null"]).code == 0);
    let text = warning(&mut server);
    let says = ["a listener cannot take connections", "error: Too many", "remedy: raise", "(ulimit -n)"];
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
    let pid = nix::unistd::Pid::from_raw(server.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(server.complaint(), "");
}

/// The server comes back to its listener ten times a second.
#[test]
fn a_server_of_measurements_without_descriptors_says_so_once() {
    let mut server = Server::start(&[&["perf", "server"], &ANYWHERE[..]].concat());
    let args = ["--pid", &server.id().to_string(), "--nofile=4:"];
    assert!(Command::new("prlimit").args(args).status().unwrap().success());
    let _waits = TcpStream::connect(server.addr).unwrap();
    let text = warning(&mut server);
    assert!(text.contains("Too many open files") && text.contains("existing sessions go on"), "{text}");
    std::thread::sleep(Duration::from_secs(1));
    let pid = nix::unistd::Pid::from_raw(server.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(server.complaint(), "");
}

/// Descriptors are wanted like places: a client for whose files there is none comes back, and finds
/// what is wrong in the server's own words.
#[test]
fn clients_come_back_to_a_server_without_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), &[]);
    fs::write(dir.path().join("file"), vec![7; 3 << 20]).unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    (0..100).for_each(|number| fs::write(dir.path().join(format!("tree/{number}")), "octets").unwrap());
    let remote = |name| format!("{}/{name}", server.host());
    let (file, tree) = (remote("file"), remote("tree"));
    run(&["get", &file, "/dev/null"]).ok();
    let open = || {
        let open = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
        let open = open.flatten().filter_map(|fd| Some((fd.file_name(), fs::read_link(fd.path()).ok()?)));
        open.map(|(fd, what)| (fd.into_string().unwrap(), what)).collect::<Vec<_>>()
    };
    let is_socket = |what: &Path| what.to_str().unwrap().starts_with("socket");
    until("only the listener's is open", || open().iter().filter(|(_, what)| is_socket(what)).count() == 1);
    let open: Vec<usize> = open().iter().map(|(fd, _)| fd.parse().unwrap()).collect();
    let limit = |more: usize| {
        let limit = (0..).filter(|fd| !open.contains(fd)).nth(more).unwrap();
        let args = ["--pid", &server.id().to_string(), &format!("--nofile={limit}:")];
        assert!(Command::new("prlimit").args(args).status().unwrap().success());
    };
    let here = tempfile::tempdir().unwrap();
    let here = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    // One for the connection, and none for the file.
    limit(1);
    fs::write(here("new"), "octets").unwrap();
    let cases: [&[&str]; 5] = [
        &["get", &file, "/dev/null"],
        &["put", &here("new"), &remote("new")],
        &["get", "-r", &tree, &here("got")],
        &["put", "-r", &here("new"), &remote("tree")],
        &["ls", &tree],
    ];
    for case in cases {
        run(&[case, &["--retry", "0"]].concat()).failed(5, &["Too many open files", "ulimit -n"]);
    }
    limit(8);
    std::thread::scope(|scope| {
        for number in 0..40 {
            let (file, tree, got) = (&file, &tree, here(&number.to_string()));
            scope.spawn(move || match number % 2 {
                0 => run(&["get", file, "/dev/null", "--retry", "60"]).ok(),
                _ => run(&["get", "-r", tree, &got, "--retry", "60"]).ok(),
            });
        }
    });
    let pid = nix::unistd::Pid::from_raw(server.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let mut complaints = std::iter::repeat_with(|| server.complaint()).take_while(|line| !line.is_empty());
    let says = ["turned away", "Too many open files", "; try: raise the limit of open files (ulimit -n)"];
    assert!(complaints.any(|line| says.iter().all(|part| line.contains(part))));
}

/// Forty clients of one host, which has half of the places.
#[test]
fn clients_that_are_turned_away_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--max-clients", "4"]);
    fs::write(dir.path().join("file"), vec![7; 3 << 20]).unwrap();
    let remote = format!("{}/file", server.host());
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| run(&["get", &remote, "/dev/null", "--retry", "60"]).ok());
        }
    });
}

#[test]
fn one_address_does_not_take_all_places_of_ping() {
    let server = Server::start(&[&["ping", "--server"], &ANYWHERE[..]].concat());
    let mut crowd: Vec<Peer> = (0..128).map(|_| Peer::connect(server.addr, b"")).collect();
    run(&["ping", &server.host(), "--count", "1"]).failed(5, &["too many clients"]);
    assert!(crowd.iter().all(|peer| peer.qp.state() == QpState::ReadyToSend));
    crowd.truncate(100);
    until("there is room again", || run(&["ping", &server.host(), "--count", "1"]).code == 0);
}

/// Begins a session of `rddp perf` on plain TCP, with one data connection, from an address other
/// than 127.0.0.1. Returns its connections, and the server's last message.
fn begin_session(server: &Server) -> ([Control; 2], Value) {
    let connect = || Control::connect_from(Ipv4Addr::new(127, 0, 0, 2), server);
    let (mut control, mut data) = (connect(), connect());
    control.say(&json!({"Begin": {"version": 2, "places": [], "setup": {
        "op": "tcp", "size": 64, "qps": 1, "depth": 1, "crc": true, "markers": false,
        "place_before_crc": false, "mss": null, "wait": "event",
    }}}));
    let mut said = control.hear();
    if let Some(session) = said["Ready"]["session"].as_u64() {
        data.say(&json!({"Data": {"session": session, "lane": 0}}));
        said = control.hear();
    }
    ([control, data], said)
}

#[test]
fn one_address_does_not_take_all_sessions_of_perf() {
    let server = Server::start(&[&["perf", "server"], &ANYWHERE[..]].concat());
    let perf =
        || run(&["perf", "client", &server.host(), "--op", "tcp", "--size", "64", "--duration", "0.05"]);
    let mut crowd: Vec<_> = (0..128).map(|_| begin_session(&server)).collect();
    assert!(crowd.iter().all(|(_, said)| said["Connected"].is_object()));
    let (_, said) = begin_session(&server);
    assert_eq!(said, json!({"Refused": {"reason": "too many connections"}}));
    perf().ok();
    crowd.pop();
    until("there is room again", || begin_session(&server).1["Connected"].is_object());
}

/// Places are for sessions: the connections of one client count as one.
#[test]
fn a_session_of_perf_may_have_many_connections() {
    let server = Server::start(&[&["perf", "server"], &ANYWHERE[..]].concat());
    let args = ["--qps", "256", "--op", "tcp,write", "--size", "64", "--wait", "event", "--duration", "0.05"];
    run(&[&["perf", "client", &server.host()], &args[..]].concat()).ok();
}

const HOSTILE: &str = "\u{1b}[2J\r\n\u{9b}31m\u{202e}x";
const SHOWN: &str = r"\u{1b}[2J\r\n\u{9b}31m\u{202e}x";

fn is_harmless(text: &str) -> bool {
    !text.trim_end_matches('\n').chars().any(|c| c.is_control() || c == '\u{202e}')
}

#[test]
fn control_characters_in_a_clients_names_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), &[]);
    let peer = Peer::connect(server.addr, FILES);
    peer.say_json(&json!({"Get": {"path": HOSTILE, "have": 0, "sha256": ""}}));
    assert!(peer.hear().unwrap()["Refused"].is_object());
    let complaint = server.complaint();
    let object: Value = serde_json::from_str(&complaint).unwrap();
    assert!(is_harmless(&complaint), "{complaint:?}");
    assert!(object["error"]["cause"].as_str().unwrap().contains(SHOWN), "{complaint:?}");
}

/// A name is escaped in JSON as well, and a parser of the JSON gets it unchanged.
#[test]
fn json_has_no_characters_of_a_peer_that_a_terminal_obeys() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), &[]);
    fs::write(dir.path().join(HOSTILE), "octets").unwrap();
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    let remote = format!("{}/{HOSTILE}", server.host());
    let get = run(&["get", &remote, got.to_str().unwrap(), "--json"]).ok();
    let put = run(&["put", got.to_str().unwrap(), &remote, "--json"]).ok();
    for line in [get.stdout, put.stdout, server.line(), server.line()] {
        assert!(is_harmless(&line), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["file"], HOSTILE);
    }
}

#[test]
fn control_characters_in_a_servers_reasons_are_escaped() {
    let listener = Rnic::open().unwrap().listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default());
    let listener = listener.unwrap();
    let remote = format!("{}/file", listener.local_addr().unwrap());
    let here = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let get = scope.spawn(|| run(&["get", &remote, here.path().to_str().unwrap()]));
        let request = listener.accept(Some(Duration::from_secs(60))).unwrap().unwrap();
        let server = Peer::accept(request, FILES);
        server.hear().unwrap();
        let refused = json!({"reason": HOSTILE, "remedy": HOSTILE, "mismatch": false, "changed": false});
        server.say_json(&json!({"Refused": refused}));
        let ended = get.join().unwrap().failed(5, &[SHOWN, "try: "]);
        assert!(ended.stderr.lines().count() == 2 && ended.stderr.lines().all(is_harmless), "{ended:?}");
    });
}

/// A control connection to `rddp perf server`.
struct Control(TcpStream);

impl Control {
    fn connect(server: &Server) -> Self {
        Control(TcpStream::connect(server.addr).unwrap())
    }

    fn connect_from(addr: Ipv4Addr, server: &Server) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((addr, 0)).into()).unwrap();
        socket.connect(&server.addr.into()).unwrap();
        Control(socket.into())
    }

    fn say(&mut self, message: &Value) {
        let text = message.to_string();
        self.0.write_all(&u32::try_from(text.len()).unwrap().to_be_bytes()).unwrap();
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).unwrap();
        let mut text = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// Returns whether all threads of the server sleep.
fn is_asleep(server: &Server) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
    })
}

#[test]
fn a_client_that_says_nothing_lets_a_spinning_server_sleep() {
    for (op, phase) in [("tcp", "Bandwidth"), ("send", "Bandwidth"), ("write", "Latency")] {
        let server = Server::start(&[&["perf", "server"], &ANYWHERE[..]].concat());
        let mut control = Control::connect(&server);
        let place = json!({"stag": 0, "to": 0});
        control.say(
            &json!({"Begin": {"version": 2, "places": [{"source": place, "target": place}], "setup": {
                "op": op, "size": 64, "qps": 1, "depth": 1, "crc": true, "markers": false,
                "place_before_crc": false, "mss": null, "wait": "poll",
            }}}),
        );
        let session = control.hear()["Ready"]["session"].as_u64().unwrap();
        let mut data = Control::connect(&server);
        let rdma = server.listening["rdma"].as_str().unwrap().parse().unwrap();
        let peer =
            (op != "tcp").then(|| Peer::connect(rdma, &[&session.to_be_bytes()[..], &[0; 2]].concat()));
        if peer.is_none() {
            data.say(&json!({"Data": {"session": session, "lane": 0}}));
        }
        assert!(control.hear()["Connected"].is_object());
        control.say(&json!({"Run": {"phase": phase, "millis": 60_000, "messages": u64::MAX}}));
        assert_eq!(control.hear(), json!("Go"));
        until("the server sleeps", || is_asleep(&server));
    }
}
