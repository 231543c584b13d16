//! `RDDP_LOG`, and `-v` of `rddp run`: what the library tells of a program's connections.

use std::net::TcpListener;
use std::process::Command;

use tempfile::TempDir;

use crate::program::{Ended, command};

/// A Python program with a client and a server of its own, which exchange five octets.
const ECHO: &str = "
import socket, threading
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def serve():
    c, _ = s.accept(); c.sendall(c.recv(5)); c.close()
t = threading.Thread(target=serve); t.start()
c = socket.create_connection(s.getsockname()); c.sendall(b'hello'); print(c.recv(5)); c.close(); t.join()
";

/// Connects to a server that is none of MPA's, and gets an answer in plain TCP.
const FALLS_BACK: &str = "
import socket, threading
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def serve():
    while True:
        c, _ = s.accept()
        data = c.recv(20)
        c.sendall(b'no MPA here' if data[:3] == b'MPA' else b'hello'); c.close()
        if data[:3] != b'MPA': return
t = threading.Thread(target=serve); t.start()
c = socket.create_connection(s.getsockname()); c.sendall(b'hello'); print(c.recv(5)); c.close(); t.join()
";

fn run(args: &[&str], log: &[(&str, &str)]) -> Ended {
    let mut command = command(args);
    command.env_remove("RDDP_LOG").env_remove("RDDP_LOG_FILE").envs(log.iter().copied());
    Ended::from(command.output().unwrap())
}

fn python(how: &[&str], script: &str, log: &[(&str, &str)]) -> Ended {
    run(&[how, &["--", "python3", "-c", script]].concat(), log).ok()
}

fn policy(scratch: &TempDir, text: &str) -> String {
    let path = scratch.path().join("policy");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn nothing_is_told_without_the_variable() {
    for log in [&[][..], &[("RDDP_LOG", "")], &[("RDDP_LOG", "off")], &[("RDDP_LOG", "rnic=trace")]] {
        let ended = python(&["run", "--ddp"], ECHO, log);
        assert_eq!((&*ended.stdout, &*ended.stderr), ("b'hello'\n", ""), "{log:?}");
    }
}

#[test]
fn lines_say_what_was_switched_and_framed() {
    for (how, framed) in [("--ddp", "framed, DDPMODE"), ("--sdp", "framed, SDP")] {
        for (args, log) in
            [(&["run", how][..], &[("RDDP_LOG", "switch=info")][..]), (&["run", "-v", how], &[])]
        {
            let ended = python(args, ECHO, log);
            let shown = |texts: &[&str]| {
                ended.stderr.lines().any(|line| texts.iter().all(|text| line.contains(text)))
            };
            assert!(shown(&[" INFO switch: listen 127.0.0.1:", &format!(": {}: ", &how[2..])]), "{ended:?}");
            assert!(shown(&["INFO switch: connect 127.0.0.1:", framed]), "{ended:?}");
            assert!(shown(&["INFO switch: accept 127.0.0.1:", framed]), "{ended:?}");
        }
    }
}

#[test]
fn a_line_names_the_line_of_the_policy_and_the_fall_back() {
    let scratch = tempfile::tempdir().unwrap();
    let with = |text: &str, script: &str| {
        let path = policy(&scratch, text);
        python(&["run", "-v", "--policy", &path], script, &[]).stderr
    };
    let told = with("# what is plain\nuse tcp client * *:*\n", ECHO);
    assert!(told.contains("tcp: plain TCP policy_line=2"), "{told}");
    let told = with("\n\nuse both client * *:*\nlog min-level 7\n", FALLS_BACK);
    assert!(told.contains("both: DDPMODE, or else plain TCP policy_line=3"), "{told}");
    let fallen = "the peer does not speak MPA; connected again in plain TCP";
    // The policy's own log is not written to standard error a second time.
    assert_eq!(told.matches(fallen).count(), 1, "{told}");
    assert!(told.lines().all(|line| line.contains(" rddp[")), "{told}");
}

#[test]
fn nonsense_is_told_once_with_a_remedy() {
    let log = [("RDDP_LOG", "debgu,switch=info")];
    // Two programs have the library.
    let script = "import os, sys; sys.exit(os.system('true'))";
    let told = python(&["run", "--ddp"], script, &log).stderr;
    assert_eq!(told.matches("RDDP_LOG: \"debgu\" is neither a level nor a part").count(), 1, "{told}");
    assert!(told.contains("; try: RDDP_LOG=info, or RDDP_LOG=rnic=debug,switch=info; levels: off"), "{told}");
    // Loaded without the command, the library tells it.
    let script = "import os, sys; print(os.environ['LD_PRELOAD'], sys.executable)";
    let shown = python(&["run"], script, &[]).stdout;
    let (library, interpreter) = shown.trim().split_once(' ').unwrap();
    let direct = |log: &[(&str, &str)]| {
        let mut program = Command::new(interpreter);
        program.args(["-c", ECHO]).env("LD_PRELOAD", library).env("RDDP_FAMILY", "ddp");
        let ended = Ended::from(program.envs(log.iter().copied()).output().unwrap());
        ended.ok().stderr
    };
    let told = direct(&log);
    assert_eq!(told.matches("try: RDDP_LOG=info").count(), 1, "{told}");
    assert!(told.contains("framed, DDPMODE"), "{told}");
    let told = direct(&[("RDDP_LOG", "info"), ("RDDP_LOG_FILE", "/nonexistent/log")]);
    assert!(told.contains("RDDP_LOG_FILE=/nonexistent/log: ") && told.contains("; try: a file"), "{told}");
}

#[test]
fn a_program_with_a_log_of_its_own_keeps_it_and_the_library_has_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("log-%p");
    // The command is a program in Rust with a subscriber of its own, under the library here.
    let log = [("RDDP_LOG", "rddp=info,switch=info"), ("RDDP_LOG_FILE", file.to_str().unwrap())];
    let perf = ["perf", "local", "--op", "tcp", "--size", "64K", "--duration", "0.01"];
    let ended = run(&[&["run", "--ddp", "--", env!("CARGO_BIN_EXE_rddp")][..], &perf].concat(), &log).ok();
    assert!(ended.stderr.contains("session over") && !ended.stderr.contains("DDPMODE"), "{ended:?}");
    let names: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 2, "a file for each process");
    for name in names {
        let text = std::fs::read_to_string(&name).unwrap();
        let process = name.to_str().unwrap().rsplit('-').next().unwrap();
        assert!(text.lines().all(|line| line.contains(&format!(" rddp[{process}] "))), "{text}");
        assert!(text.contains("framed, DDPMODE") && !text.contains("session over"), "{text}");
    }
}

#[test]
fn the_command_takes_the_variable_before_rust_log() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let told = |log: &[(&str, &str)]| run(&["ping", &closed], log).stderr;
    assert!(told(&[("RDDP_LOG", "rnic::startup=info"), ("RUST_LOG", "off")]).contains("startup failed"));
    assert!(!told(&[("RDDP_LOG", "off"), ("RUST_LOG", "info")]).contains("startup failed"));
    let nonsense = told(&[("RDDP_LOG", "rnic=loud")]);
    assert!(nonsense.contains("RDDP_LOG: \"loud\" in \"rnic=loud\" is no level"), "{nonsense}");
    let nonsense = told(&[("RUST_LOG", "rddp_rnic=loud")]);
    assert!(nonsense.contains("try: RUST_LOG=debug"), "{nonsense}");
}
