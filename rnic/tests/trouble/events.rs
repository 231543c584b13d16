//! Asynchronous events: their receivers, and the objects that they name
//! (draft-hilland-rddp-verbs §8.3.3).

use std::sync::{Arc, Mutex};

use rddp_rnic::{
    Access, AsyncEvent, AsyncEventKind, CqNum, Element, Error, EventQueue, EventSink, QpConfig, QpNum,
    QpState, QueuePair, RecvWr, Rnic, RnicConfig, SrqConfig, Status,
};
use rddp_test_support::{Peer, plain, segment};

use crate::common::raw::{Role, client_server, connect_raw, open_for};
use crate::common::{End, PATIENCE};

/// Keeps what it takes.
#[derive(Debug, Default)]
struct Kept {
    taken: Mutex<Vec<AsyncEvent>>,
    forgotten: Mutex<Vec<QpNum>>,
}

impl EventSink for Kept {
    fn take(&self, event: AsyncEvent) {
        self.taken.lock().unwrap().push(event);
    }

    fn forget(&self, qp: QpNum) {
        self.forgotten.lock().unwrap().push(qp);
    }
}

/// A QP towards a raw peer, which has sent its first FPDU.
fn connected(change: impl FnOnce(&mut QpConfig)) -> (End, Peer) {
    let end = End::with(change);
    let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
    open_for(&mut raw, &end);
    (end, raw)
}

#[test]
fn a_sink_takes_what_the_queue_takes_and_learns_that_a_qp_is_gone() {
    let sink = Arc::new(Kept::default());
    let (end, mut raw) = connected(|config| config.event_sink = Some(sink.clone()));
    let num = end.qp.num();
    raw.send(&[]);
    let fault = end.event_like(|event| matches!(event, AsyncEventKind::Fault(_)));
    // The queue has it first: the sink has been called when the QP's lock is free again.
    end.await_state(QpState::Error);
    let taken: Vec<_> = sink.taken.lock().unwrap().iter().map(|event| event.kind.clone()).collect();
    assert_eq!(taken[..2], [AsyncEventKind::Established, fault]);
    assert!(sink.taken.lock().unwrap().iter().all(|event| event.element == Element::Qp(num)));
    assert!(sink.forgotten.lock().unwrap().is_empty());
    drop(end.qp);
    assert_eq!(*sink.forgotten.lock().unwrap(), [num]);
}

/// Panics at each event, and when a QP is gone.
#[derive(Debug)]
struct Panics;

impl EventSink for Panics {
    fn take(&self, event: AsyncEvent) {
        panic!("at {event:?}");
    }

    fn forget(&self, qp: QpNum) {
        panic!("at the end of {qp:?}");
    }
}

#[test]
fn a_sink_that_panics_costs_no_event_and_no_connection() {
    let (end, raw) = connected(|config| config.event_sink = Some(Arc::new(Panics)));
    raw.fin();
    assert_eq!([end.event(), end.event()], [AsyncEventKind::Established, AsyncEventKind::CloseComplete]);
    assert_eq!(end.qp.state(), QpState::Idle);
    drop(end.qp);
}

/// A QP may have a queue and a sink of its own besides.
#[test]
fn a_sink_of_the_device_takes_the_events_of_all_its_qps() {
    let [of_device, of_qp] = [0, 1].map(|_| Arc::new(Kept::default()));
    let config = RnicConfig { event_sink: Some(of_device.clone()), ..RnicConfig::default() };
    let rnic = Rnic::with_config(&config).unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16).unwrap());
    let queue = EventQueue::new().unwrap();
    let [plain, special] = [false, true].map(|is_special| {
        let srq = pd.create_srq(SrqConfig::default());
        let mut config = QpConfig::new(&cq);
        config.srq = Some(srq.clone());
        if is_special {
            config.event_sink = Some(of_qp.clone());
            config.events = Some(queue.clone());
        }
        let qp = pd.create_qp(&config).unwrap();
        srq.arm_limit(1);
        AsyncEvent::new(qp.num(), Element::Srq(srq.num()), AsyncEventKind::SrqLimit)
    });
    assert_eq!(*of_device.taken.lock().unwrap(), [plain.clone(), special.clone()]);
    assert_eq!(of_qp.taken.lock().unwrap().as_slice(), std::slice::from_ref(&special));
    // The QPs are gone, but the events are about their queues.
    assert_eq!((rnic.async_event(), queue.next_event()), (Some(plain.clone()), Some(special.clone())));
    assert_eq!(*of_device.forgotten.lock().unwrap(), [plain.qp, special.qp]);
    assert_eq!(*of_qp.forgotten.lock().unwrap(), [special.qp]);
}

