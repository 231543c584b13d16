//! Messages without a receive, where requests are acknowledged.

use rddp_iwarp::{Acknowledgement, Value};
use rddp_rdmap::ReadRequestRepr;

use super::acknowledged::{End, LONG, config, joined, send, sockets_joined};
use super::*;
use crate::{Patience, RecvWr, Remote, SrqConfig, Status};

/// Microseconds between two tries of a message without a receive, as the peer is told by default.
const MICROS: u32 = 640;

fn not_ready(executed: u32) -> Acknowledgement {
    Acknowledgement { executed, not_ready: MICROS }
}

/// Waits until the QP goes on to another state.
fn await_end(end: &End) {
    await_that("the QP goes on", || end.qp.state() == QpState::Error);
}

#[test]
fn a_message_waits_for_a_receive_and_the_peer_is_told_once() {
    let mut end = End::new();
    let write = end.write(3);
    end.arrive(&[write.clone(), send(1), write, send(2)]);
    end.await_fpdus(4);
    assert_eq!(Acknowledgement::parse(&end.segment()), Some(not_ready(1)));
    assert_eq!(end.qp.counted(rddp_stat::Counter::WritesReceived), 1, "the other one waits");
    end.qp.post_recv(RecvWr::one(7, end.region.sge(0..100))).unwrap();
    assert_eq!(end.completed(), [(7, Status::Success)]);
    assert_eq!(Acknowledgement::parse(&end.segment()), Some(not_ready(3)));
    end.qp.post_recv(RecvWr::one(8, end.region.sge(0..100))).unwrap();
    assert_eq!(end.completed(), [(8, Status::Success)]);
    assert_eq!(Acknowledgement::parse(&end.segment()), Some(Acknowledgement::of(4)));
    assert_eq!(end.region.read(0, 5).unwrap(), b"hello");
    assert_eq!(end.qp.inner.anywhere().attrs.device.partial.held(), 0);
}

/// A value waits with its Send, and none of those around it takes it.
#[test]
fn a_value_stays_with_its_send() {
    let mut end = End::new();
    let value = Value(*b"a value.");
    let told = value.header().octets().to_vec();
    end.arrive(&[send(1), send(2), told.clone(), send(3), send(4)]);
    end.await_fpdus(5);
    for id in 0..4 {
        end.qp.post_recv(RecvWr::one(id, end.region.sge(0..100))).unwrap();
    }
    let values: Vec<_> = (0..4).map(|_| end.next().immediate).collect();
    assert_eq!(values, [None, None, Some(value.0), None]);
    end.qp.post_recv(RecvWr::one(4, end.region.sge(0..100))).unwrap();
    end.arrive(&[told, send(5)]);
    assert_eq!(end.next().immediate, Some(value.0), "with a receive that waits");
}

/// The program may post its receive only once its own requests are done.
#[test]
fn answers_are_taken_while_a_message_waits() {
    let mut end = End::new();
    end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    end.qp.post_send(&SendWr::read(2, end.region.sge(0..4), Remote { stag: Stag(1), to: 0 })).unwrap();
    end.segment();
    let request = end.segment();
    let sink = ReadRequestRepr::parse(&request[18..]).unwrap();
    let response = rddp_rdmap::tagged_header(Opcode::ReadResponse, sink.sink_stag, sink.sink_to, true);
    let response = [response.octets().as_ref(), b"read"].concat();
    end.arrive(&[send(1), Acknowledgement::of(1).header().octets().to_vec(), response]);
    assert_eq!([end.next().wr_id, end.next().wr_id], [1, 2]);
    assert_eq!(end.region.read(0, 4).unwrap(), b"read");
    end.qp.post_recv(RecvWr::one(7, end.region.sge(0..100))).unwrap();
    assert_eq!(end.completed(), [(7, Status::Success)]);
}

