//! Connections that cannot be made: every call answers as over plain TCP.

use std::path::Path;

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

#[test]
fn a_connect_that_fails_is_told_as_plain_tcp_tells_it() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["connects.c"], scratch.path(), &[]);
    std::thread::scope(|scope| {
        for way in ["poll", "level", "edge", "select"] {
            scope.spawn(|| tells_the_same(&program, way, scratch.path()));
        }
    });
}

fn tells_the_same(program: &Path, way: &str, scratch: &Path) {
    let told = |family: Option<&str>| {
        let mut command = command(program, family.is_some(), scratch);
        command.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
        succeeded(&command.output().unwrap())
    };
    let plain = told(None);
    assert!(plain.contains("SO_ERROR ECONNREFUSED"), "{plain}");
    for family in FRAMED.iter().chain(&["both"]) {
        assert_eq!(told(Some(family)), plain, "{way}, {family}");
    }
}
