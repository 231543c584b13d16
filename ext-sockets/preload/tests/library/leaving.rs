//! Servers that close what they have just accepted, and clients what they have just connected: the
//! other end sees a connection, and its end.

use std::path::Path;

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

const WAYS: [&str; 7] = [
    "at_once",
    "before_the_client",
    "both_finish",
    "by_exit",
    "to_a_child",
    "by_reset",
    "with_few_descriptors",
];

#[test]
fn a_connection_that_is_closed_at_once_ends_as_over_plain_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    for way in WAYS {
        // A blocking connect that may fall back to plain TCP waits for the accept, which a program
        // of one thread cannot make; and a client that is reset falls back.
        let has_both = ["before_the_client", "to_a_child"].contains(&way);
        goes(&program, way, has_both, scratch.path());
    }
}

#[test]
fn an_exit_ends_each_connection_as_soon_as_it_is_finished() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    goes(&program, "by_exit_in_turn", false, scratch.path());
}

#[test]
fn a_process_that_is_killed_behind_the_peers_end_loses_nothing() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    goes(&program, "killed_behind_the_clients_end", true, scratch.path());
}

#[test]
fn giving_up_unsent_octets_leaves_the_connection_to_its_other_holders() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    goes(&program, "with_a_child_and_few_descriptors", false, scratch.path());
}

#[test]
fn closed_connections_and_new_ones_do_not_hinder_each_other() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    for way in ["with_most_in_use", "with_all_numbers_closed"] {
        goes(&program, way, false, scratch.path());
    }
}

#[test]
fn the_end_of_a_connection_is_reported_once() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    for way in ["told_once", "met_by_a_send"] {
        goes(&program, way, false, scratch.path());
    }
}

fn goes(program: &Path, way: &str, with_both: bool, scratch: &Path) {
    let both = with_both.then_some("both");
    for family in FRAMED.iter().copied().chain(both).map(Some).chain([None]) {
        eprintln!("{way}, {family:?}");
        let mut command = command(program, family.is_some(), scratch);
        command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
        assert_eq!(succeeded(&command.output().unwrap()), "as it should be\n", "{way}, {family:?}");
    }
}

#[test]
fn a_server_sees_the_end_of_a_client_that_connects_and_closes() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    for way in ["by_the_client", "by_the_clients_exit"] {
        goes(&program, way, false, scratch.path());
    }
}

#[test]
fn a_shutdown_before_the_startup_is_over_ends_in_order() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    for way in ["shut_down", "shut_for_reading"] {
        goes(&program, way, false, scratch.path());
    }
}

#[test]
fn a_close_that_waits_takes_signals() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["leaving.c"], scratch.path(), &[]);
    goes(&program, "by_a_signal", false, scratch.path());
}

#[test]
fn a_plain_peer_that_leaves_at_once_has_ended_as_over_plain_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["plain_peer.c"], scratch.path(), &[]);
    for way in
        ["before_the_client", "behind_the_client", "behind_octets", "by_the_client", "behind_the_startup"]
    {
        goes(&program, way, false, scratch.path());
    }
}
