//! The pure layers: framing, CRC, headers, a stream's checks, and the check of an STag.

use std::hint::black_box;

use rddp_benches::{fpdus, pattern, send_segment, write_segment};
use rddp_ddp::{Msn, Stag};
use rddp_mpa::{Deframer, Framer, Framing, Step, crc32c};
use rddp_rdmap::{Opcode, Stream, StreamConfig, parse_header, tagged_header};
use rddp_rnic::mem::{Access, MemLimits, MemTable, PdId, QpNum, RegionOptions};

use crate::Scenario;
use crate::count::measured;

/// Number of operations in a round: many if one takes few instructions.
const MANY: u32 = 1000;
const SOME: u32 = 10;

/// Payload of an FPDU of nearly 64 KiB.
const LARGE: usize = 64 * 1024 - 1024;
/// Payload of an FPDU that fits into an MSS of 1448.
const IN_MSS_1448: usize = 1424;
/// Number of such FPDUs in a train of nearly 64 KiB.
const TRAIN: usize = 44;

const PLAIN: Framing = Framing { crc: false, markers: false };
const CRC: Framing = Framing { crc: true, markers: false };
const MARKERS: Framing = Framing { crc: false, markers: true };

/// The scenarios. Those of large FPDUs are without CRC, which has scenarios of its own.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "crc_64", ops: MANY, prepare: || crc(MANY, 64) },
    Scenario { name: "crc_64k", ops: SOME, prepare: || crc(SOME, 1 << 16) },
    Scenario { name: "frame_64", ops: MANY, prepare: || frame(CRC, MANY, 64) },
    Scenario { name: "frame_64k", ops: SOME, prepare: || frame(PLAIN, SOME, LARGE) },
    Scenario { name: "frame_64k_markers", ops: SOME, prepare: || frame(MARKERS, SOME, LARGE) },
    Scenario { name: "deframe_64", ops: MANY, prepare: || deframe(CRC, MANY as usize, 64) },
    Scenario { name: "deframe_train_1448", ops: 1, prepare: || deframe(PLAIN, TRAIN, IN_MSS_1448) },
    Scenario { name: "deframe_64k", ops: SOME, prepare: || deframe(PLAIN, SOME as usize, LARGE) },
    Scenario { name: "deframe_64k_markers", ops: SOME, prepare: || deframe(MARKERS, SOME as usize, LARGE) },
    Scenario { name: "parse_header", ops: MANY, prepare: parse },
    Scenario { name: "accept_send", ops: MANY, prepare: accept_sends },
    Scenario { name: "accept_write", ops: MANY, prepare: accept_writes },
    Scenario { name: "check_stag", ops: MANY, prepare: check_stag },
];

fn crc(ops: u32, len: usize) -> Box<dyn FnMut()> {
    let octets = pattern(len);
    Box::new(move || {
        measured(&mut || {
            for _ in 0..ops {
                black_box(crc32c(black_box(&octets)));
            }
        });
    })
}

fn frame(framing: Framing, ops: u32, payload_len: usize) -> Box<dyn FnMut()> {
    let header = tagged_header(Opcode::Write, Stag(0x0a0b_0c0d), 0x1000, true).octets();
    let payload = pattern(payload_len);
    let mut out = Vec::new();
    Box::new(move || {
        // Each round begins at the same place in the stream, so that markers lie alike.
        let mut framer = Framer::new(framing);
        measured(&mut || {
            for _ in 0..ops {
                out.clear();
                let fill = |at: usize, to: &mut [u8]| to.copy_from_slice(&payload[at..at + to.len()]);
                framer.emit(header.as_ref(), payload_len, fill, &mut out);
                black_box(&out);
            }
        });
    })
}

/// Deframes all of a stream of `count` FPDUs: that many operations, or one if they are a train.
fn deframe(framing: Framing, count: usize, payload_len: usize) -> Box<dyn FnMut()> {
    let segment = write_segment(Stag(0x0a0b_0c0d), 0x1000, true, payload_len);
    let mut stream = Vec::new();
    fpdus(&mut Framer::new(framing), (0..count).map(|_| &segment[..]), &mut stream);
    Box::new(move || {
        let (mut deframer, mut octets) = (Deframer::new(framing), stream.clone());
        measured(&mut || {
            let mut at = 0;
            while let Ok(Step::Fpdu { used, ulpdu }) = deframer.step(&mut octets[at..]) {
                black_box(ulpdu);
                at += used;
            }
            assert_eq!(at, octets.len());
        });
    })
}

fn parse() -> Box<dyn FnMut()> {
    let segment = send_segment(Msn::FIRST, 64);
    Box::new(move || {
        measured(&mut || {
            for _ in 0..MANY {
                black_box(parse_header(black_box(&segment)).is_ok());
            }
        });
    })
}

fn stream() -> Stream {
    Stream::new(StreamConfig { ird: 32, ord: 32, extensions: true })
}

fn accept_sends() -> Box<dyn FnMut()> {
    let (mut stream, mut msn) = (stream(), Msn::FIRST);
    Box::new(move || {
        let mut headers = Vec::new();
        for _ in 0..MANY {
            headers.push(parse_header(&send_segment(msn, 64)).expect("a Send"));
            msn = msn.next();
        }
        measured(&mut || {
            for header in &headers {
                stream.accept(header, 64, &mut || Some(4096)).expect("a Send that is due");
                black_box(stream.commit(header, 64, &[]).is_ok());
            }
        });
    })
}

fn accept_writes() -> Box<dyn FnMut()> {
    let mut stream = stream();
    let segment = write_segment(Stag(0x0a0b_0c0d), 0x1000, true, 64);
    let header = parse_header(&segment).expect("a Write");
    Box::new(move || {
        measured(&mut || {
            for _ in 0..MANY {
                stream.accept(&header, 64, &mut || None).expect("a Write");
                black_box(stream.commit(&header, 64, &[]).is_ok());
            }
        });
    })
}

fn check_stag() -> Box<dyn FnMut()> {
    const PD: PdId = PdId(1);
    let table = MemTable::new(MemLimits::default());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = table.allocate(PD, 1 << 16, access, &RegionOptions::default()).expect("a region");
    Box::new(move || {
        let (stag, to) = (region.stag(), region.base_to() + 4096);
        measured(&mut || {
            for _ in 0..MANY {
                let grant = table.check_remote(stag, to, 64, Access::REMOTE_WRITE, PD, QpNum(1));
                black_box(grant.is_ok());
            }
        });
    })
}
