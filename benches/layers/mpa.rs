//! Framing and deframing (RFC 5044 chapter 4): one FPDU, and a train of them as for Ethernet.
#![forbid(unsafe_code)]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use rddp_benches::{fpdus, pattern, write_segment};
use rddp_ddp::Stag;
use rddp_mpa::{Deframer, Framer, Framing, Step};
use rddp_rdmap::{Opcode, tagged_header};

/// Payload lengths of one FPDU.
const LENGTHS: [usize; 4] = [64, 1424, 16 << 10, 63 << 10];

/// Number of FPDUs in a train: the contents of one write at an MSS of 1448.
const TRAIN: usize = 44;
const TRAIN_PAYLOAD: usize = 1424;

const PLAIN: Framing = Framing { crc: false, markers: false };
const CRC: Framing = Framing { crc: true, markers: false };
const MARKERS: Framing = Framing { crc: true, markers: true };

fn main() {
    divan::main();
}

/// Lays out `count` FPDUs one behind the other.
fn frame(bencher: Bencher<'_, '_>, framing: Framing, count: usize, len: usize) {
    let header = tagged_header(Opcode::Write, Stag(7), 0x1000, true).octets();
    let payload = pattern(len);
    let mut framer = Framer::new(framing);
    let mut out = Vec::new();
    bencher.counter(BytesCount::new(count * len)).counter(ItemsCount::new(count)).bench_local(|| {
        out.clear();
        for _ in 0..count {
            let fill = |at: usize, to: &mut [u8]| to.copy_from_slice(&payload[at..at + to.len()]);
            framer.emit(header.as_ref(), len, fill, &mut out);
        }
        black_box(out.len())
    });
}

#[divan::bench(args = LENGTHS)]
fn frame_plain(bencher: Bencher<'_, '_>, len: usize) {
    frame(bencher, PLAIN, 1, len);
}

#[divan::bench(args = LENGTHS)]
fn frame_crc(bencher: Bencher<'_, '_>, len: usize) {
    frame(bencher, CRC, 1, len);
}

#[divan::bench(args = LENGTHS)]
fn frame_crc_markers(bencher: Bencher<'_, '_>, len: usize) {
    frame(bencher, MARKERS, 1, len);
}

#[divan::bench]
fn frame_train_plain(bencher: Bencher<'_, '_>) {
    frame(bencher, PLAIN, TRAIN, TRAIN_PAYLOAD);
}

#[divan::bench]
fn frame_train_crc(bencher: Bencher<'_, '_>) {
    frame(bencher, CRC, TRAIN, TRAIN_PAYLOAD);
}

/// Deframes all of `count` FPDUs. With markers on a copy each time, since ULPDUs are
/// moved together in place.
fn deframe(bencher: Bencher<'_, '_>, framing: Framing, count: usize, len: usize) {
    let segment = write_segment(Stag(7), 0x1000, true, len);
    let mut stream = Vec::new();
    fpdus(&mut Framer::new(framing), (0..count).map(|_| &segment[..]), &mut stream);
    let bencher = bencher.counter(BytesCount::new(count * len)).counter(ItemsCount::new(count));
    if framing.markers {
        bencher.with_inputs(|| stream.clone()).bench_local_refs(|stream| walk(framing, stream));
    } else {
        bencher.bench_local(|| walk(framing, &mut stream));
    }
}

fn walk(framing: Framing, stream: &mut [u8]) -> usize {
    let (mut deframer, mut at) = (Deframer::new(framing), 0);
    while let Ok(Step::Fpdu { ulpdu, used }) = deframer.step(&mut stream[at..]) {
        black_box(ulpdu);
        at += used;
    }
    assert_eq!(at, stream.len());
    at
}

#[divan::bench(args = LENGTHS)]
fn deframe_plain(bencher: Bencher<'_, '_>, len: usize) {
    deframe(bencher, PLAIN, 1, len);
}

#[divan::bench(args = LENGTHS)]
fn deframe_crc(bencher: Bencher<'_, '_>, len: usize) {
    deframe(bencher, CRC, 1, len);
}

#[divan::bench(args = LENGTHS)]
fn deframe_crc_markers(bencher: Bencher<'_, '_>, len: usize) {
    deframe(bencher, MARKERS, 1, len);
}

#[divan::bench]
fn deframe_train_plain(bencher: Bencher<'_, '_>) {
    deframe(bencher, PLAIN, TRAIN, TRAIN_PAYLOAD);
}

#[divan::bench]
fn deframe_train_crc(bencher: Bencher<'_, '_>) {
    deframe(bencher, CRC, TRAIN, TRAIN_PAYLOAD);
}
