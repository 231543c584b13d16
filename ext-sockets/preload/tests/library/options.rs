use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

#[test]
fn options_that_harm_no_stream_answer_as_on_a_plain_socket() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["options.c"], scratch.path(), &[]);
    let answers = |with_library, family| {
        let mut command = command(&program, with_library, scratch.path());
        succeeded(&command.env("RDDP_FAMILY", family).output().unwrap())
    };
    let bare = answers(false, "tcp");
    assert!(bare.lines().count() >= 100, "{bare}");
    for family in FRAMED {
        let framed = answers(true, family);
        let differences: Vec<_> =
            bare.lines().zip(framed.lines()).filter(|(bare, framed)| bare != framed).collect();
        assert_eq!(differences, [("", ""); 0], "{family}");
        assert_eq!(bare.lines().count(), framed.lines().count());
    }
}
