//! Requests that complete when the peer has executed them, and the acknowledgements that tell so.

use rddp_iwarp::{Acknowledgement, Value};
use rddp_rdmap::{ReadRequestRepr, TerminateCode, parse_header, tagged_header, untagged_header};
use rddp_test_support::Fpdus;

use super::*;
use crate::{Completion, Gather, MemoryRegion, Remote, Status, Transport};

/// Octets of a message that TCP does not take at once.
pub(super) const LONG: usize = 16 << 20;

const REMOTE: Remote = Remote { stag: Stag(0x100), to: 0x2000 };

/// A QP whose requests are acknowledged, its memory, and the plain socket that is its peer.
pub(super) struct End {
    /// Closed first: else the device would wait for it.
    pub(super) peer: TcpStream,
    pub(super) fpdus: Fpdus,
    pub(super) cq: CompletionQueue,
    pub(super) qp: QueuePair,
    pub(super) region: MemoryRegion,
    pub(super) _pd: ProtectionDomain,
}

impl End {
    pub(super) fn new() -> Self {
        Self::on(&Rnic::open().unwrap())
    }

    pub(super) fn on(rnic: &Rnic) -> Self {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
        let qp = pd.create_qp(&config(&cq)).unwrap();
        let region = pd.allocate(8192, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let peer = attached(&qp);
        End { peer, fpdus: Fpdus::negotiated(&negotiated()), cq, qp, region, _pd: pd }
    }

    /// Has the peer send segments, all at once.
    pub(super) fn arrive(&mut self, ulpdus: &[Vec<u8>]) {
        let octets: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| self.fpdus.frame(ulpdu)).collect();
        self.peer.write_all(&octets).unwrap();
    }

    /// Has the peer leave, by a FIN or a reset.
    fn leave(&mut self, resets: bool) {
        if resets {
            socket2::SockRef::from(&self.peer).set_linger(Some(Duration::ZERO)).unwrap();
        }
        self.peer = sockets(None).1;
    }

    pub(super) fn acknowledge(&mut self, count: u32) {
        self.arrive(&[Acknowledgement::of(count).header().octets().to_vec()]);
    }

    /// Returns the next segment that the peer gets.
    pub(super) fn segment(&mut self) -> Vec<u8> {
        loop {
            if let Some(ulpdu) = self.fpdus.next_ulpdu() {
                return ulpdu;
            }
            let mut octets = [0; 4096];
            let count = self.peer.read(&mut octets).unwrap();
            assert!(count > 0, "FIN");
            self.fpdus.take(&octets[..count]);
        }
    }

