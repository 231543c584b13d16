//! Resources shared by several streams: completion queues, receive queues, the memory for partial
//! FPDUs (RFC 5042 §6.4.3, §6.4.6).

use std::time::{Duration, Instant};

use rddp_mpa::StartupConfig;
use rddp_rdmap::{Opcode, TerminateCode};
use rddp_rnic::{
    Access, AsyncEventKind, CompletionQueue, ConnectOptions, Element, Error, MemoryRegion, PostError,
    ProtectionDomain, QpConfig, QpState, RecvWr, Rnic, RnicConfig, Rtr, RtrSet, SendWr, SgeFault,
    SharedReceiveQueue, SrqConfig, Status,
};
use rddp_test_support::{Peer, plain, segment};

use crate::common::device::needs_software;
use crate::common::raw::{self, Role, client_server, connect_raw, open_for};
use crate::common::{ALL, End, PATIENCE, connect_on};
use crate::slow::goes_on;

/// Receives that were never connected overflow their queue as they are flushed.
#[test]
fn a_queue_too_small_for_what_is_flushed_is_told_of() {
    let end = End::new();
    let small = end.rnic.create_cq(1).unwrap();
    let qp = end.pd.create_qp(&QpConfig::new(&small)).unwrap();
    for id in 0..2 {
        qp.post_recv(RecvWr::new(id, [])).unwrap();
    }
    qp.abort();
    let event = end.rnic.wait_async_event(Some(PATIENCE)).unwrap().expect("nobody is told");
    assert_eq!((event.element, event.kind), (Element::Cq(small.num()), AsyncEventKind::CqOverflow));
    assert_eq!((small.poll_one().unwrap().wr_id, small.is_overflowed()), (0, true));
}

/// A program that posts and never polls is told, also by a QP that is to be connected anew.
#[test]
fn nothing_is_posted_once_its_completion_could_not_be_reported() {
    let (device, peer) = (End::new(), End::new());
    let small = device.rnic.create_cq(8).unwrap();
    let overflow = PostError::CqOverflow { cq: small.num() };
    let mut config = QpConfig::new(&small);
    config.recv_cq = device.cq.clone();
    let receiver = device.pd.create_qp(&QpConfig::new(&small)).unwrap();
    let end = End { qp: device.pd.create_qp(&config).unwrap(), cq: small.clone(), ..device };
    let options = ConnectOptions::default();
    connect_on("127.0.0.1:0", &end, &peer, &options, &options);
    let memory = peer.region(8, ALL);
    let request = |id| SendWr::write_inline(id, b"x", memory.remote(0));
    let deadline = Instant::now() + PATIENCE;
    let refused = (0..).find_map(|id| {
        assert!(Instant::now() < deadline, "{id} requests were posted");
        // A device may be slow to complete them.
        end.qp.post_send(&request(id)).err().filter(|error| !matches!(error, PostError::QueueFull { .. }))
    });
    assert_eq!(refused, Some(overflow));
    end.await_state(QpState::Error);
    // What completes elsewhere is flushed as ever.
    end.qp.post_recv(RecvWr::new(7, [])).unwrap();
    assert_eq!(config.recv_cq.poll_one().map(|done| (done.wr_id, done.status)), Some((7, Status::Flushed)));
    for state in [QpState::Error, QpState::Idle] {
        assert_eq!(end.qp.state(), state);
        assert_eq!(end.qp.post_batch(&[request(1)]), Err(overflow));
        let refused = end.qp.post_sends(&[request(1), request(2)]).unwrap_err();
        assert_eq!((refused.posted, refused.error), (0, overflow));
        end.qp.reset();
    }
    assert_eq!(receiver.post_recv(RecvWr::new(8, [])), Err(overflow));
    // A QP on which nothing could be posted is not made.
    for (send_cq, recv_cq) in [(&small, &config.recv_cq), (&config.recv_cq, &small)] {
        let config = QpConfig { send_cq: send_cq.clone(), recv_cq: recv_cq.clone(), ..config.clone() };
        let refused = end.pd.create_qp(&config).unwrap_err();
        assert!(matches!(refused, Error::CqOverflow { cq } if cq == small.num()), "{refused}");
    }
}

