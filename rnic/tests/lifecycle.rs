//! Connections that end and begin again, the threads that make progress meanwhile, and the ways in
//! which a program is woken.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::device::{is_on_device, needs, needs_software, open};
use common::{ALL, End, PATIENCE, connect_on, connected, exchange};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_rnic::{
    Access, AsyncEventKind, ConnectError, ConnectOptions, MemoryRegion, QpConfig, QpState, RecvWr, Remote,
    SendWr, SrqConfig, Status,
};
use rddp_test_support::{Random, pattern};

fn wait_for(end: &End, state: QpState) {
    let deadline = Instant::now() + PATIENCE;
    while end.qp.state() != state {
        assert!(Instant::now() < deadline, "{:?} where {state:?} is due", end.qp.state());
        // Returns at once where completions have not been taken: others read the sockets then.
        end.cq.wait(Some(Duration::from_millis(5))).unwrap();
    }
}

/// draft-hilland-rddp-verbs §6.2.3: a graceful close with nothing outstanding leaves both QPs idle,
/// to be used again.
#[test]
fn after_a_graceful_close_the_same_qps_connect_again() {
    let options = ConnectOptions::default();
    let (active, passive) = connected(&options);
    for round in 0..3 {
        exchange(&active, &passive);
        let unused = passive.region(8, Access::LOCAL_WRITE);
        passive.qp.post_recv(RecvWr::one(9, unused.whole())).unwrap();
        let closer = if round % 2 == 0 { &active } else { &passive };
        closer.qp.disconnect();
        wait_for(&active, QpState::Idle);
        wait_for(&passive, QpState::Idle);
        let flushed = passive.next();
        assert_eq!((flushed.wr_id, flushed.status), (9, Status::Flushed));
        connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    }
    exchange(&active, &passive);
}

/// draft-hilland-rddp-verbs §6.2.1: from Error to Idle, with MSNs from 1 again and without the
/// Terminate of the last connection.
#[test]
fn after_an_error_a_reset_qp_connects_again() {
    needs_software("Terminates");
    let options = ConnectOptions::default();
    let (active, passive) = connected(&options);
    exchange(&active, &passive);
    active.qp.terminate();
    wait_for(&active, QpState::Error);
    wait_for(&passive, QpState::Error);
    assert_eq!(passive.qp.terminate_received().unwrap().code.0, 0);
    assert!(matches!(
        active.qp.connect("127.0.0.1:9".parse().unwrap(), &options),
        Err(ConnectError::NotIdle(QpState::Error))
    ));
    assert!(active.qp.reset() && passive.qp.reset());
    assert_eq!(passive.qp.terminate_received(), None);
    connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    exchange(&active, &passive);
}

/// draft-hilland-rddp-verbs §6.2.3: a FIN while a Read is outstanding is a bad close.
#[test]
fn a_disconnect_with_work_outstanding_is_a_bad_close() {
    needs_software("closes that do not wait for what is posted");
    let options = ConnectOptions { ord: 1, ird: 1, ..Default::default() };
    let (active, passive) = connected(&options);
    let (source, sink) = (passive.region(1 << 20, ALL), active.region(1 << 20, ALL));
    for i in 0..8 {
        active.qp.post_send(&SendWr::read(i, sink.whole(), source.remote(0))).unwrap();
    }
    active.qp.disconnect();
    assert_eq!(active.event_like(|event| *event == AsyncEventKind::BadClose), AsyncEventKind::BadClose);
    wait_for(&active, QpState::Error);
    for i in 0..8 {
        let completion = active.next();
        assert_eq!(completion.wr_id, i);
        assert!(matches!(completion.status, Status::Flushed | Status::Success), "{completion:?}");
    }
    wait_for(&passive, QpState::Error);
}

