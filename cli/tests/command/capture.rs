//! `RDDP_CAPTURE`: captures that a program writes of its own connections, read by `rddp decode`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use rddp_rnic::{Access, ConnectOptions, QpConfig, RecvWr, Rnic, SendWr, Transport};
use tempfile::TempDir;

use crate::program::{Ended, command, run};

/// Runs `perf local` so, with a capture of each of its two processes.
fn captured(folder: &TempDir, switched: &[&str], op: &str, size: &str, more: &[&str]) -> Vec<String> {
    let perf = ["perf", "local", "--op", op, "--size", size, "--duration", "0.01"];
    let name = folder.path().join("%p.pcapng");
    let output = command(&[switched, &perf, more].concat()).env("RDDP_CAPTURE", name).output().unwrap();
    Ended::from(output).ok();
    let files = std::fs::read_dir(folder.path()).unwrap();
    files.map(|file| file.unwrap().path().to_str().unwrap().to_owned()).collect()
}

/// The last line of `rddp decode`.
fn summary(file: &str) -> String {
    run(&["decode", file]).ok().stdout.lines().last().unwrap().to_owned()
}

/// Both ends have seen the same messages: of the engine, and of sockets programs.
#[test]
fn both_ends_capture_the_same_messages() {
    let rddp = env!("CARGO_BIN_EXE_rddp");
    for (switched, op, size, says) in [
        (&[][..], "write,read,send", "64K", " 0 messages of SDP, 0 problems"),
        (&[], "write,send", "64", " 0 messages of SDP, 0 problems"),
        (&["run", "--ddp", "--", rddp], "tcp", "64K", " 0 messages of SDP, 0 problems"),
        (&["run", "--sdp", "--", rddp], "tcp", "64K", " 0 problems"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let files = captured(&folder, switched, op, size, &[]);
        assert_eq!(files.len(), 2, "{files:?}");
        let [one, other] = [&files[0], &files[1]].map(|file| summary(file));
        let messages = |line: &str| line.split_once("connections, ").unwrap().1.to_owned();
        assert_eq!(messages(&one), messages(&other));
        assert!(one.ends_with(says) && !one.contains(" 0 FPDUs"), "{one}");
    }
}

/// Datagrams of queue pairs are in it, for Wireshark.
#[test]
fn a_capture_has_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let files = captured(&folder, &[], "qp-udp", "100", &[]);
    assert_eq!(files.len(), 2, "{files:?}");
    for file in &files {
        let decoded = run(&["decode", file]).ok().stdout;
        assert!(decoded.contains("IP protocol 17 (UDP - User Datagram)"), "{decoded}");
        assert!(decoded.lines().last().unwrap().contains(" 1 connections (1 plain TCP)"), "{decoded}");
    }
}

/// The connection of a queue pair over plain TCP is told as such, by its program's capture.
#[test]
fn a_capture_names_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.pcapng");
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "capture::talk_over_plain_tcp", "--ignored"])
        .env("RDDP_CAPTURE", &file)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    let decoded = run(&["decode", file.to_str().unwrap()]).ok().stdout;
    let lines: Vec<&str> = decoded.lines().collect();
    assert_eq!(lines.len(), 2, "{decoded}");
    assert!(lines[0].ends_with(" plain TCP: its octets are not read"), "{decoded}");
    assert!(lines[1].contains(" 1 connections (1 plain TCP), 0 FPDUs, 0 messages of SDP, 0 problems"));
    run(&["decode", "--problems", file.to_str().unwrap()]).failed(1, &["no connection of iWARP in it"]);
}

#[test]
#[ignore = "runs in a process of its own, in that of a_capture_names_the_wire"]
fn talk_over_plain_tcp() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(8).unwrap());
    let qp = pd.create_qp(&QpConfig { transport: Transport::Tcp, ..QpConfig::new(&cq) }).unwrap();
    let program = TcpListener::bind("127.0.0.1:0").unwrap();
    qp.connect(program.local_addr().unwrap(), &ConnectOptions::default()).unwrap();
    let (mut program, _) = program.accept().unwrap();
    let region = pd.allocate(5, Access::LOCAL_WRITE).unwrap();
    region.write(0, b"hello").unwrap();
    qp.post_send(&SendWr::send(1, region.whole())).unwrap();
    let mut heard = [0; 5];
    program.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    qp.post_recv(RecvWr::one(2, region.whole())).unwrap();
    program.write_all(b"there").unwrap();
    for id in [1, 2] {
        assert!(cq.wait(None).unwrap());
        assert_eq!(cq.poll_one().unwrap().wr_id, id);
    }
}

/// FPDUs are longer than segments where perf's two ends agree, whichever sends, and else are not.
#[test]
fn perf_agrees_on_large_fpdus_at_both_ends() {
    for (op, more, longest) in [
        ("write", &["--large-fpdus"][..], 64_768 - 14),
        ("read", &["--large-fpdus"], 64_768 - 14),
        ("read", &["--large-fpdus", "--stable", "--reverse"], 64_768 - 14),
        ("write", &["--stable"], 1448 - 20),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let files = captured(&folder, &[], op, "200K", &[more, &["--mss", "1460"]].concat());
        let decoded = run(&["decode", "--json", &files[0]]).ok().stdout;
        let events = decoded.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let lens = events.filter(|event| event["what"] == "fpdu").filter_map(|fpdu| fpdu["len"].as_u64());
        assert_eq!(lens.max(), Some(longest), "{op} {more:?}");
    }
    run(&["perf", "local", "--large-fpdus", "--markers", "on"]).failed(2, &["large FPDUs have no markers"]);
}

/// A file that cannot be is told before anything runs, and does not stop a sockets program.
#[test]
fn a_capture_that_cannot_be_written_is_told() {
    let missing = Path::new("/nonexistent/file");
    let perf = command(&["perf", "local", "--op", "write"]).env("RDDP_CAPTURE", missing).output().unwrap();
    Ended::from(perf).failed(
        1,
        &["opening the file of RDDP_CAPTURE", "/nonexistent/file", "name a file that can be written"],
    );
    let switched = ["run", "--ddp", "--", "true"];
    let output = command(&switched).env("RDDP_CAPTURE", missing).output().unwrap();
    let ended = Ended::from(output).ok();
    assert!(
        ended.stderr.contains("RDDP_CAPTURE: \"/nonexistent/file\": ")
            && ended.stderr.contains("nothing is captured"),
        "{ended:?}"
    );
}
