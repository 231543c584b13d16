//! The vectors of kind "state", and those of arithmetic.

use serde_json::Value;

use crate::machine::conn::flag;
use crate::machine::tables::{OwnSink, OwnSource, ReadFrom, state};
use crate::machine::{Core, Machine, Received, Tables, Violation, credits, mode};
use crate::wire::{Message, Mode};

fn file() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/sdp_vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn mode_of(name: &Value) -> Mode {
    match name.as_str().unwrap() {
        "buffered" => Mode::Buffered,
        "combined" => Mode::Combined,
        "pipelined" => Mode::Pipelined,
        other => panic!("no mode {other}"),
    }
}

/// Puts the machine where a vector's `state` says: the modes of both halves alike.
fn set_up(state: &Value, mseq: u32) -> (Core, Tables) {
    let (mut core, mut tables) = (super::core(), Tables::default());
    core.next_mseq = 20;
    core.received = mseq.wrapping_sub(1);
    for (what, value) in state.as_object().unwrap() {
        match what.as_str() {
            "expect_mseq" => core.received = number(value) - 1,
            "half_mode" => {
                core.out_mode = mode_of(value) as u32;
                core.in_mode = mode_of(value) as u32;
            }
            "max_adverts" => core.max_adverts = number(value),
            "src_avail_outstanding" => (0..number(value)).for_each(|at| peer_source(&mut tables, at)),
            "cancel_unanswered" => {
                peer_source(&mut tables, 0);
                core.flags |= flag::NO_READS | flag::CANCELLED;
            }
            "sink_avail" => own_sink(&mut tables, number(&value["len"])),
            "sink_avail_outstanding" if number(value) > 0 => own_sink(&mut tables, 131_072),
            "sink_avail_outstanding" | "cancelling_sink" | "recv_shutdown" | "conn" => {}
            "own_modechange_mseq" => {
                core.flags |= flag::CHANGE_UNSEEN;
                core.change_mseq = number(value);
            }
            "src_avail" => own_source(&mut tables, value),
            "own_cancel_mseq" => {
                core.flags |= flag::SOURCE_CANCEL;
                core.source_cancel_mseq = number(value);
            }
            "last_sink_cancel_ended_without_ack" => core.flags |= flag::SINK_CANCEL_LATE,
            "send_size" => core.send_size = number(value) + 16,
            "data_messages_sent" => core.sent_non_discards = number(value),
            "peer_sent_disconn" => core.flags |= flag::DISCONN_RECEIVED,
            "local_rcv_sz" => core.buf_size = number(value),
            other => panic!("no state {other}"),
        }
    }
    assert!(core.is_sound() && tables.is_sound());
    (core, tables)
}

fn peer_source(tables: &mut Tables, at: u32) {
    tables.peer_sources[at as usize] =
        ReadFrom { state: state::OUT, len: 131_072, mseq: at, ..ReadFrom::default() };
}

fn own_sink(tables: &mut Tables, len: u32) {
    tables.sinks[0] = OwnSink { state: state::OUT, mseq: 15, len, done: 0 };
}

fn own_source(tables: &mut Tables, value: &Value) {
    let field = |name: &str, default: u32| value.get(name).map_or(default, number);
    let (inline, len) = (field("inline", 64), field("len", 131_072));
    let mseq = field("mseq", 0);
    tables.sources[0] = OwnSource { state: state::OUT, mseq, len, inline, done: inline, queued: 0 };
}

/// The rule that each vector breaks, by the name of its refusal; none for those that are taken.
fn refusal(name: &str) -> &'static str {
    match name {
        "state_mseq_gap" => "Mseq",
        "state_srcavail_buffered" => "SourceMode",
        "state_srcavail_combined_nopayload"
        | "state_srcavail_combined_all_inline"
        | "state_srcavail_pipelined_payload" => "SourceInline",
        "state_srcavail_combined_second" | "state_srcavail_over_maxadverts" => "TooManyAdverts",
        "state_data_under_srcavail" => "PayloadUnderSource",
        "state_srcavail_during_cancel" => "SourceDuringCancel",
        "state_rdmardcompl_none" => "NothingToRead",
        "state_rdmawrcompl_none" => "NothingToWrite",
        "state_rdmawrcompl_over" => "WroteTooMuch",
        "state_abortconn_established" => "AbortConn",
        "state_disconn_twice" => "SecondDisConn",
        "state_sinkavail_combined" => "SinkMode",
        "state_sinkavail_small" => "SinkTooShort",
        "state_modechange_buf_to_pipe" | "state_modechange_same" | "state_modechange_wrong_side" => {
            "ModeChange"
        }
        "state_rdmardcompl_over" => "ReadTooMuch",
        "state_sinkcancelack_unasked" => "UnaskedSinkCancelAck",
        "state_data_after_disconn" => "AfterDisConn",
        "state_too_big_for_buffer" => "TooLong",
        other => panic!("{other} is refused"),
    }
}