/// Connects a QP of the device to a raw peer.
fn stream(device: &End, cq: &CompletionQueue, srq: Option<&SharedReceiveQueue>) -> (End, Peer) {
    needs_software("a raw peer of TCP");
    let mut config = QpConfig::new(cq);
    config.srq = srq.cloned();
    let qp = device.pd.create_qp(&config).unwrap();
    let end = End { rnic: device.rnic.clone(), pd: device.pd.clone(), cq: cq.clone(), qp };
    let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
    open_for(&mut raw, &end);
    (end, raw)
}

/// RFC 5042 §6.4.6: a queue that overflows ends the connections that use it, idle ones too, and no
/// others.
#[test]
fn an_overflowing_queue_hurts_its_own_streams_only() {
    let device = End::new();
    let small = device.rnic.create_cq(2).unwrap();
    let (guilty, mut raw) = stream(&device, &small, None);
    let (idle, mut idle_raw) = stream(&device, &small, None);
    let (other, mut other_raw) = stream(&device, &device.cq, None);
    let inbox = device.region(64, Access::LOCAL_WRITE);
    (0..4).for_each(|id| guilty.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap());
    (1..=4).for_each(|msn| raw.send(&segment::send(msn, 0, true, b"more")));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let event = device.rnic.wait_async_event(Some(PATIENCE)).unwrap().expect("a QP of the queue goes on");
        if event.kind == AsyncEventKind::CqOverflow {
            assert_eq!(event.element, Element::Cq(small.num()));
            ended.push(event.qp);
        }
    }
    assert!(small.is_overflowed());
    assert!(ended.contains(&guilty.qp.num()) && ended.contains(&idle.qp.num()), "{ended:?}");
    assert_eq!(raw.terminate_code(), TerminateCode::CATASTROPHIC_STREAM);
    assert_eq!(idle_raw.terminate_code(), TerminateCode::CATASTROPHIC_STREAM);
    // Completions that were in the queue are still there, in order.
    assert_eq!([small.poll_one().unwrap().wr_id, small.poll_one().unwrap().wr_id], [0, 1]);
    assert!(small.poll_one().is_none());
    other.qp.post_recv(RecvWr::one(9, inbox.whole())).unwrap();
    other_raw.send(&segment::send(1, 0, true, b"fine"));
    assert_eq!(other.success().wr_id, 9);
    goes_on(&device);
}

fn shared(device: &End, quota: Option<usize>) -> (SharedReceiveQueue, MemoryRegion) {
    let srq = device.pd.create_srq(SrqConfig { max_recv: 64, quota });
    (srq, device.region(64 * 64, Access::LOCAL_WRITE))
}

/// draft-hilland-rddp-verbs §6.3: a message takes one receive, whoever sends it;
/// completions name the QP.
#[test]
fn messages_of_several_streams_take_from_one_queue() {
    let device = End::new();
    let (srq, inbox) = shared(&device, None);
    let (a, mut raw_a) = stream(&device, &device.cq, Some(&srq));
    let (b, mut raw_b) = stream(&device, &device.cq, Some(&srq));
    let refused = a.qp.post_recv(RecvWr::new(0, []));
    assert_eq!(refused, Err(PostError::UsesSharedQueue));
    for id in 0..8 {
        srq.post_recv(RecvWr::one(id, inbox.sge(id as usize * 8..id as usize * 8 + 8))).unwrap();
    }
    for msn in 1..=4 {
        for (end, raw, text) in [(&a, &mut raw_a, b"from a"), (&b, &mut raw_b, b"from b")] {
            raw.send(&segment::send(msn, 0, true, text));
            let done = device.success();
            assert_eq!(done.qp, end.qp.num());
            assert_eq!(inbox.read(done.wr_id as usize * 8, 6).unwrap(), text);
        }
    }
    assert!(srq.is_empty());
    // No receive is left: the stream that wants one ends, the other does not.
    raw_a.send(&segment::send(5, 0, true, b"one more"));
    assert_eq!(raw_a.terminate_code(), TerminateCode::UNTAGGED_NO_BUFFER);
    assert_eq!(b.qp.state(), QpState::ReadyToSend);
    srq.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    raw_b.send(&segment::send(5, 0, true, b"fine"));
    assert_eq!(device.success().qp, b.qp.num());
}

