//! The vectors of SDP in MPA's startup frames and in FPDUs.

#![allow(clippy::unwrap_used, reason = "a test")]

use rddp_ddp::{Msn, Stag};
use rddp_decode::{Event, Greeting, What, decode};
use rddp_mpa::{EnhancedData, Frame, FrameKind, Framer, Framing, Parsed, Revision, RtrSet};
use rddp_rdmap::{Opcode, untagged_header};
use rddp_sdp::wire::{Hello, HelloAck, Message};
use rddp_test_support::segment::ulpdu;
use serde_json::Value;

/// Returns the octets of the vectors of a kind, by name.
fn vectors(kind: &str) -> Vec<(String, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/sdp_vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of_kind = file["vectors"].as_array().unwrap().iter().filter(|vector| vector["kind"] == kind);
    of_kind
        .map(|vector| {
            let hex = vector["hex"].as_str().unwrap();
            let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (vector["name"].as_str().unwrap().to_owned(), (0..hex.len()).step_by(2).map(octet).collect())
        })
        .collect()
}

/// RFC 6581 §6, RFC 5044 §7.1: the private data is the message, in both revisions.
#[test]
fn the_messages_of_the_startup_are_private_data() {
    let vectors = vectors("mpa");
    assert_eq!(vectors.len(), 5);
    for (name, octets) in &vectors {
        let kind = if name.starts_with("mpa_req") { FrameKind::Request } else { FrameKind::Reply };
        let Ok(Parsed::Frame { frame, used }) = Frame::parse(kind, octets) else { panic!("{name}") };
        assert_eq!(used, octets.len(), "{name}");
        let is_two = name.contains("rev2");
        let rtr = RtrSet { send: true, write: kind == FrameKind::Request, read: false };
        let enhanced = is_two.then_some(EnhancedData { peer_to_peer: true, rtr, ird: 4, ord: 4 });
        assert_eq!(frame.enhanced, enhanced, "{name}");
        assert_eq!(frame.rejected, name.ends_with("reject"), "{name}");
        assert_eq!((frame.markers, frame.crc), (false, true), "{name}");
        let revision = if is_two { Revision::Two } else { Revision::One };
        // What our own wire forms make of the values is the vector.
        let private_data: &[u8] = match (kind, frame.rejected) {
            (_, true) => &[],
            (FrameKind::Request, _) => &Hello::parse(frame.private_data).unwrap().octets(),
            (FrameKind::Reply, _) => &HelloAck::parse(frame.private_data).unwrap().octets(),
        };
        let written = Frame { revision, enhanced: frame.enhanced, private_data, ..frame }.emit().unwrap();
        assert_eq!(*written, **octets, "{name}");
    }
}

/// RFC 5044 §4, RFC 5041 §4.3, RFC 5040 §4.1
#[test]
fn a_message_is_one_send_in_an_fpdu() {
    let vectors = vectors("fpdu");
    assert_eq!(vectors.len(), 2);
    for (name, octets) in &vectors {
        let mut copy = octets.clone();
        let mut deframer = rddp_mpa::Deframer::new(Framing { crc: true, markers: false });
        let Ok(rddp_mpa::Step::Fpdu { ulpdu: range, used }) = deframer.step(&mut copy) else {
            panic!("{name}")
        };
        assert_eq!(used, octets.len(), "{name}");
        let (message, payload) = Message::parse_whole(&copy[range][18..]).unwrap();
        let body = [&message.emit(), payload].concat();
        let made = ulpdu(&untagged_header(Opcode::Send, Stag(0), Msn(1), 0, true), &body);
        let (mut framer, mut out) = (Framer::new(Framing { crc: true, markers: false }), Vec::new());
        let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&made[at..at + out.len()]);
        framer.emit(b"", made.len(), fill, &mut out);
        assert_eq!(out, *octets, "{name}");
    }
}

/// The vectors as one connection: Request, Reply, and the first message of the initiator.
#[test]
fn a_capture_of_the_vectors_is_decoded() {
    let all: Vec<_> = vectors("mpa").into_iter().chain(vectors("fpdu")).collect();
    let find = |wanted: &str| &all.iter().find(|(name, _)| name == wanted).unwrap().1;
    for (request, reply, first) in [
        ("mpa_req_rev1_hello", "mpa_rep_rev1_helloack", "fpdu_sdp_data_hello"),
        ("mpa_req_rev2_hello", "mpa_rep_rev2_helloack", "fpdu_sdp_credit_update"),
    ] {
        let (request, reply, first) = (find(request), find(reply), find(first));
        let later = 1 + request.len() as u32;
        let mut events: Vec<Event> = Vec::new();
        let file = capture(&[(0, 1, request), (1, 1, reply), (0, later, first)]);
        let summary = decode(&file, |event| events.push(event)).unwrap();
        assert_eq!((summary.fpdus, summary.sdp, summary.problems), (1, 1, 0));
        let greeting = |at: usize| match &events[at].what {
            What::Startup(startup) => startup.greeting,
            other => panic!("{other}"),
        };
        assert!(matches!(greeting(0), Some(Greeting::Hello(_))));
        assert!(matches!(greeting(1), Some(Greeting::HelloAck(_))));
    }
}

/// Returns a capture of raw IP packets, each a segment: its sender, sequence number and octets.
fn capture(segments: &[(u8, u32, &Vec<u8>)]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    for (from, seq, octets) in segments {
        let len = 40 + octets.len() as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
        packet.extend([0, 1 + from, 0, 2 - from]);
        packet.extend(seq.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        packet.extend(*octets);
        file.extend([0, 0, len.into(), len.into()].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    file
}