    pub(super) fn next(&self) -> Completion {
        assert!(self.cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
        self.cq.poll_one().unwrap()
    }

    /// Returns the requests that have completed and their statuses, all that the QP has read.
    pub(super) fn completed(&self) -> Vec<(u64, Status)> {
        std::iter::from_fn(|| self.cq.poll_one()).map(|done| (done.wr_id, done.status)).collect()
    }

    /// Waits until the QP has taken so many FPDUs.
    pub(super) fn await_fpdus(&self, count: u64) {
        await_that("FPDUs are not taken", || self.qp.counters().fpdus_received == count);
    }

    /// Returns a segment of the peer's Write of so many octets.
    pub(super) fn write(&self, len: usize) -> Vec<u8> {
        let Remote { stag, to } = self.region.remote(0);
        [tagged_header(Opcode::Write, stag, to, true).octets().as_ref(), &vec![7; len]].concat()
    }
}

pub(super) fn config(cq: &CompletionQueue) -> QpConfig {
    QpConfig { transport: Transport::Acknowledged, ..QpConfig::new(cq) }
}

pub(super) fn send(msn: u32) -> Vec<u8> {
    [untagged_header(Opcode::Send, Stag(0), Msn(msn), 0, true).octets().as_ref(), b"hello"].concat()
}

#[test]
fn a_request_completes_when_the_peer_has_executed_it_and_not_before() {
    let mut end = End::new();
    let list = [
        SendWr::write_inline(1, b"short", REMOTE),
        SendWr::send(2, end.region.sge(0..5000)),
        SendWr::write_inline(3, b"", REMOTE),
        SendWr::write_immediate(4, end.region.sge(0..8), REMOTE, [0; 8]),
        SendWr::send_inline(5, b"last"),
    ];
    end.qp.post_send(&list[0]).unwrap();
    end.qp.post_sends(&list[1..]).unwrap();
    let sent = end.qp.counters().fpdus_sent;
    (0..sent).for_each(|_| drop(end.segment()));
    assert_eq!(end.completed(), [], "TCP has taken all of it");
    end.acknowledge(1);
    assert_eq!(end.next().wr_id, 1);
    // The Write of no octets completes with the request before it, and that with Immediate Data
    // with both of its messages.
    end.acknowledge(3);
    end.await_fpdus(2);
    assert_eq!(end.completed(), [(2, Status::Success), (3, Status::Success)]);
    end.acknowledge(5);
    end.await_fpdus(3);
    assert_eq!(end.completed(), [(4, Status::Success), (5, Status::Success)]);
}

#[test]
fn a_value_is_told_in_front_of_its_send() {
    let mut end = End::new();
    let value = Value(*b"a value.");
    end.qp.post_send(&SendWr::send_immediate(1, end.region.sge(0..5000), value.0)).unwrap();
    assert_eq!(Value::parse(&end.segment()), Some(value));
    while !parse_header(&end.segment()).unwrap().last() {}
    end.acknowledge(1);
    assert_eq!(end.next().wr_id, 1);
}

#[test]
fn the_peer_is_told_once_for_each_turn_of_reading() {
    let mut end = End::new();
    for id in 0..3 {
        end.qp.post_recv(RecvWr::one(id, end.region.sge(0..100))).unwrap();
    }
    let nothing = tagged_header(Opcode::Write, Stag(0), 0, true).octets().to_vec();
    let list = [send(1), end.write(100), nothing, send(2), end.write(1)];
    end.arrive(&list);
    end.await_fpdus(5);
    let said = Acknowledgement::parse(&end.segment());
    assert_eq!(said, Some(Acknowledgement::of(4)), "all but the Write of no octets");
    end.arrive(&[send(3)]);
    assert_eq!(Acknowledgement::parse(&end.segment()), Some(Acknowledgement::of(5)));
}

#[test]
fn acknowledgements_of_what_was_never_sent_end_the_connection_and_no_other() {
    let rnic = Rnic::open().unwrap();
    let (cq, qps, [source, sink]) = joined_on(&rnic);
    for (sent, said) in [(0, 1), (2, 3), (2, u32::MAX)] {
        let mut end = End::on(&rnic);
        for _ in 0..sent {
            end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
            end.segment();
        }
        end.acknowledge(said);
        assert_eq!(terminate_of(&end.segment()), TerminateCode::UNTAGGED_MSN_RANGE);
        await_that("the QP goes on", || end.qp.state() != QpState::ReadyToSend);
        assert_eq!(end.completed(), vec![(1, Status::Flushed); sent]);
    }
    let mut end = End::on(&rnic);
    end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    end.segment();
    end.acknowledge(1);
    assert_eq!(end.next().status, Status::Success);
    end.acknowledge(0);
    assert_eq!(terminate_of(&end.segment()), TerminateCode::UNTAGGED_MSN_RANGE, "backwards");
    qps[0].post_send(&SendWr::write(1, source.sge(0..8), sink.remote(0))).unwrap();
    assert_eq!(completions(&cq, &qps[0], 1), [(1, Status::Success)]);
}

#[test]
fn a_qp_of_iwarp_takes_no_acknowledgement() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let mut peer = attached(&qp);
    let post = qp.post_send(&SendWr::send_immediate(1, Gather::Inline(b"x".to_vec()), [0; 8]));
    assert!(matches!(post, Err(PostError::Transport)));
    let said = Fpdus::negotiated(&negotiated()).frame(&Acknowledgement::of(0).header().octets());
    peer.write_all(&said).unwrap();
    await_that("the QP goes on", || qp.terminate_sent().is_some());
    assert_eq!(qp.terminate_sent().unwrap().code, TerminateCode::UNEXPECTED_OPCODE);
}

