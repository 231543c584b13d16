//! The seeds about SDP: messages, and captures of them.

use std::path::Path;

use rddp_fuzz::decode_capture::{Input, Step};
use rddp_fuzz::input::{Encode, Octets, Tail};
use rddp_test_support::segment;
use serde_json::Value;

use super::{Seeds, hex};

/// The messages of SDP's vectors, good and bad.
pub fn messages(seeds: &mut Seeds) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/sdp_vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut messages = Vec::new();
    for vector in file["vectors"].as_array().unwrap() {
        if vector["kind"] == "sdp" {
            messages.push(hex(&vector["hex"]).unwrap());
        }
        if vector["kind"] == "sdp" || vector["kind"] == "bad" {
            let name = vector["name"].as_str().unwrap().to_owned();
            seeds.insert(("sdp_message", name), hex(&vector["hex"]).unwrap());
        }
    }
    captures(seeds, &messages);
}

/// The messages of SDP's vectors as a connection, and files of a packet each.
fn captures(seeds: &mut Seeds, messages: &[Vec<u8>]) {
    for flags in 0..8 {
        let of = |how, ulpdu| Step { how, octets: Octets(ulpdu) };
        let mut steps: Vec<Step> = messages
            .iter()
            .enumerate()
            .map(|(at, message)| of(at as u8 & 1, segment::send(1 + at as u32 / 2, 0, true, message)))
            .collect();
        steps.push(of(0, segment::write(rddp_ddp::Stag(7), 9, true, b"a Write")));
        let name = format!("messages_{flags}");
        let mut input = Input { flags, cut: 20, steps: Tail(steps) };
        seeds.insert(("decode_capture", name), input.octets());
        input.steps.0.truncate(9);
        input.steps.0.insert(4, of(2, b"\0\x10 no FPDU".to_vec()));
        seeds.insert(("decode_capture", format!("broken_{flags}")), input.octets());
    }
    let packet = [
        &[0x45, 0, 0, 44, 0, 0, 0, 0, 64, 6, 0, 0][..],
        &[10; 8],
        &[0, 1, 0, 2],
        &[0; 8],
        &[0x50, 16],
        &[0; 10],
    ];
    let packet = packet.concat();
    let classic = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 99, 101, 1, 2, 44, 44].map(u32::to_le_bytes).concat();
    seeds.insert(("decode_capture", "pcap".to_owned()), [&classic[..], &packet].concat());
    let blocks =
        [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28, 1, 20, 101, 0, 20, 6, 76, 0, 0, 9, 44, 44];
    let end = 76_u32.to_le_bytes();
    let blocks = blocks.map(u32::to_le_bytes).concat();
    seeds.insert(("decode_capture", "pcapng".to_owned()), [&blocks[..], &packet, &end].concat());
}
