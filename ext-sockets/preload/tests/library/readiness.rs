//! Readiness of framed sockets: each rule in every call that waits; wake-ups are counted.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

const SOURCES: [&str; 4] = ["readiness/main.c", "readiness/peer.c", "readiness/waits.c", "readiness/sets.c"];

const RULES: [&str; 11] = [
    "octets",
    "leftovers",
    "low_water",
    "full",
    "leave",
    "initiator",
    "ends",
    "times",
    "time_left",
    "mixed",
    "sets",
];

#[test]
fn every_way_of_waiting_tells_what_a_call_would_find() {
    for options in [&["-pthread"][..], &["-pthread", "-O2", "-D_FORTIFY_SOURCE=2"]] {
        let scratch = TempDir::new().unwrap();
        let program = compile(&SOURCES, scratch.path(), options);
        for rule in RULES {
            let said = succeeded(&command(&program, true, scratch.path()).arg(rule).output().unwrap());
            assert_eq!(said, "as it should be\n", "{rule}");
        }
    }
}
