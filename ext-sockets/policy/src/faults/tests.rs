use proptest::prelude::*;

use super::*;
use crate::{Policy, Reason};

fn well(text: &str) -> Fault {
    FaultRule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).fault
}

#[test]
fn a_rule_of_calls_has_a_name_a_count_and_an_effect() {
    let error = |functions: &str, count| {
        let effect = CallEffect::Error("ENOMEM".into());
        Fault::Call { functions: functions.into(), count, effect }
    };
    let named = |count| error("ibv_reg_mr", count);
    assert_eq!(well("call=ibv_reg_mr nth=3 errno=ENOMEM"), named(Count::Nth(3, 3)));
    assert_eq!(well("errno=ENOMEM nth=2..4 call=ibv_reg_mr"), named(Count::Nth(2, 4)));
    assert_eq!(well("call=ibv_reg_mr every=5 errno=ENOMEM"), named(Count::Every(5)));
    let rate = |of, seed| Count::Rate { of, seed };
    assert_eq!(well("call=ibv_reg_mr rate=1/9 seed=4 errno=ENOMEM"), named(rate(9, 4)));
    assert_eq!(well("call=rdma_* rate=1/9 errno=ENOMEM"), error("rdma_*", rate(9, 0)));
    let Fault::Call { effect, .. } = well("call=* nth=1 delay=20ms") else { panic!() };
    assert_eq!(effect, CallEffect::Delay(Duration::from_millis(20)));
}

#[test]
fn a_rule_of_requests_has_an_operation_and_may_have_a_queue_pair() {
    let request = |operation, qp, effect| Fault::Request { operation, qp, count: Count::Nth(1, 1), effect };
    for (text, wanted) in [
        (
            "op=send nth=1 status=RNR_RETRY_EXC_ERR",
            request(FaultOperation::Send, None, RequestEffect::Status(FaultStatus::RnrRetryExceeded)),
        ),
        (
            "op=write qp=2 nth=1 delay=3s",
            request(FaultOperation::Write, Some(2), RequestEffect::Delay(Duration::from_secs(3))),
        ),
        ("op=read nth=1 drop", request(FaultOperation::Read, None, RequestEffect::Drop)),
        (
            "op=atomic nth=1 status=REM_ACCESS_ERR",
            request(FaultOperation::Atomic, None, RequestEffect::Status(FaultStatus::RemoteAccess)),
        ),
        (
            "op=recv nth=1 status=LOC_LEN_ERR",
            request(FaultOperation::Recv, None, RequestEffect::Status(FaultStatus::LocalLength)),
        ),
    ] {
        assert_eq!(well(text), wanted, "{text}");
    }
}

#[test]
fn connections_ports_and_devices_have_moments() {
    let (second, milli) = (Duration::from_secs(1), Duration::from_micros(1000));
    let at = |moment| Fault::Connection { qp: 1, moment };
    assert_eq!(well("qp=1 after=1M reset"), at(Moment::After(1 << 20)));
    assert_eq!(well("qp=1 at=1s reset"), at(Moment::At(second)));
    assert_eq!(well("port at=1s down=1000us"), Fault::Port { at: second, effect: PortEffect::Down(milli) });
    assert_eq!(well("port gid at=1ms"), Fault::Port { at: milli, effect: PortEffect::Gid });
    assert_eq!(well("device at=1s fatal"), Fault::Device { at: second });
    for (size, octets) in [("7", 7), ("2K", 2048), ("1G", 1 << 30)] {
        let wanted = at(Moment::After(octets));
        assert_eq!(well(&format!("qp=1 reset after={size}")), wanted);
    }
}

