//! Forks at bad moments: other threads are at work, no process can be made, or the child executes
//! another program.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

fn forks(way: &str) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["forking.c"], scratch.path(), &["-pthread"]);
    for family in FRAMED.iter().map(Some).chain([None]) {
        let mut command = command(&program, family.is_some(), scratch.path());
        command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
        assert_eq!(succeeded(&command.output().unwrap()), "as it should be\n", "{family:?}");
    }
}

#[test]
fn a_thread_forks_while_others_begin_connections() {
    forks("while_others_begin");
}

#[test]
fn a_fork_that_fails_leaves_the_sockets_to_their_process() {
    forks("that_fails");
}

#[test]
fn a_program_that_a_child_executes_holds_no_socket_that_exec_closed() {
    forks("that_executes");
}

#[test]
fn a_child_of_the_bare_system_call_holds_the_sockets_of_its_parent() {
    forks("by_the_system_call");
}

#[test]
fn a_child_that_confines_itself_is_told_of_a_reset() {
    forks("that_confines");
}
