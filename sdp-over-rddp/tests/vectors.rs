//! The vectors of messages: each is read as its fields say and written as it was, or refused by
//! the rule that it breaks.

#![allow(clippy::unwrap_used, reason = "a test")]

use rddp_sdp::wire::{
    Advert, Body, Flags, FormatError, HEADER_LEN, Hello, HelloAck, Message, Mid, seq_before, service_id,
};
use serde_json::{Value, json};

fn file() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/sdp_vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns name, octets and the whole of each vector of a kind.
fn vectors(kind: &str) -> Vec<(String, Vec<u8>, Value)> {
    let file = file();
    let of_kind = file["vectors"].as_array().unwrap().iter().filter(|vector| vector["kind"] == kind);
    of_kind
        .map(|vector| {
            let text = |field: &str| vector[field].as_str().unwrap();
            (text("name").to_owned(), octets(text("hex")), vector.clone())
        })
        .collect()
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Reads a message of any kind. Returns its fields under their names in the vectors, and the octets
/// that it is written as.
fn read(octets: &[u8]) -> Result<(Value, Vec<u8>), FormatError> {
    match octets.first() {
        Some(0) => Hello::parse(octets).map(|hello| (hello_fields(&hello), hello.octets().to_vec())),
        Some(1) => HelloAck::parse(octets).map(|ack| (ack_fields(&ack), ack.octets().to_vec())),
        _ => Message::parse_whole(octets).map(|(message, payload)| {
            assert_eq!(payload.len(), message.payload_len);
            (message_fields(&message), [&message.emit(), payload].concat())
        }),
    }
}

fn message_fields(message: &Message) -> Value {
    let header = &message.header;
    let mut fields = json!({
        "mid": header.mid as u8, "name": header.mid.name(), "flags": header.flags.0,
        "bufs": header.bufs, "len": header.len, "mseq": header.mseq, "mseq_ack": header.mseq_ack,
    });
    let mut add = |more: Value| fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let advert = |advert: Advert| json!({"adv_len": advert.len, "rkey": advert.stag, "va": wide(advert.to)});
    match message.body {
        Body::RdmaWrCompl { octets } | Body::RdmaRdCompl { octets } => add(json!({"bytes": octets})),
        Body::ModeChange { of_receivers_half, mode } => {
            add(json!({"s": u8::from(of_receivers_half), "mode": mode as u8}));
        }
        Body::ChRcvBuf { size } | Body::ChRcvBufAck { size } => add(json!({"size": size})),
        Body::SuspComm { service_id } => add(json!({"service_id": wide(service_id)})),
        Body::SrcAvail { advert: buffer } => add(advert(buffer)),
        Body::SinkAvail { advert: buffer, non_discards } => {
            add(advert(buffer));
            add(json!({"non_discards": non_discards}));
        }
        _ => {}
    }
    if header.mid.may_have_payload() {
        add(json!({"payload_len": message.payload_len}));
    }
    fields
}

fn hello_fields(hello: &Hello) -> Value {
    json!({
        "mid": 0, "name": "Hello", "flags": 0, "bufs": hello.bufs, "len": Hello::LEN, "mseq": 0,
        "mseq_ack": 0, "maj": hello.version.major, "min": hello.version.minor,
        "ipv": if hello.addresses.source().is_ipv4() { 4 } else { 6 }, "cap": hello.capabilities.0,
        "max_adverts": hello.max_adverts, "des_rem_rcv_sz": hello.desired_remote_size,
        "local_rcv_sz": hello.local_size, "port": hello.port,
        "ext_max_adverts": hello.ext_max_adverts, "src": hello.addresses.source().to_string(),
        "dst": hello.addresses.destination().to_string(),
    })
}

fn ack_fields(ack: &HelloAck) -> Value {
    json!({
        "mid": 1, "name": "HelloAck", "flags": 0, "bufs": ack.bufs, "len": HelloAck::LEN, "mseq": 0,
        "mseq_ack": 0, "maj": ack.version.major, "min": ack.version.minor,
        "max_adverts": ack.max_adverts, "act_rcv_sz": ack.actual_size,
    })
}

fn wide(number: u64) -> String {
    format!("{number:#018x}")
}

#[test]
fn every_message_is_read_as_its_fields_say_and_written_as_it_was() {
    let vectors = vectors("sdp");
    for (name, octets, vector) in &vectors {
        let (fields, written) = read(octets).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(fields, vector["fields"], "{name}");
        assert_eq!(written, *octets, "{name}");
    }
    assert_eq!(vectors.len(), 34);
}

/// Vectors of the machine's rules have the form of messages, too, but for a Hello that comes late.
#[test]
fn every_message_to_the_machine_is_read_and_written_as_it_was() {
    let vectors = vectors("state");
    for (name, octets, vector) in &vectors {
        let (fields, written) = read(octets).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(fields, vector["fields"], "{name}");
        assert_eq!(written, *octets, "{name}");
        if name == "state_hello_established" {
            assert_eq!(Message::parse(octets), Err(FormatError::LateHello(Mid::Hello)));
        }
    }
    assert!(vectors.len() > 30, "{} vectors of the machine", vectors.len());
}

#[test]
fn every_malformed_message_is_refused_by_the_rule_that_it_breaks() {
    let vectors = vectors("bad");
    for (name, octets, vector) in &vectors {
        let error = read(octets).expect_err(name);
        assert_eq!(error.rule(), vector["rule"].as_str().unwrap(), "{name}: {error}");
    }
    assert_eq!(vectors.len(), 13);
}

/// The front alone says the same as the whole message, where the length is right.
#[test]
fn the_front_of_a_message_is_enough() {
    for (name, octets, _) in vectors("sdp").into_iter().filter(|(_, octets, _)| octets[0] > 1) {
        let (whole, payload) = Message::parse_whole(&octets).unwrap();
        assert_eq!(Message::parse(&octets[..whole.header_len()]), Ok(whole), "{name}");
        assert_eq!(payload.len(), whole.payload_len, "{name}");
    }
}

#[test]
fn sequence_numbers_are_compared_round_the_circle() {
    for row in file()["arithmetic"]["seq_before"].as_array().unwrap() {
        let number = |name: &str| u32::try_from(row[name].as_u64().unwrap()).unwrap();
        assert_eq!(seq_before(number("a"), number("b")), row["before"].as_bool().unwrap(), "{row}");
    }
}

#[test]
fn a_service_identifier_stands_for_a_port() {
    for row in file()["arithmetic"]["service_id"].as_array().unwrap() {
        let port = u16::try_from(row["port"].as_u64().unwrap()).unwrap();
        assert_eq!(wide(service_id(port)), row["id"], "{row}");
    }
}

#[test]
fn a_message_made_of_a_body_has_its_mid_and_length() {
    let advert = Advert { len: 131_072, stag: 0xa1_b2_c3, to: 0x7f00_1234_5000 };
    let mut message = Message::new(Body::SrcAvail { advert }, 64);
    message.header.bufs = 64;
    (message.header.mseq, message.header.mseq_ack) = (8, 4);
    let (_, octets, _) = vectors("sdp").into_iter().find(|(name, ..)| name == "srcavail_combined").unwrap();
    assert_eq!(Message::parse(&octets), Ok(message));
    // The header's own copies of both are not what is written.
    message.header.mid = Mid::Data;
    message.header.len = 0;
    assert_eq!(*message.emit(), octets[..HEADER_LEN + 16]);
    assert!(!message.header.flags.contains(Flags::OOB_PRES));
}
