//! Waking a program: `wait`, channels in poll and epoll, armed queues
//! (draft-hilland-rddp-verbs §8.2).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rddp_rnic::{
    AsyncEventKind, CompletionChannel, ConnectOptions, EventQueue, QpConfig, RecvWr, Rnic, SendWr, Status,
};
use rddp_test_support::{Peer, Sleeper, plain, segment};

use crate::common::device;
use crate::common::raw::{Role, client_server, connect_raw, open_for};
use crate::common::{End, PATIENCE, connect_on};

/// An end whose queue reports to a channel, with receives posted, and its peer.
struct Armed {
    channel: CompletionChannel,
    end: End,
    raw: Peer,
    msn: u32,
}

impl Armed {
    fn new() -> Self {
        let rnic = Rnic::open().unwrap();
        let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
        let cq = rnic.create_cq_on(&channel, 256).unwrap();
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        let end = End { rnic, pd, cq, qp };
        let mut raw = connect_raw(Role::Passive, &end, &client_server(), &plain());
        open_for(&mut raw, &end);
        for id in 0..100 {
            end.qp.post_recv(RecvWr::new(id, [])).unwrap();
        }
        Armed { channel, end, raw, msn: 0 }
    }

    /// Has the peer send a message, which nobody polls for yet.
    fn message(&mut self, solicited: bool) {
        self.msn += 1;
        let mut ulpdu = segment::send(self.msn, 0, true, b"");
        ulpdu[1] = if solicited { 0x45 } else { 0x43 };
        self.raw.send(&ulpdu);
    }

    fn is_readable(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(self.channel.watch(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, patience.as_millis() as u16).unwrap() == 1
    }

    /// Takes the only event that is due.
    fn fires(&self) {
        assert!(self.is_readable(PATIENCE), "no event came");
        assert!(self.channel.next_event().is_some());
        assert!(!self.is_readable(Duration::ZERO) && self.channel.next_event().is_none());
    }

    fn is_silent(&self) {
        assert!(!self.is_readable(Duration::from_millis(60)), "an event that is not due");
    }

    fn drain(&self) -> usize {
        self.end.cq.completions().count()
    }
}

/// An arming causes one event, whichever thread received the message.
#[test]
fn an_armed_queue_fires_once() {
    let mut armed = Armed::new();
    armed.message(false);
    armed.is_silent();
    armed.drain();
    armed.end.cq.arm(false);
    armed.is_silent();
    armed.message(false);
    armed.fires();
    armed.message(false);
    armed.is_silent();
    assert_eq!(armed.drain(), 2);
}

/// A completion that comes between the last poll and the arming is not lost.
#[test]
fn arming_a_queue_that_has_something_fires_at_once() {
    let mut armed = Armed::new();
    armed.message(false);
    assert!(armed.end.cq.wait(Some(PATIENCE)).unwrap());
    armed.end.cq.arm(true);
    armed.is_silent();
    armed.end.cq.arm(false);
    armed.fires();
}

/// Solicited messages and errors only.
#[test]
fn a_queue_armed_for_solicited_ones_fires_for_those_and_for_errors() {
    let mut armed = Armed::new();
    armed.end.cq.arm(true);
    armed.message(false);
    armed.is_silent();
    armed.message(true);
    armed.fires();
    armed.drain();
    armed.end.cq.arm(true);
    armed.message(false);
    armed.is_silent();
    armed.end.qp.abort();
    armed.fires();
}

/// Arming for solicited completions does not cancel an arming for all.
#[test]
fn arming_for_solicited_ones_keeps_an_arming_for_all() {
    let mut armed = Armed::new();
    armed.end.cq.arm(false);
    armed.end.cq.arm(true);
    armed.message(false);
    armed.fires();
    armed.drain();
    armed.end.cq.arm(true);
    armed.end.cq.arm(false);
    armed.message(false);
    armed.fires();
}

/// The channel's descriptor works in an edge-triggered epoll set. mio and tokio's `AsyncFd` ask for
/// it as for any other, before or after the first event.
#[test]
fn a_channel_works_in_epoll() {
    let ways: [fn(&CompletionChannel) -> BorrowedFd<'_>; 2] = [AsFd::as_fd, CompletionChannel::watch];
    for (ask, asks_late) in ways.into_iter().flat_map(|ask| [(ask, false), (ask, true)]) {
        let mut armed = Armed::new();
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 7);
        if !asks_late {
            epoll.add(ask(&armed.channel), event).unwrap();
        }
        let mut events = [EpollEvent::empty(); 4];
        for round in 0..20 {
            armed.end.cq.arm(round % 2 == 0);
            armed.message(true);
            if asks_late && round == 0 {
                assert!(armed.end.cq.wait(Some(PATIENCE)).unwrap());
                epoll.add(ask(&armed.channel), event).unwrap();
            }
            assert_eq!(epoll.wait(&mut events, EpollTimeout::from(20_000u16)).unwrap(), 1);
            assert_eq!(events[0].data(), 7);
            assert!(armed.channel.next_event().is_some());
            assert_eq!(armed.drain(), 1);
        }
    }
}

/// A program that sleeps elsewhere now is not told by the descriptor, and misses nothing.
#[test]
fn a_channel_that_is_not_watched_keeps_its_events() {
    let mut armed = Armed::new();
    // To ask for the descriptor would have the channel show its events again.
    let descriptor = armed.channel.watch().try_clone_to_owned().unwrap();
    let is_readable = || {
        let mut fds = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 0_u16) == Ok(1)
    };
    assert!(!armed.is_readable(Duration::ZERO));
    for _ in 0..3 {
        armed.end.cq.arm(false);
        armed.message(false);
        assert!(armed.is_readable(PATIENCE), "no event came");
        armed.channel.unwatch();
        assert!(!is_readable());
        assert!(armed.is_readable(Duration::ZERO), "the event is shown again");
        armed.channel.unwatch();
        assert!(armed.channel.next_event().is_some() && armed.channel.next_event().is_none());
        armed.channel.watch();
        assert!(!is_readable());
        armed.drain();
    }
}

