use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

#[test]
fn ddpmode_options_answer_as_their_header_says() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["modes.c"], scratch.path(), &[]);
    let said = succeeded(&command(&program, true, scratch.path()).output().unwrap());
    assert_eq!(said, "all is so\n");
}

#[test]
fn without_the_library_there_is_no_ddpmode() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["modes.c"], scratch.path(), &[]);
    succeeded(&command(&program, false, scratch.path()).arg("bare").output().unwrap());
}
