//! A completion queue whose members are not all [`QueuePair`]s.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use nix::poll::PollFlags;
use nix::sys::epoll::EpollFlags;

use super::*;
use crate::io::driver::{Failure, Holder, Source};
use crate::io::lease::Lease;
use crate::mem::QpNum;
use crate::{Completed, QpConfig, Rnic, SendWr, Status};

/// Ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A receiver of datagrams, each of which completes a receive.
#[derive(Debug)]
struct Datagrams {
    token: u64,
    num: QpNum,
    socket: Arc<UdpSocket>,
    cq: Arc<CqInner>,
    received: Mutex<u64>,
    has_overflowed: AtomicBool,
}

impl Datagrams {
    /// Makes a receiver that completes into `cq`, and a socket connected to it.
    fn new(num: u32, cq: &CompletionQueue) -> (Arc<Self>, UdpSocket) {
        let (socket, peer) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        socket.set_nonblocking(true).unwrap();
        peer.connect(socket.local_addr().unwrap()).unwrap();
        let cq = cq.0.anywhere();
        let member = Arc::new_cyclic(|weak: &std::sync::Weak<Self>| {
            let source: std::sync::Weak<dyn Source> = weak.clone();
            Datagrams {
                token: cq.driver.add(source),
                num: QpNum(num),
                socket: Arc::new(socket),
                cq: cq.clone(),
                received: Mutex::default(),
                has_overflowed: AtomicBool::default(),
            }
        });
        cq.add_member(member.token, member.clone()).unwrap();
        cq.admit(member.socket.as_fd(), member.token).unwrap();
        (member, peer)
    }
}

/// Returns the completion of a receive with so many octets.
fn receive_of(qp: QpNum, wr_id: u64, len: usize) -> Completion {
    Completion {
        wr_id,
        status: Status::Success,
        completed: Completed::Receive,
        byte_len: len as u32,
        qp,
        invalidated: None,
        immediate: None,
        source: None,
        solicited: false,
    }
}

impl Member for Datagrams {
    fn try_progress(&self) {
        let Some(mut received) = self.received.try_lock() else { return };
        while let Ok(len) = self.socket.recv(&mut [0; 100]) {
            self.cq.push(receive_of(self.num, *received, len), None);
            *received += 1;
        }
    }

    fn watch_for(&self) -> Option<(Watched, PollFlags)> {
        Some((self.socket.clone(), PollFlags::POLLIN))
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn enter(&self, cq: &CqInner) -> io::Result<()> {
        cq.admit(self.socket.as_fd(), self.token)
    }
}

impl Source for Datagrams {
    fn lease(&self, turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        let lease = self.cq.lease(turn);
        lease.is_held().then(|| (lease, self.cq.clone() as Arc<dyn Holder>))
    }

    fn on_ready(&self, driver: &Driver) -> bool {
        self.try_progress();
        driver.arm(self.socket.as_fd(), self.token, EpollFlags::EPOLLIN);
        false
    }

    fn on_timer(&self, _driver: &Driver, _now: Instant) {
        self.has_overflowed.store(self.cq.is_overflowed(), Ordering::SeqCst);
    }

