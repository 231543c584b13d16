//! Tests of the settings of RDMA programs.

use super::*;

fn settings(text: &str, program: &str, peer: &str) -> VerbsSettings {
    let (policy, faults) = Policy::parse(text.as_bytes());
    assert_eq!(faults, [], "{text}");
    policy.verbs(program.as_bytes(), peer.parse().unwrap())
}

#[test]
fn each_setting_is_taken_from_the_first_line_that_names_it() {
    let text = "verbs rping 192.0.2.0/24:7000-7999 extensions = on ird=4\n\
                use ddp client * *:*\n\
                verbs * 192.0.2.0/24:* extensions=off mpa=1 crc=off\n\
                verbs * [2001:db8::/32]:* markers=on rtr=read,send peer-to-peer=0 ord=0\n";
    let rping = settings(text, "rping", "192.0.2.1:7174");
    let wanted = VerbsSettings {
        extensions: Some(true),
        ird: Some(4),
        mpa: Some(1),
        crc: Some(false),
        ..VerbsSettings::default()
    };
    assert_eq!(rping, wanted);
    assert_eq!(settings(text, "rping", "192.0.2.1:80").extensions, Some(false), "another port");
    assert_eq!(settings(text, "fio", "192.0.2.1:7174").extensions, Some(false), "another program");
    assert_eq!(settings(text, "rping", "198.51.100.1:7174"), VerbsSettings::default(), "another peer");
    let wanted = VerbsSettings {
        markers: Some(true),
        rtr: Some(RtrKinds { send: true, write: false, read: true }),
        peer_to_peer: Some(false),
        ord: Some(0),
        ..VerbsSettings::default()
    };
    assert_eq!(settings(text, "any", "[2001:db8::1]:1"), wanted);
}

#[test]
fn lines_that_make_no_sense_are_left_out_with_a_remedy() {
    for (line, reason, remedy) in [
        ("verbs", Reason::Missing("program's name"), "write: verbs"),
        ("verbs *", Reason::Missing("peer's address"), "write: verbs"),
        ("verbs * *:*", Reason::Missing("setting"), "write: verbs"),
        ("verbs * *:* crc", Reason::Missing("value of the setting"), "write: verbs"),
        ("verbs * *:* crc=", Reason::Missing("value of the setting"), "write: verbs"),
        ("verbs * * crc=on", Reason::Address("*".into()), "write * or an IPv4 address"),
        ("verbs a/b *:* crc=on", Reason::Program("a/b".into()), "name the program"),
        ("verbs * *:* crcs=on", Reason::Setting("crcs".into()), "it is one of mpa, crc,"),
    ] {
        let (policy, faults) = Policy::parse(line.as_bytes());
        assert_eq!((policy, faults[0].reason.clone()), (Policy::default(), reason), "{line}");
        assert!(faults[0].remedy().starts_with(remedy), "{line}: {}", faults[0].remedy());
    }
    for (setting, value) in [
        ("mpa", "3"),
        ("crc", "yes"),
        ("markers", "ON"),
        ("peer-to-peer", "2"),
        ("rtr", "write,"),
        ("ird", "129"),
        ("ord", "-1"),
        ("extensions", "true"),
    ] {
        let (_, faults) = Policy::parse(format!("verbs * *:* {setting}={value}").as_bytes());
        let said = faults[0].to_string();
        assert_eq!(said, format!("line 1: \"{value}\" is no value of {setting}"));
    }
    assert_eq!(Policy::parse_libsdp(b"verbs * *:* crc=on").1.len(), 1, "libsdp has no such line");
}

#[test]
fn variables_are_taken_one_by_one_and_those_that_make_no_sense_are_named() {
    let of = |pairs: &'static [(&str, &str)]| {
        VerbsSettings::of_variables(move |name| {
            let found = pairs.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| value.as_bytes().to_vec())
        })
    };
    let (settings, faults) = of(&[("RDDP_VERBS_CRC", "0"), ("RDDP_VERBS_IRD", ""), ("RDDP_VERBS_MPA", "1")]);
    assert_eq!(faults, []);
    assert_eq!(settings, VerbsSettings { crc: Some(false), mpa: Some(1), ..VerbsSettings::default() });
    let (settings, faults) = of(&[("RDDP_VERBS_EXTENSIONS", "yes"), ("RDDP_VERBS_ORD", "2")]);
    assert_eq!(settings, VerbsSettings { ord: Some(2), ..VerbsSettings::default() });
    assert_eq!(faults[0].to_string(), "RDDP_VERBS_EXTENSIONS=yes: not a value of this variable");
    assert_eq!(faults[0].remedy(), "on or off (or 1, or 0)");
}

#[test]
fn a_variable_counts_before_a_line() {
    let variable = VerbsSettings { crc: Some(true), ..VerbsSettings::default() };
    let line = VerbsSettings { crc: Some(false), ird: Some(1), ..VerbsSettings::default() };
    assert_eq!(
        variable.or(line),
        VerbsSettings { crc: Some(true), ird: Some(1), ..VerbsSettings::default() }
    );
}

#[test]
fn a_program_may_have_extensions_if_any_line_for_it_says_so() {
    let (policy, _) = Policy::parse(b"verbs rping *:* extensions=on\nverbs * *:* extensions=off");
    assert!(policy.may_give_extensions(b"rping") && !policy.may_give_extensions(b"fio"));
}
