//! Queue pairs that are connected to themselves.

use std::time::Duration;

use rddp_rnic::{
    Access, AsyncEventKind, Completion, CompletionQueue, ConnectError, EventQueue, MemoryRegion, Patience,
    ProtectionDomain, QpConfig, QpState, QueuePair, RecvWr, Remote, Rnic, SendWr, SrqConfig, Stag, Status,
    Transport,
};

/// Ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Octets that are copied in several pieces, the last one of an odd length.
const LONG: usize = 100_001;

/// A QP that is its own peer, and memory that a peer may reach.
struct Itself {
    qp: QueuePair,
    cq: CompletionQueue,
    events: EventQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
}

impl Itself {
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    fn with(change: impl FnOnce(&ProtectionDomain, &mut QpConfig)) -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, cq, events) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap(), EventQueue::new().unwrap());
        let mut config = QpConfig { transport: Transport::Acknowledged, ..QpConfig::new(&cq) };
        config.events = Some(events.clone());
        change(&pd, &mut config);
        let qp = pd.create_qp(&config).unwrap();
        let rights = Access::LOCAL_WRITE | Access::REMOTE | Access::BIND;
        let memory = pd.allocate(4 * LONG, rights).unwrap();
        qp.connect_to_itself().unwrap();
        Itself { qp, cq, events, memory, pd }
    }

    fn receive(&self, wr_id: u64, at: usize, len: usize) {
        self.qp.post_recv(RecvWr::one(wr_id, self.memory.sge(at..at + len))).unwrap();
    }

    /// Returns all that has completed by now.
    fn completed(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.cq.poll_one()).collect()
    }

    fn statuses(&self) -> Vec<(u64, Status)> {
        self.completed().iter().map(|done| (done.wr_id, done.status)).collect()
    }

    /// Posts a request that is refused between one that is not and one behind it, and looks at how
    /// they end.
    fn refuses(&self, wr: SendWr, wanted: Status) {
        let fine = |id| SendWr::write_inline(id, b"x", self.memory.remote(0));
        self.qp.post_sends(&[fine(100), SendWr { wr_id: 101, ..wr }, fine(102)]).unwrap();
        let done: Vec<_> = self.statuses().into_iter().filter(|(id, _)| *id >= 100).collect();
        assert_eq!(done, [(100, Status::Success), (101, wanted), (102, Status::Flushed)]);
        assert_eq!(self.qp.state(), QpState::Error);
        let kind = self.events.next_event().map(|event| event.kind);
        assert!(matches!(kind, Some(AsyncEventKind::Fault(_))), "{kind:?}");
    }
}

#[test]
fn a_send_brings_its_value() {
    let end = Itself::new();
    end.receive(1, 0, 8);
    end.qp.post_send(&SendWr::send_immediate(2, end.memory.sge(8..12), *b"a value.")).unwrap();
    let [receive, send] = end.completed().try_into().unwrap();
    assert_eq!((receive.wr_id, receive.byte_len, receive.immediate), (1, 4, Some(*b"a value.")));
    assert_eq!((send.wr_id, send.status), (2, Status::Success));
}

#[test]
fn sends_take_the_own_receives_in_their_order() {
    let end = Itself::new();
    let octets: Vec<u8> = (0..LONG).map(|at| at as u8).collect();
    end.memory.write(0, &octets).unwrap();
    let pieces = [end.memory.sge(LONG..LONG + 7), end.memory.sge(LONG + 7..2 * LONG + 100)];
    end.qp.post_recv(RecvWr::new(1, pieces)).unwrap();
    end.receive(2, 3 * LONG, 8);
    let pieces = [end.memory.sge(0..3), end.memory.sge(3..3), end.memory.sge(3..LONG)];
    end.qp.post_send(&SendWr::send(3, pieces.to_vec())).unwrap();
    end.qp.post_send(&SendWr::send_inline(4, b"hello").solicited()).unwrap();
    let done = end.completed();
    let seen: Vec<_> = done.iter().map(|done| (done.wr_id, done.status, done.byte_len)).collect();
    let ok = Status::Success;
    assert_eq!(seen, [(1, ok, LONG as u32), (3, ok, 0), (2, ok, 5), (4, ok, 0)]);
    assert!(done[2].solicited && !done[0].solicited);
    assert_eq!(end.memory.read(LONG, LONG).unwrap(), octets);
    assert_eq!(end.memory.read(3 * LONG, 5).unwrap(), b"hello");
}

