//! Sockets that speak SDP: how programs ask for them, and what differs from other framed ones.

use tempfile::TempDir;

use crate::support::{command, compile, succeeded};

fn run(case: &str, variables: &[(&str, &str)]) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["sdp.c"], scratch.path(), &[]);
    let mut command = command(&program, true, scratch.path());
    command.arg(case).envs(variables.iter().copied());
    assert_eq!(succeeded(&command.output().unwrap()), "all is so\n", "{case}, {variables:?}");
}

#[test]
fn families_that_the_kernel_does_not_have_are_sdp() {
    run("families", &[]);
}

#[test]
fn the_families_can_be_turned_off() {
    run("no_families", &[("RDDP_SDP_FAMILIES", "0")]);
}

#[test]
fn options_of_sdp_answer_as_their_header_says() {
    run("options", &[]);
}

#[test]
fn a_mode_may_be_asked_for_by_the_environment_and_by_option() {
    run("modes", &[("RDDP_SDP_MODE", "pipelined")]);
}

#[test]
fn a_program_that_writes_many_short_lines_before_it_reads_gets_on() {
    for threshold in ["none", "all"] {
        run("lines", &[("RDDP_SDP_SOURCE_THRESHOLD", threshold)]);
    }
}

#[test]
fn corked_octets_are_sent_when_the_cork_is_drawn() {
    run("corked", &[]);
}

#[test]
fn every_octet_arrives_with_any_threshold_and_any_buffers() {
    for threshold in ["all", "none", "65536"] {
        let of_both = [("RDDP_SDP_SOURCE_THRESHOLD", threshold), ("RDDP_SDP_SINK_THRESHOLD", threshold)];
        run("bulk", &of_both);
    }
    run("bulk", &[("RDDP_SDP_BCOPY", "1"), ("RDDP_SDP_BUFS", "3")]);
}

#[test]
fn thresholds_that_are_set_on_a_connection_hold_from_the_next_call_on() {
    run("live", &[]);
}

#[test]
fn a_threshold_of_a_socket_holds_in_the_next_program_and_others_are_that_programs() {
    run("executed", &[]);
}

#[test]
fn octets_of_an_interrupted_send_arrive_whatever_the_program_does_next() {
    run("spilled", &[]);
}

#[test]
fn urgent_octets_are_those_of_tcp() {
    run("urgent", &[]);
}

#[test]
fn urgent_octets_have_the_results_of_tcp_in_each_order_of_calls() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["urgent.c"], scratch.path(), &[]);
    let tcp = succeeded(&command(&program, false, scratch.path()).output().unwrap());
    let sdp = succeeded(&command(&program, true, scratch.path()).arg("sdp").output().unwrap());
    assert_eq!(sdp, tcp);
    assert!(tcp.contains("usERRUM"));
}

/// Runs a case of `sdp_waits.c`, with so few buffers that senders soon have no credits.
fn wait_in(words: &[&str]) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["sdp_waits.c"], scratch.path(), &[]);
    let mut command = command(&program, true, scratch.path());
    command.args(words).envs([("RDDP_SDP_BUFS", "256"), ("RDDP_SDP_JOINS", "0")]);
    assert_eq!(succeeded(&command.output().unwrap()), "all is so\n", "{words:?}");
}

#[test]
fn no_wake_up_is_missed_while_one_process_sends_and_another_reads() {
    wait_in(&["missed", "3000"]);
    wait_in(&["missed_by_waits", "600"]);
}

#[test]
#[ignore = "takes minutes"]
fn no_wake_up_is_missed_in_a_hundred_thousand_rounds() {
    wait_in(&["missed", "100000"]);
    wait_in(&["missed_by_waits", "20000"]);
}

/// Lets a program's waits meet so many orders of octets, credits, room and the end.
fn wait_in_orders(seeds: std::ops::Range<u32>, count: u32) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["sdp_orders.c"], scratch.path(), &[]);
    for seed in seeds {
        let mut command = command(&program, true, scratch.path());
        command.args([seed.to_string(), count.to_string()]);
        // With sends that wait for credits, and with such that do not.
        command.env("RDDP_SDP_JOINS", (seed % 2).to_string());
        assert_eq!(succeeded(&command.output().unwrap()), "all is so\n", "seed {seed}");
    }
}

#[test]
fn what_holds_is_told_to_every_wait_in_any_order_of_octets_credits_room_and_end() {
    wait_in_orders(1..3, 300);
}

#[test]
#[ignore = "takes an hour"]
fn what_holds_is_told_in_a_million_orders() {
    wait_in_orders(1..101, 10_000);
}

#[test]
fn a_wait_for_credits_sleeps_while_octets_are_unread() {
    wait_in(&["wakeups"]);
}

#[test]
fn a_stopped_process_keeps_no_other_from_reading_and_sending() {
    wait_in(&["stopped"]);
}

#[test]
fn a_wait_for_the_peers_end_sleeps_while_the_own_end_waits_for_credits() {
    wait_in(&["wakeups_at_the_end"]);
    wait_in(&["wakeups_behind_an_advert"]);
}

#[test]
fn a_wait_for_the_rest_of_a_record_ends_however_the_record_comes() {
    wait_in(&["low_water", "300"]);
}

#[test]
fn sends_above_all_buffers_block_as_over_tcp() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["sdp_waits.c"], scratch.path(), &[]);
    for (with_library, threshold) in [(false, "none"), (true, "none"), (true, "all")] {
        let mut command = command(&program, with_library, scratch.path());
        command.arg("blocks").env("RDDP_SDP_SOURCE_THRESHOLD", threshold);
        let said = succeeded(&command.output().unwrap());
        assert_eq!(said, "all is so\n", "library: {with_library}, threshold {threshold}");
    }
}

#[test]
fn sends_that_nobody_reads_return_as_over_tcp() {
    wait_in(&["unread"]);
}
