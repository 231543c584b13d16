//! Calls on framed sockets in signal handlers.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

#[test]
fn a_handler_that_moves_octets_or_closes_allocates_nothing() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["handlers.c"], scratch.path(), &[]);
    for family in FRAMED.iter().map(Some).chain([None]) {
        let mut command = command(&program, family.is_some(), scratch.path());
        command.envs(family.map(|family| ("RDDP_FAMILY", family)));
        assert_eq!(succeeded(&command.output().unwrap()), "all is so\n", "{family:?}");
    }
}
