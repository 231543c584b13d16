//! Measurements of the hot paths. Run with `cargo test --release -p rddp-rnic mem::tests::cost
//! -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::mem::alloc::Mapping;

/// Returns the nanoseconds of one call, the least of several runs.
fn nanoseconds(calls: u32, mut call: impl FnMut(u32)) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(&mut call);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures"]
fn checks_of_one_and_of_many_regions() {
    for count in [1_usize, 100, 10_000] {
        let table = table();
        let regions: Vec<_> = (0..count).map(|_| allocate(&table, 4096, ALL)).collect();
        let asked: Vec<_> = regions.iter().map(|region| (region.stag(), region.base_to())).collect();
        let check = nanoseconds(2_000_000, |turn| {
            let (stag, to) = asked[turn as usize % asked.len()];
            let _ = black_box(table.check_remote(stag, to + 64, 1448, Access::REMOTE_WRITE, PD, QP));
        });
        println!("check_remote and drop of the grant, {count} regions: {check:.1} ns");
    }
}

#[test]
#[ignore = "measures"]
fn registration_and_invalidation() {
    let table = table();
    let memory = Mapping::new(1 << 30, &RegionOptions::default()).unwrap();
    let options = RegionOptions::default();
    for len in [4096, 1 << 30] {
        let cost = nanoseconds(2_000, |_| {
            // SAFETY: mapped until the end of the test, without references.
            let region = unsafe { table.register(PD, memory.ptr(), len, ALL, &options) }.unwrap();
            table.deregister(region.stag()).unwrap();
        });
        println!("register and deregister of {len} octets: {cost:.0} ns");
    }
    let region = allocate(&table, 4096, ALL);
    let cost = nanoseconds(100_000, |_| {
        let stag = region.stag();
        table.invalidate_remote(stag, PD, QP).unwrap();
        table.reregister(stag, ALL).unwrap();
    });
    println!("invalidate and reregister: {cost:.0} ns");
    drop(table);
}

#[test]
#[ignore = "measures"]
fn copies_with_and_without_crc() {
    let table = table();
    let region = allocate(&table, 4 << 20, ALL);
    for len in [64, 1448, 64 << 10] {
        let mut buffer = vec![1; len];
        let grant = |turn: u32| {
            let to = region.base_to() + u64::from(turn % 64) * len as u64;
            table.check_local(region.stag(), to, len as u64, true, PD).unwrap()
        };
        let calls = 20_000;
        let report =
            |what: &str, ns: f64| println!("{what} of {len}: {ns:.0} ns, {:.1} GB/s", len as f64 / ns);
        report("place", nanoseconds(calls, |turn| grant(turn).place(0, black_box(&buffer)).unwrap()));
        let cost = nanoseconds(calls, |turn| {
            black_box(grant(turn).place_with_crc(0, black_box(&buffer), 0).unwrap());
        });
        report("place_with_crc", cost);
        let cost = nanoseconds(calls, |turn| {
            black_box(grant(turn).crc32c_append(0, len, 0).unwrap());
        });
        report("crc32c_append", cost);
        let cost = nanoseconds(calls, |_| {
            black_box(rddp_mpa::crc32c(black_box(&buffer)));
        });
        report("crc of a slice", cost);
        report("copy_to", nanoseconds(calls, |turn| grant(turn).copy_to(0, black_box(&mut buffer)).unwrap()));
        let cost = nanoseconds(calls, |turn| {
            black_box(grant(turn).copy_to_with_crc(0, black_box(&mut buffer), 0).unwrap());
        });
        report("copy_to_with_crc", cost);
    }
}

#[test]
#[ignore = "measures"]
fn small_vectored_calls() {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use crate::mem::{Piece, PieceMut, SendFlags, recv_vectored, send_vectored};

    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (data, mut room) = ([1; 64], [0; 64]);
    let plain = nanoseconds(100_000, |_| {
        here.write_all(&data).unwrap();
        there.read_exact(&mut room).unwrap();
    });
    let vectored = nanoseconds(100_000, |_| {
        send_vectored(here.as_fd(), &[Piece::Own(&data)], SendFlags::default()).unwrap();
        recv_vectored(there.as_fd(), &mut [PieceMut::Own(&mut room)]).unwrap();
    });
    println!("64 octets over a socket pair: {plain:.0} ns by write and read, {vectored:.0} ns vectored");
}