/// Work posted to a QP in Error is flushed at once, and completes exactly once.
#[test]
fn work_posted_in_error_is_flushed() {
    let (active, _passive) = connected(&ConnectOptions::default());
    active.qp.abort();
    active.qp.post_send(&SendWr::send_inline(1, b"late").unsignaled()).unwrap();
    active.qp.post_recv(RecvWr::new(2, [])).unwrap();
    for wr_id in [1, 2] {
        let completion = active.next();
        assert_eq!((completion.wr_id, completion.status), (wr_id, Status::Flushed));
    }
    assert!(active.cq.poll_one().is_none());
}

/// RFC 5040 §5.5: one-sided operations need no help of the passive program's.
#[test]
fn a_process_that_makes_no_call_is_read_and_written() {
    let (active, passive) = connected(&ConnectOptions::default());
    let target = passive.region(1 << 20, ALL);
    let source = active.region(1 << 20, ALL);
    source.write(0, &pattern(1 << 20, 3)).unwrap();
    active.qp.post_send(&SendWr::write(1, source.whole(), target.remote(0)).unsignaled()).unwrap();
    let back = active.region(1 << 20, ALL);
    active.qp.post_send(&SendWr::read(2, back.whole(), target.remote(0))).unwrap();
    assert_eq!(active.success().wr_id, 2);
    assert_eq!(back.read(0, 1 << 20).unwrap(), pattern(1 << 20, 3));
}

/// A channel's descriptor is readable exactly when an armed queue has something.
#[test]
fn a_channel_is_readable_when_an_armed_queue_has_something() {
    let rnic = open();
    let pd = rnic.alloc_pd();
    let channel = rnic.create_channel().unwrap();
    let cq = rnic.create_cq_on(&channel, 64).unwrap();
    let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
    let passive = End { rnic, pd, cq: cq.clone(), qp };
    let active = End::new();
    let options = ConnectOptions::default();
    connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    let readable = |patience: u16| {
        let mut fds = [PollFd::new(channel.watch(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::from(patience)).unwrap() == 1
    };
    for i in 0..4 {
        passive.qp.post_recv(RecvWr::new(i, [])).unwrap();
    }
    // Not armed: nothing.
    active.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    assert!(!readable(50));
    assert!(channel.next_event().is_none());
    // Armed with something in the queue: at once.
    passive.success();
    active.qp.post_send(&SendWr::send_inline(2, b"")).unwrap();
    assert!(cq.wait(Some(PATIENCE)).unwrap());
    cq.arm(false);
    assert!(readable(0) && channel.next_event().is_some() && !readable(0));
    passive.success();
    // Solicited only: the plain Send does not wake, of which devices do not tell, and the solicited
    // one does, by the background thread.
    cq.arm(true);
    active.qp.post_send(&SendWr::send_inline(3, b"")).unwrap();
    assert!(is_on_device() || !readable(50));
    active.qp.post_send(&SendWr::send_inline(4, b"").solicited()).unwrap();
    assert!(readable(5000));
    assert!(channel.wait(Some(PATIENCE)).unwrap().is_some());
    assert!(!readable(0));
}

/// Four threads post to one QP and poll one queue; each request completes exactly once.
#[test]
fn threads_share_a_qp_and_its_queue() {
    let (active, passive) = connected(&ConnectOptions::default());
    let target = passive.region(4096, ALL);
    let source = active.region(4096, ALL);
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (active, seen, source, target) = (&active, &seen, &source, &target);
            scope.spawn(move || {
                for i in 0..500 {
                    let wr = SendWr::write(thread << 32 | i, source.whole(), target.remote(0));
                    while active.qp.post_send(&wr).is_err() {
                        std::thread::yield_now();
                        take(active, seen);
                    }
                    take(active, seen);
                }
            });
        }
    });
    while seen.lock().unwrap().len() < 2000 {
        assert!(active.cq.wait(Some(PATIENCE)).unwrap());
        take(&active, &seen);
    }

    fn take(active: &End, seen: &std::sync::Mutex<std::collections::HashSet<u64>>) {
        if let Some(completion) = active.cq.poll_one() {
            assert_eq!(completion.status, Status::Success);
            assert!(seen.lock().unwrap().insert(completion.wr_id), "{completion:?} twice");
        }
    }
}

