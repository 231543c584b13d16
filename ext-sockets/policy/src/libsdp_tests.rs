//! Files as they were written for libsdp.

use super::*;

/// The settings that libsdp's own file comes with, in its form: a long comment, and two rules.
const DEFAULT: &str = "\
# libsdp.conf
   # blanks before a comment
log min-level 9 destination file libsdp.log

# By default servers and clients try SDP first.
use both server * *:*
use both client * *:*
";

/// A cluster's file: databases by SDP, logins by TCP, and a network of IPv6.
const CLUSTER: &str = "\
log destination syslog min-level 8
use tcp    server  sshd      *:22
use tcp    connect ssh*      *:22
use sdp    listen  db2*      *:50000-50010
use sdp    connect t?cp      192.168.1.0/24:*   # benchmarks
use both   connect *         11.4.8.0/24:22
use sdp    connect *         1234:5678::0/64:*
use sdp    connect *         ::1:5001
use tcp    client  *         10.0.0.0/8:*";

fn libsdp(text: &str) -> Policy {
    let (policy, faults) = Policy::parse_libsdp(text.as_bytes());
    assert_eq!(faults, [], "{text}");
    policy
}

fn family(policy: &Policy, side: Side, program: &str, addr: &str) -> Family {
    policy.family(side, program.as_bytes(), addr.parse().unwrap())
}

#[test]
fn both_is_sdp_or_else_tcp_in_a_file_of_libsdp_alone() {
    let theirs = libsdp(DEFAULT);
    let (ours, faults) = Policy::parse(DEFAULT.as_bytes());
    assert_eq!(faults, []);
    for side in [Side::Server, Side::Client] {
        assert_eq!(family(&theirs, side, "ttcp", "192.0.2.1:5001"), Family::SdpOrTcp);
        assert_eq!(family(&ours, side, "ttcp", "192.0.2.1:5001"), Family::Both);
    }
    assert_eq!(*theirs.log(), Log { destination: LogTo::File("libsdp.log".into()), min_level: 9 });
}

#[test]
fn rules_of_a_cluster_match_as_libsdp_matched_them() {
    let policy = libsdp(CLUSTER);
    for (side, program, addr, wanted) in [
        (Side::Server, "sshd", "0.0.0.0:22", Family::Tcp),
        (Side::Client, "ssh", "11.4.8.1:22", Family::Tcp),
        (Side::Client, "scp", "11.4.8.1:22", Family::SdpOrTcp),
        (Side::Server, "db2sysc", "0.0.0.0:50010", Family::Sdp),
        (Side::Client, "ttcp", "192.168.1.77:9", Family::Sdp),
        (Side::Client, "any", "[1234:5678::7]:80", Family::Sdp),
        (Side::Client, "any", "[::1]:5001", Family::Sdp),
        (Side::Client, "any", "10.1.2.3:80", Family::Tcp),
        // No rule matches these.
        (Side::Client, "any", "[1234:5679::7]:80", Family::SdpOrTcp),
        (Side::Server, "db2sysc", "0.0.0.0:50011", Family::SdpOrTcp),
    ] {
        assert_eq!(family(&policy, side, program, addr), wanted, "{side:?} {program} {addr}");
    }
    assert!(policy.concerns(Side::Server, b"any"), "what no rule matches is SDP or TCP");
}

#[test]
fn a_file_of_libsdp_without_rules_gives_everything_sdp() {
    for text in ["", "# use both server * *:*\n", "log min-level 3\n"] {
        let policy = libsdp(text);
        assert_eq!(family(&policy, Side::Client, "any", "192.0.2.1:1"), Family::Sdp, "{text}");
        assert!(policy.concerns(Side::Server, b"any"));
    }
}

#[test]
fn what_libsdp_lets_pass_is_no_fault_in_its_files() {
    for line in ["log destination file /tmp/sdp.log", "use sdp client * 2001:db8::1:80"] {
        assert_eq!(Policy::parse(line.as_bytes()).1.len(), 1, "{line}");
        libsdp(line);
    }
    let log = libsdp("log destination file /tmp/sdp.log").log().destination.clone();
    assert_eq!(log, LogTo::File("sdp.log".into()));
    for line in
        ["log destination file /", "use sdp client * 1:2:80", "use sdp client *", "use sdp both * *:*"]
    {
        assert_eq!(Policy::parse_libsdp(line.as_bytes()).1.len(), 1, "{line}");
    }
}

#[test]
fn thresholds_are_octets_or_words() {
    let text = "threshold source all\nthreshold sink none\nthreshold sink 4096 # again\nuse sdp client * *:*";
    let (policy, faults) = Policy::parse(text.as_bytes());
    assert_eq!(faults, []);
    assert_eq!(policy.thresholds(), Thresholds { source: Some(0), sink: Some(4096) });
    assert_eq!(Thresholds::of_word("none"), Some(NO_THRESHOLD));
    assert_eq!(Policy::default().thresholds(), Thresholds::default());
}