#[test]
fn each_bad_rule_is_told_with_a_remedy_of_its_own() {
    let value = |word, value: &str| (word, value.to_owned());
    for (text, wanted, remedy) in [
        ("nth=1", BadRule::NoPlace, "begin with call="),
        ("call=x errno=EIO", BadRule::Missing("when"), "add nth=N"),
        ("call=x nth=1", BadRule::Missing("what becomes of a call"), "errno=NAME"),
        ("op=send nth=1", BadRule::Missing("what becomes of a request"), "status=NAME"),
        ("qp=1 reset", BadRule::Missing("when in the life of the queue pair"), "after=SIZE"),
        ("qp=1 at=1s", BadRule::Missing("what becomes of a connection"), "reset"),
        ("port at=1s", BadRule::Missing("what becomes of the port"), "down=TIME"),
        ("device at=1s", BadRule::Missing("what becomes of the device"), "fatal"),
        ("port gid", BadRule::Missing("at which time"), "at=TIME"),
        ("call nth=1 errno=EIO", BadRule::Missing("call"), "behind a ="),
        ("call=x nth=1 errno=EIO drop", BadRule::Word("drop".into()), "call= has errno="),
        ("op=write nth=1 drop stale", BadRule::Word("stale".into()), "status=, delay= or drop"),
        ("call=x nth=1 seed=2 errno=EIO", BadRule::Word("seed".into()), "rate= seed="),
        ("device at=1s fatal=1", BadRule::Missing("what becomes of the device"), "fatal"),
        ("call=x nth=1 nth=2 errno=EIO", BadRule::Twice("nth".into()), "write it once"),
        ("call=x op=send", BadRule::Both("call", "op"), "two rules"),
        ("call=x nth=1 errno=EIO delay=1s", BadRule::Both("errno", "delay"), "two rules"),
        ("call=x nth=1 every=1 errno=EIO", BadRule::Both("nth", "every"), "two rules"),
        ("call=x nth=1 rate=1/2 errno=EIO", BadRule::Both("rate", "nth or every"), "two rules"),
        ("op=send nth=1 status=RETRY_EXC_ERR drop", BadRule::Both("status", "drop"), "two rules"),
        ("op=send nth=1 delay=1s drop", BadRule::Both("delay", "drop"), "two rules"),
        ("qp=1 at=1s after=1 reset", BadRule::Both("after", "at"), "two rules"),
        ("qp=1 at=1s reset silent", BadRule::Word("silent".into()), "at=, and reset"),
        ("port at=1s gid down=1s", BadRule::Both("down", "gid"), "two rules"),
        ("op=recv nth=1 drop", BadRule::Receive, "the peer's request"),
    ] {
        let error = FaultRule::parse(text).unwrap_err();
        assert_eq!(error, wanted, "{text}");
        assert!(error.remedy().contains(remedy), "{text}: {}", error.remedy());
    }
    for (text, (word, value), remedy) in [
        ("call= nth=1 errno=EIO", value("call", ""), "a function of"),
        ("call=[a nth=1 errno=EIO", value("call", "[a"), "needs its ]"),
        ("call=x nth=0 errno=EIO", value("nth", "0"), "from 1 on"),
        ("call=x nth=3..2 errno=EIO", value("nth", "3..2"), "lower one first"),
        ("call=x every=0 errno=EIO", value("every", "0"), "from 1 on"),
        ("call=x rate=2/3 errno=EIO", value("rate", "2/3"), "1/N"),
        ("call=x rate=1/3 seed=a errno=EIO", value("seed", "a"), "a number"),
        ("call=x nth=1 errno=enomem", value("errno", "enomem"), "errno.h"),
        ("call=x nth=1 delay=5", value("delay", "5"), "us, ms or s"),
        ("call=x nth=1 delay=86401s", value("delay", "86401s"), "a day at most"),
        ("op=get nth=1 drop", value("op", "get"), "send, write"),
        ("op=send nth=1 status=OK", value("status", "OK"), "LOC_LEN_ERR"),
        ("qp=0 at=1s reset", value("qp", "0"), "made first"),
        ("qp=1 after=1KB reset", value("after", "1KB"), "K, M or G"),
        ("qp=1 after=18446744073709551615G reset", value("after", "18446744073709551615G"), "octets"),
    ] {
        let error = FaultRule::parse(text).unwrap_err();
        assert!(
            matches!(&error, BadRule::Value { value: v, word: w, .. } if (v, *w) == (&value, word)),
            "{text}"
        );
        assert!(error.remedy().contains(remedy), "{text}: {}", error.remedy());
    }
}

