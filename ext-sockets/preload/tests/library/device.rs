//! Sockets whose streams are SDP over a device. The device is this library's own (`soft`): a peer
//! is any program that speaks SDP over TCP.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

/// SDP over the device, and over TCP by the library's own streams.
const DEVICE: &[(&str, &str)] = &[("RDDP_FAMILY", "sdp"), ("RDDP_SDP_DEVICE", "soft")];
const SDP: &[(&str, &str)] = &[("RDDP_FAMILY", "sdp")];

fn device(folder: &TempDir, with_library: bool, words: &[&str]) -> Command {
    let program = compile(&["device.c"], folder.path(), &["-lpthread"]);
    let mut command = command(&program, with_library, folder.path());
    command.args(words);
    command
}

/// Runs a case on a device, and over plain TCP.
fn run(case: &str) {
    for with_library in [false, true] {
        let scratch = TempDir::new().unwrap();
        let output = device(&scratch, with_library, &[case]).envs(DEVICE.iter().copied()).output().unwrap();
        assert_eq!(succeeded(&output), "all is so\n", "{case}, on a device: {with_library}");
    }
}

#[test]
fn calls_answer_as_over_tcp() {
    run("echo");
}

#[test]
fn names_and_options_are_those_of_the_connection() {
    run("names");
}

#[test]
fn parts_of_files_are_sent_as_over_tcp() {
    run("file");
}

#[test]
fn sets_tell_levels_and_edges_of_sockets_that_were_added_before_connect() {
    run("sets");
}

#[test]
fn a_refused_connect_is_told_by_the_call_or_by_so_error() {
    run("refused");
}

#[test]
fn connections_beyond_the_queue_of_a_listener_wait() {
    run("crowded");
}

#[test]
fn both_directions_go_on_whether_their_senders_sleep_or_wait() {
    run("bulk");
}

#[test]
fn a_socket_without_room_is_not_writable_until_there_is_some() {
    run("full");
}

#[test]
fn a_child_of_fork_has_nothing_of_its_parents_and_may_have_its_own() {
    let scratch = TempDir::new().unwrap();
    let output = device(&scratch, true, &["forked"]).envs(DEVICE.iter().copied()).output().unwrap();
    assert_eq!(succeeded(&output), "all is so\n");
}

/// Octets that a program leaves behind arrive, between each two sorts of ends.
#[test]
fn what_a_program_sent_before_its_exit_arrives_at_any_end_that_speaks_sdp() {
    for (server, client) in [(SDP, DEVICE), (DEVICE, SDP), (DEVICE, DEVICE)] {
        let scratch = TempDir::new().unwrap();
        let mut takes = device(&scratch, true, &["takes"])
            .envs(server.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(takes.stdout.take().unwrap());
        let mut port = String::new();
        told.read_line(&mut port).unwrap();
        let leaves = device(&scratch, true, &["leaves", port.trim()]).envs(client.iter().copied()).output();
        succeeded(&leaves.unwrap());
        let mut count = String::new();
        told.read_to_string(&mut count).unwrap();
        assert_eq!(count, format!("{}\n", 1 << 20), "{server:?}, {client:?}");
        assert!(takes.wait().unwrap().success());
    }
}

/// A process without such a socket loads nothing for it, and one that names a device which is not
/// there is told so.
#[test]
fn a_device_that_is_not_there_is_named_and_the_connect_fails() {
    let scratch = TempDir::new().unwrap();
    let mut command = device(&scratch, true, &["leaves", "9"]);
    let output = command.envs([("RDDP_FAMILY", "sdp"), ("RDDP_SDP_DEVICE", "nosuch0")]).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(told.contains("SDP on device nosuch0") && said.contains("No such device"), "{told}{said}");
}

/// A socket that the device cannot connect is plain, where the policy allows it.
#[test]
fn a_server_without_sdp_gets_plain_tcp_where_that_is_allowed() {
    let scratch = TempDir::new().unwrap();
    let mut takes = device(&scratch, false, &["takes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(takes.stdout.take().unwrap());
    let mut port = String::new();
    told.read_line(&mut port).unwrap();
    let either = [("RDDP_FAMILY", "sdp-or-tcp"), ("RDDP_SDP_DEVICE", "nosuch0")];
    let left = device(&scratch, true, &["leaves", port.trim()]).envs(either).output().unwrap();
    succeeded(&left);
    let said = String::from_utf8_lossy(&left.stderr);
    assert!(said.contains("there is no RDMA device nosuch0") && !said.contains("child"), "{said}");
    let mut count = String::new();
    told.read_to_string(&mut count).unwrap();
    assert_eq!(count, format!("{}\n", 1 << 20));
    assert!(takes.wait().unwrap().success());
}

/// Returns a command that runs a case on a device of a library that stands where libibverbs and
/// librdmacm would: `devices` are those of that library, the first one at addresses in
/// 127.100.0.0/16.
fn faked(scratch: &TempDir, devices: &str, words: &[&str]) -> Command {
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(&fake, scratch.path().join(name)).unwrap();
    }
    let mut command = device(scratch, true, words);
    command.env("LD_LIBRARY_PATH", scratch.path()).env("FAKE_DEVICES", devices).env("HERE", "127.100.0.1");
    command.envs([("RDDP_FAMILY", "sdp"), ("RDDP_SDP_DEVICE", devices.split('=').next().unwrap())]);
    command
}

#[test]
fn calls_answer_by_devices_of_the_host() {
    for (devices, case) in ["siw0=0", "rxe0=1"].into_iter().flat_map(|devices| {
        ["echo", "names", "file", "sets", "refused", "crowded", "bulk", "full", "bereft", "asleep", "removed"]
            .map(|case| (devices, case))
    }) {
        let scratch = TempDir::new().unwrap();
        let output = faked(&scratch, devices, &[case]).output().unwrap();
        assert_eq!(succeeded(&output), "all is so\n", "{devices}, {case}");
    }
}

/// A fault of this host is told its user once.
#[test]
fn too_little_locked_memory_is_told_once_with_its_remedy() {
    let scratch = TempDir::new().unwrap();
    let output = faked(&scratch, "siw0=0:4", &["lacks", "9"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((succeeded(&output).as_str(), told.matches("ulimit -l").count()), ("", 1), "{told}");
}

/// A `listen` that fails is told its user once, whatever it lacks.
#[test]
fn a_listen_that_fails_is_told_once_and_its_errno_is_as_tcps() {
    let scratch = TempDir::new().unwrap();
    let output = faked(&scratch, "siw0=0,rxe0=1", &["deaf"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (succeeded(&output).as_str(), told.matches("listen 127.101.0.1:").count()),
        ("all is so\n", 1),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_connect_with_a_time_limit_goes_on_behind_it() {
    for devices in ["siw0=0", "rxe0=1"] {
        let scratch = TempDir::new().unwrap();
        let mut command = faked(&scratch, devices, &["silent", "9"]);
        succeeded(&command.env("HERE", "127.100.0.200").output().unwrap());
    }
}