/// RFC 5042 §6.4.3.1: no stream takes more than its share; receives whose completions were polled
/// count no longer.
#[test]
fn a_quota_keeps_one_stream_from_taking_all() {
    let device = End::new();
    let (srq, inbox) = shared(&device, Some(3));
    let (greedy, mut raw) = stream(&device, &device.cq, Some(&srq));
    let (modest, mut modest_raw) = stream(&device, &device.cq, Some(&srq));
    for id in 0..20 {
        srq.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
    }
    for msn in 1..=9 {
        raw.send(&segment::send(msn, 0, true, b"polled"));
        assert_eq!(device.success().qp, greedy.qp.num());
    }
    for msn in 10..=13 {
        raw.send(&segment::send(msn, 0, true, b"not polled"));
    }
    assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_NO_BUFFER);
    assert_eq!((srq.len(), srq.outstanding()), (20 - 12, 20 - 9));
    modest_raw.send(&segment::send(1, 0, true, b"mine"));
    let taken: Vec<_> = (0..4).map(|_| device.success().qp).collect();
    assert_eq!(taken[3], modest.qp.num());
}

/// The share is complete again after the connection has ended and another is made.
#[test]
fn a_quota_is_given_back_when_the_connection_ends() {
    let device = End::new();
    let (srq, inbox) = shared(&device, Some(1));
    let cq = device.rnic.create_cq(16).unwrap();
    let (end, mut raw) = stream(&device, &cq, Some(&srq));
    for round in 0..3 {
        // In one round no receive is left, in the other the connection ends in the middle of a
        // message.
        if round % 2 == 0 {
            raw.send(&segment::send(1, 0, true, b"no receive"));
            assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_NO_BUFFER);
        } else {
            srq.post_recv(RecvWr::one(5, inbox.whole())).unwrap();
            raw.send(&segment::send(1, 0, false, b"half"));
            raw.send(&segment::write(rddp_rnic::Stag(7), 0, true, b"bad"));
            raw.terminate();
            assert_eq!(end.next().status, Status::Flushed);
        }
        drop(raw);
        end.await_state(QpState::Error);
        assert!(end.qp.reset());
        raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
        srq.post_recv(RecvWr::one(6, inbox.whole())).unwrap();
        raw.send(&segment::send(1, 0, true, b"fine"));
        assert_eq!(end.success().wr_id, 6);
        end.qp.abort();
        assert!(end.qp.reset());
        raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
    }
}

/// draft-hilland-rddp-verbs §6.2: the receives of a QP that closes are flushed, and no message
/// takes a shared one then, though the connection exists until its RTR has been answered.
#[test]
fn a_stream_that_closes_takes_nothing_any_more() {
    let device = End::new();
    let (srq, inbox) = shared(&device, None);
    let config = QpConfig { srq: Some(srq.clone()), ..QpConfig::new(&device.cq) };
    let qp = device.pd.create_qp(&config).unwrap();
    let end = End { rnic: device.rnic.clone(), pd: device.pd.clone(), cq: device.cq.clone(), qp };
    let by_read = RtrSet::only(Rtr::Read);
    let options = ConnectOptions { peer_to_peer: true, rtr: by_read, ..client_server() };
    let startup = StartupConfig { peer_to_peer: true, rtr: by_read, ..plain() };
    let mut raw = connect_raw(Role::Active, &end, &options, &startup);
    raw.read_request();
    srq.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    end.qp.disconnect();
    raw.send(&segment::send(1, 0, true, b"late"));
    assert_eq!(raw.terminate_code(), TerminateCode::UNTAGGED_NO_BUFFER);
    assert_eq!((srq.len(), srq.outstanding()), (1, 1));
}

