use tempfile::TempDir;

use crate::support::{command, compile, library, succeeded};

const SOURCES: [&str; 9] = [
    "raw/main.c",
    "raw/operations.c",
    "raw/refusals.c",
    "raw/connections.c",
    "raw/endings.c",
    "raw/waiting.c",
    "raw/crowds.c",
    "raw/answers.c",
    "raw/shared.c",
];

/// Runs one of the program's tests.
#[track_caller]
fn all_is_so(test: &str) {
    let scratch = TempDir::new().unwrap();
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let program = compile(&SOURCES, scratch.path(), &["-pthread", "-L", &folder, &rpath, "-lrddp_sockets"]);
    let said = succeeded(&command(&program, false, scratch.path()).arg(test).output().unwrap());
    assert_eq!(said, "all is so\n");
}

#[test]
fn every_operation_does_what_its_header_says() {
    all_is_so("operations");
}

#[test]
fn windows_are_bound_and_written_through() {
    all_is_so("windows");
}

#[test]
fn arguments_that_make_no_sense_are_refused_and_change_nothing() {
    all_is_so("refusals");
}

#[test]
fn connections_come_about_in_every_order_of_calls() {
    all_is_so("connections");
}

#[test]
fn peers_that_speak_something_else_are_told_from_those_that_refuse() {
    all_is_so("peers");
}

#[test]
fn every_end_of_a_connection_is_told_once_and_last() {
    all_is_so("endings");
}

#[test]
fn the_queue_is_readable_while_there_are_events() {
    all_is_so("readiness");
}

#[test]
fn sends_without_a_receive_wait_where_that_was_asked_for() {
    all_is_so("patience");
}

#[test]
fn a_child_has_no_part_in_what_its_parent_attached() {
    all_is_so("forks");
}

#[test]
fn threads_that_connect_and_close_at_any_moment_see_each_endpoint_end_once() {
    all_is_so("crowds");
}

#[test]
fn a_request_is_looked_at_and_answered() {
    all_is_so("answers");
}

#[test]
fn requests_that_nobody_answers_end_in_time_and_harm_nobody() {
    all_is_so("unanswered");
}

#[test]
fn messages_of_several_endpoints_take_from_shared_receives() {
    all_is_so("shared");
}

#[test]
fn pointers_that_are_no_good_are_efault() {
    all_is_so("bad_pointers");
}
