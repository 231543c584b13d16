//! What work requests promise each other (draft-hilland-rddp-verbs §8.2).

use rddp_rnic::{Access, Completed, PostError, QpConfig, RecvWr, Remote, SendWr, Stag, Status};

use crate::common::guarded::Guarded;
use crate::common::raw::{self, BOTH, Role, client_server, connect_raw, plain, with_plain_raw};
use crate::common::{ALL, End, PATIENCE};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Rule 8: an invalidation with a local fence waits until the Read before it has been answered.
#[test]
fn a_local_fence_waits_for_everything_before_it() {
    for role in BOTH {
        let (end, mut raw) = with_plain_raw(role);
        let sink = end.region(8, ALL);
        let list = [
            SendWr::read(1, sink.whole(), REMOTE).unsignaled(),
            SendWr::invalidate(2, sink.stag()).local_fence(),
            SendWr::send_inline(3, b"behind"),
        ];
        end.qp.post_sends(&list).unwrap();
        let request = raw.read_request();
        assert!(raw.is_silent(std::time::Duration::from_millis(30)), "what stands behind the fence went out");
        assert!(sink.is_valid() && end.cq.poll_one().is_none());
        raw.send(&raw::response(request.sink_stag, request.sink_to, true, b"answered"));
        let done = end.success();
        assert_eq!((done.wr_id, done.completed), (2, Completed::Invalidate));
        assert!(!sink.is_valid());
        assert_eq!(sink.read(0, 8).unwrap(), b"answered");
        assert_eq!((end.success().wr_id, raw.segment().1), (3, b"behind".to_vec()));
    }
}

/// Rule 9: without one it is done at once, and the Read has lost its sink.
#[test]
fn without_a_fence_an_invalidation_overtakes_the_read() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let sink = end.region(8, ALL);
    let list = [SendWr::read(1, sink.whole(), REMOTE), SendWr::invalidate(2, sink.stag())];
    end.qp.post_sends(&list).unwrap();
    let request = raw.read_request();
    assert!(!sink.is_valid());
    raw.send(&raw::response(request.sink_stag, request.sink_to, true, b"too late"));
    let completions = end.completions_of([1, 2]);
    // Done, but behind a request that has failed.
    assert_eq!([completions[0].status, completions[1].status], [Status::LocalProtection, Status::Flushed]);
    assert_eq!(sink.read(0, 8).unwrap(), [0; 8]);
}

/// Rule 11: what a message does not reach of its receive stays as it was.
#[test]
fn a_short_message_leaves_the_rest_of_its_receive_alone() {
    for role in BOTH {
        for len in [0, 1, 39_999, 40_000] {
            let (end, mut raw) = with_plain_raw(role);
            let mut inbox = Guarded::new(&end.pd, 40_000, Access::LOCAL_WRITE);
            inbox.fill(&[0xcc; 40_000]);
            end.qp
                .post_recv(RecvWr::new(1, [inbox.region.sge(0..10), inbox.region.sge(10..40_000)]))
                .unwrap();
            raw.send(&raw::send(1, 0, true, &vec![1; len]));
            assert_eq!(end.success().byte_len as usize, len);
            let octets = inbox.octets();
            assert!(octets[..len].iter().all(|octet| *octet == 1));
            assert!(octets[len..].iter().all(|octet| *octet == 0xcc));
            inbox.assert_guards();
        }
    }
}

/// Rules 2 and 3: queues of any depth go round and round; a completion frees what was posted before it, too.
#[test]
fn queues_of_any_depth_go_round() {
    for depth in [1, 2, 3, 7] {
        let end = End::with(|config: &mut QpConfig| (config.max_send, config.max_recv) = (depth, depth));
        let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        raw.open_for(&end);
        let sink = end.region(8, ALL);
        for round in 0..20 {
            for i in 1..depth as u64 {
                end.qp.post_send(&SendWr::read(i, sink.sge(0..0), REMOTE).unsignaled()).unwrap();
            }
            end.qp.post_send(&SendWr::read(100, sink.sge(0..0), REMOTE)).unwrap();
            let full = PostError::QueueFull { capacity: depth };
            assert_eq!(end.qp.post_send(&SendWr::send_inline(9, b"")), Err(full));
            for _ in 0..depth {
                let request = raw.read_request();
                raw.send(&raw::response(request.sink_stag, request.sink_to, true, b""));
            }
            assert_eq!(end.success().wr_id, 100, "depth {depth}, round {round}");
            for i in 0..depth as u64 {
                end.qp.post_recv(RecvWr::new(i, [])).unwrap();
            }
            assert_eq!(end.qp.post_recv(RecvWr::new(9, [])), Err(full));
            for i in 0..depth {
                raw.send(&raw::send((round * depth + i) as u32 + 1, 0, true, b""));
                assert_eq!(end.success().wr_id, i as u64);
            }
        }
    }
}

/// RFC 5042 §6.4.6: the registrations of a process go with it, and its peers learn that its connections have ended.
#[test]
fn a_process_that_is_killed_takes_its_connections_along() {
    const ADDR: &str = "RDDP_TEST_PEER";
    let options = client_server();
    if let Ok(addr) = std::env::var(ADDR) {
        let end = End::new();
        end.qp.connect(addr.parse().unwrap(), &options).unwrap();
        let target = end.region(8, ALL);
        let advert = [target.stag().0.to_be_bytes().as_slice(), &target.base().to_be_bytes()].concat();
        end.qp.post_send(&SendWr::send_inline(1, &advert)).unwrap();
        std::thread::sleep(PATIENCE);
        return;
    }
    let end = End::new();
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "requests::a_process_that_is_killed_takes_its_connections_along"])
        .env(ADDR, listener.local_addr().unwrap().to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let inbox = end.region(12, Access::LOCAL_WRITE);
    end.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    listener.accept(Some(PATIENCE)).unwrap().unwrap().accept(&end.qp, b"").unwrap();
    assert_eq!(end.success().byte_len, 12);
    let stag = Stag(u32::from_be_bytes(inbox.read(0, 4).unwrap().try_into().unwrap()));
    let remote = Remote { stag, to: u64::from_be_bytes(inbox.read(4, 8).unwrap().try_into().unwrap()) };
    end.qp.post_send(&SendWr::read(2, inbox.sge(0..8), remote)).unwrap();
    assert_eq!(end.success().completed, Completed::Read);
    child.kill().unwrap();
    child.wait().unwrap();
    end.await_state(rddp_rnic::QpState::Idle);
    end.event_like(|event| *event == rddp_rnic::AsyncEventKind::CloseComplete);
}
