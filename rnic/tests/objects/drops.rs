//! Objects that are dropped in odd orders leave nothing behind.

use std::any::Any;
use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, ConnectOptions, QpConfig, QueuePair, RecvWr, Remote, SendWr, SrqConfig, Stag,
};
use rddp_test_support::{Random, Sleeper, connect, plain, read_to_end, segment};

use crate::alone;
use crate::common::raw::{self, BOTH, Role, client_server, connect_raw, open_for};
use crate::common::{ALL, End, PATIENCE, connected};

/// Makes objects of all kinds of one device, the QP connected and busy, and drops them
/// in the order of `order`.
fn drop_in_order(order: impl Iterator<Item = usize>, role: Role) {
    let rnic = rddp_rnic::Rnic::open().unwrap();
    let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
    let (cq, other_cq) = (rnic.create_cq_on(&channel, 64).unwrap(), rnic.create_cq(64).unwrap());
    let srq = pd.create_srq(SrqConfig { quota: Some(8), ..Default::default() });
    let config = QpConfig { recv_cq: other_cq.clone(), srq: Some(srq.clone()), ..QpConfig::new(&cq) };
    let qp = pd.create_qp(&config).unwrap();
    let end = End { rnic: rnic.clone(), pd: pd.clone(), cq: cq.clone(), qp };
    let mut raw = connect_raw(role, &end, &client_server(), &plain());
    open_for(&mut raw, &end);
    let End { qp, .. } = end;
    let (region, window) = (pd.allocate(8 << 20, ALL).unwrap(), pd.allocate_window().unwrap());
    let rights = rddp_rnic::Access::REMOTE_READ;
    qp.post_send(&SendWr::bind(1, window.stag(), region.sge(0..64), rights)).unwrap();
    srq.post_recv(RecvWr::one(1, region.sge(0..64))).unwrap();
    let remote = Remote { stag: Stag(1), to: 0 };
    qp.post_send(&SendWr::write(2, region.whole(), remote)).unwrap();
    qp.post_send(&SendWr::read(3, region.sge(0..64), remote)).unwrap();
    raw.send(&segment::send(1, 0, false, b"half a message"));
    raw.send(&raw::read_from(1, &region, 8 << 20));
    let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &client_server()).unwrap();
    let silent = connect(listener.local_addr().unwrap());
    let mut asking = connect(listener.local_addr().unwrap());
    let initiator = rddp_mpa::Initiator::new(&plain(), b"").unwrap();
    std::io::Write::write_all(&mut asking, initiator.request()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap().unwrap();
    cq.arm(false);
    let mut objects: Vec<Option<Box<dyn Any>>> = vec![
        Some(Box::new(rnic)),
        Some(Box::new(pd)),
        Some(Box::new(channel)),
        Some(Box::new(cq)),
        Some(Box::new(other_cq)),
        Some(Box::new(srq)),
        Some(Box::new(qp)),
        Some(Box::new(region)),
        Some(Box::new(window)),
        Some(Box::new(listener)),
        Some(Box::new(request)),
    ];
    for which in order {
        drop(objects[which].take());
    }
    assert!(objects.iter().all(Option::is_none), "not all were in the order");
    // Every peer learns that its connection is over.
    for socket in [&raw.socket, &silent, &asking] {
        read_to_end(socket);
    }
}

const OBJECTS: usize = 11;

fn every_order(rounds: u32) {
    drop_in_order(0..OBJECTS, Role::Active);
    drop_in_order((0..OBJECTS).rev(), Role::Passive);
    let mut random = Random::new(1);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..OBJECTS).collect();
        for i in (1..OBJECTS).rev() {
            order.swap(i, random.below(i + 1));
        }
        drop_in_order(order.into_iter(), BOTH[round as usize % 2]);
    }
}

/// Dropping objects in any order leaves no descriptor and no thread.
#[test]
fn objects_may_go_in_any_order() {
    if !alone("drops::objects_may_go_in_any_order") {
        return;
    }
    let before = crate::in_use();
    every_order(100);
    crate::assert_in_use(before);
}

