//! Segments (RFC 5041 chapters 4 and 5): headers to values and back, cutting, and the checks of one
//! queue.
#![forbid(unsafe_code)]

use divan::{Bencher, black_box};
use rddp_benches::{send_segment, write_segment};
use rddp_ddp::{Header, Msn, Stag, TaggedRepr, UntaggedRx, check_range, cut};

fn main() {
    divan::main();
}

#[divan::bench]
fn parse_tagged(bencher: Bencher<'_, '_>) {
    let segment = write_segment(Stag(7), 0x1000, true, 64);
    bencher.bench_local(|| Header::parse(black_box(&segment)));
}

#[divan::bench]
fn parse_untagged(bencher: Bencher<'_, '_>) {
    let segment = send_segment(Msn::FIRST, 64);
    bencher.bench_local(|| Header::parse(black_box(&segment)));
}

#[divan::bench]
fn emit_tagged() -> [u8; Header::MAX_LEN] {
    let header = TaggedRepr { last: true, rsvd_ulp: 0x40, stag: Stag(7), to: 0x1000 };
    let mut octets = [0; Header::MAX_LEN];
    black_box(Header::from(black_box(header))).emit(&mut octets);
    octets
}

#[divan::bench]
fn cut_next() -> rddp_ddp::Cut {
    cut(black_box(1 << 20), black_box(64 << 10), black_box(1444), TaggedRepr::LEN)
}

#[divan::bench]
fn check_range_of_region() -> bool {
    check_range(black_box(0x1_0000), 1 << 20, black_box(0x1_2000), 64).is_ok()
}

/// Checks a message of one segment, and delivers it.
#[divan::bench]
fn untagged_message(bencher: Bencher<'_, '_>) {
    let (mut queue, mut msn) = (UntaggedRx::new(), Msn::FIRST);
    let Ok(Header::Untagged(mut header)) = Header::parse(&send_segment(msn, 64)) else { unreachable!() };
    bencher.bench_local(|| {
        header.msn = msn;
        msn = msn.next();
        queue.check_msn(&header).and_then(|()| queue.check_offset(&header, 64, 4096)).expect("is due");
        queue.commit(&header, 64)
    });
}
