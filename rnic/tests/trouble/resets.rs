//! TCP connections that are reset, or end by a FIN, at any octet.

use std::io::{ErrorKind, Read};

use rddp_rnic::{
    Access, AsyncEventKind, MemoryRegion, QpState, RecvWr, Remote, SendWr, Stag, Status, TerminateCode,
};
use rddp_test_support::{Peer, segment};

use crate::common::raw::{self, BOTH, Role, with_plain_raw};
use crate::common::{ALL, End};
use crate::slow::goes_on;

/// Returns an end with one request of each kind and two receives posted, ids 0 to 5, and the octets
/// that its peer would answer.
fn busy(role: Role) -> (End, Peer, Vec<u8>, [MemoryRegion; 2]) {
    let (end, mut raw) = with_plain_raw(role);
    let (sink, inbox) = (end.region(64, ALL), end.region(64, Access::LOCAL_WRITE));
    let remote = Remote { stag: Stag(1), to: 0 };
    end.qp.post_recv(RecvWr::one(0, inbox.sge(0..32))).unwrap();
    end.qp.post_recv(RecvWr::one(1, inbox.sge(32..64))).unwrap();
    let list = [
        SendWr::send_inline(2, b"send"),
        SendWr::read(3, sink.sge(0..10), remote),
        SendWr::write_inline(4, b"write", remote),
        SendWr::read(5, sink.sge(10..20), remote),
    ];
    end.qp.post_sends(&list).unwrap();
    let mut octets = raw.frame(&raw::write_to(&sink, 0, b"hello"));
    octets.extend(raw.frame(&segment::send(1, 0, false, b"half")));
    octets.extend(raw.frame(&segment::response(sink.stag(), sink.base(), true, b"0123456789")));
    octets.extend(raw.frame(&raw::read_from(1, &sink, 20)));
    octets.extend(raw.frame(&segment::send(1, 4, true, b"whole")));
    octets.extend(raw.frame(&segment::response(sink.stag(), sink.base() + 10, true, b"9876543210")));
    (end, raw, octets, [sink, inbox])
}

/// Checks that each queue completes its requests in order: successes first, then flushes.
fn check_order(end: &End) {
    let completions = end.completions_of(0..6);
    for queue in [&completions[..2], &completions[2..]] {
        let mut rest = queue.iter().skip_while(|completion| completion.status == Status::Success);
        assert!(rest.all(|completion| completion.status == Status::Flushed), "{completions:?}");
    }
}

/// The cuts are seven octets apart, so they fall into headers, payloads, CRCs and between FPDUs.
#[test]
fn a_reset_at_any_octet_flushes_everything_once() {
    for role in BOTH {
        let len = busy(role).2.len();
        for cut in (0..=len).step_by(7) {
            let (end, mut raw, octets, _memory) = busy(role);
            raw.octets(&octets[..cut]);
            raw.reset();
            end.event_like(|event| *event == AsyncEventKind::ConnectionLost);
            assert_eq!(end.qp.state(), QpState::Error);
            check_order(&end);
        }
    }
}

#[test]
fn a_fin_at_any_octet_flushes_everything_once() {
    for role in BOTH {
        let len = busy(role).2.len();
        for cut in (0..len).step_by(7) {
            let (end, mut raw, octets, _memory) = busy(role);
            raw.octets(&octets[..cut]);
            raw.fin();
            end.event_like(|event| *event == AsyncEventKind::BadClose);
            check_order(&end);
            assert_eq!(raw.terminate_code(), TerminateCode::CATASTROPHIC_STREAM);
            end.await_state(QpState::Error);
        }
    }
}

#[test]
fn with_everything_answered_a_fin_is_graceful() {
    let (end, mut raw, octets, _memory) = busy(Role::Passive);
    raw.octets(&octets);
    let done: Vec<_> = (0..5).map(|_| end.success().wr_id).collect();
    assert!(!done.contains(&1));
    raw.fin();
    end.event_like(|event| *event == AsyncEventKind::CloseComplete);
    assert_eq!((end.next().status, end.qp.state()), (Status::Flushed, QpState::Idle));
}

/// A reset by this end is a reset for the peer, with no Terminate (draft-hilland-rddp-verbs §6.2).
#[test]
fn an_abort_resets() {
    for role in BOTH {
        let (end, mut raw, _, _memory) = busy(role);
        (0..4).for_each(|_| drop(raw.segment()));
        end.qp.abort();
        let mut octets = Vec::new();
        let error = raw.socket.read_to_end(&mut octets).expect_err("an orderly end");
        assert_eq!((error.kind(), octets.len()), (ErrorKind::ConnectionReset, 0));
        assert_eq!((end.qp.state(), end.qp.terminate_sent()), (QpState::Error, None));
        check_order(&end);
        goes_on(&end.sibling());
    }
}
