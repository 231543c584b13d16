//! Programs that write as soon as they are connected.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

const WAYS: [&str; 9] = [
    "banner_and_close",
    "both_ends",
    "by_exit",
    "half_close",
    "edge_of_room",
    "of_two_processes",
    "of_a_file",
    "lingering",
    "counted",
];

#[test]
fn a_fresh_connection_takes_octets_as_tcp_does() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["early.c"], scratch.path(), &[]);
    for way in WAYS {
        for family in [None, Some("ddp")] {
            let mut command = command(&program, family.is_some(), scratch.path());
            command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
            assert_eq!(succeeded(&command.output().unwrap()), "as it should be\n", "{way}, {family:?}");
        }
    }
}
