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
    machines(seeds, &messages);
    pairs(seeds);
}

/// The messages of SDP's vectors for a machine, with numbers that are due, and answers in between.
fn machines(seeds: &mut Seeds, messages: &[Vec<u8>]) {
    for has_adverts in [false, true] {
        let mut input = vec![60, 255, 255, 8, 60, 255, 8, 0, 0];
        if has_adverts {
            // An own advert of each kind, and Pipelined.
            input.extend([13, 4, 7, 0, 200, 1, 2, 3, 13, 5, 8, 250, 9, 2, 3]);
        }
        for message in messages.iter().filter(|message| message[0] > 1) {
            let known = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 0xfd, 0xfe, 0xff, 13];
            let mid = known.iter().position(|mid| *mid == message[0]).unwrap() as u8;
            let front = (1..36).map(|at| message.get(at).copied().unwrap_or(0));
            input.extend([0, 0, mid]);
            input.extend(front);
            if message[0] >= 0xfd {
                input.push((message.len() & 7) as u8);
            }
            input.extend([5, 10, 30, 30, 1, 14, 3, 2]);
        }
        seeds.insert(("sdp_machine", format!("messages_{}", u8::from(has_adverts))), input);
    }
    seeds.insert(("sdp_machine", "state".to_owned()), vec![8, 8, 8, 8, 8, 8, 8, 1]);
}

/// Sends and receives both ways with each policy.
fn pairs(seeds: &mut Seeds) {
    for policy in 0..16 {
        let mut input = vec![policy << 4 | 5, 0x8a];
        for round in 0..10 {
            input.extend([0, 7, 0x80, 6, 11, 15, 12, 0, 0x8c, 0, 11, 0x3f, 4, 7, 0x84, 5, 11, 0x1f]);
            input.extend([0x8c, 0, 12, 0, 13, 2 + round, 9, round, 11, 0x2f, 0x83, 0, 14, 8]);
        }
        input.extend([15, policy & 1, 11, 0x1f, 12, 0, 0x8f, policy >> 1 & 1]);
        seeds.insert(("sdp_pair", format!("policy_{policy}")), input);
    }
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
