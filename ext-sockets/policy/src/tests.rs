use proptest::prelude::*;

use super::*;

fn well(text: &str) -> Policy {
    let (policy, faults) = Policy::parse(text.as_bytes());
    assert_eq!(faults, [], "{text}");
    policy
}

fn client(policy: &Policy, program: &str, addr: &str) -> Family {
    policy.family(Side::Client, program.as_bytes(), addr.parse().unwrap())
}

#[test]
fn the_first_rule_that_matches_counts() {
    let policy = well(
        "use tcp  client *    192.0.2.7:*\n\
         use ddp  client *    192.0.2.0/24:*\n\
         use both client curl *:80-89\n\
         use ddp  server *    *:*\n",
    );
    for (program, addr, family) in [
        ("any", "192.0.2.7:80", Family::Tcp),
        ("any", "192.0.2.8:80", Family::Ddp),
        ("curl", "192.0.2.8:80", Family::Ddp),
        ("curl", "198.51.100.1:80", Family::Both),
        ("curl", "198.51.100.1:89", Family::Both),
        ("curl", "198.51.100.1:90", Family::Tcp),
        ("curl", "[2001:db8::1]:85", Family::Both),
        ("wget", "198.51.100.1:80", Family::Tcp),
    ] {
        assert_eq!(client(&policy, program, addr), family, "{program} {addr}");
    }
    let listening = |addr: &str| policy.family(Side::Server, b"any", addr.parse().unwrap());
    assert_eq!(listening("0.0.0.0:5001"), Family::Ddp);
    assert_eq!(listening("[::]:5001"), Family::Ddp);
}

#[test]
fn a_choice_names_the_line_that_makes_it() {
    let policy = well("# comment\n\nuse tcp client * *:80\nlog min-level 7\nuse ddp client * *:* # here\n");
    let choice = |addr: &str| policy.choice(Side::Client, b"any", addr.parse().unwrap());
    assert_eq!(choice("192.0.2.1:80"), (Family::Tcp, Some(3)));
    assert_eq!(choice("192.0.2.1:81"), (Family::Ddp, Some(5)));
    assert_eq!(policy.choice(Side::Server, b"any", "0.0.0.0:80".parse().unwrap()), (Family::Tcp, None));
    let always = Policy::always(Family::Ddp).choice(Side::Client, b"x", "[::1]:1".parse().unwrap());
    assert_eq!(always, (Family::Ddp, None));
}

#[test]
fn where_no_rule_matches_it_is_plain_tcp() {
    assert_eq!(client(&well(""), "curl", "192.0.2.1:80"), Family::Tcp);
    assert_eq!(client(&well("use ddp server * *:*"), "curl", "192.0.2.1:80"), Family::Tcp);
}

#[test]
fn one_family_for_everything() {
    for family in [Family::Tcp, Family::Ddp, Family::Both, Family::Sdp, Family::SdpOrTcp] {
        assert_eq!(Policy::family_of(family.word()), Some(family));
        assert_eq!(client(&Policy::always(family), "x", "[::1]:1"), family);
        assert_eq!(Policy::always(family).family(Side::Server, b"x", "0.0.0.0:0".parse().unwrap()), family);
    }
}

#[test]
fn prefixes_cover_what_they_say() {
    for (rule, inside, outside) in [
        ("0.0.0.0/0:*", &["255.255.255.255:1", "[::ffff:192.0.2.1]:1"][..], &["[::1]:1"][..]),
        ("10.0.0.0/8:*", &["10.255.0.1:1"], &["11.0.0.1:1"]),
        ("10.1.2.3/8:*", &["10.255.0.1:1"], &["11.0.0.1:1"]),
        ("10.1.2.3/32:*", &["10.1.2.3:1"], &["10.1.2.2:1"]),
        ("10.1.2.3:*", &["10.1.2.3:1"], &["10.1.2.2:1"]),
        ("[::/0]:*", &["[2001:db8::1]:1"], &["192.0.2.1:1"]),
        ("[2001:db8::/32]:*", &["[2001:db8:ffff::1]:1"], &["[2001:db9::1]:1"]),
        ("[2001:db8::1]:7", &["[2001:db8::1]:7"], &["[2001:db8::2]:7", "[2001:db8::1]:8"]),
        ("[::ffff:10.0.0.0/104]:*", &["10.9.9.9:1"], &["11.0.0.1:1"]),
    ] {
        let policy = well(&format!("use ddp client * {rule}"));
        for addr in inside {
            assert_eq!(client(&policy, "x", addr), Family::Ddp, "{rule} {addr}");
        }
        for addr in outside {
            assert_eq!(client(&policy, "x", addr), Family::Tcp, "{rule} {addr}");
        }
    }
}