/// A program of the C verbs clears `O_NONBLOCK`, and may even read what it was not to read.
#[test]
fn no_call_blocks_on_a_descriptor_that_the_program_has_made_blocking() {
    let mut armed = Armed::new();
    fcntl(&armed.channel, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    for round in 0..3 {
        armed.end.cq.arm(false);
        armed.message(false);
        assert!(armed.is_readable(PATIENCE), "no event came");
        if round == 1 {
            assert_eq!(nix::unistd::read(&armed.channel, &mut [0; 8]), Ok(8));
        }
        assert!(armed.channel.next_event().is_some() && armed.channel.next_event().is_none());
        assert!(armed.channel.wait(Some(Duration::ZERO)).unwrap().is_none());
        armed.drain();
    }
    let events = EventQueue::new().unwrap();
    fcntl(&events, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let end = End::with(|config| config.events = Some(events.clone()));
    connect_on("127.0.0.1:0", &end, &End::new(), &ConnectOptions::default(), &ConnectOptions::default());
    end.qp.terminate();
    assert!(events.wait(Some(PATIENCE)).unwrap().is_some());
    while events.next_event().is_some() {}
    assert!(events.wait(Some(Duration::ZERO)).unwrap().is_none());
}

/// A thread that waits in the channel takes one event. Those who sleep on the descriptor see the
/// others, whenever they came.
#[test]
fn a_wait_leaves_the_other_events_to_the_descriptor() {
    let mut armed = Armed::new();
    let other = armed.end.rnic.create_cq_on(&armed.channel, 16).unwrap();
    let qp = armed.end.pd.create_qp(&QpConfig::new(&other)).unwrap();
    qp.abort();
    // Asked for once: to ask again would have the channel show what it has.
    let descriptor = armed.channel.watch().try_clone_to_owned().unwrap();
    for round in 0..20 {
        other.arm(false);
        armed.end.cq.arm(false);
        let (channel, sleeper) = (armed.channel.clone(), Sleeper::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                sleeper.is_here();
                channel.wait(Some(PATIENCE)).unwrap().unwrap()
            });
            if round % 2 == 0 {
                sleeper.await_asleep();
            }
            qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
            armed.message(false);
            assert!(waiting.join().is_ok());
        });
        let mut fds = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut fds, 20_000_u16), Ok(1), "the other event is not shown");
        armed.fires();
        assert!(other.poll_one().is_some());
        while armed.drain() == 0 {}
    }
}

