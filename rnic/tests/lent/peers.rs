//! Operations of a peer on memory that has gone bad, and messages that arrive for it.

use std::io::ErrorKind;

use rddp_rdmap::{AtomicOp, AtomicRequestRepr, Opcode};
use rddp_rnic::{Access, RecvWr, Remote, SendWr, Stag, Status};
use rddp_test_support::segment;

use crate::common::{ALL, raw};
use crate::own::{read_to_end, whole_fpdus};
use crate::{Scene, Style};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Length of a payload that is large enough to be received straight into place.
const LARGE: usize = 60_000;

/// RFC 5040 §4.8: memory that is gone is out of bounds.
#[test]
fn a_read_of_memory_gone_bad_is_refused() {
    for (style, size) in [
        (Style::Crc, 1000),
        (Style::Crc, 200_000),
        (Style::Markers, 200_000),
        (Style::NoCrc, 200_000),
        (Style::Stable, 1000),
        (Style::Stable, 200_000),
    ] {
        let mut scene = Scene::new(style);
        scene.lent.cut(0);
        let request = raw::read_from(1, &scene.lent.region, size);
        scene.raw.send(&request);
        scene.terminates(0x0101);
    }
}

/// The Response ends between two segments: the good ones have arrived whole.
#[test]
fn a_read_that_reaches_memory_gone_bad_ends_between_two_segments() {
    for style in [Style::Crc, Style::Stable] {
        let mut scene = Scene::new(style);
        scene.lent.cut(100 << 10);
        let request = raw::read_from(1, &scene.lent.region, 200_000);
        scene.raw.send(&request);
        scene.raw.expect(Opcode::ReadResponse);
        scene.terminates(0x0101);
    }
}

/// A Response that is neither copied nor read for a CRC: the kernel finds the bad page. An FPDU
/// that TCP has begun then ends by a reset, as that of an own message does.
#[test]
fn a_response_without_crc_ends_whole_or_by_a_reset() {
    let mut resets = 0;
    for before in (0..8).map(|turn| 4096 * turn) {
        let mut scene = Scene::new(Style::NoCrc);
        let good = scene.end.region(before.max(1), ALL);
        scene.lent.cut(188 << 10);
        let reads = [raw::read_from(1, &good, before as u32), raw::read_from(2, &scene.lent.region, 400_000)];
        // A request that waits is not the one that fails.
        let read = SendWr::read(7, good.sge(0..1), REMOTE);
        scene.end.qp.post_sends(&[read, SendWr::send_inline(8, b"fenced").local_fence()]).unwrap();
        scene.raw.send_all(&[&reads[0], &reads[1]]);
        let (octets, end) = read_to_end(&scene.raw.socket);
        let (rest, last) = whole_fpdus(&octets);
        let reset = end == Some(ErrorKind::ConnectionReset);
        assert_eq!((reset, last == Some(Opcode::Terminate)), (!rest.is_empty(), rest.is_empty()));
        resets += usize::from(reset);
        let failed = [scene.end.next(), scene.end.next()];
        assert!(failed.iter().all(|failed| failed.status == Status::Flushed), "{failed:?}");
        scene.others_go_on();
    }
    assert!(resets > 0, "the kernel never began an FPDU");
}

#[test]
fn memory_without_rights_is_refused_like_memory_of_a_file_cut_short() {
    let mut scene = Scene::new(Style::Crc);
    scene.lent.forbid();
    let request = raw::read_from(1, &scene.lent.region, 1000);
    scene.raw.send(&request);
    scene.terminates(0x0101);
}

/// RFC 5041 §7.2.
#[test]
fn a_write_to_memory_gone_bad_is_refused() {
    for (style, len) in [(Style::Crc, 1), (Style::Crc, 8), (Style::Crc, LARGE), (Style::NoCrc, 100)] {
        let mut scene = Scene::new(style);
        scene.lent.cut(0);
        let write = raw::write_to(&scene.lent.region, 0, &vec![1; len]);
        scene.raw.send(&write);
        scene.terminates(0x1101);
    }
}

#[test]
fn a_write_straight_into_memory_gone_bad_is_refused() {
    for style in [Style::NoCrc, Style::PlaceBeforeCrc] {
        let mut scene = Scene::new(style);
        let write = raw::write_to(&scene.lent.region, 0, &vec![1; LARGE]);
        scene.send_while_it_goes_bad(&write, 0);
        scene.terminates(0x1101);
    }
}