#[test]
fn comments_blanks_and_line_ends_are_as_people_write_them() {
    let policy = well(
        "# all\r\n\r\n\t use\tddp connect *  *:5001 # here\r\n   \nlog min-level 7\nuse auto listen n* *:*",
    );
    assert_eq!(client(&policy, "x", "192.0.2.1:5001"), Family::Ddp);
    assert_eq!(policy.family(Side::Server, b"nginx", "0.0.0.0:80".parse().unwrap()), Family::Both);
    assert_eq!(policy.log().min_level, 7);
}

#[test]
fn the_log_is_set_in_any_order() {
    let policy = well("log min-level 2 destination file switch.log\n");
    assert_eq!(*policy.log(), Log { destination: LogTo::File("switch.log".into()), min_level: 2 });
    assert_eq!(well("log destination syslog").log().destination, LogTo::Syslog);
    assert_eq!(well("log destination syslog\nlog destination stderr").log().destination, LogTo::Stderr);
    assert_eq!(*well("").log(), Log { destination: LogTo::Stderr, min_level: 9 });
}

#[test]
fn each_fault_has_its_line_and_a_remedy_of_its_own() {
    for (line, reason, remedy) in [
        ("used ddp client * *:*", Reason::Statement("used".into()), "begin it with"),
        ("use", Reason::Missing("family"), "use ddp client * *:5001"),
        ("use ddp", Reason::Missing("role"), "use ddp client"),
        ("use ddp client", Reason::Missing("program"), "use ddp client"),
        ("use ddp client *", Reason::Missing("address"), "use ddp client"),
        ("use ddp client * *:* *", Reason::TooMuch("*".into()), "one rule a line"),
        ("use rdma client * *:*", Reason::Family("rdma".into()), "tcp, ddp, both, sdp"),
        ("use sdp both * *:*", Reason::Role("both".into()), "a line for server, and one for client"),
        ("use ddp client /bin/x *:*", Reason::Program("/bin/x".into()), "without its folder"),
        ("use ddp client [x *:*", Reason::Program("[x".into()), "needs its ]"),
        ("use ddp client * 10.0.0.0", Reason::Address("10.0.0.0".into()), "a colon and the port"),
        ("use ddp client * 10.0.0:1", Reason::Address("10.0.0".into()), "IPv4"),
        ("use ddp client * host:1", Reason::Address("host".into()), "IPv4"),
        ("use ddp client * ::1:80", Reason::Address("::1".into()), "in brackets"),
        ("use ddp client * [::1]", Reason::Address("[::1]".into()), "in brackets"),
        ("use ddp client * [10.0.0.1]:1", Reason::Address("10.0.0.1".into()), "in brackets"),
        ("use ddp client * 10.0.0.0/33:1", Reason::Prefix("33".into()), "0 to 32"),
        ("use ddp client * 10.0.0.0/+8:1", Reason::Prefix("+8".into()), "0 to 32"),
        ("use ddp client * [::/129]:1", Reason::Prefix("129".into()), "0 to 128"),
        ("use ddp client * *:65536", Reason::Port("65536".into()), "0 to 65535"),
        ("use ddp client * *:", Reason::Port("".into()), "0 to 65535"),
        ("use ddp client * *:80-", Reason::Port("".into()), "0 to 65535"),
        ("use ddp client * *:http", Reason::Port("http".into()), "0 to 65535"),
        ("use ddp client * *:90-80", Reason::PortOrder("90-80".into()), "lower port first"),
        ("threshold", Reason::Missing("end of a transfer"), "threshold source|sink"),
        ("threshold sink", Reason::Missing("threshold"), "all or none"),
        ("threshold 4096", Reason::Missing("threshold"), "threshold source|sink"),
        ("threshold both 4096", Reason::ThresholdOf("both".into()), "threshold source|sink"),
        ("threshold sink -1", Reason::Threshold("-1".into()), "all or none"),
        ("threshold sink 64K", Reason::Threshold("64K".into()), "all or none"),
        ("threshold sink 1 2", Reason::TooMuch("2".into()), "one rule a line"),
        ("log level 3", Reason::LogSetting("level".into()), "min-level"),
        ("log destination", Reason::Missing("destination"), "write: log"),
        ("log destination tty", Reason::LogDestination("tty".into()), "stderr"),
        ("log destination file", Reason::Missing("name of the file"), "write: log"),
        ("log destination file /tmp/x", Reason::LogFile("/tmp/x".into()), "without a folder"),
        ("log destination file ..", Reason::LogFile("..".into()), "without a folder"),
        ("log min-level 0", Reason::LogLevel("0".into()), "9 (errors only)"),
        ("log min-level", Reason::Missing("level"), "write: log"),
    ] {
        let text = format!("use ddp client * 192.0.2.1:1\n\n{line}\nuse ddp client * 192.0.2.2:2\n");
        let (policy, faults) = Policy::parse(text.as_bytes());
        assert_eq!(faults, [BadLine { line: 3, reason }], "{line}");
        assert!(faults[0].remedy().contains(remedy), "{line}: {}", faults[0].remedy());
        assert!(faults[0].to_string().starts_with("line 3: "), "{}", faults[0]);
        // A faulty line leaves the other lines in force.
        assert_eq!(client(&policy, "x", "192.0.2.1:1"), Family::Ddp);
        assert_eq!(client(&policy, "x", "192.0.2.2:2"), Family::Ddp);
        assert_eq!(client(&policy, "x", "192.0.2.3:2"), Family::Tcp);
    }
    let (_, faults) = Policy::parse(b"use ddp client \xff *:*");
    assert_eq!(faults, [BadLine { line: 1, reason: Reason::NotText }]);
}