/// The numbers in events are the device's own, so events of two devices could not be told apart.
#[test]
fn an_event_queue_serves_one_device() {
    let queue = EventQueue::new().unwrap();
    let with_queue = |end: &End| {
        let mut config = QpConfig::new(&end.cq);
        config.events = Some(queue.clone());
        end.pd.create_qp(&config)
    };
    let (one, other) = (End::new(), End::new());
    let _qps = [0, 1].map(|_| with_queue(&one).unwrap());
    let error = with_queue(&other).unwrap_err();
    assert!(matches!(error, Error::Foreign("an event queue")), "{error:?}");
}

/// `IBV_EVENT_QP_LAST_WQE_REACHED` of `ibv_get_async_event(3)`: the program may then drop the QP,
/// or leave the receives to others.
#[test]
fn a_qp_in_error_says_that_it_takes_no_more_from_a_shared_queue() {
    let device = End::new();
    let srq = device.pd.create_srq(SrqConfig::default());
    let inbox = device.region(64, Access::LOCAL_WRITE);
    (0..4).for_each(|id| srq.post_recv(RecvWr::one(id, inbox.whole())).unwrap());
    let ends: [fn(&QueuePair); 2] = [QueuePair::abort, QueuePair::terminate];
    for (shares, ends) in [true, false].into_iter().flat_map(|shares| ends.map(|ends| (shares, ends))) {
        let mut config = QpConfig::new(&device.cq);
        config.srq = shares.then(|| srq.clone());
        let end = End { qp: device.pd.create_qp(&config).unwrap(), ..device.sibling() };
        let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
        if shares {
            // A message that begins and does not end.
            let before = srq.len();
            raw.send(&segment::send(1, 0, false, b"half"));
            while srq.len() == before {
                device.cq.poll_one();
            }
        }
        ends(&end.qp);
        drop(raw);
        end.await_state(QpState::Error);
        let flushed = device.cq.poll_one().map(|done| (done.qp, done.status));
        assert_eq!(flushed, shares.then(|| (end.qp.num(), Status::Flushed)));
        let kinds: Vec<_> = end.rnic.async_events().map(|event| event.kind).collect();
        let last = kinds.iter().position(|kind| *kind == AsyncEventKind::LastWqeReached);
        assert_eq!(last, shares.then(|| kinds.len() - 1), "{kinds:?}");
    }
}

#[test]
fn the_limit_of_a_shared_queue_names_it() {
    let device = End::new();
    let [first, second] = [0, 1].map(|_| device.pd.create_srq(SrqConfig::default()));
    assert_ne!(first.num(), second.num());
    let (end, _raw) = connected(|_| {});
    assert_ne!(end.cq.num(), CqNum(0));
    let mut config = QpConfig::new(&device.cq);
    config.srq = Some(second.clone());
    let qp = device.pd.create_qp(&config).unwrap();
    second.arm_limit(1);
    let event = device.rnic.wait_async_event(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!((event.qp, event.element), (qp.num(), Element::Srq(second.num())));
    assert_eq!(event.kind, AsyncEventKind::SrqLimit);
}

/// An end of the connection is told by one event, whoever ends it; nothing before is taken for one.
#[test]
fn an_end_is_told_as_an_end() {
    let ends: [fn(&End, &Peer); 3] =
        [|_, raw| raw.fin(), |end, _| end.qp.terminate(), |end, raw| (end.qp.disconnect(), raw.fin()).1];
    for ends in ends {
        let (end, raw) = connected(|_| {});
        let event = end.rnic.wait_async_event(Some(PATIENCE)).unwrap().unwrap();
        assert!(event.kind == AsyncEventKind::Established && !event.kind.is_end());
        ends(&end, &raw);
        assert!(end.event().is_end());
        end.qp.abort();
        assert_eq!(end.rnic.async_events().count(), 0);
    }
}
