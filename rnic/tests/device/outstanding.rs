//! Requests that are under way when something happens to them, to their connection or to its peer.

use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, ConnectOptions, Keepalive, PostError, QpConfig, QpState, RecvWr, SendWr, Sge,
    Stag, Status,
};
use rddp_verbs_device::Offer;

use crate::support::{Kind, completion, host, quirk};

/// A Write goes in several, a short Send is copied, and what cannot be made up for is refused.
#[test]
fn requests_have_more_pieces_than_the_device_takes() {
    let host = host("pieces", Kind::Siw, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(1024);
    let region = end.pd.allocate(1024, Access::LOCAL_WRITE).unwrap();
    let octets: Vec<u8> = (0..1024).map(|at| at as u8).collect();
    region.write(0, &octets).unwrap();
    let max = host.rnic.capabilities().max_sge;
    let backwards = |count: usize, len| -> Vec<_> {
        (0..count).rev().map(|at| region.sge(at * len..(at + 1) * len)).collect()
    };
    let expected = |count: usize, len| -> Vec<u8> {
        octets[..count * len].chunks(len).rev().flatten().copied().collect()
    };
    let mut got = vec![0; 3 * max + 1];
    end.qp.post_send(&SendWr::write(1, backwards(3 * max + 1, 1), there.remote().unwrap())).unwrap();
    assert_eq!((end.next().wr_id, end.cq.poll_one()), (1, None));
    there.read(0, &mut got);
    assert_eq!(got, expected(3 * max + 1, 1));
    for (round, len) in [1, 50].into_iter().enumerate() {
        peer.post_receive(&RecvWr::one(2, there.piece(0, 1024))).unwrap();
        end.qp.post_send(&SendWr::send(round as u64, backwards(max + 1, len))).unwrap();
        let mut got = vec![0; (max + 1) * len];
        assert_eq!(completion(&mut peer).byte_len as usize, got.len());
        there.read(0, &mut got);
        assert_eq!((end.next().status, got), (Status::Success, expected(max + 1, len)));
    }
    let refused = Err(PostError::TooManySges { count: max + 1, max });
    assert_eq!(end.qp.post_send(&SendWr::send(4, backwards(max + 1, 100))), refused);
}

/// A piece of no octets names no memory.
#[test]
fn pieces_of_no_octets_need_no_memory() {
    let host = host("empty", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    peer.post_receive(&RecvWr::one(1, there.piece(0, 8))).unwrap();
    let nowhere = Sge { stag: Stag(0), addr: 0, len: 0 };
    end.qp.post_send(&SendWr::send(2, vec![nowhere, region.sge(..3)])).unwrap();
    assert_eq!((end.next().status, completion(&mut peer).byte_len), (Status::Success, 3));
}

/// The octets are where the next requests do not write, for as long as the device may send them.
#[test]
fn inline_octets_stay_until_they_are_sent() {
    let host = host("stay", Kind::Adapter, 0);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    for round in 0..8 {
        end.qp.post_send(&SendWr::send_inline(round.into(), &[round])).unwrap();
    }
    for round in 0..8 {
        peer.post_receive(&RecvWr::one(round, there.piece(round as usize, 1))).unwrap();
    }
    (0..8).for_each(|round| assert_eq!(end.next().wr_id, round));
    let mut octets = [0; 8];
    there.read(0, &mut octets);
    assert_eq!(octets, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A Write in parts is one request: its first part tells nobody of its success.
#[test]
fn a_part_that_is_refused_fails_its_request() {
    const MOST: usize = 8 << 20;
    let host = host("part", Kind::Rxe, 0);
    let (end, _peer) = host.pair();
    let there = host.memory(MOST);
    let from = end.pd.allocate(MOST + 1, Access::LOCAL_WRITE).unwrap();
    end.qp.post_send(&SendWr::write(1, from.whole(), there.remote().unwrap())).unwrap();
    let told = end.next();
    assert_eq!((told.wr_id, told.status), (1, Status::RemoteAccess));
    host.until(|| end.qp.state() == QpState::Error);
    assert!(end.cq.poll_one().is_none(), "it is told once");
}

#[test]
fn a_local_fence_waits_for_what_is_before_it() {
    let host = host("fence", Kind::Rxe, quirk::SLOW);
    let (end, mut peer) = host.pair();
    let there = host.memory(8);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    peer.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
    end.qp.post_send(&SendWr::read(2, region.whole(), there.remote().unwrap())).unwrap();
    end.qp.post_send(&SendWr { local_fence: true, ..SendWr::send_inline(3, b"") }).unwrap();
    // Nobody but the background thread looks after this end meanwhile.
    assert_eq!(completion(&mut peer).status, Status::Success);
    assert_eq!(end.cq.poll_one().map(|told| told.wr_id), Some(2), "the Read is over by then");
    assert_eq!(end.next().wr_id, 3);
}

#[test]
fn a_peer_that_leaves_with_requests_under_way_is_lost() {
    let host = host("leaves", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    // No receive waits for it.
    end.qp.post_send(&SendWr::send_inline(1, b"x")).unwrap();
    peer.close();
    let told = end.next();
    assert_eq!((told.wr_id, told.status), (1, Status::Flushed));
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// The rights of the queue pair stand above those of its memory.
#[test]
fn a_peer_has_no_more_rights_than_the_queue_pair_gives() {
    let host = host("inbound", Kind::Rxe, 0);
    let mut end = host.end();
    let config = QpConfig { inbound_write: false, ..QpConfig::new(&end.cq) };
    end.qp = end.pd.create_qp(&config).unwrap();
    let mut peer = host.connect(&end);
    let there = host.memory(8);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    peer.post_send(&SendWr::write(1, there.piece(0, 8), region.remote(0))).unwrap();
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
}

/// Without a receive that would be flushed, too, the end is one by a fault all the same.
#[test]
fn a_request_that_fails_alone_loses_the_connection() {
    let host = host("alone", Kind::Rxe, 0);
    let (end, _peer) = host.pair();
    let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let nowhere = rddp_rnic::Remote { stag: Stag(1), to: 0 };
    end.qp.post_send(&SendWr::write(1, region.whole(), nowhere)).unwrap();
    assert_eq!(end.next().status, Status::RemoteAccess);
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// The link is cut, and nobody sends anything.
#[test]
fn a_peer_that_vanishes_is_noticed_while_nothing_is_sent() {
    let host = host("vanishes", Kind::Rxe, 0);
    let end = host.end();
    let keepalive = Some(Keepalive { idle: Duration::from_millis(20), ..Keepalive::default() });
    let options = ConnectOptions { keepalive, ..ConnectOptions::default() };
    let (_, _peer) = host.connect_with(&end, &options, Offer::default());
    host.cut();
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
}