proptest! {
    #[test]
    fn any_octets_are_parsed_and_no_rule_of_them_surprises(octets: Vec<u8>, port: u16) {
        let (policy, _) = Policy::parse(&octets);
        policy.family(Side::Client, &octets, ([192, 0, 2, 1], port).into());
    }

    #[test]
    fn words_in_any_order_are_parsed(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "use", "log", "ddp", "both", "client", "server", "*", "*:*", "[::/0]:1-2", "[", "/", ":", "-", "10.0.0.0/8:*",
                "threshold", "sink", "none", "destination", "file", "x", "min-level", "3", "#", "\n",
            ]),
            0..40,
        ),
    ) {
        let text = words.join(" ");
        let (policy, faults) = Policy::parse(text.as_bytes());
        let lines = text.lines().count();
        prop_assert!(faults.len() + policy.rules.len() <= lines);
        prop_assert!(faults.iter().all(|fault| (1..=lines).contains(&fault.line)));
    }

    #[test]
    fn patterns_without_stars_and_classes_match_themselves(name in "[a-z0-9._-]{1,20}", other in "[a-z0-9._-]{1,20}") {
        prop_assert!(glob::matches(name.as_bytes(), name.as_bytes()));
        prop_assert_eq!(glob::matches(name.as_bytes(), other.as_bytes()), name == other);
        let starred = format!("*{name}*");
        let within = format!("{other}{name}{other}");
        prop_assert!(glob::matches(starred.as_bytes(), within.as_bytes()));
    }
}

#[test]
fn a_policy_concerns_only_programs_that_a_rule_takes_from_plain_tcp() {
    let policy =
        well("use ddp server nginx 192.0.2.1:80\nuse tcp server httpd *:*\nuse both client curl *:*\n");
    let concerned = [(Side::Server, "nginx"), (Side::Client, "curl")];
    for program in ["nginx", "httpd", "curl"] {
        for side in [Side::Server, Side::Client] {
            let wanted = concerned.contains(&(side, program));
            assert_eq!(policy.concerns(side, program.as_bytes()), wanted, "{side:?} {program}");
        }
    }
    assert!(Policy::always(Family::Ddp).concerns(Side::Server, b"any"));
    assert!(!Policy::always(Family::Tcp).concerns(Side::Server, b"any"));
}
