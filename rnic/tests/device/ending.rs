//! Ends of connections: of each request the program is told once, and not before the device has
//! done with it.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use rddp_rnic::{Access, AsyncEvent, AsyncEventKind, EventSink, QpConfig, QpState, RecvWr, SendWr, Status};
use rddp_verbs_device::Event;

use crate::support::{End, Kind, completion, event, host, quirk};

const KINDS: [Kind; 3] = [Kind::Siw, Kind::Rxe, Kind::Adapter];

#[test]
fn this_end_closes_in_order() {
    for kind in KINDS {
        let host = host(&format!("closes{}", kind as u8), kind, quirk::SLOW);
        let (end, mut peer) = host.pair();
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        peer.post_receive(&RecvWr::new(2, Vec::new())).unwrap();
        end.qp.post_send(&SendWr::send_inline(3, b"")).unwrap();
        assert_eq!(end.next().wr_id, 3);
        end.qp.disconnect();
        assert_eq!(completion(&mut peer).status, Status::Success);
        assert!(matches!(event(&mut peer), Event::Disconnected));
        assert_eq!(host.event().kind, AsyncEventKind::CloseComplete, "{kind:?}");
        assert_eq!(end.qp.state(), QpState::Idle);
        let flushed = end.next();
        assert_eq!((flushed.wr_id, flushed.status), (1, Status::Flushed));
        // It may be connected anew.
        drop(peer);
        host.pair_of(&end);
    }
}

/// By software such a message has gone out with the call, and completed.
#[test]
fn a_close_carries_out_what_the_device_has() {
    for kind in KINDS {
        let host = host(&format!("closes_busy{}", kind as u8), kind, quirk::SLOW);
        let (end, mut peer) = host.pair();
        peer.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        end.qp.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
        end.qp.disconnect();
        assert_eq!(host.event().kind, AsyncEventKind::CloseComplete, "{kind:?}");
        assert_eq!(completion(&mut peer).status, Status::Success);
        assert!(matches!(event(&mut peer), Event::Disconnected));
    }
}

