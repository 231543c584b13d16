//! Exchanges of octets on a pair of ends, as tests of each kind of stream make them.

use std::thread;
use std::time::Duration;

use rddp_test_support::{Random, random_octets};

use crate::common::{End, kernel_poll};

const LONG: Duration = Duration::from_secs(20);

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

/// Checks that a wait is for as many octets as the low-water mark says.
pub(crate) fn waits_for_as_many_as_the_low_water_mark((a, b): (End, End)) {
    b.stream().set_low_water(5);
    for octets in [&b"1"[..], b"2", b"34"] {
        a.send_all(octets);
        let (told, swallowed) = b.poll(libc::POLLIN, Duration::from_millis(20));
        assert!(told == 0 && swallowed <= 2, "{swallowed} wake-ups for nothing");
    }
    // A call that does not wait takes what there is, and a wait goes on for as many anew.
    assert_eq!(b.recv(&mut [0; 2], libc::MSG_DONTWAIT), Ok(2));
    a.send_all(b"56");
    assert_eq!(b.poll(libc::POLLIN, Duration::from_millis(20)).0, 0);
    a.send_all(b"7");
    assert_eq!(b.poll(libc::POLLIN, LONG).0, libc::POLLIN);
    assert_eq!(b.read(100), Ok(b"34567".to_vec()));
    a.send_all(b"8");
    assert_eq!(b.poll(libc::POLLIN, Duration::from_millis(20)).0, 0);
    // A mark that is lowered is one for a wait that sleeps.
    b.stream().set_low_water(1);
    assert_eq!(kernel_poll(&b.tcp, libc::POLLIN, LONG), libc::POLLIN);
    assert_eq!(b.poll(libc::POLLIN, LONG).0, libc::POLLIN);
    b.stream().set_low_water(1000);
    assert_eq!(b.poll(libc::POLLIN, Duration::from_millis(20)).0, 0);
    // Fewer are an event at the end.
    a.stream().shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(b.poll(libc::POLLIN, LONG).0 & libc::POLLIN, libc::POLLIN);
    assert_eq!(b.read(100), Ok(b"8".to_vec()));
}