/// Descriptors and threads are given back.
#[test]
fn connections_leave_nothing_behind() {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    // In a process of its own: other tests open and close descriptors meanwhile.
    if std::env::var_os("RDDP_LEAK_TEST").is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "connections_leave_nothing_behind"])
            .env("RDDP_LEAK_TEST", "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    }
    let options = ConnectOptions::default();
    let settled = |wanted: (usize, usize)| {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            (count("fd"), count("task")) == wanted
        })
    };
    drop(open()); // of a device, some stays for good
    let before = (count("fd"), count("task"));
    // In a thread of its own: one that has slept on a queue has a descriptor until it ends.
    // Those of a device in an emulated machine take half a second each.
    let rounds = if is_on_device() { 20 } else { 200 };
    let connecting = std::thread::spawn(move || {
        let (active, passive) = (End::new(), End::new());
        for round in 0..rounds {
            connect_on("127.0.0.1:0", &active, &passive, &options, &options);
            if round % 2 == 0 {
                active.qp.disconnect();
            } else {
                passive.qp.abort();
            }
            for end in [&active, &passive] {
                while !matches!(end.qp.state(), QpState::Idle | QpState::Error) {
                    end.cq.wait(Some(Duration::from_millis(5))).unwrap();
                }
                assert!(end.qp.reset());
            }
        }
    });
    connecting.join().unwrap();
    assert!(settled(before), "{before:?} before, {:?} after", (count("fd"), count("task")));
}

/// RFC 5042 §6.4.6: a queue that overflows ends its own QPs and no others.
#[test]
fn an_overflowing_queue_hurts_only_its_own_qps() {
    needs_software("Terminates");
    let (active, passive) = (End::new(), End::new());
    let small = passive.rnic.create_cq(2).unwrap();
    let victim = passive.pd.create_qp(&QpConfig::new(&small)).unwrap();
    let victim = End { rnic: passive.rnic.clone(), pd: passive.pd.clone(), cq: small, qp: victim };
    let options = ConnectOptions::default();
    let other = End::new();
    connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    connect_on("127.0.0.1:0", &other, &victim, &options, &options);
    (0..4).for_each(|i| victim.qp.post_recv(RecvWr::new(i, [])).unwrap());
    (0..4).for_each(|i| other.qp.post_send(&SendWr::send_inline(i, b"")).unwrap());
    victim.event_like(|event| *event == AsyncEventKind::CqOverflow);
    other.event_like(|event| matches!(event, AsyncEventKind::TerminateReceived(code) if code.0 == 0x0207));
    assert!(victim.cq.is_overflowed());
    exchange(&active, &passive);
}

/// One end of an exchange in which each end polls its queue for its own Write, and then watches
/// memory for the peer's.
struct Watcher {
    end: End,
    /// The peer writes to the second half, this end from the first.
    region: MemoryRegion,
}

impl Watcher {
    fn new(end: End) -> Self {
        Watcher { region: end.region(2, ALL), end }
    }

    fn write(&self, mark: u8, remote: Remote, poll: fn(&End)) {
        self.region.write(0, &[mark]).unwrap();
        self.end.qp.post_send(&SendWr::write(1, self.region.sge(0..1), remote)).unwrap();
        poll(&self.end);
    }

    /// Returns false if the peer's Write has not arrived by then.
    fn watch(&self, mark: u8, deadline: Instant) -> bool {
        let mut octet = [0];
        while octet != [mark] {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
            self.region.read_into(1, &mut octet).unwrap();
        }
        true
    }
}

