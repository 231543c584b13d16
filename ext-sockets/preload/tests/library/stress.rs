//! The programs of `tests/stress`, for a short time; `tests/stress/run` runs them for longer.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

fn stress(sources: &[&str], words: &[&str]) {
    for sdp in [false, true] {
        stress_of(sources, words, sdp);
    }
}

fn stress_of(sources: &[&str], words: &[&str], sdp: bool) {
    let scratch = TempDir::new().unwrap();
    let sources: Vec<_> = sources.iter().map(|source| format!("../../../../tests/stress/{source}")).collect();
    let sources: Vec<_> = sources.iter().map(String::as_str).collect();
    let program = compile(&sources, scratch.path(), &["-pthread", "-O1"]);
    let mut command = command(&program, true, scratch.path());
    if sdp {
        command.env("STRESS_SDP", "1");
    }
    succeeded(&command.args(words).output().unwrap());
}

#[test]
fn framed_and_plain_sockets_in_one_loop_get_every_octet() {
    for way in ["epoll", "poll", "select"] {
        stress(&["mix.c", "loop.c"], &["1", way, "7", "8"]);
    }
}

#[test]
fn threads_that_close_and_reuse_numbers_under_sleeping_calls_mix_up_nothing() {
    stress(&["threads.c"], &["3", "2"]);
}

#[test]
fn when_a_peer_or_holder_is_killed_the_others_come_to_an_end() {
    stress(&["kill.c"], &["30", "1"]);
}