    fn give_up(&self, _driver: &Driver, _failure: Failure) {}
}

/// Waits until `is_so`. Returns whether that came in time.
fn comes(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn members_of_two_kinds_complete_into_one_queue() {
    let rnic = Rnic::open().unwrap();
    let cq = rnic.create_cq(16).unwrap();
    let qp = rnic.alloc_pd().create_qp(&QpConfig::new(&cq)).unwrap();
    let (_member, peer) = Datagrams::new(1000, &cq);
    assert!(cq.poll_one().is_none());
    peer.send(b"hello").unwrap();
    qp.abort();
    qp.post_send(&SendWr::send_inline(7, b"").unsignaled()).unwrap();
    let mut polled = [0, 1].map(|_| {
        assert!(cq.wait(Some(PATIENCE)).unwrap());
        let completion = cq.poll_one().unwrap();
        (completion.qp, completion.wr_id, completion.byte_len, completion.status)
    });
    polled.sort_by_key(|(qp, ..)| qp.0);
    let expected = [(qp.num(), 7, 0, Status::Flushed), (QpNum(1000), 0, 5, Status::Success)];
    assert_eq!(polled, expected);
}

/// Few members are named one by one to the kernel, many are in an epoll set. The background thread
/// does not watch these members, so it cannot be what wakes the thread.
#[test]
fn a_thread_that_sleeps_on_a_queue_is_woken_by_any_of_its_members() {
    let rnic = Rnic::open().unwrap();
    for count in [1, FEW, FEW + 1, 2 * FEW] {
        let cq = rnic.create_cq(16).unwrap();
        let members: Vec<_> = (0..count as u32).map(|num| Datagrams::new(num, &cq)).collect();
        assert_eq!(cq.0.anywhere().is_by_epoll(), count > FEW);
        for (member, peer) in &members {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| cq.wait(None).unwrap());
                let turn = AtomicU64::new(0);
                let is_asleep = comes(|| {
                    let turn = turn.fetch_add(1, Ordering::Relaxed) + 1;
                    cq.0.anywhere().presence.lease(turn, Instant::now()).is_held()
                });
                peer.send(b"!").unwrap();
                let is_woken = comes(|| waiting.is_finished());
                cq.wake();
                assert!(is_asleep && is_woken, "{:?} of {count}", member.num);
            });
            assert_eq!(cq.poll_one().unwrap().qp, member.num);
        }
    }
}

/// The queues of a channel are slept on one by one while they are few, and by one epoll set when
/// they, or the members of one, are many.
#[test]
fn a_thread_that_sleeps_on_a_channel_is_woken_by_any_member_of_any_queue() {
    let rnic = Rnic::open().unwrap();
    for (count, of_first) in [(1, 1), (FEW, 1), (FEW + 1, 1), (2, FEW + 1)] {
        let channel = rnic.create_channel().unwrap();
        let queues: Vec<_> = (0..count).map(|_| rnic.create_cq_on(&channel, 16).unwrap()).collect();
        let crowd = (1..of_first).map(|_| &queues[0]);
        let members: Vec<_> = queues.iter().chain(crowd).map(|cq| (cq, Datagrams::new(1, cq))).collect();
        for (cq, (_member, peer)) in &members {
            cq.arm(false);
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| channel.wait(Some(PATIENCE)).unwrap().map(|cq| cq.num()));
                let turn = AtomicU64::new(0);
                let is_asleep = comes(|| {
                    let turn = turn.fetch_add(1, Ordering::Relaxed) + 1;
                    cq.0.anywhere().presence.lease(turn, Instant::now()).is_held()
                });
                peer.send(b"!").unwrap();
                assert!(is_asleep && waiting.join().unwrap() == Some(cq.num()), "{count} {of_first}");
            });
            assert_eq!(cq.completions().count(), 1);
        }
        let first = queues[0].0.anywhere();
        assert_eq!(first.is_by_epoll(), count > FEW || of_first > FEW);
        // And a thread that polls a queue is served, whatever its siblings use.
        for (cq, (_member, peer)) in &members {
            peer.send(b"!").unwrap();
            assert!(comes(|| cq.poll_one().is_some()), "{count} {of_first}");
        }
    }
}

#[test]
fn the_background_thread_makes_progress_for_any_member() {
    let rnic = Rnic::open().unwrap();
    let cq = rnic.create_cq(1).unwrap();
    let (member, peer) = Datagrams::new(1, &cq);
    let inner = cq.0.anywhere();
    inner.driver.watch(member.socket.as_fd(), member.token, EpollFlags::EPOLLIN).unwrap();
    peer.send(b"!").unwrap();
    assert!(comes(|| !inner.is_empty()));
    // RFC 5042 §6.4.6: all members learn that their queue has overflowed.
    peer.send(b"!").unwrap();
    assert!(comes(|| member.has_overflowed.load(Ordering::SeqCst)));
}