/// A QP may be dropped while another thread waits on its queue: the thread gets the flushed
/// completions, and goes on waiting.
#[test]
fn a_qp_may_go_while_its_queue_is_waited_on() {
    for role in BOTH {
        let end = End::new();
        let mut raw = connect_raw(role, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
        for id in 0..5 {
            end.qp.post_recv(RecvWr::new(id, [])).unwrap();
        }
        let End { qp, cq, .. } = end;
        let sleeper = Sleeper::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                sleeper.is_here();
                (0..5)
                    .map(|_| {
                        assert!(cq.wait(Some(PATIENCE)).unwrap(), "asleep");
                        cq.poll_one().unwrap().wr_id
                    })
                    .collect::<Vec<_>>()
            });
            sleeper.await_asleep();
            drop(qp);
            assert_eq!(waiting.join().unwrap(), [0, 1, 2, 3, 4]);
        });
        assert!(!cq.wait(Some(Duration::from_millis(5))).unwrap());
        assert_eq!(raw.recv(), None);
    }
}

/// A queue pair of one device cannot report to another.
#[test]
fn objects_of_different_devices_do_not_mix() {
    let (a, b) = (End::new(), End::new());
    for config in [
        QpConfig::new(&b.cq),
        QpConfig { send_cq: b.cq.clone(), ..QpConfig::new(&a.cq) },
        QpConfig { recv_cq: b.cq.clone(), ..QpConfig::new(&a.cq) },
        QpConfig { srq: Some(b.pd.create_srq(SrqConfig::default())), ..QpConfig::new(&a.cq) },
    ] {
        let refused = a.pd.create_qp(&config).map(drop).unwrap_err();
        assert!(matches!(refused, rddp_rnic::Error::Foreign(_)), "{refused}");
    }
    assert_eq!((a.rnic.qp_count(), b.rnic.qp_count()), (1, 1));
    let zero = a.rnic.create_cq(0).map(drop).unwrap_err();
    assert!(matches!(zero, rddp_rnic::Error::OutOfRange { .. }), "{zero}");
}

/// A destructor of thread-local data may drop objects, even if that needs thread-local memory that
/// is gone by then.
#[test]
fn connections_can_be_used_and_dropped_by_a_thread_that_ends() {
    struct Last(std::cell::RefCell<Option<(End, End)>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let Some((one, other)) = self.0.take() else { return };
            let inbox = other.region(64, Access::LOCAL_WRITE);
            other.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
            one.qp.post_send(&SendWr::send_inline(1, b"the last word")).unwrap();
            one.success();
            other.success();
            one.qp.disconnect();
        }
    }
    thread_local! {
        // First, and so dropped last.
        static LAST: Last = const { Last(std::cell::RefCell::new(None)) };
    }
    let ended = std::thread::spawn(|| {
        LAST.with(|last| {
            last.0.replace(None);
        });
        let ends = connected(&ConnectOptions::default());
        LAST.with(|last| last.0.replace(Some(ends)));
    });
    ended.join().unwrap();
}

/// Handles are equal: the QP ends with the last of them, whichever that is.
#[test]
fn a_qp_lives_as_long_as_one_of_its_handles() {
    let (active, passive) = connected(&ConnectOptions::default());
    let End { qp: first, pd, .. } = &active;
    let others = [first.clone(), first.clone()];
    assert_eq!(others.each_ref().map(QueuePair::num), [first.num(); 2]);
    assert_eq!(pd.users(), 1);
    let inbox = passive.region(8, Access::LOCAL_WRITE);
    for (id, qp) in others.into_iter().enumerate() {
        passive.qp.post_recv(RecvWr::one(id as u64, inbox.whole())).unwrap();
        std::thread::spawn(move || qp.post_send(&SendWr::send_inline(1, b"here")).unwrap()).join().unwrap();
        active.success();
        assert_eq!(passive.success().byte_len, 4);
    }
    assert_eq!(pd.users(), 1);
    let End { qp, pd, .. } = active;
    drop(qp);
    assert_eq!(pd.users(), 0);
    assert!(passive.event_like(AsyncEventKind::is_end).is_end());
}
