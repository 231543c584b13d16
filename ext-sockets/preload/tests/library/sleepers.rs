//! Threads that are asleep on a set when another puts a socket of ours into it.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

fn run(family: &str, what: &str) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["sleepers.c"], scratch.path(), &["-pthread"]);
    for kind in ["wait", "pwait", "pwait2"] {
        let mut command = command(&program, true, scratch.path());
        let output = command.args([what, kind, "again"]).env("RDDP_FAMILY", family).output().unwrap();
        assert_eq!(succeeded(&output), "all is so\n", "{kind}");
    }
}

#[test]
fn who_slept_before_there_was_a_framed_socket_is_told_of_it_as_the_program_named_it() {
    run("ddp", "data");
}

#[test]
fn who_slept_wakes_for_what_only_a_clock_brings_about() {
    run("both", "greeting");
}