#[test]
fn the_peer_closes_in_order() {
    for kind in KINDS {
        let host = host(&format!("peer_closes{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        let inbox = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        end.qp.post_recv(RecvWr::one(2, inbox.whole())).unwrap();
        peer.post_send(&SendWr::send(3, Vec::new())).unwrap();
        peer.close();
        let told = [end.next(), end.next()].map(|told| (told.wr_id, told.status));
        assert_eq!(told, [(1, Status::Success), (2, Status::Flushed)], "{kind:?}");
        assert_eq!(host.event().kind, AsyncEventKind::CloseComplete);
        assert_eq!(end.qp.state(), QpState::Idle);
    }
}

#[test]
fn a_request_that_the_peer_refuses_ends_the_connection() {
    let host = host("refused", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let gone = host.memory(8);
    let place = gone.remote().unwrap();
    drop(gone);
    let region = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    end.qp.post_recv(RecvWr::one(1, region.whole())).unwrap();
    end.qp.post_send(&SendWr::write(2, region.whole(), place).unsignaled()).unwrap();
    let told = [end.next(), end.next()].map(|told| (told.wr_id, told.status));
    assert_eq!(told, [(2, Status::RemoteAccess), (1, Status::Flushed)]);
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(end.qp.state(), QpState::Error);
    // The device tells the peer nothing.
    assert!(matches!(event(&mut peer), Event::Disconnected));
    assert!(end.qp.reset());
    host.pair_of(&end);
}

/// A device says things that mislead of a request that has failed, but for its number and status.
#[test]
fn a_receive_that_fails_is_told_as_one() {
    for kind in KINDS {
        let host = host(&format!("too_long{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        let memory = host.memory(8);
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        end.qp.post_recv(RecvWr::new(2, [])).unwrap();
        peer.post_send(&SendWr::send(3, memory.piece(0, 8))).unwrap();
        let told = [end.next(), end.next()].map(|told| (told.wr_id, told.status, told.byte_len));
        assert_eq!(told, [(1, Status::MessageTooLong, 0), (2, Status::Flushed, 0)], "{kind:?}");
    }
}

/// The error number comes with the other sign on siw: taken for success, nobody would hear of the
/// request again.
#[test]
fn a_request_that_the_device_refuses_fails() {
    for kind in [Kind::Siw, Kind::Rxe] {
        let host = host(&format!("user{}", kind as u8), kind, quirk::CREDENTIALS);
        let (end, _peer) = host.pair();
        end.qp.post_send(&SendWr::send_inline(1, b"x")).unwrap();
        let told = end.next();
        assert_eq!((told.wr_id, told.status), (1, Status::Credentials), "{kind:?}");
        assert!(told.status.to_string().contains("user"), "the program is told what has happened");
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

#[test]
fn a_receive_that_the_device_refuses_says_why() {
    for kind in [Kind::Siw, Kind::Rxe] {
        let host = host(&format!("user_receives{}", kind as u8), kind, quirk::CREDENTIALS);
        let (end, _peer) = host.pair();
        for wr_id in [1, 2] {
            // The connection may be lost by the first.
            let _ = end.qp.post_recv(RecvWr::new(wr_id, []));
        }
        let told = [end.next(), end.next()].map(|told| (told.wr_id, told.status));
        assert_eq!(told, [(1, Status::Credentials), (2, Status::Flushed)], "{kind:?}");
    }
}

#[test]
fn a_read_on_a_connection_without_reads_fails() {
    let host = host("ord0", Kind::Rxe, 0);
    let end = host.end();
    let none = rddp_rnic::ConnectOptions { ord: 0, ..Default::default() };
    let (_, _peer) = host.connect_with(&end, &none, rddp_verbs_device::Offer::default());
    let (region, there) = (end.pd.allocate(8, Access::LOCAL_WRITE).unwrap(), host.memory(8));
    end.qp.post_send(&SendWr::read(1, region.whole(), there.remote().unwrap())).unwrap();
    assert_eq!(end.next().status, Status::LocalOperation);
}

/// Memory may end once its receive is told to be flushed: by then, the device writes there
/// no more.
#[test]
fn a_queue_pair_is_gone_before_what_it_had_is_flushed() {
    let host = host("before", Kind::Rxe, quirk::SLOW);
    let (end, _peer) = host.pair();
    end.qp.post_recv(RecvWr::new(1, [])).unwrap();
    let with_it = host.objects();
    std::thread::scope(|scope| {
        scope.spawn(|| end.qp.abort());
        let flushed = std::iter::repeat_with(|| end.cq.poll_one()).flatten().next().unwrap();
        let left = host.objects();
        assert_eq!((flushed.wr_id, flushed.status), (1, Status::Flushed));
        assert!(left < with_it, "of {with_it} objects, {left} are left");
    });
}

#[test]
fn requests_before_the_end_of_the_program_are_carried_out() {
    let host = host("drop", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let memory = host.memory(8);
    end.qp.post_send(&SendWr::send_inline(2, b"last").unsignaled()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(end));
        // The message waits for a receive, and its queue pair for the message.
        std::thread::sleep(std::time::Duration::from_millis(50));
        peer.post_receive(&RecvWr::one(1, memory.piece(0, 8))).unwrap();
        assert_eq!(completion(&mut peer).byte_len, 4);
    });
    assert!(matches!(event(&mut peer), Event::Disconnected));
    drop((peer, memory));
    host.until_nothing_is_left();
}

/// The message waits for a receive of the peer's, which posts none.
#[test]
fn the_end_of_the_program_does_not_wait_for_ever() {
    let host = host("forever", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    end.qp.post_send(&SendWr::send_inline(1, b"x").unsignaled()).unwrap();
    drop(end);
    assert!(matches!(event(&mut peer), Event::Disconnected));
}

/// The message waits for a receive, and the peer leaves: its end is a reason to stop, and none to
/// look again and again.
#[test]
fn a_peer_that_leaves_ends_the_wait_for_the_last_requests() {
    let host = host("drop_left", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    end.qp.post_send(&SendWr::send_inline(1, b"x").unsignaled()).unwrap();
    let before = host.looks();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(end));
        host.until(|| host.looks() > before);
        peer.close();
    });
    assert!(host.looks() - before < 1000, "{} looks", host.looks() - before);
}

/// Neither a thread that waits for the same completion queue nor the background thread does.
#[test]
fn nobody_else_waits_for_the_last_requests_of_a_dropped_queue_pair() {
    let host = host("drop_beside", Kind::Rxe, quirk::SLOW);
    let (end, mut peer) = host.pair();
    let config = QpConfig { max_send: 8, max_recv: 8, ..QpConfig::new(&end.cq) };
    let beside = End { qp: end.pd.create_qp(&config).unwrap(), cq: end.cq.clone(), pd: host.rnic.alloc_pd() };
    let memory = host.memory(8);
    end.qp.post_send(&SendWr::send_inline(1, b"last").unsignaled()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(end));
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut other = host.connect(&beside);
        other.post_receive(&RecvWr::new(2, Vec::new())).unwrap();
        beside.qp.post_send(&SendWr::send_inline(3, b"")).unwrap();
        assert_eq!(beside.next().wr_id, 3);
        peer.post_receive(&RecvWr::one(4, memory.piece(0, 8))).unwrap();
        assert_eq!(completion(&mut peer).byte_len, 4, "the drop was over before");
    });
}

/// A request of the connection's own is under way, and nobody looks after it.
#[test]
fn a_close_in_order_does_not_wait_for_ever() {
    let host = host("close_stalled", Kind::Siw, quirk::STALLED);
    let (end, _peer) = host.pair();
    end.qp.disconnect();
    assert_eq!(host.event().kind, AsyncEventKind::CloseComplete);
}

/// Keeps the background thread, which tells it of an event, until the channel's other end goes.
#[derive(Debug)]
struct Keeper(Mutex<Receiver<()>>);

impl EventSink for Keeper {
    fn take(&self, event: AsyncEvent) {
        if event.kind != AsyncEventKind::Connected {
            let _ = self.0.lock().unwrap().recv();
        }
    }
}

/// A message may come between the last look for completions and the news of the end, which both are
/// there before this end is looked at.
#[test]
fn a_message_just_before_the_end_is_told_before_it() {
    let host = host("just_before", Kind::Rxe, quirk::BEHIND);
    let (end, mut peer) = host.pair();
    (1..3).for_each(|wr_id| end.qp.post_recv(RecvWr::new(wr_id, [])).unwrap());
    let (mut beside, (kept, keeper)) = (host.end(), channel());
    let config =
        QpConfig { event_sink: Some(Arc::new(Keeper(Mutex::new(keeper)))), ..QpConfig::new(&beside.cq) };
    beside.qp = beside.pd.create_qp(&config).unwrap();
    host.connect(&beside).close();
    // The thread is kept by then.
    assert_eq!(host.event().qp, beside.qp.num());
    peer.post_send(&SendWr::send(3, Vec::new())).unwrap();
    let mut sent = Vec::new();
    while sent.is_empty() {
        peer.poll(&mut sent).unwrap();
    }
    peer.close();
    drop(kept);
    while host.event().qp != end.qp.num() {}
    let told = [end.next(), end.next()].map(|told| (told.wr_id, told.status));
    assert_eq!(told, [(1, Status::Success), (2, Status::Flushed)]);
}

#[test]
fn a_device_that_is_gone_fails_its_queue_pairs() {
    let host = host("removed", Kind::Siw, 0);
    let (end, _peer) = host.pair();
    end.qp.post_recv(RecvWr::new(1, [])).unwrap();
    host.remove();
    assert_eq!(end.next().status, Status::Flushed);
    assert_eq!(host.event().kind, AsyncEventKind::DeviceFailed);
    assert_eq!(end.qp.state(), QpState::Error);
}

/// The end that has refused a peer is told of no reason: what is flushed is all that it learns.
#[test]
fn an_end_without_an_event_is_noticed() {
    let host = host("untold", Kind::Rxe, 0);
    let (end, mut peer) = host.pair();
    let closed = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    end.qp.post_recv(RecvWr::one(1, closed.whole())).unwrap();
    let memory = host.memory(8);
    let nowhere = rddp_rnic::Remote { stag: rddp_rnic::Stag(1), to: 0 };
    // The peer's own endpoint does not look: nobody disconnects.
    peer.post_send(&SendWr::write(2, memory.piece(0, 8), nowhere)).unwrap();
    assert_eq!(end.next().status, Status::Flushed);
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    assert_eq!(completion(&mut peer).status, Status::RemoteAccess);
}

/// A fault of this end is told as a flush, and nothing else comes: the device takes the region away
/// as the peer wishes, of which the program learns nothing there.
#[test]
fn an_end_by_a_flush_alone_is_noticed() {
    let host = host("flush_alone", Kind::Siw, quirk::FLUSHED | quirk::UNTOLD);
    let (end, mut peer) = host.pair();
    let region = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    end.qp.post_recv(RecvWr::new(1, [])).unwrap();
    peer.post_send(&SendWr::send_invalidate(2, Vec::new(), region.remote(0).stag)).unwrap();
    assert_eq!(end.next().wr_id, 1);
    end.qp.post_send(&SendWr::send(3, region.whole())).unwrap();
    assert_eq!(host.event().kind, AsyncEventKind::ConnectionLost);
    let told = end.next();
    assert_eq!((told.wr_id, told.status), (3, Status::Flushed));
}

/// The peer names the region as the device does, and the program as the table.
#[test]
fn a_region_that_a_peer_has_invalidated_is_told_by_its_own_name() {
    for kind in [Kind::Rxe, Kind::Adapter] {
        let host = host(&format!("invalidated{}", kind as u8), kind, 0);
        let (end, mut peer) = host.pair();
        let region = end.pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        end.qp.post_recv(RecvWr::new(1, [])).unwrap();
        let key = region.remote(0).stag;
        assert_ne!(key, region.stag());
        peer.post_send(&SendWr::send_invalidate(2, Vec::new(), key)).unwrap();
        assert_eq!(end.next().invalidated, Some(region.stag()), "{kind:?}");
    }
}
