//! What a program may choose or change of its objects: depths and rights.

use rddp_rnic::{Access, AsyncEventKind, Error, PostError, QpState, RecvWr, Remote, SendWr, Stag};

use crate::common::{ALL, End, connect_on, exchange};

/// draft-hilland-rddp-verbs §6.3, §8.1: a queue of no requests takes none, of any kind.
#[test]
fn queues_of_depth_zero_take_nothing() {
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
