use tempfile::TempDir;

use crate::support::{command, compile, library, succeeded};

const SOURCES: [&str; 11] = [
    "raw/main.c",
    "raw/operations.c",
    "raw/refusals.c",
    "raw/connections.c",
    "raw/endings.c",
    "raw/waiting.c",
    "raw/crowds.c",
    "raw/answers.c",
    "raw/shared.c",
    "raw/names.c",
    "raw/placement.c",
];

/// Runs one of the program's tests.
#[track_caller]
fn passes(test: &str) {
    passes_with(test, &[]);
}

/// Runs one of the program's tests with these variables, and returns what the library logs.
#[track_caller]
fn passes_with(test: &str, variables: &[(&str, &str)]) -> String {
    let scratch = TempDir::new().unwrap();
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let program = compile(&SOURCES, scratch.path(), &["-pthread", "-L", &folder, &rpath, "-lrddp_sockets"]);
    let mut command = command(&program, false, scratch.path());
    let output = command.envs(variables.iter().copied()).arg(test).output().unwrap();
    assert_eq!(succeeded(&output), "all is so\n");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_operation_does_what_its_header_says() {
    passes("operations");
}

#[test]
fn files_that_are_not_mapped() {
    passes("files");
}

#[test]
fn windows_are_bound_and_written_through() {
    passes("windows");
}

#[test]
fn invalid_arguments_are_refused_and_change_nothing() {
    passes("refusals");
}

#[test]
fn connections_come_about_in_every_order_of_calls() {
    passes("connections");
}

#[test]
fn peers_that_speak_something_else_are_told_from_those_that_refuse() {
    passes("peers");
}

#[test]
fn every_end_of_a_connection_is_told_once_and_last() {
    passes("endings");
}

#[test]
fn the_queue_is_readable_while_there_are_events() {
    passes("readiness");
}

#[test]
fn sends_without_a_receive_wait_where_that_was_asked_for() {
    passes("patience");
}

#[test]
fn a_child_has_no_part_in_what_its_parent_attached() {
    passes("forks");
}

#[test]
fn threads_that_connect_and_close_at_any_moment_see_each_endpoint_end_once() {
    passes("crowds");
}

#[test]
fn a_request_is_looked_at_and_answered() {
    passes("answers");
}

#[test]
fn requests_that_are_not_answered_end_in_time_and_harm_no_other() {
    passes("unanswered");
}

#[test]
fn messages_of_several_endpoints_take_from_shared_receives() {
    passes("shared");
}

#[test]
fn bad_pointers_are_efault() {
    passes("bad_pointers");
}

#[test]
fn kinds_statuses_and_terminates_have_names() {
    passes("names");
}

#[test]
fn memory_that_the_library_allocates_is_written_by_peers() {
    passes("allocated");
}

#[test]
fn the_kernel_is_asked_in_vain_where_no_interface_is_named() {
    assert_eq!(passes_with("placement", &[]), "");
    let logged = passes_with("placement", &[("RDDP_PLACEMENT", "auto")]);
    assert!(logged.contains("places at user level: no interface is named; try:"), "{logged}");
    let logged = passes_with("placement", &[("RDDP_PLACEMENT_TRUSTED", "yes")]);
    assert!(logged.contains("RDDP_PLACEMENT_TRUSTED=yes: not a value of this variable"), "{logged}");
}

/// A build without the feature says so; one with it finds no such interface, or has no rights.
#[test]
fn a_program_goes_on_at_user_level_where_the_kernel_is_refused() {
    let variables = [("RDDP_PLACEMENT", "auto"), ("RDDP_PLACEMENT_INTERFACES", "nosuch0")];
    let logged = passes_with("operations", &variables);
    assert!(logged.contains("raw mode places at user level: preparing placement"), "{logged}");
    if cfg!(not(feature = "kernel")) {
        assert!(logged.contains("build with the feature `kernel`"), "{logged}");
        assert!(!passes_with("placement", &variables).is_empty());
    }
}
