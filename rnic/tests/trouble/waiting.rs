//! Sends that wait for a receive (`NoReceive::Wait`), and the operations that this excludes.

use std::time::{Duration, Instant};

use rddp_rnic::{
    Access, AsyncEventKind, CompletionQueue, ConnectOptions, Error, NoReceive, QpConfig, QpState, RecvWr,
    Remote, Rnic, RnicConfig, SendWr, Stag, Status,
};
use rddp_test_support::{Peer, pattern, plain, segment};

use crate::common::device::needs_software;
use crate::common::raw::{BOTH, Role, client_server, connect_raw};
use crate::common::{End, PATIENCE, connect_on};
use crate::slow::goes_on;

fn waiting() -> End {
    End::with(|config| *config = waiting_on(&config.recv_cq))
}

fn waiting_on(cq: &CompletionQueue) -> QpConfig {
    needs_software("Sends that wait for receives");
    QpConfig { no_receive: NoReceive::Wait, inbound_read: false, max_recv: 4096, ..QpConfig::new(cq) }
}

fn pair() -> (End, End) {
    let (sender, receiver) = (waiting(), waiting());
    connect_on("127.0.0.1:0", &sender, &receiver, &ConnectOptions::default(), &ConnectOptions::default());
    (sender, receiver)
}

/// Waits until nothing has been read for a while.
fn settled(end: &End) {
    let mut before = u64::MAX;
    let deadline = Instant::now() + PATIENCE;
    while before != end.qp.counters().octets_received {
        assert!(Instant::now() < deadline, "it reads on and on");
        before = end.qp.counters().octets_received;
        let _ = end.cq.wait(Some(Duration::from_millis(100)));
    }
}

/// RFC 5041 §7.2 has a Terminate for a missing receive; here TCP's window is the flow control.
#[test]
fn sends_wait_until_receives_are_posted() {
    let (sender, receiver) = pair();
    let out = sender.region(100_000, Access::empty());
    let inbox = receiver.region(100_000, Access::LOCAL_WRITE);
    // Short messages, messages of several FPDUs, and one of none.
    let sizes = [1, 5, 100_000, 0, 70_000, 3];
    for (id, size) in sizes.into_iter().enumerate() {
        out.write(0, &pattern(size, id as u8)).unwrap();
        sender.qp.post_send(&SendWr::send(id as u64, out.sge(0..size))).unwrap();
        sender.success();
    }
    settled(&receiver);
    assert_eq!((receiver.qp.state(), sender.qp.state()), (QpState::ReadyToSend, QpState::ReadyToSend));
    assert!(receiver.cq.poll_one().is_none());
    for (id, size) in sizes.into_iter().enumerate() {
        receiver.qp.post_recv(RecvWr::one(id as u64, inbox.whole())).unwrap();
        let received = receiver.success();
        assert_eq!((received.wr_id, received.byte_len), (id as u64, size as u32));
        assert_eq!(inbox.read(0, size).unwrap(), pattern(size, id as u8));
    }
}

#[test]
fn a_sender_is_held_by_tcp_and_loses_nothing() {
    let (sender, receiver) = pair();
    let out = sender.region(60_000, Access::empty());
    let inbox = receiver.region(60_000, Access::LOCAL_WRITE);
    out.write(0, &pattern(60_000, 0)).unwrap();
    let mut posted = 0;
    // More than any socket buffers hold.
    while sender.qp.post_send(&SendWr::send(posted, out.whole())).is_ok() {
        posted += 1;
    }
    settled(&receiver);
    let kept = receiver.qp.counters().octets_received;
    assert!(kept < 400_000, "{kept} octets were read for which there is no receive");
    for id in 0..posted {
        receiver.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
        assert_eq!(receiver.success().byte_len, 60_000);
        assert_eq!(inbox.read(0, 60_000).unwrap(), pattern(60_000, 0));
        // This makes progress, whether the sender's thread does or not.
        let _ = sender.cq.poll_one();
    }
}

