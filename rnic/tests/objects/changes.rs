//! Properties of objects that a program chooses or changes: depths, rights, capacities.

use rddp_rnic::{
    Access, AsyncEventKind, Error, PostError, QpConfig, QpState, RecvWr, Remote, SendWr, Sge, SrqConfig, Stag,
};

use crate::common::device::{needs, needs_software};
use crate::common::{ALL, End, connect_on, exchange};

/// draft-hilland-rddp-verbs §6.3, §8.1: a queue of no requests takes none, of any kind.
#[test]
fn queues_of_depth_zero_take_nothing() {
    needs("Immediate Data", |device| device.immediate_len > 0);
    let idle = End::with(|config| (config.max_send, config.max_recv) = (0, 0));
    let region = idle.region(8, Access::LOCAL_WRITE);
    let there = Remote { stag: Stag(0x100), to: 0 };
    for wr in [
        SendWr::send_inline(1, b""),
        SendWr::write(2, region.whole(), there),
        SendWr::write_immediate(3, region.whole(), there, [0; 8]),
    ] {
        assert_eq!(idle.qp.post_send(&wr), Err(PostError::QueueFull { capacity: 0 }));
    }
    assert_eq!(idle.qp.post_recv(RecvWr::new(4, [])), Err(PostError::QueueFull { capacity: 0 }));
    let one = End::with(|config| config.max_send = 1);
    let source = one.region(8, ALL);
    let both = SendWr::write_immediate(5, source.whole(), there, [0; 8]);
    one.qp.post_send(&both).unwrap();
    assert_eq!(one.qp.post_send(&SendWr::send_inline(6, b"")), Err(PostError::QueueFull { capacity: 1 }));
    // Two that only receive or only send are enough for a connection.
    let (sender, receiver) =
        (End::with(|config| config.max_recv = 0), End::with(|config| config.max_send = 0));
    connect_on("127.0.0.1:0", &sender, &receiver, &Default::default(), &Default::default());
    exchange(&sender, &receiver);
}

/// The rights of a peer are the program's to change until the QP has a peer.
#[test]
fn rights_of_the_peer_change_until_the_qp_is_connected() {
    needs_software("an event of what the peer may not do");
    let (active, passive) = (End::new(), End::with(|config| config.inbound_read = false));
    assert_eq!(passive.qp.inbound(), Access::REMOTE_WRITE);
    passive.qp.set_inbound(Access::REMOTE_READ | Access::LOCAL_WRITE).unwrap();
    assert_eq!(passive.qp.inbound(), Access::REMOTE_READ);
    connect_on("127.0.0.1:0", &active, &passive, &Default::default(), &Default::default());
    assert!(matches!(passive.qp.set_inbound(Access::REMOTE), Err(Error::InUse(_))));
    let (there, here) = (passive.region(8, ALL), active.region(8, ALL));
    active.qp.post_send(&SendWr::read(1, here.whole(), there.remote(0))).unwrap();
    active.success();
    active.qp.post_send(&SendWr::write(2, here.whole(), there.remote(0))).unwrap();
    passive.event_like(|event| matches!(event, AsyncEventKind::Fault(_)));
    passive.await_state(QpState::Error);
    assert!(passive.qp.set_inbound(Access::REMOTE).is_err());
    assert!(passive.qp.reset());
    passive.qp.set_inbound(Access::REMOTE).unwrap();
}

/// draft-hilland-rddp-verbs §5.2.4: a queue grows, and shrinks to what it holds.
#[test]
fn a_completion_queue_is_resized_and_keeps_what_it_holds() {
    let end = End::new();
    end.qp.abort();
    let complete = |id| end.qp.post_send(&SendWr::send_inline(id, b"")).unwrap();
    end.cq.resize(2).unwrap();
    assert_eq!(end.cq.capacity(), 2);
    (1..=2).for_each(complete);
    assert!(matches!(end.cq.resize(1), Err(Error::InUse(_))));
    end.cq.resize(3).unwrap();
    complete(3);
    assert!(!end.cq.is_overflowed());
    let most = end.rnic.capabilities().max_cqes;
    for capacity in [0, most + 1, usize::MAX] {
        assert!(matches!(end.cq.resize(capacity), Err(Error::OutOfRange { max, .. }) if max == most));
    }
    assert_eq!(end.cq.capacity(), 3);
    assert_eq!(end.completions_of(1..=3).len(), 3);
    end.cq.resize(1).unwrap();
    (4..=5).for_each(complete);
    assert!(end.cq.is_overflowed());
}