#[test]
fn writes_and_reads_and_atomics_reach_the_own_memory() {
    let end = Itself::new();
    end.memory.write(0, &vec![7; LONG]).unwrap();
    end.receive(9, 0, 0);
    let whole = end.memory.sge(0..LONG);
    let target = end.memory.remote(LONG);
    end.qp.post_send(&SendWr::write_immediate(1, whole, target, [5; 8])).unwrap();
    let done = end.completed();
    let seen: Vec<_> = done.iter().map(|done| (done.wr_id, done.byte_len, done.immediate)).collect();
    assert_eq!(seen, [(9, LONG as u32, Some([5; 8])), (1, 0, None)]);
    assert_eq!(end.memory.read(LONG, LONG).unwrap(), vec![7; LONG]);

    let counter = 3 * LONG + 5;
    end.memory.write_u64(counter, 40).unwrap();
    let sink = end.memory.sge(0..8);
    end.qp
        .post_sends(&[
            SendWr::read(2, end.memory.sge(2 * LONG..3 * LONG), end.memory.remote(LONG)),
            SendWr::fetch_add(3, sink, end.memory.remote(counter), 2),
            SendWr::read(4, end.memory.sge(8..16), end.memory.remote(0)),
            SendWr::cmp_swap(5, sink, end.memory.remote(counter), 42, 1),
            SendWr::write_inline(6, b"", Remote { stag: Stag(1), to: 1 }),
        ])
        .unwrap();
    assert_eq!(end.statuses(), [2, 3, 4, 5, 6].map(|id| (id, Status::Success)));
    assert_eq!(end.memory.read(2 * LONG, LONG).unwrap(), vec![7; LONG]);
    let read = |at| end.memory.read_u64(at).unwrap();
    assert_eq!([read(8), read(0), read(counter)], [40, 42, 1]);
}

#[test]
fn what_may_not_be_is_refused_as_by_any_peer() {
    let bad = Remote { stag: Stag(0x1234_5678), to: 0 };
    let too_far = |end: &Itself| end.memory.remote(4 * LONG - 7);
    let theirs = Status::RemoteAccess;
    for request in 0..7 {
        let end = Itself::new();
        let (sge, odd) = (end.memory.sge(0..8), end.memory.remote(LONG));
        let (wr, wanted) = match request {
            0 => (SendWr::write(0, sge, bad), theirs),
            1 => (SendWr::write(0, sge, too_far(&end)), theirs),
            2 => (SendWr::read(0, sge, too_far(&end)), theirs),
            3 => (SendWr::fetch_add(0, sge, bad, 1), theirs),
            4 => (SendWr::cmp_swap(0, sge, odd, 1, 2), Status::RemoteInvalidRequest),
            5 => {
                end.receive(1, 0, 7);
                (SendWr::send(0, sge), Status::RemoteInvalidRequest)
            }
            _ => {
                end.receive(1, 0, 8);
                (SendWr::send_invalidate(0, sge, Stag(0x1234_5678)), Status::RemoteInvalidRequest)
            }
        };
        end.refuses(wr, wanted);
    }
}

/// The switches of the QP count, and so do rights of the memory.
#[test]
fn rights_are_those_of_a_peer() {
    let end = Itself::with(|_, config| config.inbound_write = false);
    end.qp.post_send(&SendWr::write_inline(1, b"x", end.memory.remote(0))).unwrap();
    assert_eq!(end.statuses(), [(1, Status::RemoteAccess)]);
    let end = Itself::with(|_, config| config.inbound_read = false);
    let sge = end.memory.sge(0..8);
    end.refuses(SendWr::read(0, sge, end.memory.remote(16)), Status::RemoteAccess);
    let end = Itself::new();
    let mine = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    end.refuses(SendWr::write(0, end.memory.sge(0..8), mine.remote(0)), Status::RemoteAccess);
}