fn check(vector: &Value, octets: &[u8]) {
    let name = vector["name"].as_str().unwrap();
    let Ok(message) = Message::parse(octets) else {
        // A late Hello has no place among the messages at all.
        return assert_eq!(name, "state_hello_established");
    };
    let (mut core, mut tables) = set_up(&vector["state"], message.header.mseq);
    let mut machine = Machine::new(&mut core, Some(&mut tables));
    let before = machine.adverts().peer_sources.to_vec();
    let received = machine.receive(&message);
    match vector["result"].as_str().unwrap() {
        "EPROTO" | "abort" => {
            let got = format!("{:?}", received.unwrap_err());
            let expected = refusal(name);
            assert!(
                got == expected
                    || got.starts_with(&format!("{expected} "))
                    || got.starts_with(&format!("{expected}(")),
                "{name}: {got}"
            );
            assert!(machine.aborted(), "{name}: the connection goes on");
            assert_eq!(machine.receive(&message), Err(Violation::AfterAbort), "{name}");
        }
        "accept" => {
            let data = Received::Data { urgent: false };
            let expected = if message.payload_len > 0 { data } else { Received::Nothing };
            assert_eq!(received, Ok(expected), "{name}");
        }
        "ignore" => {
            let dropped = Received::SinkAvail { kept: false, returned: false };
            assert!([Ok(Received::Nothing), Ok(dropped)].contains(&received), "{name}: {received:?}");
            assert_eq!(machine.adverts().peer_sources, before, "{name}");
            let sent = if name == "state_sinkavail_stale" { 16 } else { 0 };
            assert_eq!(machine.non_discards().0, sent, "{name}");
        }
        "cancel-done" => {
            assert_eq!(received, Ok(Received::SourcesReturned), "{name}");
            assert!(!machine.cancelling(), "{name}");
        }
        other => panic!("{name}: no result {other}"),
    }
}

#[test]
fn vectors_of_state() {
    let file = file();
    let vectors: Vec<_> =
        file["vectors"].as_array().unwrap().iter().filter(|vector| vector["kind"] == "state").collect();
    assert!(vectors.len() >= 35);
    for vector in vectors {
        let hex = vector["hex"].as_str().unwrap();
        let octets = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        check(vector, &octets.collect::<Vec<_>>());
    }
}

/// Bufs less the messages that are not acknowledged, also across the wrap of the numbers.
#[test]
fn credits_are_buffers_less_messages_under_way() {
    let arithmetic = &file()["arithmetic"];
    for name in ["credits", "credits_wrap"] {
        for row in arithmetic[name].as_array().unwrap() {
            let (bufs, ack, next) =
                (number(&row["bufs"]), number(&row["mseq_ack"]), number(&row["next_mseq"]));
            let expected = row["credits"].as_i64().unwrap().max(0);
            assert_eq!(i64::from(credits::credits(bufs, ack, next)), expected, "{row}");
        }
    }
}

/// No credit: nothing. One: a message without payload that gives credits. Three for payload.
#[test]
fn credits_decide_what_may_go() {
    for row in file()["arithmetic"]["may_send"].as_array().unwrap() {
        let have = number(&row["credits"]);
        let gives = row["new_credits_for_peer"].as_bool().unwrap();
        assert_eq!(credits::may_send_payload(have), row["data"].as_bool().unwrap(), "{row}");
        assert_eq!(credits::may_send_payload(have), row["srcavail"].as_bool().unwrap(), "{row}");
        assert_eq!(credits::may_send_control(have, gives), row["control"].as_bool().unwrap(), "{row}");
    }
}

/// The changes of mode that exist, and who makes them; of all others none.
#[test]
fn modes_change_in_four_ways() {
    let rows = file()["arithmetic"]["mode_transition"].clone();
    for row in rows.as_array().unwrap() {
        let by_source = row["by"] == "source";
        let ok = mode::transition(mode_of(&row["frm"]), mode_of(&row["to"]), by_source);
        assert_eq!(ok, row["ok"].as_bool().unwrap(), "{row}");
    }
    let modes = [Mode::Buffered, Mode::Combined, Mode::Pipelined];
    let all = modes.iter().flat_map(|from| modes.iter().map(move |to| (*from, *to)));
    let exist = all.flat_map(|(from, to)| [true, false].map(|by| mode::transition(from, to, by)));
    assert_eq!(exist.filter(|exists| *exists).count(), 4);
}