#[test]
fn writes_behind_a_send_that_waits_wait_too() {
    let (sender, receiver) = pair();
    let target = receiver.region(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    sender.qp.post_send(&SendWr::send_inline(1, b"first")).unwrap();
    sender.qp.post_send(&SendWr::write_inline(2, b"second", target.remote(0))).unwrap();
    settled(&receiver);
    assert_eq!(target.read(0, 6).unwrap(), [0; 6]);
    let inbox = receiver.region(8, Access::LOCAL_WRITE);
    receiver.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    receiver.success();
    let deadline = Instant::now() + PATIENCE;
    while target.read(0, 6).unwrap() != b"second" {
        assert!(Instant::now() < deadline, "the Write is not placed");
        let _ = receiver.cq.wait(Some(Duration::from_millis(1)));
    }
}

#[test]
fn own_messages_go_out_while_a_send_of_the_peers_waits() {
    let (one, other) = pair();
    for end in [&one, &other] {
        end.qp.post_send(&SendWr::send_inline(1, b"crossed")).unwrap();
        end.success();
    }
    settled(&one);
    settled(&other);
    one.qp.post_send(&SendWr::send_inline(2, b"more")).unwrap();
    one.success();
    let inbox = other.region(64, Access::LOCAL_WRITE);
    other.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    other.qp.post_recv(RecvWr::one(2, inbox.whole())).unwrap();
    assert_eq!((other.success().byte_len, other.success().byte_len), (7, 4));
}

fn stuck(role: Role) -> (End, Peer) {
    let end = waiting();
    let mut raw = connect_raw(role, &end, &client_server(), &plain());
    raw.send(&segment::send(1, 0, true, b"nobody wants it"));
    settled(&end);
    (end, raw)
}

#[test]
fn a_reset_is_noticed_while_a_send_waits() {
    for role in BOTH {
        let (end, raw) = stuck(role);
        raw.reset();
        end.event_like(|event| *event == AsyncEventKind::ConnectionLost);
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

#[test]
fn a_fin_is_seen_behind_what_waits() {
    for role in BOTH {
        let (end, raw) = stuck(role);
        raw.fin();
        settled(&end);
        assert_eq!(end.qp.state(), QpState::ReadyToSend);
        let inbox = end.region(64, Access::LOCAL_WRITE);
        end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        assert_eq!(end.success().byte_len, 15);
        end.event_like(|event| *event == AsyncEventKind::CloseComplete);
    }
}

/// draft-hilland-rddp-verbs §6.2: closing with octets that were not delivered is not graceful.
#[test]
fn closing_over_a_send_that_waits_is_a_bad_close() {
    let (end, _raw) = stuck(Role::Active);
    end.qp.disconnect();
    end.event_like(|event| *event == AsyncEventKind::BadClose);
    assert_eq!(end.qp.state(), QpState::Error);
}

#[test]
fn there_are_no_reads_where_sends_wait() {
    let (sender, receiver) = pair();
    for end in [&sender, &receiver] {
        let negotiated = end.qp.negotiated().unwrap();
        assert_eq!((negotiated.ird, negotiated.ord), (0, 0));
    }
    let sink = sender.region(8, Access::LOCAL_WRITE);
    let remote = Remote { stag: Stag(1), to: 0 };
    sender.qp.post_send(&SendWr::read(1, sink.whole(), remote)).unwrap();
    assert_eq!(sender.next().status, Status::LocalOperation);
    let refused = sender.pd.create_qp(&{
        let mut config = rddp_rnic::QpConfig::new(&sender.cq);
        config.no_receive = NoReceive::Wait;
        config
    });
    assert!(matches!(refused, Err(Error::Conflict(_))));
}

/// RFC 5042 §6.4.1: memory of a waiting Send is given back when its connection ends, in whatever
/// way. Otherwise no QP of the device could begin a partial FPDU some day.
#[test]
fn memory_of_a_send_that_waits_is_given_back_at_the_end() {
    let ways: [fn(&End, Peer); 5] = [
        |end, raw| {
            end.qp.abort();
            drop(raw);
        },
        |end, raw| {
            end.qp.disconnect();
            drop(raw);
        },
        |end, raw| {
            end.qp.terminate();
            drop(raw);
        },
        |_, raw| raw.reset(),
        |end, raw| {
            // Wanted at last, and too long for the receive.
            end.qp.post_recv(RecvWr::new(1, [])).unwrap();
            drop(raw);
        },
    ];
    // As much as three times what is left behind it.
    let rnic = Rnic::with_config(&RnicConfig { max_partial: 60_000, ..Default::default() }).unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(1024).unwrap());
    for round in 0..3 * ways.len() {
        let qp = pd.create_qp(&waiting_on(&cq)).unwrap();
        let end = End { rnic: rnic.clone(), pd: pd.clone(), cq: cq.clone(), qp };
        let mut raw = connect_raw(BOTH[round % 2], &end, &client_server(), &plain());
        let [parked, behind] = [1, 2].map(|msn| raw.frame(&segment::send(msn, 0, true, &[7; 40_000])));
        // A whole FPDU is parked, a part of another is kept behind it.
        raw.octets(&[&parked, &behind[..20_000]].concat());
        settled(&end);
        ways[round % ways.len()](&end, raw);
        end.await_state(QpState::Error);
        while cq.poll_one().is_some() {}
        goes_on(&end);
    }
}