/// A peer that never reads makes us keep a bounded number of octets, and is told of all once it
/// does.
#[test]
fn what_the_peer_does_not_read_is_bounded_and_the_last_count_arrives() {
    let mut end = End::new();
    let count = 300;
    let write = end.fpdus.frame(&end.write(8));
    end.qp.inner.anywhere().with_core(|qp, core| {
        core.connection.as_mut().unwrap().parts().0.block();
        for turn in 1..=count {
            end.peer.write_all(&write).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while core.tally.of(rddp_stat::Counter::FpdusReceived) < turn {
                assert!(Instant::now() < deadline, "the Write is not taken");
                qp.pull(core);
            }
        }
        let promised = core.connection.as_mut().unwrap().parts().1.promised();
        assert!((4096..4200).contains(&promised), "{promised}");
        qp.pump(core);
    });
    let mut last = 0;
    while last < count as u32 {
        let said = Acknowledgement::parse(&end.segment()).unwrap().executed;
        assert!(said > last);
        last = said;
    }
}

/// Returns two connected QPs of a device, their queue and memory; only the second one's may be
/// written.
pub(super) fn joined() -> (CompletionQueue, [QueuePair; 2], [MemoryRegion; 2]) {
    joined_on(&Rnic::open().unwrap())
}

fn joined_on(rnic: &Rnic) -> (CompletionQueue, [QueuePair; 2], [MemoryRegion; 2]) {
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let qps = [0, 1].map(|_| pd.create_qp(&config(&cq)).unwrap());
    sockets_joined(&qps);
    let rights = [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE];
    (cq, qps, rights.map(|rights| pd.allocate(LONG, rights).unwrap()))
}

/// Joins two QPs over a TCP connection.
pub(super) fn sockets_joined(qps: &[QueuePair; 2]) {
    let (one, other) = sockets(None);
    for (qp, socket, active) in [(&qps[0], one, true), (&qps[1], other, false)] {
        qp.attach(socket, negotiated(), &ConnectOptions::default(), active).unwrap();
    }
}

/// Waits for so many completions of a QP.
pub(super) fn completions(cq: &CompletionQueue, qp: &QueuePair, count: usize) -> Vec<(u64, Status)> {
    let mut done = Vec::new();
    while done.len() < count {
        assert!(cq.wait(Some(PATIENCE)).unwrap(), "only {done:?}");
        let polled = std::iter::from_fn(|| cq.poll_one()).filter(|done| done.qp == qp.num());
        done.extend(polled.map(|done| (done.wr_id, done.status)));
    }
    done
}

