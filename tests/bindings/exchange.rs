//! Octets go both ways between the two bindings.

use rddp_test_support::{pattern, pattern_from};

use crate::ends::{Case, End};

/// One octet to 4 MiB, with lengths beside those of buffers and of powers of two.
const SIZES: [usize; 14] =
    [1, 2, 17, 1000, 4096, 16_383, 65_535, 65_536, 65_537, 262_145, 1 << 20, (1 << 20) + 1, 3 << 20, 4 << 20];

fn each_size(case: Case) {
    let (device, in_call) = case.connect();
    let ends: [&dyn End; 2] = [&device, &in_call];
    for len in SIZES {
        for (from, to) in [(0, 1), (1, 0)] {
            let octets = pattern(len, len as u8);
            std::thread::scope(|scope| {
                scope.spawn(|| ends[from].send_all(&octets));
                assert!(ends[to].receive_all(len) == octets, "{len} octets from {from}, {case:?}");
            });
        }
    }
}

fn both_ways(case: Case, len: usize) {
    let (device, in_call) = case.connect();
    let ends: [&dyn End; 2] = [&device, &in_call];
    std::thread::scope(|scope| {
        for (out, into) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            scope.spawn(move || {
                let mut at = 0;
                while at < len {
                    let count = (1 + at * 7919 % 200_000).min(len - at);
                    out.send_all(&pattern_from(at, count));
                    at += count;
                }
                out.shut_down();
            });
            scope.spawn(move || {
                let (mut at, mut octets) = (0, vec![0; 100_000]);
                loop {
                    let count = into.take(&mut octets[..1 + at * 104_729 % 100_000]).unwrap();
                    if count == 0 {
                        break;
                    }
                    assert!(octets[..count] == pattern_from(at, count), "at {at}, {case:?}");
                    at += count;
                }
                assert_eq!(at, len, "{case:?}");
            });
        }
    });
}

#[test]
fn each_size_crosses_by_copies() {
    Case::COPIES.each().for_each(each_size);
}

#[test]
fn both_ways_at_once_by_copies() {
    Case::COPIES.each().for_each(|case| both_ways(case, 5 << 20));
}

#[test]
fn each_size_crosses_when_the_device_advertises() {
    Case { device: Some(0), ..Case::COPIES }.each().for_each(each_size);
}

#[test]
fn both_ways_at_once_when_the_device_advertises() {
    Case { device: Some(0), ..Case::COPIES }.each().for_each(|case| both_ways(case, 5 << 20));
}

/// The settings under which one end or both advertise, in Combined mode and in Pipelined.
fn advertising() -> [Case; 4] {
    let device = Case { device: Some(0), pipelined: true, ..Case::COPIES };
    let in_call = Case { in_call: 0, ..Case::COPIES };
    [device, in_call, Case { device: Some(0), ..in_call }, Case { in_call: 0, ..device }]
}

#[test]
fn each_size_crosses_in_all_modes() {
    advertising().into_iter().flat_map(Case::each).for_each(each_size);
}

#[test]
fn both_ways_at_once_in_all_modes() {
    advertising().into_iter().flat_map(Case::each).for_each(|case| both_ways(case, 3 << 20));
}
