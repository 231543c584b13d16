//! Placement in the kernel as a C program in raw mode uses it: two processes in network namespaces
//! of their own, and between them a path that loses, repeats, reorders and corrupts segments.
//!
//! Needs root and the feature `kernel`: `tests/kernel-placement/run`.
#![allow(missing_docs)]

#[path = "../../../kernel-patch/tests/common/mod.rs"]
mod path_test;
#[path = "library/support.rs"]
#[allow(dead_code, reason = "a part of what the library's tests share")]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use path_test::net::in_namespace;
use path_test::tap::{BAD_PATH, DEVICE, RECEIVER, RECEIVER_V6, path};
use support::{command, compile, library, succeeded};
use tempfile::TempDir;

/// `enum ddp_placement`.
const AUTO: &str = "1";
const KERNEL: &str = "2";

fn compiled(scratch: &Path) -> PathBuf {
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    compile(&["placement/main.c"], scratch, &["-L", &folder, &rpath, "-lrddp_sockets"])
}

/// A program whose device places on an interface that the environment names, or a policy.
fn on(interface: &str, by_policy: bool, program: &Path, scratch: &Path) -> Command {
    let mut command = command(program, false, scratch);
    if by_policy {
        let policy = scratch.join("policy");
        std::fs::write(&policy, format!("placement auto interfaces={interface}\n")).unwrap();
        command.env("RDDP_POLICY", policy);
    } else {
        command.env("RDDP_PLACEMENT_INTERFACES", interface);
    }
    command
}

#[test]
fn writes_of_a_peer_are_placed_by_the_kernel() {
    in_namespace(|| {
        let scratch = TempDir::new().unwrap();
        let program = compiled(scratch.path());
        for (seed, level, addr) in [(1, AUTO, RECEIVER), (2, KERNEL, RECEIVER_V6)] {
            let (invite, invited) = channel::<String>();
            let mut sender = command(&program, false, scratch.path());
            let (_middle, sent) = path(BAD_PATH, seed, move || {
                let place = invited.recv().expect("a place");
                sender.args(["send", addr]).args(place.split_whitespace()).output().unwrap()
            });
            let mut receiver = on(DEVICE, level == KERNEL, &program, scratch.path());
            let mut receiver =
                receiver.args(["receive", addr, level]).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(receiver.stdout.take().unwrap());
            let (mut place, mut rest) = (String::new(), String::new());
            output.read_line(&mut place).unwrap();
            invite.send(place).unwrap();
            output.read_to_string(&mut rest).unwrap();
            eprintln!("{rest}");
            assert!(receiver.wait().unwrap().success() && rest.ends_with("all is so\n"));
            succeeded(&sent.join().unwrap());
        }
    });
}

#[test]
fn a_process_without_rights_goes_on_at_user_level() {
    in_namespace(|| {
        let scratch = TempDir::new().unwrap();
        let program = compiled(scratch.path());
        let output = on("lo", false, &program, scratch.path()).arg("refused").output().unwrap();
        assert_eq!(succeeded(&output), "all is so\n");
        let logged = String::from_utf8_lossy(&output.stderr);
        assert!(logged.contains("raw mode places at user level"), "{logged}");
    });
}