/// The last octets are placed after all others: all but these are there.
#[test]
fn a_write_whose_last_octets_alone_go_bad_is_refused() {
    const PAGES: usize = 16 * 4096;
    for style in [Style::NoCrc, Style::PlaceBeforeCrc] {
        let mut scene = Scene::new(style);
        let start = PAGES + 8 - LARGE;
        let write = raw::write_to(&scene.lent.region, start, &vec![1; LARGE]);
        scene.send_while_it_goes_bad(&write, PAGES as u64);
        scene.terminates(0x1101);
        assert_eq!(scene.lent.region.read(start, LARGE - 8).unwrap(), vec![1; LARGE - 8]);
    }
}

/// A window goes bad together with its region, whose memory it shares.
#[test]
fn a_write_by_a_window_to_memory_gone_bad_is_refused() {
    let mut scene = Scene::new(Style::Crc);
    let window = scene.end.pd.allocate_window().unwrap();
    let range = scene.lent.region.sge(0..4096);
    let bind = SendWr::bind(1, window.stag(), range, Access::REMOTE_WRITE);
    scene.end.qp.post_send(&bind).unwrap();
    scene.end.success();
    scene.lent.cut(0);
    scene.raw.send(&segment::write(window.stag(), range.addr, true, b"octets"));
    scene.terminates(0x1101);
}

/// RFC 7306 §8.2 names no code for this: the code is that of any other access.
#[test]
fn an_atomic_on_memory_gone_bad_is_refused() {
    for op in [
        AtomicOp::FetchAdd { add: 1, mask: 0 },
        AtomicOp::CmpSwap { swap: 1, swap_mask: !0, compare: 0, compare_mask: !0 },
    ] {
        let mut scene = Scene::new(Style::Crc);
        scene.lent.cut(0);
        let target = scene.lent.region.remote(0);
        let request = AtomicRequestRepr { op, request_id: 1, stag: target.stag, to: target.to };
        scene.raw.send(&segment::atomic(1, &request));
        scene.terminates(0x0101);
    }
}

/// draft-hilland-rddp-verbs §8.3.2: a receive with bad memory is a fault of this end.
#[test]
fn a_receive_in_memory_gone_bad_fails() {
    for (style, len) in [(Style::Crc, 10), (Style::Crc, LARGE), (Style::NoCrc, LARGE)] {
        let mut scene = Scene::new(style);
        scene.end.qp.post_recv(RecvWr::one(7, scene.lent.region.whole())).unwrap();
        scene.lent.cut(0);
        scene.raw.send(&segment::send(1, 0, true, &vec![1; len]));
        scene.fails_locally(7);
    }
}

#[test]
fn a_receive_straight_into_memory_gone_bad_fails() {
    for style in [Style::Crc, Style::NoCrc] {
        let mut scene = Scene::new(style);
        scene.end.qp.post_recv(RecvWr::one(7, scene.lent.region.whole())).unwrap();
        scene.send_while_it_goes_bad(&segment::send(1, 0, true, &vec![1; LARGE]), 0);
        scene.fails_locally(7);
    }
}

#[test]
fn a_read_whose_sink_has_gone_bad_fails() {
    for (style, len) in [(Style::Crc, 10), (Style::Crc, LARGE), (Style::NoCrc, LARGE)] {
        let mut scene = Scene::new(style);
        let sink = scene.lent.region.sge(0..len);
        scene.end.qp.post_send(&SendWr::read(8, sink, REMOTE)).unwrap();
        scene.raw.read_request();
        let response = segment::response(sink.stag, sink.addr, true, &vec![1; len]);
        if len == LARGE {
            scene.send_while_it_goes_bad(&response, 0);
        } else {
            scene.lent.cut(0);
            scene.raw.send(&response);
        }
        scene.fails_locally(8);
    }
}

#[test]
fn an_own_atomic_whose_sink_has_gone_bad_fails() {
    let mut scene = Scene::new(Style::Crc);
    let sink = scene.lent.region.sge(0..8);
    scene.end.qp.post_send(&SendWr::fetch_add(8, sink, REMOTE, 1)).unwrap();
    let request = AtomicRequestRepr::parse(&scene.raw.expect(Opcode::AtomicRequest).1).unwrap();
    scene.lent.cut(0);
    scene.raw.send(&segment::atomic_response(1, request.request_id, 5));
    scene.fails_locally(8);
}

/// A receive posted behind the bad one is flushed: only one request fails.
#[test]
fn one_request_fails_and_the_rest_is_flushed() {
    let mut scene = Scene::new(Style::Crc);
    for id in 0..3 {
        scene.end.qp.post_recv(RecvWr::one(id, scene.lent.region.whole())).unwrap();
    }
    scene.lent.cut(0);
    scene.raw.send(&segment::send(1, 0, true, b"octets"));
    let statuses: Vec<_> = scene.end.completions_of(0..3).iter().map(|end| end.status).collect();
    assert_eq!(statuses, [Status::LocalProtection, Status::Flushed, Status::Flushed]);
    scene.terminates(0x0000);
}