/// draft-hilland-rddp-verbs §6.3: the limit is reported once for each time that it is armed.
#[test]
fn the_limit_is_told_once() {
    let device = End::new();
    let (srq, inbox) = shared(&device, None);
    let (end, mut raw) = stream(&device, &device.cq, Some(&srq));
    for id in 0..6 {
        srq.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
    }
    srq.arm_limit(4);
    let mut limits = Vec::new();
    for msn in 1..=5 {
        raw.send(&segment::send(msn, 0, true, b"x"));
        device.success();
        while let Some(event) = device.rnic.async_event() {
            if event.kind == AsyncEventKind::SrqLimit {
                assert_eq!(event.qp, end.qp.num());
                limits.push(msn);
            }
        }
        if msn == 4 {
            srq.arm_limit(2);
        }
    }
    // Three left, which is fewer than four; one left, which is fewer than two.
    assert_eq!(limits, [3, 5]);
}

/// draft-hilland-rddp-verbs §6.3: a limit that is reached already when it is armed is reported at
/// once, by one of the queue's QPs; if there is none yet, by the first.
#[test]
fn a_limit_that_is_reached_already_is_told_at_once() {
    let device = End::new();
    let (srq, inbox) = shared(&device, None);
    let told = || {
        let events = device.rnic.async_events();
        events
            .filter(|event| event.kind == AsyncEventKind::SrqLimit)
            .map(|event| event.qp)
            .collect::<Vec<_>>()
    };
    srq.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    srq.arm_limit(2);
    assert_eq!(told(), []);
    let (end, _raw) = stream(&device, &device.cq, Some(&srq));
    assert_eq!(told(), [end.qp.num()]);
    srq.arm_limit(1);
    assert_eq!(told(), [], "one is left, which is not fewer than one");
    srq.arm_limit(2);
    assert_eq!(told(), [end.qp.num()]);
}

/// draft-hilland-rddp-verbs §6.3: the memory of receives is checked by the PD of the shared queue.
#[test]
fn a_shared_queue_uses_its_own_protection_domain() {
    let device = End::new();
    let other: ProtectionDomain = device.rnic.alloc_pd();
    let srq = other.create_srq(SrqConfig::default());
    let (end, mut raw) = stream(&device, &device.cq, Some(&srq));
    let own = other.allocate(8, Access::LOCAL_WRITE).unwrap();
    srq.post_recv(RecvWr::one(1, own.whole())).unwrap();
    raw.send(&segment::send(1, 0, true, b"own"));
    assert_eq!(end.success().wr_id, 1);
}

#[test]
fn a_shared_queue_refuses_memory_of_another_protection_domain() {
    let device = End::new();
    let srq = device.rnic.alloc_pd().create_srq(SrqConfig::default());
    let foreign = device.region(8, Access::LOCAL_WRITE);
    let fault = PostError::Memory { index: 0, stag: foreign.stag(), fault: SgeFault::OtherPd };
    assert_eq!(srq.post_recv(RecvWr::one(1, foreign.whole())), Err(fault));
    assert!(srq.is_empty());
}

#[test]
fn a_shared_receive_whose_memory_has_gone_ends_the_connection() {
    let device = End::new();
    let srq = device.pd.create_srq(SrqConfig::default());
    let (end, mut raw) = stream(&device, &device.cq, Some(&srq));
    let inbox = device.region(8, Access::LOCAL_WRITE);
    srq.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    inbox.deregister().unwrap();
    raw.send(&segment::send(1, 0, true, b"late"));
    assert_eq!(end.next().status, Status::LocalProtection);
}

