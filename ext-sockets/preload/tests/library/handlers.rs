//! Calls on framed sockets in signal handlers.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

#[test]
fn a_handler_that_moves_octets_or_closes_allocates_nothing() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["handlers.c"], scratch.path(), &[]);
    for with_library in [false, true] {
        let mut command = command(&program, with_library, scratch.path());
        let output = command.env("RDDP_FAMILY", "ddp").output().unwrap();
        assert_eq!(succeeded(&output), "all is so\n");
    }
}