/// draft-hilland-rddp-verbs §6.3: the limit is armed for one event.
#[test]
fn a_shared_receive_queue_tells_whether_its_limit_is_armed() {
    let end = End::new();
    let srq = end.pd.create_srq(SrqConfig { max_recv: 7, quota: None });
    assert_eq!((srq.capacity(), srq.limit()), (7, 0));
    (0..3).for_each(|id| srq.post_recv(RecvWr::new(id, [])).unwrap());
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&end.cq) };
    let passive = End { qp: end.pd.create_qp(&config).unwrap(), ..end };
    srq.arm_limit(3);
    assert_eq!(srq.limit(), 3);
    let active = End::new();
    connect_on("127.0.0.1:0", &active, &passive, &Default::default(), &Default::default());
    active.qp.post_send(&SendWr::send_inline(9, b"")).unwrap();
    passive.event_like(|event| *event == AsyncEventKind::SrqLimit);
    assert_eq!(srq.limit(), 0);
    srq.arm_limit(1);
    srq.arm_limit(0);
    assert_eq!(srq.limit(), 0, "disarmed");
}

/// With `until_polled` a request keeps its place as long as the program has not polled its
/// completion, in either queue; one that makes none until it is done.
#[test]
fn a_request_keeps_its_place_until_it_is_polled() {
    needs_software("Writes that are done when they are posted");
    let end = End::with(|config| {
        (config.max_send, config.max_recv, config.until_polled) = (2, 2, true);
    });
    let peer = End::new();
    connect_on("127.0.0.1:0", &end, &peer, &Default::default(), &Default::default());
    let (here, there) = (end.region(8, ALL), peer.region(8, ALL));
    let quiet = SendWr { signaled: false, ..SendWr::write(0, here.whole(), there.remote(0)) };
    for _ in 0..6 {
        end.qp.post_send(&quiet).unwrap();
    }
    let send = |id| end.qp.post_send(&SendWr { wr_id: id, signaled: true, ..quiet.clone() });
    let full = Err(PostError::QueueFull { capacity: 2 });
    assert_eq!([send(1), send(2), send(3)], [Ok(()), Ok(()), full]);
    assert_eq!(end.next().wr_id, 1);
    assert_eq!([send(4), send(5)], [Ok(()), full]);
    end.completions_of([2, 4]);
    // Whether they have been with a peer or not.
    let receive = |id| end.qp.post_recv(RecvWr::new(id, []));
    assert_eq!([receive(6), receive(7), receive(8)], [Ok(()), Ok(()), full]);
    peer.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    assert_eq!(end.next().wr_id, 6);
    assert_eq!(receive(9), Ok(()));
    end.qp.abort();
    assert_eq!(receive(10), full);
    end.completions_of([7, 9]);
    assert_eq!(receive(11), Ok(()));
    assert_eq!(end.next().wr_id, 11);
}

/// With `quiet_until_polled` so does a request that makes no completion, until that of a later one
/// has been polled.
#[test]
fn a_request_without_a_completion_keeps_its_place_until_a_later_one_is_polled() {
    let end = End::with(|config| {
        (config.max_send, config.until_polled, config.quiet_until_polled) = (3, true, true);
    });
    let peer = End::new();
    connect_on("127.0.0.1:0", &end, &peer, &Default::default(), &Default::default());
    let (here, there) = (end.region(8, ALL), peer.region(8, ALL));
    let write = |signaled| SendWr { signaled, ..SendWr::write(1, here.whole(), there.remote(0)) };
    let post = |signaled| end.qp.post_send(&write(signaled));
    let list = |signals: [bool; 2]| end.qp.post_sends(&signals.map(write));
    let full = PostError::QueueFull { capacity: 3 };
    assert_eq!([post(false), post(false), post(true), post(false)], [Ok(()), Ok(()), Ok(()), Err(full)]);
    end.completions_of([1]);
    assert_eq!((list([false, true]), post(false)), (Ok(()), Ok(())));
    end.completions_of([1]);
    // The last one has nothing behind it.
    assert_eq!(list([false, false]), Ok(()));
    assert_eq!(post(true), Err(full));
}

