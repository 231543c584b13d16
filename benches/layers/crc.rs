//! CRC-32C at the lengths of FPDUs: the two crates side by side, and what `rddp-mpa` makes of its
//! one.
#![forbid(unsafe_code)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use rddp_benches::pattern;

const LENGTHS: [usize; 9] = [64, 128, 256, 512, 1448, 4096, 16 << 10, 32 << 10, 64 << 10];

fn main() {
    divan::main();
}

fn over(bencher: Bencher<'_, '_>, len: usize, crc: impl Fn(&[u8]) -> u32) {
    let octets = pattern(len);
    // The first call makes tables and asks for the processor's instructions.
    black_box(crc(&octets));
    bencher.counter(BytesCount::new(len)).bench_local(|| crc(black_box(&octets)));
}

#[divan::bench(args = LENGTHS)]
fn crc32c_crate(bencher: Bencher<'_, '_>, len: usize) {
    over(bencher, len, crc32c::crc32c);
}

#[divan::bench(args = LENGTHS)]
fn crc_fast_crate(bencher: Bencher<'_, '_>, len: usize) {
    over(bencher, len, crc_fast::crc32_iscsi);
}

#[divan::bench(args = LENGTHS)]
fn rddp_mpa(bencher: Bencher<'_, '_>, len: usize) {
    over(bencher, len, rddp_mpa::crc32c);
}
