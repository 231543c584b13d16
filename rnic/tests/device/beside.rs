//! Software and devices of the host beside each other: one completion queue and one queue of events
//! for all of them.

use std::collections::HashSet;
use std::net::SocketAddr;

use rddp_rnic::{
    Access, AsyncEventKind, CompletionQueue, ConnectOptions, Error, Listener, QpConfig, QueuePair, RecvWr,
    Rnic, RnicConfig, SendWr, Status,
};

use crate::support::{Host, Kind, PATIENCE, host};

/// Two ends of a connection by one device, whose queue pairs may complete elsewhere.
fn connect(rnic: &Rnic, cq: &CompletionQueue, at: SocketAddr) -> (QueuePair, QueuePair) {
    let listener = rnic.listen(at, &ConnectOptions::default()).unwrap();
    let pd = rnic.alloc_pd();
    let [active, passive] = [0; 2].map(|_| pd.create_qp(&QpConfig::new(cq)).unwrap());
    begin(&active, &listener);
    listener.accept(Some(PATIENCE)).unwrap().unwrap().accept(&passive, b"").unwrap();
    assert!(active.await_begun(PATIENCE));
    active.begun().unwrap().unwrap();
    (active, passive)
}

fn begin(active: &QueuePair, listener: &Listener) {
    active.begin_to(listener.local_addr().unwrap(), &ConnectOptions::default()).unwrap();
}

fn all(name: &str) -> (Rnic, Vec<(Rnic, SocketAddr)>) {
    let soft = Rnic::with_device(&RnicConfig::default(), None).unwrap();
    let hosts: [Host; 2] = [Kind::Siw, Kind::Rxe].map(|kind| host(&format!("{name}{}", kind as u8), kind, 0));
    let devices = hosts.iter().map(|host| {
        let beside = soft.beside(&RnicConfig::default(), Some(host.device.clone())).unwrap();
        (beside, host.address(1, 0))
    });
    let mut list = vec![(soft.clone(), "127.0.0.1:0".parse().unwrap())];
    list.extend(devices);
    (soft, list)
}

#[test]
fn one_completion_queue_serves_software_and_devices() {
    let (soft, rnics) = all("b_cq");
    let cq = soft.create_cq(1024).unwrap();
    let pairs: Vec<_> = rnics.iter().map(|(rnic, at)| connect(rnic, &cq, *at)).collect();
    let mut regions = Vec::new();
    for ((rnic, _), (active, passive)) in rnics.iter().zip(&pairs) {
        assert_eq!((rnic.qp_count(), active.num() == passive.num()), (2, false));
        for _ in 0..3 {
            passive.post_recv(RecvWr::new(1, [])).unwrap();
        }
        regions.push(rnic.alloc_pd().allocate(8, Access::LOCAL_WRITE).unwrap());
    }
    let named: HashSet<_> = pairs.iter().flat_map(|(one, other)| [one.num(), other.num()]).collect();
    assert_eq!(named.len(), 6, "each has a number of its own");
    // One after the other: a thread that sleeps on the queue is woken by each device.
    for _ in 0..3 {
        for (active, passive) in &pairs {
            active.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
            assert!(cq.wait(Some(PATIENCE)).unwrap(), "no completion");
            let got = cq.poll_one().unwrap();
            assert_eq!((got.qp, got.status), (passive.num(), Status::Success));
        }
    }
}

#[test]
fn events_of_all_devices_come_by_one_queue() {
    let (soft, rnics) = all("b_events");
    let (cq, events) = (soft.create_cq(64).unwrap(), rddp_rnic::EventQueue::new().unwrap());
    for (rnic, at) in &rnics {
        let config = QpConfig { events: Some(events.clone()), ..QpConfig::new(&cq) };
        let listener = rnic.listen(*at, &ConnectOptions::default()).unwrap();
        let qp = rnic.alloc_pd().create_qp(&config).unwrap();
        begin(&qp, &listener);
        listener.accept(Some(PATIENCE)).unwrap().unwrap().reject(b"").unwrap();
        let event = events.wait(Some(PATIENCE)).unwrap().expect("no event");
        assert_eq!((event.qp, event.kind), (qp.num(), AsyncEventKind::NotConnected));
    }
}

#[test]
fn what_is_beside_nothing_is_foreign() {
    let (soft, rnics) = all("b_foreign");
    let other = Rnic::with_device(&RnicConfig::default(), None).unwrap();
    let cq = other.create_cq(16).unwrap();
    for (rnic, _) in &rnics {
        let refused = rnic.alloc_pd().create_qp(&QpConfig::new(&cq)).unwrap_err();
        assert!(matches!(refused, Error::Foreign(_)), "{refused}");
    }
    drop(soft);
}

/// The background thread goes on for the devices that are left.
#[test]
fn a_device_goes_on_though_the_one_that_it_is_beside_is_gone() {
    let (soft, mut rnics) = all("b_gone");
    let cq = soft.create_cq(64).unwrap();
    drop(soft);
    while !rnics.is_empty() {
        let (active, passive) = connect(&rnics[0].0, &cq, rnics[0].1);
        passive.post_recv(RecvWr::new(1, [])).unwrap();
        active.post_send(&SendWr::send_inline(2, b"").unsignaled()).unwrap();
        assert!(cq.wait(Some(PATIENCE)).unwrap());
        assert_eq!(cq.poll_one().unwrap().qp, passive.num());
        rnics.remove(0);
    }
}