/// A program whose thread waits in the channel reads the sockets itself, though it has asked for
/// the descriptor once, as every program of the C verbs does.
#[test]
fn arming_gives_the_sockets_to_the_background_thread_only_where_the_program_sleeps_elsewhere() {
    let rnic = Rnic::open().unwrap();
    let channel = rnic.create_channel().unwrap();
    let cq = rnic.create_cq_on(&channel, 16).unwrap();
    let inner = cq.0.anywhere();
    let qp = rnic.alloc_pd().create_qp(&QpConfig::new(&cq)).unwrap();
    qp.abort();
    let turn = AtomicU64::new(1 << 32);
    // Asks as the background thread does, which has nothing to ask about here.
    let lease = || {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        inner.presence.lease(turn, Instant::now() + Duration::from_secs(turn % 1000))
    };
    let lease_once_armed = || {
        assert!(cq.poll_one().is_none());
        cq.arm(false);
        lease()
    };
    assert_eq!(lease_once_armed(), Lease::Paused);
    let _descriptor = (channel.as_fd(), channel.as_raw_fd());
    assert_eq!(lease_once_armed(), Lease::Paused, "it has looked at the descriptor, no more");
    channel.watch();
    assert_eq!(lease_once_armed(), Lease::None, "the program is about to sleep on the descriptor");
    assert!(channel.wait(Some(Duration::from_millis(1))).unwrap().is_none());
    assert_eq!(lease_once_armed(), Lease::Paused, "it has slept in `wait`");
    assert!(cq.poll_one().is_none());
    channel.watch();
    assert_eq!(lease(), Lease::None, "it asks again, with a queue that is armed");
    channel.unwatch();
    assert_eq!(lease_once_armed(), Lease::Paused, "it sleeps there no more");
    channel.watch();
    // It sleeps elsewhere without asking: the background thread notices.
    assert!(channel.wait(Some(Duration::from_millis(1))).unwrap().is_none());
    let (member, peer) = Datagrams::new(1, &cq);
    inner.driver.watch(member.socket.as_fd(), member.token, EpollFlags::EPOLLIN).unwrap();
    peer.send(b"!").unwrap();
    assert!(comes(|| channel.next_event().is_some()));
    inner.driver.unwatch(member.socket.as_fd());
    while cq.poll_one().is_some() {}
    assert_eq!(lease_once_armed(), Lease::None);
}

/// draft-hilland-rddp-verbs §8.2: a notification tells of the next completion, not of one that the
/// program has had the chance to poll for.
#[test]
fn a_queue_that_is_armed_for_the_next_completion_does_not_tell_of_the_last() {
    let rnic = Rnic::open().unwrap();
    let channel = rnic.create_channel().unwrap();
    let cq = rnic.create_cq_on(&channel, 16).unwrap();
    let qp = rnic.alloc_pd().create_qp(&QpConfig::new(&cq)).unwrap();
    qp.abort();
    let flush_one = || qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    flush_one();
    cq.arm_next(false);
    assert!(channel.next_event().is_none());
    flush_one();
    assert!(channel.next_event().is_some() && channel.next_event().is_none());
    cq.arm(false);
    assert!(channel.next_event().is_some(), "completions that are there count for this one");
}

