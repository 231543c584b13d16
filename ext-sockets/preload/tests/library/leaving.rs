//! Servers that close what they have just accepted: their clients see a connection, and its end.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

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
        for family in [None, Some("ddp"), Some("both")] {
            // A blocking connect that may fall back to plain TCP waits to be accepted, which one thread cannot.
            let may_wait = ["at_once", "both_finish", "by_exit", "by_reset"].contains(&way);
            if family == Some("both") && may_wait {
                continue;
            }
            let mut command = command(&program, family.is_some(), scratch.path());
            command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
            assert_eq!(succeeded(&command.output().unwrap()), "as it should be\n", "{way}, {family:?}");
        }
    }
}
