//! Connections that cannot be made: every call answers as over plain TCP.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

#[test]
#[ignore = "the startup eats the error of a connect that fails"]
fn a_connect_that_fails_is_told_as_plain_tcp_tells_it() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["connects.c"], scratch.path(), &[]);
    for way in ["poll", "level", "edge", "select"] {
        let told = |family: Option<&str>| {
            let mut command = command(&program, family.is_some(), scratch.path());
            command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
            succeeded(&command.output().unwrap())
        };
        let plain = told(None);
        assert!(plain.contains("SO_ERROR ECONNREFUSED"), "{plain}");
        for family in ["ddp", "both"] {
            assert_eq!(told(Some(family)), plain, "{way}, {family}");
        }
    }
}