#[test]
fn a_short_read_does_not_see_the_write_behind_it() {
    for len in [1, 8, 2048] {
        let (cq, [qp, _other], [mine, theirs]) = joined();
        let (new, read) = (mine.sge(0..len), mine.sge(4096..4096 + len));
        mine.write(0, &vec![9; len]).unwrap();
        theirs.write(0, &vec![5; len]).unwrap();
        qp.post_sends(&[SendWr::read(1, read, theirs.remote(0)), SendWr::write(2, new, theirs.remote(0))])
            .unwrap();
        assert_eq!(completions(&cq, &qp, 2), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(mine.read(4096, len).unwrap(), vec![5; len], "{len}");
        assert_eq!(theirs.read(0, len).unwrap(), vec![9; len], "{len}");
    }
}

#[test]
fn the_first_request_that_is_refused_has_the_reason_for_its_status() {
    let flushed = |id| (id, Status::Flushed);
    let (mine, theirs) = (REMOTE, Status::RemoteAccess);
    for len in [8, LONG] {
        let (cq, [qp, _other], [source, sink]) = joined();
        let sge = source.sge(0..len);
        qp.post_sends(&[
            SendWr::write(1, sge, sink.remote(0)),
            SendWr::write(2, sge, mine),
            SendWr::write(3, sge, sink.remote(0)),
        ])
        .unwrap();
        assert_eq!(completions(&cq, &qp, 3), [(1, Status::Success), (2, theirs), flushed(3)], "{len}");
    }
    // Longer than its receive, and an STag that it may not invalidate.
    for (len, invalidate) in [(9, None), (8, Some(Stag(0xabcd)))] {
        let (cq, [qp, other], [source, sink]) = joined();
        other.post_recv(RecvWr::one(9, sink.sge(0..8))).unwrap();
        let sge = source.sge(0..len);
        qp.post_sends(&[
            SendWr::write(1, source.sge(0..8), sink.remote(0)),
            invalidate.map_or_else(|| SendWr::send(2, sge), |stag| SendWr::send_invalidate(2, sge, stag)),
            SendWr::read(3, source.sge(0..8), sink.remote(0)),
        ])
        .unwrap();
        let refused = (2, Status::RemoteInvalidRequest);
        assert_eq!(completions(&cq, &qp, 3), [(1, Status::Success), refused, flushed(3)]);
    }
}

/// The oldest request says that the peer has left, in order or not.
#[test]
fn a_request_that_the_peer_does_not_answer_says_so() {
    for resets in [false, true] {
        let mut end = End::new();
        end.qp.post_recv(RecvWr::one(9, end.region.sge(0..100))).unwrap();
        for id in 1..=3 {
            end.qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
            end.segment();
        }
        end.acknowledge(1);
        assert_eq!(end.next().status, Status::Success);
        end.leave(resets);
        await_that("the QP goes on", || end.qp.state() == QpState::Error);
        let wanted = [(2, Status::Unanswered), (3, Status::Flushed), (9, Status::Flushed)];
        assert_eq!(end.completed(), wanted, "{resets}");
    }
}

/// An adapter, too, asks its peer for nothing but answers.
#[test]
fn the_end_of_a_peer_that_owes_nothing_is_noticed_by_the_next_request() {
    for resets in [false, true] {
        let mut end = End::new();
        end.qp.post_recv(RecvWr::one(9, end.region.sge(0..100))).unwrap();
        end.leave(resets);
        await_that("the end is not seen", || end.qp.peer_addr().is_none());
        end.qp.post_recv(RecvWr::one(10, end.region.sge(0..100))).unwrap();
        assert_eq!((end.qp.state(), end.completed()), (QpState::ReadyToSend, vec![]));
        end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
        let flushed = |id| (id, Status::Flushed);
        assert_eq!(end.completed(), [(1, Status::Unanswered), flushed(9), flushed(10)]);
        assert_eq!(end.qp.state(), QpState::Error);
        assert!(end.qp.reset());
    }
}

/// The peer's last message may have come when the program drops the QP, and not been looked at.
#[test]
fn what_has_come_is_acknowledged_when_the_program_leaves() {
    let mut end = End::new();
    end.qp.post_recv(RecvWr::one(1, end.region.sge(0..100))).unwrap();
    let octets = end.fpdus.frame(&send(1));
    let inner = end.qp.inner.anywhere().clone();
    inner.with_core(|qp, core| {
        end.peer.write_all(&octets).unwrap();
        await_that("the Send is not there", || core.connection.as_ref().unwrap().watch.has_arrived());
        qp.acknowledge_last(core);
        qp.leave(core);
    });
    assert_eq!(Acknowledgement::parse(&end.segment()), Some(Acknowledgement::of(1)));
}

/// A peer that leaves with octets unread resets TCP behind its last acknowledgement.
#[test]
fn what_was_acknowledged_before_a_reset_counts() {
    let mut end = End::new();
    end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    let long = end._pd.allocate(LONG, Access::LOCAL_WRITE).unwrap();
    end.qp.post_send(&SendWr::write(2, long.sge(0..LONG), REMOTE)).unwrap();
    let inner = end.qp.inner.anywhere().clone();
    inner.with_core(|qp, core| {
        end.acknowledge(1);
        end.leave(false);
        await_that("TCP still sends", || {
            core.connection.as_ref().unwrap().watch.socket().take_error().is_ok_and(|error| error.is_some())
        });
        qp.pump(core);
    });
    assert_eq!(end.completed(), [(1, Status::Success), (2, Status::Unanswered)]);
}

/// RFC 5040 §6.2.1: a peer that goes on sending behind its fault does not keep this end reading.
#[test]
fn nothing_is_taken_behind_a_fault_that_sending_finds() {
    let mut end = End::new();
    let (size, src_stag) = (LONG as u32, Stag(0xabcd));
    let asks = ReadRequestRepr { sink_stag: Stag(1), sink_to: 0, size, src_stag, src_to: 0 }.octets();
    let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true).octets();
    let read = end.fpdus.frame(&[header.as_ref(), asks.as_ref()].concat());
    let write = end.fpdus.frame(&end.write(8));
    let inner = end.qp.inner.anywhere().clone();
    inner.with_core(|qp, core| {
        let taken = |core: &Core| core.tally.of(rddp_stat::Counter::FpdusReceived);
        let deadline = Instant::now() + PATIENCE;
        end.peer.write_all(&read).unwrap();
        while taken(core) < 1 {
            assert!(Instant::now() < deadline, "the Read is not taken");
            qp.pull(core);
        }
        end.peer.write_all(&write).unwrap();
        await_that("the Write is not there", || core.connection.as_ref().unwrap().watch.has_arrived());
        qp.pump(core);
        assert_eq!((core.state, taken(core)), (QpState::Terminate, 1));
    });
}

