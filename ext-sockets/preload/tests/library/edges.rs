use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

#[test]
fn a_program_that_infers_edges_gets_every_one() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["edges.c"], scratch.path(), &["-pthread", "-O2"]);
    let framed = FRAMED.iter().map(|family| (true, *family));
    for (with_library, family) in [(false, "tcp"), (true, "tcp")].into_iter().chain(framed) {
        let mut command = command(&program, with_library, scratch.path());
        let said = succeeded(&command.env("RDDP_FAMILY", family).output().unwrap());
        assert_eq!(said, "as it should be\n", "{family}");
    }
}
