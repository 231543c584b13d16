use tempfile::TempDir;

use crate::support::{command, compile, library, succeeded};

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

#[test]
fn a_program_that_is_linked_with_the_library_needs_no_preload() {
    let scratch = TempDir::new().unwrap();
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let program = compile(&["modes.c"], scratch.path(), &["-L", &folder, &rpath, "-lrddp_sockets"]);
    let said = succeeded(&command(&program, false, scratch.path()).output().unwrap());
    assert_eq!(said, "all is so\n");
}

#[test]
fn where_the_kernel_cannot_tell_sockets_apart_nothing_is_framed() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["old_kernel.c"], scratch.path(), &[]);
    for family in ["tcp", "both", "ddp"] {
        let mut command = command(&program, true, scratch.path());
        let said = succeeded(&command.arg(family).env("RDDP_FAMILY", family).output().unwrap());
        assert_eq!(said, "all is so\n", "{family}");
    }
}
