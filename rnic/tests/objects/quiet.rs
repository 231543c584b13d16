//! A device that has no connection yet: no thread of its own.

use rddp_rnic::{Access, ConnectOptions, EventQueue, QpConfig, RecvWr, Rnic, SendWr, SrqConfig};

use crate::common::device::needs_software;
use crate::common::{End, alone, connect_on, exchange};
use crate::{assert_becomes, assert_in_use, in_use};

/// Programs fork after they have opened a device, and list devices without using one.
#[test]
fn a_device_has_no_thread_before_its_first_connection() {
    needs_software("the threads of software");
    if !alone("quiet::a_device_has_no_thread_before_its_first_connection") {
        return;
    }
    let before = in_use();
    let rnic = Rnic::open().unwrap();
    let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
    let cq = rnic.create_cq_on(&channel, 64).unwrap();
    let region = pd.allocate(64, Access::LOCAL_WRITE | Access::BIND).unwrap();
    let window = pd.allocate_window().unwrap();
    let srq = pd.create_srq(SrqConfig::default());
    srq.arm_limit(1);
    let events = EventQueue::new().unwrap();
    let qps = [None, Some(srq)].map(|srq| {
        let config = QpConfig { srq, events: Some(events.clone()), ..QpConfig::new(&cq) };
        pd.create_qp(&config).unwrap()
    });
    qps[0].post_recv(RecvWr::one(1, region.whole())).unwrap();
    qps[0].abort();
    qps[0].post_send(&SendWr::bind(2, window.stag(), region.whole(), Access::REMOTE_READ)).unwrap();
    cq.arm(false);
    assert!(channel.next_event().is_some() && cq.poll_one().is_some() && cq.poll_one().is_some());
    let _ = (rnic.async_event(), rnic.capabilities(), rnic.counters(), events.next_event());
    assert_eq!(in_use()[1], before[1], "threads");
    drop((rnic, pd, channel, cq, region, window, qps));
    drop(events);
    assert_in_use(before);
    let (active, passive) = (End::new(), End::new());
    assert_eq!(in_use()[1], before[1], "threads");
    connect_on("127.0.0.1:0", &active, &passive, &ConnectOptions::default(), &ConnectOptions::default());
    // A thread that has slept keeps a descriptor until it ends.
    std::thread::scope(|scope| scope.spawn(|| exchange(&active, &passive)).join()).unwrap();
    assert_becomes(|| in_use()[1], &(before[1] + 2), "threads");
    drop((active, passive));
    assert_in_use(before);
}