#[test]
fn windows_open_and_close_memory() {
    let end = Itself::new();
    let window = end.pd.allocate_window().unwrap();
    let rights = Access::REMOTE_WRITE | Access::REMOTE_INVALIDATE;
    let range = end.memory.sge(LONG..LONG + 8);
    let Remote { to, .. } = end.memory.remote(LONG);
    end.qp.post_send(&SendWr::bind(1, window.stag(), range, rights)).unwrap();
    assert_eq!(end.statuses(), [(1, Status::Success)]);
    let through = Remote { stag: window.stag(), to };
    end.receive(9, 0, 8);
    end.qp
        .post_sends(&[
            SendWr::write_inline(2, b"windows!", through),
            SendWr::send_invalidate(3, end.memory.sge(0..0), window.stag()),
        ])
        .unwrap();
    let done = end.completed();
    assert!(done.iter().all(|done| done.status == Status::Success), "{done:?}");
    assert_eq!(done[0].invalidated, Some(window.stag()));
    assert_eq!(end.memory.read(LONG, 8).unwrap(), b"windows!");
    end.refuses(SendWr::write_inline(0, b"x", through), Status::RemoteAccess);
}

#[test]
fn memory_that_has_gone_is_the_programs_own_fault() {
    let end = Itself::new();
    let gone = end.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let other = Itself::new();
    let posted = SendWr::send(1, gone.whole());
    end.qp.post_send(&posted).unwrap();
    gone.deregister().unwrap();
    end.receive(2, 0, 8);
    let wanted = [(1, Status::LocalProtection), (2, Status::Flushed)];
    assert_eq!(end.statuses(), wanted);
    // A receive whose memory has gone is the peer's fault, for the Send.
    let gone = other.pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    other.qp.post_recv(RecvWr::one(1, gone.whole())).unwrap();
    gone.deregister().unwrap();
    other.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
    assert_eq!(other.statuses(), [(1, Status::LocalProtection), (2, Status::RemoteOperation)]);
}

#[test]
fn a_send_waits_for_a_receive_and_what_follows_waits_behind_it() {
    let end = Itself::new();
    let list = [SendWr::send_inline(1, b"hello"), SendWr::write_inline(2, b"x", end.memory.remote(0))];
    end.qp.post_sends(&list).unwrap();
    assert_eq!((end.statuses(), end.qp.state()), (vec![], QpState::ReadyToSend));
    end.receive(3, 8, 8);
    assert_eq!(end.statuses(), [3, 1, 2].map(|id| (id, Status::Success)));
}

#[test]
fn a_send_waits_for_a_receive_of_a_shared_queue() {
    let mut srq = None;
    let end = Itself::with(|pd, config| {
        srq = Some(pd.create_srq(SrqConfig::default()));
        config.srq = srq.clone();
    });
    end.qp.post_send(&SendWr::send_inline(1, b"hello")).unwrap();
    assert_eq!(end.statuses(), []);
    srq.unwrap().post_recv(RecvWr::one(2, end.memory.sge(0..8))).unwrap();
    assert_eq!(end.statuses(), [(2, Status::Success), (1, Status::Success)]);
}

#[test]
fn tries_of_a_send_without_a_receive_come_to_an_end() {
    for (tries, timer) in [(0, PATIENCE), (3, Duration::from_millis(5))] {
        let end = Itself::new();
        end.qp.set_patience(Patience { rnr_timer: timer, rnr_retries: Some(tries), ..Patience::default() });
        end.qp.post_sends(&[SendWr::send_inline(1, b"hello"), SendWr::send_inline(2, b"hello")]).unwrap();
        assert!(end.cq.wait(Some(PATIENCE)).unwrap(), "the tries go on");
        assert_eq!(end.statuses(), [(1, Status::ReceiverNotReady), (2, Status::Flushed)]);
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

#[test]
fn only_an_idle_qp_whose_requests_are_acknowledged_is_its_own_peer() {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(8).unwrap());
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    assert!(matches!(qp.connect_to_itself(), Err(ConnectError::Transport)));
    let end = Itself::new();
    assert!(matches!(end.qp.connect_to_itself(), Err(ConnectError::NotIdle(QpState::ReadyToSend))));
    end.qp.abort();
    assert!(end.qp.reset());
    end.qp.post_send(&SendWr::write_inline(1, b"x", end.memory.remote(0))).unwrap();
    assert_eq!(end.statuses(), [], "kept until there is a peer");
    end.qp.connect_to_itself().unwrap();
    assert_eq!(end.statuses(), [(1, Status::Success)]);
    end.receive(2, 0, 8);
    end.qp.disconnect();
    assert_eq!((end.statuses(), end.qp.state()), (vec![(2, Status::Flushed)], QpState::Idle));
}