/// A QP that is connected again counts from the beginning.
#[test]
fn counts_begin_with_the_connection() {
    let mut end = End::new();
    for _ in 0..2 {
        end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
        end.segment();
        end.acknowledge(1);
        assert_eq!(end.next().status, Status::Success);
        end.qp.abort();
        assert!(end.qp.reset());
        (end.peer, end.fpdus) = (attached(&end.qp), Fpdus::negotiated(&negotiated()));
    }
}

/// Returns the code of a segment that is a Terminate.
fn terminate_of(ulpdu: &[u8]) -> TerminateCode {
    let header = parse_header(ulpdu).unwrap();
    rddp_rdmap::TerminateRepr::parse(&ulpdu[header.len()..]).unwrap().code
}

/// Returns a Send with this id, of so many octets.
fn sized(end: &End, id: u64, len: usize) -> SendWr {
    SendWr::send(id, end.region.sge(0..len))
}

/// Posts Sends of 64 octets, the first of which go at once: a peer is behind with its answers.
fn post_many(end: &End) {
    (0..12).for_each(|id| end.qp.post_send(&sized(end, id, 64)).unwrap());
    assert_eq!(end.qp.counters().fpdus_sent, 8);
}

#[test]
fn requests_behind_many_go_together_when_the_peer_has_answered() {
    let mut end = End::new();
    post_many(&end);
    let before = end.qp.counters().send_calls;
    end.acknowledge(1);
    assert_eq!(end.next().wr_id, 0);
    let after = end.qp.counters();
    assert_eq!((after.fpdus_sent, after.send_calls - before), (12, 1));
    end.acknowledge(12);
    await_that("not all are done", || end.qp.counters().fpdus_received == 2);
    assert_eq!(end.completed().len(), 11);
    end.qp.post_send(&sized(&end, 12, 64)).unwrap();
    assert_eq!(end.qp.counters().fpdus_sent, 13, "nothing is before it");
}

#[test]
fn requests_that_are_much_together_do_not_wait() {
    for (count, len) in [(32, 64), (8, 4096), (4, 8192)] {
        let end = End::new();
        (0..8).for_each(|id| end.qp.post_send(&sized(&end, id, 64)).unwrap());
        (0..count - 1).for_each(|id| end.qp.post_send(&sized(&end, id, len)).unwrap());
        assert_eq!(end.qp.counters().fpdus_sent, 8);
        end.qp.post_send(&sized(&end, 99, len)).unwrap();
        await_that("they wait", || end.qp.counters().fpdus_sent >= 8 + count);
    }
}

/// A program that watches memory reads no answer, and the background thread leaves that to it.
#[test]
fn requests_wait_for_a_moment_only() {
    let end = End::new();
    let inner = end.qp.inner.anywhere();
    inner.with_core(|_, core| {
        core.connection.as_mut().unwrap().watch.leave_to_program(&inner.attrs.device.driver);
    });
    post_many(&end);
    await_that("they wait for ever", || end.qp.counters().fpdus_sent == 12);
}