/// A completion and its notification: a thread that sleeps on the queue and one that sleeps on the
/// channel are both woken, each time, whatever moment they fall asleep at. Nothing else would wake
/// them.
#[test]
fn no_completion_is_slept_through_on_the_queue_or_the_channel() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 4000 };
    let rnic = Rnic::open().unwrap();
    let channel = rnic.create_channel().unwrap();
    let cq = rnic.create_cq_on(&channel, 4 * ROUNDS as usize).unwrap();
    let inner = cq.0.anywhere();
    let told = AtomicU64::new(0);
    let completion = Completion {
        wr_id: 0,
        status: Status::Success,
        completed: Completed::Receive,
        byte_len: 0,
        qp: QpNum(1),
        invalidated: None,
        immediate: None,
        source: None,
        solicited: false,
    };
    std::thread::scope(|scope| {
        let by_channel = scope.spawn(|| {
            for round in 1..=ROUNDS {
                assert!(channel.wait(Some(PATIENCE)).unwrap().is_some(), "{round}");
                told.store(round, Ordering::SeqCst);
            }
        });
        let by_queue = scope.spawn(|| {
            let mut taken = 0;
            while taken < ROUNDS {
                assert!(cq.wait(Some(PATIENCE)).unwrap(), "{taken}");
                taken += cq.completions().count() as u64;
            }
        });
        for round in 1..=ROUNDS {
            cq.arm_next(false);
            inner.push(completion, None);
            // Now and then at once, when the threads are about to fall asleep.
            if round % 3 > 0 {
                assert!(comes(|| told.load(Ordering::SeqCst) == round && inner.is_empty()), "{round}");
            } else {
                assert!(comes(|| told.load(Ordering::SeqCst) == round), "{round}");
            }
        }
        by_channel.join().unwrap();
        by_queue.join().unwrap();
    });
}

/// Counts looks at the sockets; nothing comes.
#[derive(Debug, Default)]
struct Counted {
    looks: AtomicU64,
    is_busy: AtomicBool,
}

impl Member for Counted {
    fn try_progress(&self) {
        self.looks.fetch_add(1, Ordering::SeqCst);
    }

    fn watch_for(&self) -> Option<(Watched, PollFlags)> {
        None
    }

    fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::SeqCst)
    }

    fn enter(&self, _: &CqInner) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_wait_reads_no_socket_while_the_queue_has_completions() {
    let cq = Rnic::open().unwrap().create_cq(16).unwrap();
    let member = Arc::new(Counted::default());
    cq.0.anywhere().add_member(7, member.clone()).unwrap();
    cq.0.anywhere().push(receive_of(QpNum(7), 1, 0), None);
    assert!(cq.wait(None).unwrap() && cq.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(member.looks.load(Ordering::SeqCst), 0);
    cq.poll_one().unwrap();
    assert!(!cq.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(member.looks.load(Ordering::SeqCst), 1);
}

#[test]
fn waits_that_found_nothing_sleep_before_they_read() {
    let cq = Rnic::open().unwrap().create_cq(16).unwrap();
    sleeps_before_it_reads(&cq, |timeout| cq.wait(Some(timeout)).unwrap());
}

#[test]
fn a_channel_whose_waits_found_nothing_sleeps_before_it_reads() {
    let rnic = Rnic::open().unwrap();
    let channel = rnic.create_channel().unwrap();
    let cq = rnic.create_cq_on(&channel, 16).unwrap();
    sleeps_before_it_reads(&cq, |timeout| channel.wait(Some(timeout)).unwrap().is_some());
}

/// A wait that would find nothing saves the read in front of its sleep; not where a member has
/// something to do, nor a wait of no time, which is a poll; and it reads again now and then.
fn sleeps_before_it_reads(cq: &CompletionQueue, wait: impl Fn(Duration) -> bool) {
    let member = Arc::new(Counted::default());
    cq.0.anywhere().add_member(7, member.clone()).unwrap();
    let looks_of = |timeout| {
        let before = member.looks.load(Ordering::SeqCst);
        assert!(!wait(timeout));
        member.looks.load(Ordering::SeqCst) - before
    };
    let (no_time, a_moment) = (Duration::ZERO, Duration::from_millis(1));
    // One look first, and one behind the sleep.
    assert_eq!([looks_of(a_moment), looks_of(a_moment), looks_of(a_moment)], [2, 2, 1]);
    assert_eq!([looks_of(no_time), looks_of(a_moment)], [1, 1]);
    member.is_busy.store(true, Ordering::SeqCst);
    assert_eq!([looks_of(a_moment), looks_of(a_moment)], [2, 2]);
    member.is_busy.store(false, Ordering::SeqCst);
    let looks: Vec<_> = (0..40).map(|_| looks_of(a_moment)).collect();
    assert!(looks.contains(&2) && looks.iter().filter(|looks| **looks == 1).count() > 30, "{looks:?}");
}
