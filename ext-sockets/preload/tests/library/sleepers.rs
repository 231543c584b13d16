//! Threads that sleep on a set when another thread puts a socket of ours into it.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

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
fn a_thread_asleep_before_there_was_a_framed_socket_gets_its_event_with_the_programs_data() {
    for family in FRAMED {
        run(family, "data");
    }
}

#[test]
fn a_sleeping_thread_wakes_for_events_that_only_a_clock_causes() {
    run("both", "greeting");
}
