//! Bad pointers in calls on framed sockets, and the program's own handlers of their signals.

use tempfile::TempDir;

use crate::support::{FRAMED, command, compile, succeeded};

const SOURCES: [&str; 2] = ["faults/main.c", "faults/signals.c"];

#[track_caller]
fn as_over_tcp(way: &str) {
    let scratch = TempDir::new().unwrap();
    let program = compile(&SOURCES, scratch.path(), &["-pthread"]);
    for family in FRAMED.iter().map(Some).chain([None]) {
        let mut run = command(&program, family.is_some(), scratch.path());
        run.arg(way).envs(family.map(|family| ("RDDP_FAMILY", family)));
        assert_eq!(succeeded(&run.output().unwrap()), "as it should be\n", "{way}, {family:?}");
    }
}

#[test]
fn addresses_that_were_never_mapped_are_efault_and_the_connection_goes_on() {
    as_over_tcp("unmapped");
}

#[test]
fn sends_count_the_octets_before_a_page_that_is_gone() {
    as_over_tcp("sends");
}

#[test]
fn receives_lose_nothing_that_a_bad_page_has_no_room_for() {
    as_over_tcp("receives");
}

#[test]
fn bad_lists_of_pieces_are_efault() {
    as_over_tcp("lists");
}

#[test]
fn bad_arguments_besides_octets_are_efault() {
    as_over_tcp("arguments");
}

#[test]
fn threads_that_block_every_signal_are_guarded() {
    as_over_tcp("all_blocked");
}

#[test]
fn a_program_sees_its_own_handlers_and_has_its_own_faults() {
    as_over_tcp("own_handlers");
}

#[test]
fn flags_of_handlers_hold() {
    as_over_tcp("flags");
}

#[test]
fn a_signal_that_is_sent_waits_for_a_thread_that_blocks_it() {
    as_over_tcp("held_back");
}

#[test]
fn a_fault_while_its_signal_is_blocked_ends_the_process() {
    as_over_tcp("ends_blocked");
}

#[test]
fn ignored_signals_are_ignored_and_faults_are_not() {
    as_over_tcp("ignored");
}

#[test]
fn handlers_that_run_with_every_signal_blocked_are_guarded() {
    as_over_tcp("masks_of_waits");
}

#[test]
fn sigwait_takes_what_is_sent() {
    as_over_tcp("waited_for");
}

#[test]
fn programs_that_are_started_find_the_mask_and_what_is_ignored() {
    as_over_tcp("passed_on");
}

#[test]
fn jumps_out_of_handlers_leave_nothing_behind() {
    as_over_tcp("jumps");
}

#[test]
fn handlers_that_call_us_leave_the_interrupted_call_its_guard() {
    as_over_tcp("nested");
}

#[test]
fn handlers_and_masks_by_way_of_syscall_are_those_of_the_functions() {
    as_over_tcp("raw_calls");
}

#[test]
fn masks_that_are_not_there_are_efault() {
    as_over_tcp("bad_masks");
}

#[test]
fn lists_are_used_as_they_were_when_the_call_began() {
    as_over_tcp("lists_that_change");
}

#[test]
fn ignored_signals_interrupt_no_wait() {
    as_over_tcp("ignored_in_waits");
}

#[test]
fn bad_addresses_are_efault_in_a_sandbox_too() {
    as_over_tcp("sandboxed");
}