/// RFC 5042 §6.4.1, §6.4.2: peers that stop half-way through their FPDUs use up the memory for
/// partial FPDUs. Others wait for no longer than the stalled ones are allowed, and a peer that is
/// merely slow does not notice.
#[test]
fn stalled_peers_do_not_stop_the_others() {
    let rnic = Rnic::with_config(&RnicConfig { max_partial: 100_000, ..Default::default() }).unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(1024).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let device = End { rnic, pd, cq, qp };
    let target = device.region(60_000, ALL);
    let [mut slow, mut first, mut second] = [0, 1, 2].map(|_| stream(&device, &device.cq, None));
    for (_, raw) in [&mut first, &mut second] {
        let octets = raw.frame(&raw::write_to(&target, 0, &[1; 60_000]));
        raw.octets(&octets[..59_000]);
    }
    let begin = Instant::now();
    goes_on(&device);
    assert!(begin.elapsed() < PATIENCE / 2);
    for (end, _) in [&first, &second] {
        end.await_state(QpState::Error);
    }
    assert_eq!(target.read(0, 1).unwrap(), [0]);
    let octets = slow.1.frame(&raw::write_to(&target, 0, &[2; 60_000]));
    for part in octets.chunks(10_000) {
        slow.1.octets(part);
        std::thread::sleep(Duration::from_millis(20));
    }
    slow.1.send(&raw::read_from(1, &target, 1));
    assert_eq!(slow.1.expect(Opcode::ReadResponse).1, [2]);
}

/// RFC 5042 §6.4.1: a thread asleep on a QP that may not begin an FPDU, because others hold all the
/// memory for partial ones, does sleep, and sees the completions of others; among a few QPs, and
/// with an epoll set.
#[test]
fn a_thread_that_waits_for_memory_for_partial_fpdus_sleeps() {
    for siblings in [0, 10] {
        let rnic = Rnic::with_config(&RnicConfig { max_partial: 50_000, ..Default::default() }).unwrap();
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(1024).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let device = End { rnic, pd, cq, qp };
        let others: Vec<_> = (0..siblings).map(|_| device.sibling()).collect();
        let target = device.region(60_000, ALL);
        let own = device.rnic.create_cq(16).unwrap();
        let [mut keeps, mut rests] = [&own, &device.cq].map(|cq| stream(&device, cq, None));
        let octets = keeps.1.frame(&raw::write_to(&target, 0, &[1; 60_000]));
        keeps.1.octets(&octets[..59_000]);
        let deadline = Instant::now() + PATIENCE;
        while keeps.0.qp.counters().octets_received < 59_000 {
            assert!(Instant::now() < deadline);
            own.poll_one();
        }
        rests.0.qp.post_recv(RecvWr::new(1, [])).unwrap();
        rests.1.send(&segment::send(1, 0, true, b""));
        let (began, spent) = (Instant::now(), thread_time());
        assert!(!device.cq.wait(Some(Duration::from_millis(500))).unwrap());
        // No measure of speed: a thread that does not sleep uses all of the time.
        let spent = thread_time() - spent;
        assert!(spent < began.elapsed() / 5, "awake for {spent:?} of {:?}", began.elapsed());
        // The memory is free again.
        keeps.1.octets(&octets[59_000..]);
        assert_eq!(rests.0.success().wr_id, 1);
        drop(others);
    }
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// draft-hilland-rddp-verbs §8.3.3: the event is about the SRQ, which another QP still uses.
#[test]
fn the_limit_is_told_though_the_qp_that_reached_it_is_gone() {
    let device = End::new();
    let srq = device.pd.create_srq(SrqConfig::default());
    let mut config = QpConfig::new(&device.cq);
    config.srq = Some(srq.clone());
    let reporter = device.pd.create_qp(&config).unwrap();
    srq.arm_limit(1);
    let _other = device.pd.create_qp(&config).unwrap();
    drop(reporter);
    let event = device.rnic.async_event().expect("the event went with the QP");
    assert_eq!((event.element, event.kind), (Element::Srq(srq.num()), AsyncEventKind::SrqLimit));
    assert_eq!(device.rnic.async_event(), None);
}
