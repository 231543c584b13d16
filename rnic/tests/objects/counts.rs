//! Counts of what uses an object, which tell a program whether the object may end
//! (draft-hilland-rddp-verbs §5.2.2, §7.9).

use rddp_rnic::{Access, CompletionChannel, QpConfig, RecvWr, SendWr, SrqConfig};

use crate::common::device::{needs, open};
use crate::common::{End, PATIENCE, connect_on};

#[test]
fn a_protection_domain_counts_memory_and_queues() {
    needs("memory windows", |device| device.windows);
    let rnic = open();
    let (pd, other, cq) = (rnic.alloc_pd(), rnic.alloc_pd(), rnic.create_cq(16).unwrap());
    let region = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    let window = pd.allocate_window().unwrap();
    let srq = pd.create_srq(SrqConfig::default());
    let qp = pd.create_qp(&QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&cq) }).unwrap();
    assert_eq!((pd.users(), pd.clone().users(), other.users()), (4, 4, 0));
    region.deregister().unwrap();
    assert_eq!(pd.users(), 3);
    drop((region, window));
    assert_eq!(pd.users(), 2);
    drop(srq.clone());
    assert_eq!(pd.users(), 2, "another handle to the same queue");
    drop(qp);
    drop(srq);
    assert_eq!(pd.users(), 0);
    let foreign = open().create_cq(16).unwrap();
    assert!(pd.create_qp(&QpConfig::new(&foreign)).is_err());
    assert_eq!(pd.users(), 0, "one that was refused");
}

#[test]
fn queues_and_channels_count_their_users() {
    needs("shared receive queues", |device| device.shared_receives);
    let rnic = open();
    let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
    let [one, two] = [0, 1].map(|_| rnic.create_cq_on(&channel, 16).unwrap());
    let srq = pd.create_srq(SrqConfig::default());
    let users = |channel: &CompletionChannel| [channel.users(), one.users(), two.users(), srq.users()];
    assert_eq!(users(&channel), [2, 0, 0, 0]);
    let config = QpConfig { recv_cq: two.clone(), srq: Some(srq.clone()), ..QpConfig::new(&one) };
    let qps = [config.clone(), QpConfig::new(&one)].map(|config| pd.create_qp(&config).unwrap());
    drop(config);
    assert_eq!(users(&channel), [2, 2, 1, 1]);
    let [first, second] = qps;
    drop(first);
    assert_eq!(users(&channel), [2, 1, 0, 0]);
    drop(second);
    drop(two);
    assert_eq!(channel.users(), 1);
    // A handle that an event gives is like any other.
    one.arm(false);
    let qp = pd.create_qp(&QpConfig::new(&one)).unwrap();
    qp.abort();
    qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    let again = channel.next_event().unwrap();
    drop(one);
    assert_eq!((channel.users(), again.users()), (1, 1));
    drop(again);
    assert_eq!(channel.users(), 1, "the QP completes into it");
    drop(qp);
    assert_eq!(channel.users(), 0);
}

/// Neither a completion that nobody polled for, nor the background thread, which has just served
/// the QP, holds an object for longer than the program does.
#[test]
fn nothing_is_counted_after_its_end() {
    needs("shared receive queues", |device| device.shared_receives);
    let rnic = open();
    let peer = End::new();
    for _ in 0..20 {
        let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
        let cq = rnic.create_cq_on(&channel, 16).unwrap();
        let srq = pd.create_srq(SrqConfig::default());
        let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&cq) };
        let end = End { qp: pd.create_qp(&config).unwrap(), rnic: rnic.clone(), pd, cq };
        drop(config);
        srq.post_recv(RecvWr::new(1, [])).unwrap();
        let active = peer.sibling();
        connect_on("127.0.0.1:0", &active, &end, &Default::default(), &Default::default());
        active.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
        assert!(end.cq.wait(Some(PATIENCE)).unwrap());
        let End { pd, cq, qp, .. } = end;
        drop(qp);
        assert_eq!((cq.users(), srq.users(), pd.users()), (0, 0, 1));
        drop(srq);
        assert_eq!(pd.users(), 0);
        drop(cq);
        assert_eq!(channel.users(), 0);
    }
}
