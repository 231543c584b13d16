//! Programs that write as soon as they are connected.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rddp_mpa::{Rtr, RtrSet, StartupConfig};
use rddp_test_support::Peer;
use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

const WAYS: [&str; 14] = [
    "banner_and_close",
    "banner_and_death",
    "both_ends",
    "by_exit",
    "half_close",
    "edge_of_room",
    "of_two_processes",
    "of_a_file",
    "lingering",
    "counted",
    "by_reset",
    "bad_pointer",
    "by_another_number",
    "while_it_waits_elsewhere",
];

#[test]
fn a_new_connection_takes_octets_as_tcp_does() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["early.c"], scratch.path(), &[]);
    for way in WAYS {
        for family in FRAMED.iter().map(Some).chain([None]) {
            let mut command = command(&program, family.is_some(), scratch.path());
            command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
            assert_eq!(succeeded(&command.output().unwrap()), "as it should be\n", "{way}, {family:?}");
        }
    }
}

/// Runs a command where `/dev/shm` has room for states, and for no block.
const LITTLE_ROOM: &str = "mount -t tmpfs -o size=3m none /dev/shm && exec \"$0\" \"$@\"";

#[test]
fn without_memory_for_early_octets_a_send_waits_for_the_startup() {
    let scratch = TempDir::new().unwrap();
    let with_little = |program: &Path, with_library| {
        let mut run = command(Path::new("unshare"), with_library, scratch.path());
        run.args(["-rm", "sh", "-c", LITTLE_ROOM]).arg(program);
        run
    };
    if !with_little(Path::new("true"), false).status().is_ok_and(|status| status.success()) {
        return eprintln!("not checked: no mount namespace here");
    }
    let program = compile(&["early.c"], scratch.path(), &[]);
    for family in FRAMED {
        let mut run = with_little(&program, true);
        run.arg("without_room").env("RDDP_FAMILY", family);
        assert_eq!(succeeded(&run.output().unwrap()), "as it should be\n", "{family}");
    }
}

/// Returns what a client of a silent server prints on its standard error.
fn told(mut command: Command, family: &str) -> String {
    let output = command.arg("silent").env("RDDP_FAMILY", family).output().unwrap();
    assert_eq!(succeeded(&output), "as it should be\n", "{family}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_silent_server_is_named_and_not_waited_for_longer_than_was_asked() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["early.c"], scratch.path(), &[]);
    for (name, value) in [("OPTION", "200"), ("RDDP_STARTUP_TIMEOUT", "200")] {
        let client = || {
            let mut command = command(&program, true, scratch.path());
            command.env(name, value);
            command
        };
        let lines = told(client(), "ddp");
        assert!(lines.contains("is it a plain server? try: rddp run --both"), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        let lines = told(client(), "both");
        assert!(!lines.contains("--both"), "{lines}");
    }
}

#[test]
fn a_client_that_has_named_its_silent_server_waits_on_and_is_served() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["client.c"], scratch.path(), &[]);
    for nonblocking in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = command(&program, true, scratch.path());
        client.arg(port.to_string()).args(nonblocking.then_some("nonblocking")).env("RDDP_FAMILY", "ddp");
        let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(client.stderr.take().unwrap());
        let mut line = String::new();
        for is_silent in [true, false] {
            let (socket, _) = listener.accept().unwrap();
            if is_silent {
                told.read_line(&mut line).unwrap();
            }
            let config = StartupConfig { rtr: RtrSet::only(Rtr::Write), ..StartupConfig::default() };
            let mut server = Peer::responder(socket, &config);
            assert_eq!(server.payload(5), b"hello", "nonblocking {nonblocking}");
            server.send_message(b"at last");
        }
        let mut said = String::new();
        client.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "at last\nat last\n", "nonblocking {nonblocking}");
        told.read_to_string(&mut line).unwrap();
        let wanted = format!(
            "rddp: program: connect 127.0.0.1:{port}: no answer to the MPA startup; is it a plain server? \
             try: rddp run --both (reported once)\n"
        );
        assert_eq!(line, wanted, "nonblocking {nonblocking}");
        client.wait().unwrap();
    }
}