/// Both programs send first, and receive when that is done.
#[test]
fn two_ends_that_wait_for_each_other_go_on() {
    let (cq, qps, [source, sink]) = joined();
    for (id, qp) in qps.iter().enumerate() {
        qp.post_sends(&[
            SendWr::write(10 + id as u64, source.sge(0..LONG / 4), sink.remote(0)),
            SendWr::send(20 + id as u64, source.sge(0..LONG / 4)),
            SendWr::send_inline(30 + id as u64, b"last"),
        ])
        .unwrap();
    }
    assert_eq!(ids(&cq, 2), [10, 11]);
    for qp in &qps {
        qp.post_recv(RecvWr::one(1, sink.sge(0..LONG / 4))).unwrap();
        qp.post_recv(RecvWr::one(2, sink.sge(0..8))).unwrap();
    }
    assert_eq!(ids(&cq, 8), [1, 1, 2, 2, 20, 21, 30, 31]);
}

/// Waits for so many completions of whatever QP, all of them successes. Returns their ids in order.
fn ids(cq: &CompletionQueue, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    while ids.len() < count {
        assert!(cq.wait(Some(PATIENCE)).unwrap(), "only {ids:?}");
        let done = cq.poll_one().unwrap();
        assert_eq!(done.status, Status::Success, "{done:?}");
        ids.push(done.wr_id);
    }
    ids.sort_unstable();
    ids
}

#[test]
fn a_shared_queue_that_is_empty_is_waited_for() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let srq = pd.create_srq(SrqConfig::default());
    let qps = [None, Some(srq.clone())].map(|srq| pd.create_qp(&QpConfig { srq, ..config(&cq) }).unwrap());
    sockets_joined(&qps);
    let region = pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    qps[0].post_sends(&[SendWr::send_inline(1, b"hello"), SendWr::send_inline(2, b"again")]).unwrap();
    await_that("the Send is not there", || qps[1].inner.anywhere().with_core(|_, core| core.is_parked()));
    for id in [3, 4] {
        assert!(cq.poll_one().is_none());
        srq.post_recv(RecvWr::one(id, region.sge(0..8))).unwrap();
        assert_eq!(ids(&cq, 2), [id - 2, id]);
    }
}

#[test]
fn a_peer_without_a_receive_is_tried_as_often_as_the_program_says() {
    for (tries, timer) in [(0, u32::MAX), (7, 1000)] {
        let mut end = End::new();
        let patience = Patience { rnr_retries: Some(tries), ..Patience::default() };
        end.qp.set_patience(patience);
        end.qp.post_recv(RecvWr::one(9, end.region.sge(0..8))).unwrap();
        for id in 1..=3 {
            end.qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
            end.segment();
        }
        end.arrive(&[Acknowledgement { executed: 1, not_ready: timer }.header().octets().to_vec()]);
        await_end(&end);
        let flushed = |id| (id, Status::Flushed);
        let wanted = [(1, Status::Success), (2, Status::ReceiverNotReady), flushed(3), flushed(9)];
        assert_eq!(end.completed(), wanted);
    }
}

/// Tries begin anew with each message, and not with each word about one.
#[test]
fn a_peer_that_says_so_again_and_again_gains_no_time() {
    let mut end = End::new();
    end.qp.set_patience(Patience { rnr_retries: Some(1), ..Patience::default() });
    for id in 1..=2 {
        end.qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
        end.segment();
    }
    let told = |executed| Acknowledgement { executed, not_ready: 200_000 }.header().octets().to_vec();
    end.arrive(&[told(0), told(1)]);
    let octets = end.fpdus.frame(&told(1));
    await_that("the time begins anew", || {
        let _ = (&end.peer).write_all(&octets);
        end.qp.state() != QpState::ReadyToSend
    });
    assert_eq!(end.completed(), [(1, Status::Success), (2, Status::ReceiverNotReady)]);
}

#[test]
fn requests_behind_a_message_without_a_receive_are_not_sent() {
    let mut end = End::new();
    end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    end.segment();
    end.arrive(&[not_ready(0).header().octets().to_vec()]);
    end.await_fpdus(1);
    end.qp.post_send(&SendWr::send_inline(2, b"later")).unwrap();
    assert_eq!(end.qp.counters().fpdus_sent, 1);
    end.acknowledge(1);
    assert_eq!(end.next().wr_id, 1);
    assert_eq!(end.segment()[18..], *b"later");
}

