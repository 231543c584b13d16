//! Threads asleep on queues whose connections are made, become many and are dropped meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rddp_rnic::{AsyncEventKind, CompletionQueue, ConnectOptions, QpConfig, QpState, RecvWr, SendWr, Status};
use rddp_test_support::Sleeper;

use crate::common::device::{needs_software, open};
use crate::common::{End, PATIENCE, connect_on};

/// A short time to sleep for.
const FALL_ASLEEP: Duration = Duration::from_millis(20);

/// Connects without nudges, which would wake a thread that a fault of the engine has left asleep.
fn connect(active: &End, passive: &End) {
    let options = ConnectOptions { nudge: false, ..ConnectOptions::default() };
    connect_on("127.0.0.1:0", active, passive, &options, &options);
}

/// Makes ends of one queue, each with a receive posted.
fn siblings(first: End, count: usize) -> Vec<End> {
    let more: Vec<End> = (1..count).map(|_| first.sibling()).collect();
    let ends: Vec<End> = std::iter::once(first).chain(more).collect();
    for (id, end) in ends.iter().enumerate() {
        end.qp.post_recv(RecvWr::new(id as u64, [])).unwrap();
    }
    ends
}

/// Waits until this many completions have come.
fn receive(cq: &CompletionQueue, mut count: usize) {
    while count > 0 {
        assert!(cq.wait(Some(PATIENCE)).unwrap(), "{count} messages woke nobody");
        if let Some(completion) = cq.poll_one() {
            assert_eq!(
                completion.status,
                Status::Success,
                "its connection was given up before anybody looked"
            );
            count -= 1;
        }
    }
}

/// A thread asleep on a queue wakes for a QP that connects later: while the QPs are few and passed
/// to `ppoll`, and when one more makes the queue use its epoll set.
#[test]
fn a_thread_asleep_notices_who_connects() {
    for count in [2, 8, 9, 20] {
        let ends = siblings(End::new(), count);
        let peers: Vec<End> = (0..count).map(|_| End::new()).collect();
        connect(&peers[0], &ends[0]);
        let sleeper = Sleeper::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                sleeper.is_here();
                receive(&ends[0].cq, count);
            });
            for (peer, end) in peers.iter().zip(&ends) {
                sleeper.await_asleep();
                if peer.qp.state() == QpState::Idle {
                    connect(peer, end);
                }
                peer.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
            }
            waiting.join().unwrap();
        });
    }
}

/// A thread asleep on a queue wakes for QPs made later, the ninth of them too.
#[test]
fn a_thread_asleep_notices_who_is_made() {
    let first = siblings(End::new(), 1).remove(0);
    let peer = End::new();
    connect(&peer, &first);
    let (cq, sleeper) = (first.cq.clone(), Sleeper::default());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            sleeper.is_here();
            receive(&cq, 12);
        });
        let mut kept = Vec::new();
        for _ in 1..12 {
            sleeper.await_asleep();
            let (end, peer) = (first.sibling(), End::new());
            end.qp.post_recv(RecvWr::new(1, [])).unwrap();
            connect(&peer, &end);
            peer.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
            kept.push((end, peer));
        }
        peer.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
        waiting.join().unwrap();
    });
}

/// A thread that leaves a queue on which several are asleep does not matter: the
/// others look after all sockets.
#[test]
fn a_thread_that_leaves_lets_the_others_look_again() {
    let first = End::new();
    let peers = [End::new(), End::new()];
    let ends = siblings(first, 2);
    connect(&peers[0], &ends[0]);
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let sleep = |patience| {
            while received.load(Ordering::Relaxed) < 2 && ends[0].cq.wait(Some(patience)).unwrap() {
                received.fetch_add(usize::from(ends[0].cq.poll_one().is_some()), Ordering::Relaxed);
            }
        };
        // The first to be woken by the second connection may be the one whose time is over soon.
        let leave = [1, 2].map(|times| scope.spawn(move || sleep(times * FALL_ASLEEP)));
        let stays = scope.spawn(move || sleep(PATIENCE));
        std::thread::sleep(FALL_ASLEEP / 2);
        connect(&peers[1], &ends[1]);
        for sleeper in leave {
            sleeper.join().unwrap();
        }
        for peer in &peers {
            peer.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
        }
        stays.join().unwrap();
    });
    assert_eq!(received.load(Ordering::Relaxed), 2);
}

