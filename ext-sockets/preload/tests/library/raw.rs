use tempfile::TempDir;

use crate::support::{command, compile, library, succeeded};

const SOURCES: [&str; 10] = [
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
];

/// Runs one of the program's tests.
#[track_caller]
fn passes(test: &str) {
    let scratch = TempDir::new().unwrap();
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let program = compile(&SOURCES, scratch.path(), &["-pthread", "-L", &folder, &rpath, "-lrddp_sockets"]);
    let said = succeeded(&command(&program, false, scratch.path()).arg(test).output().unwrap());
    assert_eq!(said, "all is so\n");
}

#[test]
fn every_operation_does_what_its_header_says() {
    passes("operations");
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
