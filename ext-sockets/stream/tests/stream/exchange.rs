//! Octets both ways on a pair of ends, sent and received in pieces of random lengths.

use std::thread;

use rddp_test_support::{Random, random_octets};

use crate::common::End;

/// Sends in writes of random lengths, then closes the direction.
fn send_in_pieces(end: &End, data: &[u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut rest = data;
    while !rest.is_empty() {
        let limit = [20, 1500, 70_000, 400_000][random.below(4)];
        let (now, later) = rest.split_at((1 + random.below(limit)).min(rest.len()));
        end.send_all(now);
        rest = later;
    }
    end.stream().shutdown(libc::SHUT_WR).unwrap();
}

/// Reads with buffers of random lengths until the end of the stream.
fn receive_in_pieces(end: &End, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    loop {
        let limit = [9, 700, 9000, 200_000][random.below(4)];
        let octets = end.read(1 + random.below(limit)).unwrap();
        if octets.is_empty() {
            return all;
        }
        all.extend(octets);
    }
}

/// Sends `count` octets each way at the same time, and checks what arrives.
pub(crate) fn both_ways_on(a: &End, b: &End, count: usize) {
    let (to_b, to_a) = (random_octets(1, count), random_octets(2, count));
    thread::scope(|scope| {
        scope.spawn(|| send_in_pieces(a, &to_b, 3));
        scope.spawn(|| send_in_pieces(b, &to_a, 4));
        let at_b = scope.spawn(|| receive_in_pieces(b, 5));
        let at_a = scope.spawn(|| receive_in_pieces(a, 6));
        assert!(at_b.join().unwrap() == to_b, "to the second end");
        assert!(at_a.join().unwrap() == to_a, "to the first end");
    });
}