/// Returns the time that 1,000 Writes to the peer and back take; `None` if it is more than `limit`.
fn watch_each_other(poll: fn(&End), limit: Duration) -> Option<Duration> {
    let (active, passive) = connected(&ConnectOptions::default());
    let (active, passive) = (Watcher::new(active), Watcher::new(passive));
    let (to_active, to_passive) = (active.region.remote(1), passive.region.remote(1));
    let marks = || (0..1000).map(|round| 1 + (round % 200) as u8);
    let begin = Instant::now();
    let deadline = begin + limit;
    let all_came = std::thread::scope(|scope| {
        scope.spawn(|| {
            for mark in marks().take_while(|mark| passive.watch(*mark, deadline)) {
                passive.write(mark, to_active, poll);
            }
        });
        marks().all(|mark| {
            active.write(mark, to_passive, poll);
            active.watch(mark, deadline)
        })
    });
    all_came.then(|| begin.elapsed())
}

/// A program that polls, and then does something else, is served at once, not when it has
/// not polled for long: the loop of `ib_write_lat`, and of many a library that sends
/// small messages into rings.
#[test]
fn a_program_that_polls_and_then_watches_memory_is_served() {
    needs("memory that may be watched", |device| device.data_in_order);
    let take_one: fn(&End) = |end| while end.cq.poll_one().is_none() {};
    let take_all: fn(&End) = |end| while end.cq.poll_one().is_some() {};
    let take_more: fn(&End) = |end| drop((0..20).filter_map(|_| end.cq.poll_one()).collect::<Vec<_>>());
    // No measure of speed: a wait of a millisecond for each makes 2 s of this, which takes a tenth.
    // Beside threads that want the processors both take long, for each look leaves the processor to
    // one of those for a slice, and one of them may have met the worse moment.
    let is_served = |poll| {
        // The queue has room for all of these completions, which nobody takes.
        let never = watch_each_other(|_| {}, Duration::from_secs(600)).expect("nobody is served");
        watch_each_other(poll, Duration::from_secs(1) + 5 * never).is_some()
    };
    for poll in [take_one, take_all, take_more] {
        assert!((0..4).any(|_| is_served(poll)), "the background thread waits for the next poll");
    }
}

/// Messages of several connections take the receives of one queue, which outlives a connection: no
/// message is another's, and no receive gets lost.
#[test]
fn shared_receives_outlive_a_connection() {
    const PLACE: usize = 100_000;
    needs("shared receive queues", |device| device.shared_receives);
    let (all, options) = (End::new(), ConnectOptions::default());
    let srq = all.pd.create_srq(SrqConfig::default());
    let inbox = all.region(4 * PLACE, Access::LOCAL_WRITE);
    let post = |place: usize| {
        let piece = inbox.sge(place * PLACE..(place + 1) * PLACE);
        srq.post_recv(RecvWr::one(place as u64, piece)).unwrap();
    };
    (0..4).for_each(post);
    let mut pairs: Vec<(End, End)> =
        (0..3).map(|_| (End::new(), all.sibling_with(|config| config.srq = Some(srq.clone())))).collect();
    for (active, passive) in &pairs {
        connect_on("127.0.0.1:0", active, passive, &options, &options);
    }
    let mut random = Random::new(7);
    for round in 0..60 {
        if round == 30 {
            let (_active, passive) = pairs.remove(1);
            passive.qp.abort();
        }
        let (active, passive) = &pairs[random.below(pairs.len())];
        let octets = pattern(random.below(PLACE + 1), round);
        let source = active.region(octets.len().max(1), Access::empty());
        source.write(0, &octets).unwrap();
        active.qp.post_send(&SendWr::send(1, source.sge(..octets.len()))).unwrap();
        let told = passive.success();
        assert_eq!((told.qp, told.byte_len as usize), (passive.qp.num(), octets.len()));
        let place = told.wr_id as usize;
        assert!(inbox.read(place * PLACE, octets.len()).unwrap() == octets, "round {round}");
        assert_eq!((srq.len(), active.success().wr_id), (3, 1));
        post(place);
    }
    assert_eq!(srq.users(), 2);
}
