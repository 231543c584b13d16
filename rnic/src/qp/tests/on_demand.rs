//! Faults that tests ask for.

use super::acknowledged::{LONG, completions, joined, sockets_joined};
use super::*;
use crate::{RecvWr, Status};

#[test]
fn a_request_fails_behind_those_before_it_and_the_peer_is_told_or_not() {
    for (status, told) in [(Status::RemoteAccess, Some(10)), (Status::LocalProtection, None)] {
        let (cq, [qp, other], [source, sink]) = joined();
        other.post_recv(RecvWr::one(9, sink.sge(0..8))).unwrap();
        let write = |id| SendWr::write(id, source.sge(0..LONG), sink.remote(0));
        qp.post_sends(&[write(1), write(2)]).unwrap();
        qp.fail_request(&write(3), status, told).unwrap();
        qp.post_send(&write(4)).unwrap();
        let state = if told.is_some() { QpState::Error } else { QpState::ReadyToSend };
        await_that("the peer goes on", || other.peer_addr().is_none() && other.state() == state);
        let wanted = [(1, Status::Success), (2, Status::Success), (3, status), (4, Status::Flushed)];
        assert_eq!(completions(&cq, &qp, 4), wanted);
    }
}

#[test]
fn a_connection_without_acknowledgements_fails_so_too() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qps = [0, 1].map(|_| pd.create_qp(&QpConfig::new(&cq)).unwrap());
    sockets_joined(&qps);
    let [qp, other] = &qps;
    other.post_recv(RecvWr::new(9, Vec::new())).unwrap();
    qp.fail_request(&SendWr::send_inline(1, b"hello"), Status::ReceiverNotReady, None).unwrap();
    assert_eq!(completions(&cq, qp, 1), [(1, Status::ReceiverNotReady)]);
    await_that("the peer goes on", || other.state() == QpState::Error);
}

#[test]
fn a_receive_fails_that_has_memory_of_nobody() {
    let (cq, [qp, other], [source, _]) = joined();
    let nobodys = crate::Sge { stag: Stag(u32::MAX), addr: 0, len: 8 };
    assert!(other.post_recv(RecvWr::one(9, nobodys)).is_err(), "is found when it is posted");
    other.post_recv_unchecked(RecvWr::one(9, nobodys)).unwrap();
    qp.post_send(&SendWr::send(1, source.sge(0..8))).unwrap();
    assert_eq!(completions(&cq, &other, 1), [(9, Status::LocalProtection)]);
}

#[test]
fn requests_that_are_posted_later_have_their_places() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig { max_send: 2, ..QpConfig::new(&cq) }).unwrap();
    let hello = SendWr::send_inline(1, b"hello");
    assert!(qp.check_request(&hello, 1).is_ok() && qp.check_request(&hello, 2).is_err());
    qp.post_send(&hello).unwrap();
    assert!(qp.check_request(&hello, 0).is_ok() && qp.check_request(&hello, 1).is_err());
    assert_eq!(qp.outstanding(), 1, "nothing was posted but the one");
    let nobodys = crate::Sge { stag: Stag(u32::MAX), addr: 0, len: 8 };
    assert!(qp.check_request(&SendWr::send(2, nobodys), 0).is_err(), "its memory is nobody's");
}

#[test]
fn what_is_reset_is_noticed_by_the_next_request() {
    let (cq, [qp, other], _) = joined();
    assert!(qp.lose_peer());
    await_that("the peer goes on", || other.peer_addr().is_none());
    for qp in [&qp, &other] {
        assert_eq!(qp.state(), QpState::ReadyToSend);
        qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
        assert_eq!(completions(&cq, qp, 1), [(1, Status::Unanswered)]);
    }
}
