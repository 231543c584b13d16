//! `RDDP_CAPTURE`: captures that a program writes of its own connections, read by `rddp decode`.

use std::path::Path;

use tempfile::TempDir;

use crate::program::{Ended, command, run};

/// Runs `perf local` so, with a capture of each of its two processes.
fn captured(folder: &TempDir, switched: &[&str], op: &str, size: &str) -> Vec<String> {
    let perf = ["perf", "local", "--op", op, "--size", size, "--duration", "0.01"];
    let name = folder.path().join("%p.pcapng");
    let output = command(&[switched, &perf].concat()).env("RDDP_CAPTURE", name).output().unwrap();
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
        let files = captured(&folder, switched, op, size);
        assert_eq!(files.len(), 2, "{files:?}");
        let [one, other] = [&files[0], &files[1]].map(|file| summary(file));
        let messages = |line: &str| line.split_once("connections, ").unwrap().1.to_owned();
        assert_eq!(messages(&one), messages(&other));
        assert!(one.ends_with(says) && !one.contains(" 0 FPDUs"), "{one}");
    }
}

/// A file that cannot be is told before anything runs, and does not stop a sockets program.
#[test]
fn a_capture_that_cannot_be_written_is_told() {
    let missing = Path::new("/nonexistent/file");
    let perf = command(&["perf", "local", "--op", "write"]).env("RDDP_CAPTURE", missing).output().unwrap();
    Ended::from(perf).failed(1, &["RDDP_CAPTURE", "No such file or directory"]);
    let switched = ["run", "--ddp", "--", "true"];
    let output = command(&switched).env("RDDP_CAPTURE", missing).output().unwrap();
    let ended = Ended::from(output).ok();
    assert!(
        ended.stderr.contains("RDDP_CAPTURE") && ended.stderr.contains("nothing is captured"),
        "{ended:?}"
    );
}
