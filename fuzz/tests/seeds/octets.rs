//! The seeds about byte streams as values.

use rddp_ddp::Stag;
use rddp_fuzz::input::{Encode, Octets, Tail};
use rddp_fuzz::octets_duplex::{Change, Input, Step};
use rddp_mpa::{Framer, Framing};
use rddp_rdmap::{ReadRequestRepr, TerminateCode};
use rddp_test_support::{Fpdus, pattern, segment};

use super::Seeds;

/// Streams of messages that a peer may send, and of one behind them that ends the stream, in each
/// framing ([`rddp_fuzz::octets_incoming::run`]).
pub fn incoming(seeds: &mut Seeds) {
    let request = ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size: 0, src_stag: Stag(2), src_to: 0 };
    let good = [
        segment::write(Stag(7), 0, true, b""),
        segment::send(1, 0, false, &pattern(100, 1)),
        segment::read(1, &request),
        segment::send(1, 100, true, &pattern(500, 2)),
        segment::send(2, 0, true, b""),
    ];
    let ends = [
        ("gap", segment::send(4, 0, true, b"late")),
        ("terminate", segment::terminate(TerminateCode(0x1203))),
        ("write", segment::write(Stag(7), 0, true, b"octets")),
        ("invalidate", segment::send_invalidate(3, Stag(7), b"")),
        ("response", segment::response(Stag(0), 0, true, b"")),
    ];
    for flags in 0..4_u8 {
        let framing = Framing { crc: flags & 1 != 0, markers: flags & 2 != 0 };
        for (name, end) in &ends {
            let mut peer = Fpdus::new(framing, framing);
            peer.framer = Framer::at(framing, 400);
            let ulpdus = good.iter().chain([end]);
            let octets: Vec<u8> = ulpdus.flat_map(|ulpdu| peer.frame(ulpdu)).collect();
            let settings = [flags | 12 | if *name == "response" { 16 } else { 0 }, 100, 7];
            seeds.insert(("octets_incoming", format!("{name}_{flags}")), [&settings[..], &octets].concat());
        }
    }
}

/// Two ends that talk; most of the times somebody changes what one of them gets.
pub fn duplex(seeds: &mut Seeds) {
    for framing in 0..16 {
        let mut steps = Vec::new();
        for round in 0..12_u16 {
            let end = round % 3 == 0;
            steps.push(Step::Put { end, octets: round * 997 });
            steps.push(Step::Pay { end, octets: round * 501 + 60 });
            steps.push(Step::Deliver { end: !end, octets: round * 307 + 60 });
            // Less than an FPDU has.
            steps.push(Step::Take { end: !end, room: round * 97 });
        }
        // More than there is room for.
        steps.extend([0, 1].map(|_| Step::Put { end: false, octets: u16::MAX }));
        steps.push(Step::Finish { end: true });
        steps.push(Step::Put { end: false, octets: 300 });
        steps.push(Step::Pay { end: false, octets: u16::MAX });
        let octets = Octets(segment::send(1, 0, true, b"put by nobody"));
        let change = match framing / 4 {
            0 => Change::Damage { at: 3, bit: 5 },
            1 => Change::Insert { at: 30, octets },
            2 => Change::Frame { ulpdu: octets },
            _ => Change::Cut { at: 100 },
        };
        if framing % 4 > 0 {
            steps.push(Step::Change { end: true, change });
        }
        let input = Input { framing, emss: 1348, steps: Tail(steps) };
        seeds.insert(("octets_duplex", format!("talk_{framing:02}")), input.octets());
    }
}
