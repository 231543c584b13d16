//! `pthread_cancel` of threads that wait.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

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
        for with_library in [false, true] {
            let mut command = command(&program, with_library, scratch.path());
            let output = command.arg(call).env("RDDP_FAMILY", "ddp").output().unwrap();
            assert_eq!(succeeded(&output), "all is so\n", "{call}");
        }
    }
}
