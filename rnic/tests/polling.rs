//! Programs that poll the last octet of a Write: whoever sees it sees all octets before it.
//!
//! RFC 5040 and RFC 5041 promise no such thing; every RNIC does it, and programs rely on it.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::{Duration, Instant};

use common::device::needs;
use common::raw::{Role, client_server, connect_raw, open_for, write_to};
use common::{ALL, End, PATIENCE, connected};
use rddp_ddp::TaggedRepr;
use rddp_mpa::{LENGTH_LEN, StartupConfig};
use rddp_rdmap::TerminateCode;
use rddp_rnic::{ConnectOptions, MemoryRegion, SendWr};
use rddp_test_support::{Peer, plain, segment};

/// Reads one octet, as a program that polls does.
fn octet(region: &MemoryRegion, offset: usize) -> u8 {
    let at = std::ptr::with_exposed_provenance::<u8>(region.base() as usize + offset);
    // SAFETY: inside the region, which the engine mapped and keeps.
    unsafe { at.read_volatile() }
}

/// Fails, sooner or later, if octets become visible in another order.
#[test]
fn the_last_octet_is_seen_behind_all_others() {
    needs("memory that may be watched", |device| device.data_in_order);
    let (active, passive) = connected(&ConnectOptions::default());
    let target = passive.region(4096, ALL);
    let source = active.region(4096, ALL);
    let end = Instant::now() + Duration::from_millis(1500);
    let mut fill = 0_u8;
    while Instant::now() < end {
        // Of different alignment at both ends.
        for (start, len) in [(0, 256), (3, 256), (8, 64), (1, 2000), (4, 13)] {
            fill = fill.wrapping_add(1);
            source.write(0, &vec![fill; len]).unwrap();
            let request = SendWr::write(1, source.sge(0..len), target.remote(start)).unsignaled();
            active.qp.post_send(&request).unwrap();
            // The background thread of the other end places it.
            until_seen(|| octet(&target, start + len - 1) == fill);
            let early = (start..start + len).find(|at| octet(&target, *at) != fill);
            assert_eq!(early, None, "{len} octets from {start} on");
        }
    }
}

/// Waits as a program that polls does.
fn until_seen(seen: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !(0..1000).any(|_| seen()) {
        assert!(Instant::now() < deadline, "the Write does not come");
        std::thread::yield_now();
    }
}

/// Returns an engine that receives Writes straight into place, its region, and a raw peer.
fn scene(crc: bool) -> (End, MemoryRegion, Peer) {
    let options = ConnectOptions { crc, place_before_crc: true, ..client_server() };
    let end = End::new();
    let mut raw = connect_raw(Role::Passive, &end, &options, &StartupConfig { crc, ..plain() });
    open_for(&mut raw, &end);
    let region = end.region(LEN, ALL);
    (end, region, raw)
}

const LEN: usize = 60_001;

/// Length of an FPDU with a Write up to its payload's end.
const PAYLOAD_END: usize = LENGTH_LEN + TaggedRepr::LEN + LEN;

fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Sends a frame in parts with these ends; each is sent when the engine has taken the one before.
fn send_up_to(end: &End, raw: &mut Peer, frame: &[u8], ends: &[usize]) {
    let before = end.qp.counters().octets_received;
    let mut sent = 0;
    for part in ends {
        raw.octets(&frame[sent..*part]);
        sent = *part;
        until(|| end.qp.counters().octets_received == before + sent as u64);
    }
}

fn last_octets(region: &MemoryRegion) -> [u8; 8] {
    std::array::from_fn(|at| octet(region, LEN - 8 + at))
}

/// The last octets of a Write that is received straight into place are placed when all of it has
/// arrived.
#[test]
fn the_last_octets_of_a_write_received_into_place_come_last() {
    for crc in [false, true] {
        for missing in [3, 0] {
            let (end, region, mut raw) = scene(crc);
            let frame = raw.frame(&write_to(&region, 0, &[7; LEN]));
            let sent = PAYLOAD_END - missing;
            send_up_to(&end, &mut raw, &frame, &[2000, sent]);
            assert!(end.qp.counters().octets_placed_directly > 0);
            assert_eq!(octet(&region, LEN - 9), 7);
            assert_eq!(last_octets(&region), [0; 8]);
            raw.octets(&frame[sent..]);
            until(|| octet(&region, LEN - 1) == 7);
            assert_eq!(region.read(0, LEN).unwrap(), [7; LEN]);
        }
    }
}

/// RFC 5044 §6: octets placed before the CRC was checked are not valid, and are not announced by
/// the last octet.
#[test]
fn the_last_octets_of_a_corrupted_write_never_come() {
    let (end, region, mut raw) = scene(true);
    let mut frame = raw.frame(&write_to(&region, 0, &[7; LEN]));
    frame[1000] ^= 1;
    send_up_to(&end, &mut raw, &frame, &[2000, PAYLOAD_END]);
    assert!(end.qp.counters().octets_placed_directly > 0);
    raw.octets(&frame[PAYLOAD_END..]);
    assert_eq!(raw.terminate_code(), TerminateCode::MPA_CRC);
    assert_eq!(last_octets(&region), [0; 8]);
}

/// Only the last segment of a message announces anything.
#[test]
fn other_segments_are_placed_as_they_come() {
    let (end, region, mut raw) = scene(false);
    let remote = region.remote(0);
    let frame = raw.frame(&segment::write(remote.stag, remote.to, false, &[7; LEN]));
    send_up_to(&end, &mut raw, &frame, &[2000, PAYLOAD_END - 3]);
    assert_eq!(last_octets(&region), [7, 7, 7, 7, 7, 0, 0, 0]);
}
