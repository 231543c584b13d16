//! `pthread_cancel` of threads that wait.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

const CALLS: [&str; 11] = [
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "accept",
    "sigsuspend",
    "sigwait",
    "sigtimedwait",
];

#[test]
fn a_thread_that_waits_for_a_framed_socket_can_be_cancelled() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["cancelled.c"], scratch.path(), &["-pthread"]);
    for call in CALLS {
        for family in FRAMED.iter().map(Some).chain([None]) {
            let mut command = command(&program, family.is_some(), scratch.path());
            command.arg(call).envs(family.map(|family| ("RDDP_FAMILY", family)));
            assert_eq!(succeeded(&command.output().unwrap()), "all is so\n", "{call}, {family:?}");
        }
    }
}
