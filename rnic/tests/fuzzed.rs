//! Faults that the fuzz targets have found, one test each.
#![allow(missing_docs)]

mod common;

use common::ALL;
use common::raw::{Role, client_server, with_plain_raw, with_raw, write_to};
use rddp_mpa::StartupConfig;
use rddp_rdmap::TerminateCode;
use rddp_rnic::{AsyncEventKind, ConnectOptions, QpState, RecvWr, Status};
use rddp_test_support::{pattern, plain, segment::send};

/// RFC 5041 §7.1: a segment is checked as a whole before any of it is placed, even when only a part
/// of it has arrived.
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

/// draft-hilland-rddp-verbs §6.2: octets that arrive in Closing make it a bad close, the rest of a
/// large message too.
#[test]
fn a_message_half_received_makes_a_bad_close_of_a_disconnect() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let inbox = end.region(9000, ALL);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    let before = end.qp.counters().octets_received;
    let frame = raw.frame(&send(1, 0, true, &pattern(8000, 7)));
    // The second read is long enough to go straight into its place.
    for (from, to) in [(0, 300), (300, 5000)] {
        raw.octets(&frame[from..to]);
        while end.qp.counters().octets_received < before + to as u64 {
            end.cq.poll_one();
        }
    }
    end.qp.disconnect();
    end.qp.post_recv(RecvWr::one(2, inbox.whole())).unwrap();
    raw.octets(&frame[5000..]);
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    assert_eq!(end.qp.state(), QpState::Error);
    assert_eq!(
        [end.next(), end.next()].map(|done| (done.wr_id, done.status)),
        [(1, Status::Flushed), (2, Status::Flushed)]
    );
}
