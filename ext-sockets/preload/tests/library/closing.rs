//! Each way to end a connection, in each state that it may be in.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

#[test]
fn both_ends_see_each_end_as_over_plain_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["closing.c"], scratch.path(), &[]);
    let plain = succeeded(&command(&program, false, scratch.path()).output().unwrap());
    let mut run = command(&program, true, scratch.path());
    let said = succeeded(&run.env("RDDP_FAMILY", "sdp").output().unwrap());
    let differs: Vec<_> = plain.lines().zip(said.lines()).filter(|(plain, said)| plain != said).collect();
    assert_eq!(said, plain, "{differs:#?}");
}
