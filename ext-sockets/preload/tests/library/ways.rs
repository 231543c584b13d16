//! Connections that a program gets by `exec`, in a message, or by less common calls: framed as its
//! policy says.

use std::process::Output;

use tempfile::TempDir;

use crate::support::{FRAMED as FAMILIES, command, compile, succeeded};

/// Runs one case of `ways.c` under a policy.
fn run(way: &str, family: Option<&str>) -> Output {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["ways.c"], scratch.path(), &["-pthread", "-ldl"]);
    let mut command = command(&program, true, scratch.path());
    if let Some(family) = family {
        command.env("RDDP_FAMILY", family);
    }
    command.arg(way).output().unwrap()
}

/// Returns the lines of a program that ended well, sorted: its processes print in any order.
#[track_caller]
fn said(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = succeeded(output).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

const FRAMED: [&str; 4] = ["client framed", "client framed", "server framed", "server framed"];
const PLAIN: [&str; 4] = ["client plain", "client plain", "server plain", "server plain"];

#[test]
fn a_listener_that_comes_by_exec_is_given_the_policy() {
    for way in ["listener-by-exec", "listener-by-exec-in-epoll"] {
        for family in FAMILIES {
            assert_eq!(said(&run(way, Some(family))), FRAMED, "{way}, {family}");
        }
        assert_eq!(said(&run(way, Some("both"))), FRAMED, "{way}");
        assert_eq!(said(&run(way, Some("tcp"))), PLAIN, "{way}");
        assert_eq!(said(&run(way, None)), PLAIN, "{way}");
    }
}

#[test]
fn a_listener_that_comes_in_a_message_is_given_the_policy() {
    for family in FAMILIES {
        assert_eq!(said(&run("listener-by-message", Some(family))), FRAMED, "{family}");
    }
    assert_eq!(said(&run("listener-by-message", Some("tcp"))), PLAIN);
}

#[test]
fn a_listener_under_the_number_of_a_plain_one_is_given_the_policy() {
    for family in FAMILIES {
        assert_eq!(said(&run("listener-under-a-plain-number", Some(family))), FRAMED, "{family}");
    }
}

#[test]
fn ddpmode_of_a_listener_does_not_pass_exec() {
    assert_eq!(said(&run("asked-listener-by-exec", None)), PLAIN);
}

#[test]
fn a_socket_whose_program_says_ddpmode_0_stays_plain() {
    let wanted = ["client framed", "client plain", "server plain"];
    for family in [None, Some("ddp"), Some("both"), Some("tcp")] {
        assert_eq!(said(&run("stays-plain", family)), wanted, "{family:?}");
    }
}

const STRANGER: &str = "came by exec or in a message, without its state (reported once)";

#[test]
fn a_connection_of_unknown_mode_is_plain_and_is_reported_once() {
    for (way, lines) in [("connection-by-exec", 1), ("connections-by-message", 2)] {
        for (family, told) in [("ddp", 1), ("both", 0), ("tcp", 0)] {
            let output = run(way, Some(family));
            assert_eq!(said(&output), vec!["server plain"; lines], "{way}, {family}");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(errors.lines().count(), told, "{way}, {family}: {errors}");
            assert_eq!(errors.matches(STRANGER).count(), told, "{way}, {family}: {errors}");
        }
    }
}

#[test]
fn nothing_is_told_where_standard_error_is_a_connection() {
    assert_eq!(said(&run("connection-as-standard-streams", Some("ddp"))), [""; 0]);
}

#[test]
fn octets_that_go_with_the_syn_are_framed() {
    for way in ["fast-open", "fast-open-nonblocking", "fast-open-of-many", "fast-open-by-connect"] {
        for family in [None, Some("ddp"), Some("both")] {
            let wanted = if family.is_some() { FRAMED } else { PLAIN };
            eprintln!("{way}, {family:?}"); // seen where it does not end well
            let served = said(&run(way, family));
            assert_eq!(served, wanted, "{way}, {family:?}");
        }
    }
}

#[test]
fn zero_copy_completions_are_refused_with_no_room() {
    // One thread is both ends, which does not work under `both`.
    for family in [None, Some("ddp"), Some("tcp")] {
        let end = if family == Some("ddp") { "client framed" } else { "client plain" };
        assert_eq!(said(&run("zerocopy", family)), [end; 2], "{family:?}");
    }
}

#[test]
fn mptcp_is_refused_under_ddp_and_plain_under_both() {
    let output = run("mptcp", Some("ddp"));
    let lines = said(&output);
    if lines == ["no MPTCP"] {
        eprintln!("not tried: the kernel has no MPTCP");
        return;
    }
    assert_eq!(lines, ["connect: EPROTONOSUPPORT", "listen: EPROTONOSUPPORT"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.matches("MPTCP").count(), 2, "{errors}");
    for family in [None, Some("both"), Some("tcp")] {
        let output = run("mptcp", family);
        assert_eq!(said(&output), ["client plain", "server plain"], "{family:?}");
        assert!(output.stderr.is_empty(), "{family:?}");
    }
}

#[test]
fn a_variable_that_names_no_family_is_reported() {
    let output = run("listener-by-exec", Some("rdma"));
    assert_eq!(said(&output), PLAIN);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "rddp: RDDP_FAMILY=rdma: not a family; all sockets stay plain TCP; try: ddp, sdp, both, sdp-or-tcp or tcp";
    assert!(!errors.is_empty() && errors.lines().all(|told| told == line), "{errors}");
}

/// Supervisors that are told to pass on a variable pass an empty one if it is not set.
#[test]
fn a_variable_that_is_empty_is_not_set() {
    let scratch = TempDir::new().unwrap();
    let program = compile(&["ways.c"], scratch.path(), &["-pthread", "-ldl"]);
    for (policy, family, wanted) in [("", "ddp", FRAMED), ("", "", PLAIN)] {
        let mut command = command(&program, true, scratch.path());
        command.env("RDDP_POLICY", policy).env("RDDP_FAMILY", family).arg("listener-by-exec");
        let output = command.output().unwrap();
        assert_eq!(said(&output), wanted);
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}
