use tempfile::TempDir;

use crate::support::{command, compile, library, succeeded};

const SOURCES: [&str; 6] =
    ["exs/main.c", "exs/calls.c", "exs/moving.c", "exs/life.c", "exs/waiting.c", "exs/lent.c"];

fn run(progress: &str, mode: &str) {
    run_with(&[progress, mode], &[]);
}

fn run_with(words: &[&str], variables: &[(&str, &str)]) {
    let scratch = TempDir::new().unwrap();
    let folder = library().parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let program = compile(&SOURCES, scratch.path(), &["-L", &folder, &rpath, "-lrddp_sockets"]);
    let mut command = command(&program, false, scratch.path());
    command.args(words).env("RDDP_PROGRESS", words[0]).envs(variables.iter().copied());
    assert_eq!(succeeded(&command.output().unwrap()), "all is so\n");
}

#[test]
fn the_es_api_is_as_its_header_says() {
    run("caller", "tcp");
}

#[test]
fn the_es_api_is_the_same_when_threads_make_progress() {
    run("threads", "tcp");
}

#[test]
fn the_es_api_is_the_same_in_ddpmode() {
    run("caller", "ddp");
}

#[test]
fn the_es_api_is_the_same_in_ddpmode_when_threads_make_progress() {
    run("threads", "ddp");
}

#[test]
fn the_es_api_is_the_same_over_sdp() {
    for threshold in ["none", "65536"] {
        let variables = [("RDDP_SDP_SOURCE_THRESHOLD", threshold), ("RDDP_SDP_SINK_THRESHOLD", threshold)];
        run_with(&["caller", "sdp"], &variables);
    }
}

#[test]
fn the_es_api_is_the_same_over_sdp_when_threads_make_progress() {
    run_with(&["threads", "sdp"], &[("RDDP_SDP_SOURCE_THRESHOLD", "all")]);
}

#[test]
fn long_sends_over_sdp_are_read_from_the_programs_memory_several_at_a_time() {
    for (progress, sink) in [("caller", "none"), ("caller", "65536"), ("threads", "65536")] {
        let variables = [("RDDP_SDP_SOURCE_THRESHOLD", "65536"), ("RDDP_SDP_SINK_THRESHOLD", sink)];
        run_with(&[progress, "sdp", "lent"], &variables);
    }
}