/// `CompletionChannel::wait` reads the sockets itself, and gives up when the time is over.
#[test]
fn a_channel_can_be_waited_on() {
    let mut armed = Armed::new();
    assert!(armed.channel.wait(Some(Duration::from_millis(20))).unwrap().is_none());
    armed.end.cq.arm(false);
    armed.message(false);
    let cq = armed.channel.wait(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!(cq.poll_one().unwrap().status, Status::Success);
}

/// An event names its queue if a channel has several.
#[test]
fn a_channel_tells_which_queue() {
    let rnic = device::open();
    let channel = rnic.create_channel().unwrap();
    let ends = [0, 1, 2].map(|_| {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq_on(&channel, 16).unwrap());
        let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
        End { rnic: rnic.clone(), pd, cq, qp }
    });
    ends.iter().for_each(|end| end.cq.arm(false));
    for which in [2, 0, 1] {
        ends[which].qp.abort();
        ends[which].qp.post_send(&SendWr::send_inline(which as u64, b"")).unwrap();
        let cq = channel.wait(Some(PATIENCE)).unwrap().unwrap();
        assert_eq!(cq.poll_one().unwrap().wr_id, which as u64);
    }
    // A queue that is gone leaves no event.
    ends[0].cq.arm(false);
    ends[0].qp.post_send(&SendWr::send_inline(9, b"")).unwrap();
    drop(ends);
    assert!(channel.next_event().is_none());
}

/// Threads asleep in `wait` are woken by requests that another thread completes, and by the peer's
/// messages.
#[test]
fn waiting_threads_are_woken_by_others() {
    for by_message in [false, true] {
        let mut armed = Armed::new();
        let Armed { end, raw, .. } = &mut armed;
        let end = &*end;
        let got = AtomicUsize::new(0);
        let last = || end.qp.post_send(&SendWr::send_inline(LAST, b"")).unwrap();
        let waiting = [(); 3].map(|()| Sleeper::default());
        std::thread::scope(|scope| {
            let sleepers = waiting.each_ref().map(|sleeper| {
                scope.spawn(|| {
                    sleeper.is_here();
                    while end.cq.wait(Some(PATIENCE)).unwrap() {
                        match end.cq.poll_one() {
                            Some(done) if done.wr_id == LAST => {
                                // The others shall end, too.
                                return last();
                            }
                            done => drop(got.fetch_add(usize::from(done.is_some()), Ordering::Relaxed)),
                        }
                    }
                    panic!("a completion woke nobody");
                })
            });
            waiting.iter().for_each(Sleeper::await_asleep);
            for msn in 1..=10 {
                match by_message {
                    true => raw.send(&segment::send(msn, 0, true, b"")),
                    false => end.qp.post_send(&SendWr::send_inline(1, b"")).unwrap(),
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let deadline = Instant::now() + PATIENCE;
            while got.load(Ordering::Relaxed) < 10 {
                assert!(Instant::now() < deadline, "a completion woke nobody");
                std::thread::yield_now();
            }
            last();
            for sleeper in sleepers {
                sleeper.join().unwrap();
            }
        });
    }
}

/// Id of the request that ends the threads.
const LAST: u64 = 999;

/// An event without a completion wakes a thread that waits for both.
#[test]
fn an_event_wakes_who_waits_for_completions_and_events() {
    let events = EventQueue::new().unwrap();
    let end = End::with(|config| config.events = Some(events.clone()));
    assert!(!end.cq.wait_or(Some(Duration::from_millis(1)), || !events.is_empty()).unwrap());
    let other = End::new();
    connect_on("127.0.0.1:0", &end, &other, &ConnectOptions::default(), &ConnectOptions::default());
    let sleeper = Sleeper::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            sleeper.is_here();
            end.cq.wait_or(Some(PATIENCE), || !events.is_empty()).unwrap()
        });
        sleeper.await_asleep();
        other.qp.disconnect();
        assert!(waiting.join().unwrap());
    });
    assert_eq!(events.next_event().unwrap().kind, AsyncEventKind::CloseComplete);
}

#[test]
fn the_background_thread_takes_no_signals() {
    let end = End::new();
    let _listener = end.rnic.listen(device::local("127.0.0.1:0"), &ConnectOptions::default()).unwrap();
    // A thread gives itself its name when it first runs, which may be after its start has returned.
    let deadline = Instant::now() + PATIENCE;
    let blocked = loop {
        let blocked = blocked_by_background_threads();
        if !blocked.is_empty() {
            break blocked;
        }
        assert!(Instant::now() < deadline, "no thread of the device was seen");
        std::thread::sleep(Duration::from_millis(1));
    };
    let term_and_alarm = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGALRM - 1);
    for mask in blocked {
        assert_eq!(mask & term_and_alarm, term_and_alarm, "{mask:x}");
    }
}

/// Returns the signals that each background thread of this process blocks, as sets of bits.
fn blocked_by_background_threads() -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    statuses
        .filter(|status| status.contains("rddp-progress"))
        .map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
            u64::from_str_radix(line, 16).unwrap()
        })
        .collect()
}
