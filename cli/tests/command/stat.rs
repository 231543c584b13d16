//! `rddp stat`, `ss` and `top`: counters of programs that run.

use std::io::{IoSlice, IoSliceMut, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Stdio;

use nix::sys::memfd::{MFdFlags, memfd_create};
use rddp_rnic::{Remote, SendWr, Stag};
use rddp_stat::{Connection, Page};
use rddp_stream::{Calls, Options, Role, SharedState, Stream};
use serde_json::Value;

use crate::peer::Peer;
use crate::program::{Server, command, run, until};

/// Octets of a startup frame without private data, and those of RFC 6581 in it.
const STARTUP: u64 = 20 + 4;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Returns what `rddp stat` says of a process.
fn of_process(pid: u32) -> Value {
    let mut found = run(&["stat", "--json", &pid.to_string()]).ok().json();
    found["processes"][0].take()
}

/// Returns the connections of a process that `rddp ss` lists: none before it has counters.
fn connections(pid: u32) -> Vec<Value> {
    let ended = run(&["ss", "--json", &pid.to_string()]);
    if ended.stderr.contains("has no counters of rddp") {
        return Vec::new();
    }
    ended.ok().stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn server() -> Server {
    Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"])
}

#[test]
fn a_qp_has_counted_the_octets_that_tcp_has() {
    let server = server();
    let peer = Peer::try_connect(server.addr, b"").unwrap();
    until("the server's QP has answered", || {
        connections(server.id()).first().is_some_and(|one| number(&one["counters"]["fpdus_sent"]) == 1)
    });
    let rddp = connections(server.id()).remove(0);
    assert_eq!(
        (&rddp["kind"], &rddp["state"], &rddp["active"]),
        (&"qp".into(), &"RTS".into(), &false.into())
    );
    assert_eq!(rddp["peer"].as_str().unwrap(), peer.qp.local_addr().unwrap().to_string());
    assert_eq!(rddp["local"].as_str().unwrap(), server.host());
    let (tcp, counters) = (&rddp["tcp"], &rddp["counters"]);
    // The peer's first FPDU is a Read for an RTR, which the server answers.
    let octets = |name: &str| number(&counters[name]);
    assert_eq!(
        (octets("fpdus_sent"), octets("fpdus_received"), octets("reads_received")),
        (1, 1, 1),
        "{rddp}"
    );
    let to_tcp = number(&tcp["bytes_acked"]) + number(&tcp["send_queue"]);
    assert_eq!(to_tcp - octets("octets_sent"), STARTUP, "{rddp}");
    assert_eq!(number(&tcp["bytes_received"]) - octets("octets_received"), STARTUP, "{rddp}");
    let names = ["iwInRdmaReads", "iwOutRdmaWrites", "iwRdmaInv", "tcpInSegs", "tcpRetransSegs"];
    assert!(names.iter().all(|name| rddp["irdma"][name].is_u64()), "{rddp}");
    drop(peer);
    until("it is gone", || connections(server.id()).is_empty());
    // What has ended is counted on.
    assert_eq!(number(&of_process(server.id())["total"]["fpdus_received"]), 1);
}

#[test]
fn a_terminate_is_counted_by_its_code_and_name() {
    let server = server();
    let peer = Peer::try_connect(server.addr, b"").unwrap();
    // No region of the server's has this STag.
    let remote = Remote { stag: Stag(0x1234_5678), to: 0 };
    peer.qp.post_send(&SendWr::write_inline(1, b"x", remote)).unwrap();
    until("the server has refused the Write", || peer.qp.terminate_received().is_some());
    let code = peer.qp.terminate_received().unwrap().code;
    let found = of_process(server.id());
    let terminate = &found["terminates"][0];
    assert_eq!(terminate["code"], format!("{:#06x}", code.0));
    assert_eq!(terminate["name"], code.to_string());
    assert_eq!((number(&terminate["sent"]), number(&terminate["received"])), (1, 0));
    let pid = server.id().to_string();
    let text = run(&["stat", &pid]).ok().stdout;
    assert!(text.contains(&format!("Terminate {code}: 1 sent, 0 received")), "{text}");
    let metrics = run(&["stat", "--openmetrics", &pid]).ok().stdout;
    assert!(metrics.contains(&format!("name=\"{code}\",direction=\"sent\"}} 1\n")), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn a_stream_of_a_program_has_counted_the_octets_that_tcp_has() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // What the shell prints itself may go past the library, within the C library.
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello | cat >&3; read a <&3; read b <&3");
    let mut program = command(&["run", "--ddp", "--", "bash", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (socket, _) = listener.accept().unwrap();
    let (state, calls) = (SharedState::anonymous(&Options::new(Role::Responder)).unwrap(), Calls::libc());
    state.set_receive_timeout(Some(std::time::Duration::from_secs(20)));
    let stream = Stream::new(socket.as_raw_fd(), &state, &calls).unwrap();
    let mut octets = [0; 6];
    assert_eq!(stream.recv(&mut [IoSliceMut::new(&mut octets)], nix::libc::MSG_WAITALL), Ok(6));
    stream.send(&[IoSlice::new(b"hi\n")], 0).unwrap();
    let quiet = || {
        connections(program.id()).first().is_some_and(|one| number(&one["counters"]["sends_received"]) == 1)
    };
    until("the program has the answer", quiet);
    let rddp = connections(program.id()).remove(0);
    assert_eq!(
        (&rddp["kind"], &rddp["state"], &rddp["active"]),
        (&"stream".into(), &"framed".into(), &true.into())
    );
    assert!(rddp["since"].is_null(), "a stream does not tell since when: {rddp}");
    assert!(rddp["peer"].as_str().unwrap().ends_with(&format!(":{port}")), "{rddp}");
    let (tcp, counters) = (&rddp["tcp"], &rddp["counters"]);
    // The SYN counts as an octet that is acknowledged.
    assert_eq!(number(&tcp["bytes_acked"]) - 1 - number(&counters["octets_sent"]), STARTUP, "{rddp}");
    assert_eq!(number(&tcp["bytes_received"]) - number(&counters["octets_received"]), STARTUP, "{rddp}");
    assert!(counters.get("fpdus_received").is_none(), "not counted, and so not shown: {rddp}");
    program.kill().unwrap();
    program.wait().unwrap();
    run(&["ss", &program.id().to_string()]).failed(1, &["there is no process"]);
}

#[test]
fn nothing_is_left_of_a_program_that_was_killed() {
    let mut server = server();
    let peer = Peer::try_connect(server.addr, b"").unwrap();
    let pid = server.id();
    until("it is shown", || !connections(pid).is_empty());
    server.child().kill().unwrap();
    server.child().wait().unwrap();
    run(&["stat", &pid.to_string()]).failed(1, &["there is no process", "rddp stat alone lists"]);
    let own = format!("{pid}");
    let all = run(&["stat", "--json"]).ok().json();
    let pids: Vec<_> =
        all["processes"].as_array().unwrap().iter().map(|one| one["pid"].to_string()).collect();
    assert!(!pids.contains(&own), "{all}");
    drop(peer);
}

#[test]
fn what_is_not_there_is_said_with_a_remedy() {
    run(&["stat", "4194305"]).failed(1, &["there is no process 4194305", "rddp stat alone"]);
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = other.id().to_string();
    let comm = format!("process {pid} (sleep) has no counters of rddp");
    until("it runs sleep", || run(&["stat", &pid]).stderr.contains("(sleep)"));
    run(&["stat", &pid]).failed(1, &[&comm, "first connection"]);
    let json = run(&["stat", "--json", &pid]);
    let error: Value = serde_json::from_str(&json.stderr).unwrap();
    assert_eq!(error["error"]["cause"], comm);
    other.kill().unwrap();
    other.wait().unwrap();
    for wrong in
        [&["stat", "x"][..], &["stat", "-i", "0"], &["stat", "-n", "3"], &["stat", "--top", "-i", "0.01"]]
    {
        run(wrong).failed(2, &[]);
    }
}

#[test]
fn a_file_that_is_called_like_a_page_does_no_harm() {
    // This process pretends: nonsense, a page of another process, and one that says it is endless.
    let file = |octets: &[u8]| {
        let mut file = std::fs::File::from(memfd_create(rddp_stat::NAME, MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(octets).unwrap();
        file
    };
    let connection = |number| {
        let mut connection = Connection { phase: rddp_stat::Phase::ReadyToSend, ..Connection::default() };
        connection.identity.number = number;
        connection
    };
    let page = |pid, number| Page { pid, connections: vec![connection(number)], ..Page::default() }.emit();
    let me = std::process::id();
    let noise: Vec<u8> = (0..20_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut huge = page(me, 0x7777);
    huge[4 * 8..5 * 8].fill(0xff);
    let _files = [file(&[]), file(&noise), file(&page(me ^ 1, 0x6666)), file(&huge)];
    let listed = connections(me);
    let numbers: Vec<_> = listed.iter().map(|one| number(&one["number"])).collect();
    assert!(numbers.contains(&0x7777) && !numbers.contains(&0x6666), "{numbers:?}");
}

#[test]
fn rates_and_the_live_table_end_after_as_many_looks_as_were_asked_for() {
    let server = server();
    let peer = Peer::try_connect(server.addr, b"").unwrap();
    let pid = server.id().to_string();
    until("it is shown", || !connections(server.id()).is_empty());
    let rates = run(&["stat", "-i", "0.05", "-n", "2", &pid]).ok().stdout;
    assert_eq!(rates.lines().filter(|line| line.starts_with("process")).count(), 2, "{rates}");
    let top = run(&["stat", "--top", "-i", "0.05", "-n", "1", &pid]).ok().stdout;
    assert!(top.contains(&server.host()) && !top.contains('\x1b'), "{top}");
    let objects = run(&["stat", "-i", "0.05", "-n", "2", "--json", &pid]).ok().stdout;
    assert_eq!(objects.lines().count(), 2);
    drop(peer);
}
