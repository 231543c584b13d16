//! One QP on one connection after another (draft-hilland-rddp-verbs §6.2.1).

use rddp_ddp::Header;
use rddp_rdmap::Opcode;
use rddp_rnic::{Access, AsyncEventKind, ConnectOptions, QpState, RecvWr, Remote, SendWr, Stag};
use rddp_test_support::{Peer, plain, segment};

use crate::common::device::needs_software;
use crate::common::raw::{self, BOTH, client_server, connect_raw, open_for};
use crate::common::{ALL, End};

/// Checks that all numbers begin at 1 again, and marker positions at 0, in both directions.
fn is_fresh(end: &End, raw: &mut Peer) {
    let (inbox, target) = (end.region(8, Access::LOCAL_WRITE), end.region(8, ALL));
    let remote = Remote { stag: Stag(1), to: 0 };
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    raw.send(&segment::send(1, 0, true, b"first"));
    assert_eq!(end.success().byte_len, 5);
    raw.send(&raw::read_from(1, &target, 3));
    assert_eq!(raw.expect(Opcode::ReadResponse).1.len(), 3);
    let list = [
        SendWr::send_inline(2, &[7; 400]),
        SendWr::read(3, inbox.sge(0..4), remote),
        SendWr::fetch_add(4, inbox.whole(), remote, 1),
    ];
    end.qp.post_sends(&list).unwrap();
    let msn = |header| match header {
        Header::Untagged(header) => header.msn.0,
        Header::Tagged(_) => 0,
    };
    assert_eq!(msn(raw.expect(Opcode::Send).0), 1);
    assert_eq!(msn(raw.expect(Opcode::ReadRequest).0), 1);
    assert_eq!(msn(raw.expect(Opcode::AtomicRequest).0), 2);
    end.success();
    assert_eq!(end.qp.terminate_sent(), None);
    assert_eq!(end.qp.terminate_received(), None);
}

#[test]
fn a_qp_starts_afresh_after_each_kind_of_end() {
    type Leave = fn(&End, &mut Peer);
    let ends: [Leave; 5] = [
        |end, _| end.qp.abort(),
        |end, raw| {
            end.qp.terminate();
            raw.terminate();
        },
        |_, raw| {
            raw.send(&segment::terminate(rddp_rdmap::TerminateCode(0x0100)));
            assert_eq!(raw.recv(), None);
        },
        |_, raw| {
            raw.send(&segment::send(77, 0, true, b"bad"));
            raw.terminate();
        },
        |_, raw| raw.fin(),
    ];
    for role in BOTH {
        let end = End::new();
        let options = ConnectOptions { markers: true, ..client_server() };
        let mut startup = plain();
        startup.markers = true;
        for leave in ends {
            let mut raw = connect_raw(role, &end, &options, &startup);
            is_fresh(&end, &mut raw);
            leave(&end, &mut raw);
            drop(raw);
            end.await_state(QpState::Error);
            while end.cq.poll_one().is_some() {}
            // Posted between two connections, and gone on the next.
            assert!(end.qp.reset());
        }
    }
}

/// draft-hilland-rddp-verbs §6.2.3: a graceful close leaves the QP idle, with its queues empty.
#[test]
fn a_qp_starts_afresh_after_a_graceful_close() {
    for role in BOTH {
        let end = End::new();
        for round in 0..3 {
            let mut raw = connect_raw(role, &end, &client_server(), &plain());
            let inbox = end.region(8, Access::LOCAL_WRITE);
            open_for(&mut raw, &end);
            end.qp.post_recv(RecvWr::one(round, inbox.whole())).unwrap();
            raw.send(&segment::send(1, 0, true, b"first"));
            assert_eq!(end.success().wr_id, round);
            if round % 2 == 0 {
                end.qp.disconnect();
            }
            raw.fin();
            assert_eq!(raw.recv(), None);
            end.event_like(|event| *event == AsyncEventKind::CloseComplete);
            assert_eq!((end.qp.state(), end.qp.negotiated()), (QpState::Idle, None));
        }
    }
}

/// A thousand connections in a row on one pair of QPs: each carries a message, and none
/// leaves a descriptor behind.
#[test]
fn a_thousand_connections_in_a_row() {
    needs_software("connections in a row, which tests/device/matrix makes");
    if !crate::alone("reuse::a_thousand_connections_in_a_row") {
        return;
    }
    let (active, passive) = (End::new(), End::new());
    let options = ConnectOptions::default();
    let listener = passive.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = listener.local_addr().unwrap();
    // Both devices have their thread then.
    let _other = active.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    // And this thread has its alarm.
    assert!(!active.cq.wait(Some(std::time::Duration::from_millis(1))).unwrap());
    let mut before = None;
    for round in 0..1000 {
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| active.qp.connect(addr, &options).unwrap());
            let request = listener.accept(Some(crate::common::PATIENCE)).unwrap().unwrap();
            passive.qp.post_recv(RecvWr::new(round, [])).unwrap();
            request.accept(&passive.qp, b"").unwrap();
            connecting.join().unwrap();
        });
        active.qp.post_send(&SendWr::send_inline(round, b"")).unwrap();
        assert_eq!((passive.success().wr_id, active.success().wr_id), (round, round));
        for end in [&active, &passive] {
            end.qp.abort();
            assert!(end.qp.reset());
        }
        // Each device has its file of counts since its first connection.
        before.get_or_insert_with(crate::in_use);
    }
    crate::assert_in_use(before.unwrap());
}