#[test]
fn an_operation_has_statuses_of_its_own() {
    let statuses = [
        "LOC_LEN_ERR",
        "LOC_QP_OP_ERR",
        "LOC_PROT_ERR",
        "REM_INV_REQ_ERR",
        "REM_ACCESS_ERR",
        "REM_OP_ERR",
        "RETRY_EXC_ERR",
        "RNR_RETRY_EXC_ERR",
    ];
    for operation in ["send", "write", "read", "atomic", "recv"] {
        for status in statuses {
            // What the remedy names, and nothing else, can be.
            let told = BadRule::Status { operation, status: status.into() };
            let is_named = told.remedy().split([' ', ',']).any(|word| word == status);
            let parsed = FaultRule::parse(&format!("op={operation} nth=1 status={status}"));
            assert_eq!(parsed.map(drop), if is_named { Ok(()) } else { Err(told) });
        }
    }
}

#[test]
fn counts_hold_for_the_numbers_that_they_say() {
    let held = |count: Count| (1..=9).filter(|number| count.holds(*number)).collect::<Vec<_>>();
    assert_eq!(held(Count::Nth(3, 5)), [3, 4, 5]);
    assert_eq!(held(Count::Every(4)), [4, 8]);
    assert_eq!(held(Count::Rate { of: 1, seed: 7 }), (1..=9).collect::<Vec<_>>());
}

#[test]
fn a_rate_is_kept_and_its_seed_decides() {
    let of = |seed| (1..=10_000).filter(|n| Count::Rate { of: 10, seed }.holds(*n)).collect::<Vec<_>>();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    for seed in 0..20 {
        let count = of(seed).len();
        assert!((850..1150).contains(&count), "{seed}: {count}");
    }
}

#[test]
fn lists_have_semicolons_and_lines_have_programs() {
    let (rules, bad) = FaultRule::list("call=a*  nth=1 errno=EIO ;; op=x ; device at=1s fatal;");
    assert_eq!((rules.len(), bad.len()), (2, 1));
    assert_eq!(rules[0].to_string(), "call=a* nth=1 errno=EIO");
    assert!(rules[0].is_of_call("abc") && !rules[0].is_of_call("b") && !rules[1].is_of_call("abc"));
    let text = "fault rping call=x nth=1 errno=EIO # one\nfault ib_* device at=1s fatal\n";
    let (policy, faults) = Policy::parse(text.as_bytes());
    assert_eq!(faults, []);
    let of = |program: &str| policy.faults(program.as_bytes()).map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(of("rping"), ["call=x nth=1 errno=EIO"]);
    assert_eq!(of("ib_send_bw"), ["device at=1s fatal"]);
    assert!(of("other").is_empty());
    for (line, reason, remedy) in [
        ("fault", Reason::Missing("program of the fault"), "fault PROGRAM RULE"),
        ("fault a/b device at=1s fatal", Reason::Program("a/b".into()), "without its folder"),
        ("fault *", Reason::Rule(BadRule::NoPlace), "begin with call="),
    ] {
        let (_, faults) = Policy::parse(line.as_bytes());
        assert_eq!(faults[0].reason, reason, "{line}");
        assert!(faults[0].remedy().contains(remedy), "{line}: {}", faults[0].remedy());
    }
    assert_eq!(Policy::parse_libsdp(b"fault * device at=1s fatal").1.len(), 1, "libsdp has no such line");
}

proptest! {
    #[test]
    fn any_text_is_a_rule_or_told(text in ".{0,60}") {
        let (rules, bad) = FaultRule::list(&text);
        prop_assert!(rules.len() + bad.len() <= text.split(';').count());
        prop_assert!(bad.iter().all(|error| !error.remedy().is_empty()));
    }

    #[test]
    fn words_in_any_order_are_parsed_and_what_is_written_again_means_the_same(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "call=ibv_*", "op=send", "op=recv", "qp=1", "port", "device", "nth=1", "nth=2..3", "every=4",
                "rate=1/5", "seed=6", "errno=EIO", "delay=7us", "status=LOC_PROT_ERR", "drop", "after=8K",
                "at=9ms", "reset", "down=1s", "gid", "fatal", "=", "x=",
            ]),
            0..6,
        ),
        number: u64,
    ) {
        if let Ok(rule) = FaultRule::parse(&words.join(" ")) {
            prop_assert_eq!(FaultRule::parse(&rule.to_string()), Ok(rule.clone()));
            if let Fault::Call { count, .. } | Fault::Request { count, .. } = rule.fault {
                count.holds(number);
            }
        }
    }
}