/// A thread asleep on a connection holds its socket, which must not keep it open when it is reset.
#[test]
fn a_connection_is_reset_although_threads_sleep_on_it() {
    needs_software("a reset of TCP");
    for sleepers in [0, 1, 2, 3] {
        let (active, passive) = (End::new(), End::new());
        connect(&active, &passive);
        let asleep: Vec<Sleeper> = (0..sleepers).map(|_| Sleeper::default()).collect();
        std::thread::scope(|scope| {
            for sleeper in &asleep {
                scope.spawn(|| {
                    sleeper.is_here();
                    assert!(passive.cq.wait(Some(PATIENCE)).unwrap());
                });
            }
            asleep.iter().for_each(Sleeper::await_asleep);
            passive.qp.abort();
            // The same however many sleep: a reset, and no orderly end.
            let ends = |event: &AsyncEventKind| *event != AsyncEventKind::Established;
            assert_eq!(active.event_like(ends), AsyncEventKind::ConnectionLost);
            // Flushed at once; all who sleep see it.
            passive.qp.post_send(&SendWr::send_inline(0, b"")).unwrap();
        });
    }
}

/// No condition that wakes a thread is left behind: with few queues and with many, with few QPs on
/// one and after it had many.
#[test]
fn a_thread_asleep_on_a_channel_uses_no_processor_time() {
    for (queues, qps) in [(1, 0), (8, 0), (9, 0), (12, 0), (1, 12)] {
        let rnic = open();
        let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
        let list: Vec<_> = (0..queues).map(|_| rnic.create_cq_on(&channel, 16).unwrap()).collect();
        for _ in 0..2 {
            let made: Vec<_> = (0..qps).map(|_| pd.create_qp(&QpConfig::new(&list[0])).unwrap()).collect();
            let before = processor_time();
            assert!(channel.wait(Some(10 * FALL_ASLEEP)).unwrap().is_none());
            let used = processor_time() - before;
            assert!(used < 5 * FALL_ASLEEP, "{used:?} for {queues} queues");
            drop(made);
            assert!(channel.wait(Some(FALL_ASLEEP)).unwrap().is_none());
        }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros as u64)
}

/// A channel with few queues passes their sockets to `ppoll`, one with many uses epoll sets: both
/// wake, also for a new queue or connection.
#[test]
fn a_channel_wakes_for_few_queues_and_for_many() {
    for count in [1, 8, 9, 12] {
        let rnic = open();
        let channel = rnic.create_channel().unwrap();
        let ends: Vec<End> = (0..count)
            .map(|_| {
                let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq_on(&channel, 16).unwrap());
                let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
                qp.post_recv(RecvWr::new(7, [])).unwrap();
                cq.arm(false);
                End { rnic: rnic.clone(), pd, cq, qp }
            })
            .collect();
        let peers: Vec<End> = ends.iter().map(|_| End::new()).collect();
        let sleeper = Sleeper::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                sleeper.is_here();
                for _ in 0..count {
                    let cq = channel.wait(Some(PATIENCE)).unwrap().expect("nobody was woken");
                    assert_eq!(cq.poll_one().unwrap().wr_id, 7);
                }
            });
            for (peer, end) in peers.iter().zip(&ends) {
                sleeper.await_asleep();
                connect(peer, end);
                peer.qp.post_send(&SendWr::send_inline(0, b"").unsignaled()).unwrap();
            }
            waiting.join().unwrap();
        });
    }
}