#[test]
fn a_message_that_was_never_sent_has_no_receive_to_miss() {
    let mut end = End::new();
    end.arrive(&[not_ready(0).header().octets().to_vec()]);
    await_that("the QP goes on", || end.qp.terminate_sent().is_some());
}

/// A peer that does not stop when it is told makes us keep a bounded number of octets.
#[test]
fn what_is_held_is_bounded_and_given_back() {
    let mut end = End::new();
    let partial = |end: &End| end.qp.inner.anywhere().attrs.device.partial.held();
    let more = end.fpdus.frame(&send(1));
    end.peer.write_all(&more).unwrap();
    end.peer.set_nonblocking(true).unwrap();
    // Writes of 8,000 octets and Sends of none: 64 MiB, and more than the bound.
    let ulpdu = end.write(8000);
    let frames: Vec<u8> = (0..100).flat_map(|_| end.fpdus.frame(&ulpdu)).collect();
    let (mut at, mut sent, mut idle) = (0, 0_usize, Instant::now());
    while sent < 64 << 20 && idle.elapsed() < Duration::from_secs(2) {
        match end.peer.write(&frames[at..]) {
            Ok(count) => (at, sent, idle) = ((at + count) % frames.len(), sent + count, Instant::now()),
            Err(_) => std::thread::yield_now(),
        }
    }
    assert!(sent < 64 << 20, "all of it was taken");
    let held = partial(&end);
    assert!((16 << 20..18 << 20).contains(&held), "{held}");
    end.qp.post_recv(RecvWr::one(7, end.region.sge(0..100))).unwrap();
    assert_eq!(end.next().wr_id, 7);
    await_that("what was held is kept", || partial(&end) < 1 << 20);
    end.peer.write_all(&more[..1]).unwrap_or_default();
    end.qp.abort();
    assert_eq!(partial(&end), 0);
}

/// A peer that is stopped, say: its host acknowledges octets, and nobody there reads them.
#[test]
fn a_peer_that_answers_nothing_is_waited_for_as_long_as_the_program_says() {
    let limit = Duration::from_millis(200);
    let mut end = End::new();
    end.qp.set_user_timeout(limit);
    end.qp.post_recv(RecvWr::one(9, end.region.sge(0..8))).unwrap();
    for id in 1..=2 {
        end.qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
    }
    end.acknowledge(1);
    assert_eq!(end.next().status, Status::Success);
    end.qp.set_patience(Patience { answers: Some(limit), ..Patience::default() });
    await_end(&end);
    assert_eq!(end.completed(), [(2, Status::Unanswered), (9, Status::Flushed)]);
}

/// Nothing is outstanding at one end, and at the other the peer has said why it does not answer.
#[test]
fn a_peer_that_owes_no_answer_is_not_lost() {
    let limit = Duration::from_millis(20);
    let [mut idle, mut waits] = [End::new(), End::new()];
    waits.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    waits.arrive(&[not_ready(0).header().octets().to_vec()]);
    waits.await_fpdus(1);
    for end in [&mut idle, &mut waits] {
        end.qp.set_patience(Patience { answers: Some(limit), ..Patience::default() });
        end.qp.set_user_timeout(limit);
    }
    // A third one has been lost for some time by then.
    for _ in 0..5 {
        let end = End::new();
        end.qp.set_patience(Patience { answers: Some(limit), ..Patience::default() });
        end.qp.set_user_timeout(limit);
        end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
        await_end(&end);
    }
    assert_eq!([idle.qp.state(), waits.qp.state()], [QpState::ReadyToSend; 2]);
    assert_eq!((idle.completed(), waits.completed()), (vec![], vec![]));
}

#[test]
fn a_peer_that_does_not_come_is_waited_for_as_long_as_the_program_says() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&config(&cq)).unwrap();
    qp.set_patience(Patience { answers: Some(Duration::from_millis(20)), ..Patience::default() });
    for id in 1..=2 {
        qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
    }
    for wanted in [(1, Status::Unanswered), (2, Status::Flushed)] {
        assert!(cq.wait(Some(PATIENCE)).unwrap(), "the QP waits on");
        let done = cq.poll_one().unwrap();
        assert_eq!((done.wr_id, done.status), wanted);
    }
    assert!(qp.state() == QpState::Error && qp.reset());
}
