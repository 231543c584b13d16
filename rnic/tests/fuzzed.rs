//! What the fuzz targets have found, one test each.
#![allow(missing_docs)]

mod common;

use common::raw::{Role, client_server, plain, with_raw, write_to};
use common::{ALL, pattern};
use rddp_mpa::StartupConfig;
use rddp_rdmap::TerminateCode;
use rddp_rnic::{ConnectOptions, QpState};

/// RFC 5041 §7.1: a segment is checked as a whole before any of it is placed, also when only some of it has come.
#[test]
fn a_segment_that_leaves_its_region_is_not_placed_in_part() {
    let options = ConnectOptions { crc: false, ..client_server() };
    let (end, mut raw) = with_raw(Role::Active, &options, &StartupConfig { crc: false, ..plain() });
    let region = end.region(12_000, ALL);
    let frame = raw.frame(&write_to(&region, 0, &pattern(20_000, 7)));
    raw.octets(&frame[..10_000]);
    while end.qp.counters().octets_received < 10_000 {
        end.cq.poll_one();
    }
    assert_eq!(end.qp.state(), QpState::ReadyToSend, "nothing is concluded before all of it is there");
    let untouched = || region.read(0, 12_000).unwrap().iter().all(|octet| *octet == 0);
    assert!(untouched());
    raw.octets(&frame[10_000..]);
    assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_BOUNDS);
    assert!(untouched());
}
