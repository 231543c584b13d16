//! Registered memory: the check of an STag for each segment, copies with and without CRC,
//! registering.
#![forbid(unsafe_code)]

use std::sync::Arc;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use rddp_benches::pattern;
use rddp_rnic::mem::{Access, Grant, MemLimits, MemTable, PdId, QpNum, Region, RegionOptions};

const PD: PdId = PdId(1);
const LENGTHS: [usize; 5] = [64, 1424, 4096, 16 << 10, 63 << 10];

fn main() {
    divan::main();
}

/// Makes a table with many regions, and returns one of them.
fn table() -> (MemTable, Arc<Region>) {
    let table = MemTable::new(MemLimits::default());
    for _ in 0..1000 {
        allocate(&table, 4096);
    }
    let region = allocate(&table, 64 << 10);
    (table, region)
}

fn allocate(table: &MemTable, len: usize) -> Arc<Region> {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    table.allocate(PD, len, access, &RegionOptions::default()).expect("a region")
}

fn grant(table: &MemTable, region: &Region, len: usize) -> Grant {
    let (stag, to) = (region.stag(), region.base_to());
    table.check_remote(stag, to, len as u64, Access::REMOTE_WRITE, PD, QpNum(1)).expect("it may write")
}

/// Checks a peer's access to memory, and drops the grant.
#[divan::bench]
fn check_remote(bencher: Bencher<'_, '_>) {
    let (table, region) = table();
    bencher.bench_local(|| drop(black_box(grant(&table, black_box(&region), 64))));
}

#[divan::bench]
fn check_local(bencher: Bencher<'_, '_>) {
    let (table, region) = table();
    let check = || table.check_local(region.stag(), black_box(region.base_to()), 64, false, PD).is_ok();
    bencher.bench_local(check);
}

/// Measures `copy(grant, octets)` over `len` octets.
fn copy<T>(bencher: Bencher<'_, '_>, len: usize, copy: impl Fn(&Grant, &mut [u8]) -> T) {
    let ((table, region), mut octets) = (table(), pattern(len));
    let grant = grant(&table, &region, len);
    // The first copies are not measured: they fault pages in.
    grant.place(0, &octets).expect("memory of our own stays");
    black_box(copy(&grant, &mut octets));
    bencher.counter(BytesCount::new(len)).bench_local(|| copy(&grant, black_box(&mut octets)));
}

#[divan::bench(args = LENGTHS)]
fn place(bencher: Bencher<'_, '_>, len: usize) {
    copy(bencher, len, |grant, data| grant.place(0, data));
}

#[divan::bench(args = LENGTHS)]
fn place_with_crc(bencher: Bencher<'_, '_>, len: usize) {
    copy(bencher, len, |grant, data| grant.place_with_crc(0, data, 0));
}

/// Does what `place_with_crc` does, but in two passes over the octets.
#[divan::bench(args = LENGTHS)]
fn crc_then_place(bencher: Bencher<'_, '_>, len: usize) {
    copy(bencher, len, |grant, data| {
        let crc = rddp_mpa::crc32c(data);
        grant.place(0, data).map(|()| crc)
    });
}

#[divan::bench(args = LENGTHS)]
fn copy_to_with_crc(bencher: Bencher<'_, '_>, len: usize) {
    copy(bencher, len, |grant, out| grant.copy_to_with_crc(0, out, 0));
}

#[divan::bench(args = LENGTHS)]
fn crc_in_place(bencher: Bencher<'_, '_>, len: usize) {
    copy(bencher, len, |grant, _| grant.crc32c_append(0, len, 0));
}

/// Allocates and deregisters memory of our own: mapping and unmapping are counted, touching is not.
#[divan::bench(args = [4096, 1 << 20, 1 << 30])]
fn allocate_and_deregister(bencher: Bencher<'_, '_>, len: usize) {
    let (table, _) = table();
    bencher.bench_local(|| table.deregister(allocate(&table, len).stag()));
}