/// With `forgets_completions` those of a QP that is reset or dropped leave their queue, and its own
/// queues are empty. Others keep their completions, and have their places again with these.
#[test]
fn completions_leave_with_their_qp() {
    let with = |config: &mut QpConfig| {
        (config.max_send, config.max_recv) = (2, 2);
        (config.until_polled, config.forgets_completions) = (true, true);
    };
    let one = End::with(with);
    let (other, third) = (one.sibling_with(with), one.sibling());
    let post = |end: &End, id| end.qp.post_send(&SendWr::send_inline(id, b""));
    let full = Err(PostError::QueueFull { capacity: 2 });
    for end in [&one, &other, &third] {
        end.qp.abort();
    }
    for (id, end) in [&one, &other, &one, &third, &other].into_iter().enumerate() {
        post(end, id as u64).unwrap();
    }
    one.qp.post_recv(RecvWr::new(5, [])).unwrap();
    assert!(one.qp.reset() && third.qp.reset());
    one.qp.abort();
    assert_eq!([post(&one, 6), post(&one, 7), post(&one, 8)], [Ok(()), Ok(()), full]);
    drop(one.qp);
    assert_eq!(other.completions_of([1, 3, 4]).len(), 3);
    assert_eq!([post(&other, 9), post(&other, 10), post(&other, 11)], [Ok(()), Ok(()), full]);
    assert_eq!(other.completions_of([9, 10]).len(), 2);
}

/// A receive of a shared queue is no longer outstanding when its completion has left.
#[test]
fn a_shared_receive_is_free_when_its_completion_leaves() {
    let end = End::new();
    let srq = end.pd.create_srq(SrqConfig::default());
    let passive = end.sibling_with(|config| {
        (config.srq, config.forgets_completions) = (Some(srq.clone()), true);
    });
    connect_on("127.0.0.1:0", &end, &passive, &Default::default(), &Default::default());
    srq.post_recv(RecvWr::new(1, [])).unwrap();
    end.qp.post_send(&SendWr::send_inline(2, b"")).unwrap();
    let has_come = || {
        std::thread::sleep(std::time::Duration::from_millis(1));
        srq.is_empty()
    };
    assert!((0..20_000).any(|_| has_come()), "the message has not come");
    passive.qp.abort();
    assert_eq!(srq.outstanding(), 1);
    assert!(passive.qp.reset());
    assert_eq!((srq.outstanding(), end.success().wr_id), (0, 2));
}

/// A batch is posted as a whole, or nothing of it.
#[test]
fn a_batch_with_a_bad_request_posts_nothing() {
    let end = End::with(|config| config.max_send = 3);
    let fine = |id| SendWr::send_inline(id, b"");
    let there = Remote { stag: Stag(0x100), to: 0 };
    let unknown = SendWr::write(2, Sge { stag: Stag(7), addr: 0, len: 8 }, there);
    assert!(matches!(end.qp.post_batch(&[fine(1), unknown]), Err(PostError::Memory { .. })));
    let four = [fine(1), fine(2), fine(3), fine(4)];
    assert_eq!(end.qp.post_batch(&four), Err(PostError::QueueFull { capacity: 3 }));
    end.qp.post_batch(&[]).unwrap();
    end.qp.post_batch(&four[1..]).unwrap();
    end.qp.abort();
    assert_eq!(end.completions_of(2..=4).len(), 3);
    assert!(end.cq.poll_one().is_none());
}

/// draft-hilland-rddp-verbs §6.3: a shared queue grows, and shrinks to what it holds.
#[test]
fn a_shared_receive_queue_is_resized_and_keeps_what_it_holds() {
    let end = End::new();
    let srq = end.pd.create_srq(SrqConfig { max_recv: 1, quota: None });
    let post = |id| srq.post_recv(RecvWr::new(id, []));
    post(1).unwrap();
    assert_eq!(post(2), Err(PostError::QueueFull { capacity: 1 }));
    srq.resize(2).unwrap();
    post(2).unwrap();
    assert_eq!(post(3), Err(PostError::QueueFull { capacity: 2 }));
    assert!(matches!(srq.resize(1), Err(Error::InUse(_))));
    assert_eq!((srq.capacity(), srq.len()), (2, 2));
}
