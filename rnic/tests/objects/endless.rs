//! Time limits as long as a `Duration` can be count as none, and signals do not end waits.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rddp_rnic::{AsyncEventKind, CompletionChannel, ConnectOptions, QpConfig, RecvWr, SendWr};
use rddp_test_support::Sleeper;

use crate::common::device::{local, needs_software, open};
use crate::common::{End, connect_on};

fn endless() -> ConnectOptions {
    ConnectOptions { timeout: Duration::MAX, ..ConnectOptions::default() }
}

#[test]
fn a_startup_may_have_all_the_time_there_is() {
    let (active, passive) = (End::new(), End::new());
    connect_on("127.0.0.1:0", &active, &passive, &endless(), &endless());
    passive.qp.post_recv(RecvWr::new(1, [])).unwrap();
    active.qp.post_send(&SendWr::send_inline(2, b"")).unwrap();
    assert_eq!(passive.success().wr_id, 1);
}

/// A startup without a time limit, on a TCP connection of the program's own, in the background.
#[test]
fn a_startup_in_the_background_may_have_all_the_time_there_is() {
    needs_software("a connection over a program's own socket");
    let (active, passive) = (End::new(), End::new());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    passive.qp.begin(listener.accept().unwrap().0, &endless(), false).unwrap();
    active.qp.begin(stream, &endless(), true).unwrap();
    for end in [&active, &passive] {
        assert!(end.qp.await_begun(Duration::MAX));
        end.qp.begun().unwrap().unwrap();
    }
}

/// Calls `act` once this thread is asleep in `wait`, which is to sleep until it.
fn until<T>(act: impl FnOnce() + Send, wait: impl FnOnce() -> T) -> T {
    let sleeper = Sleeper::here();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleeper.await_asleep();
            act();
        });
        wait()
    })
}

/// Returns an end whose queue reports to a channel.
fn on_channel() -> (CompletionChannel, End) {
    let rnic = open();
    let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel().unwrap());
    let cq = rnic.create_cq_on(&channel, 16).unwrap();
    (channel, End { qp: pd.create_qp(&QpConfig::new(&cq)).unwrap(), rnic, pd, cq })
}

/// Has `end` wait for a connection, an event, a message and a completion, by `limit`.
fn wait_for_everything(channel: &CompletionChannel, end: &End, limit: Option<Duration>) {
    let listener = end.rnic.listen(local("127.0.0.1:0"), &ConnectOptions::default()).unwrap();
    let (addr, peer) = (listener.local_addr().unwrap(), End::new());
    let connect = || drop(peer.qp.connect(addr, &ConnectOptions::default()));
    until(connect, || {
        let request = listener.accept(limit).unwrap().expect("nobody came");
        request.accept(&end.qp, b"").unwrap();
    });
    let event = || end.rnic.wait_async_event(limit).unwrap();
    assert_eq!(event().unwrap().kind, AsyncEventKind::Established);
    end.cq.arm(false);
    for id in 0..2 {
        end.qp.post_recv(RecvWr::new(id, [])).unwrap();
    }
    let send = || peer.qp.post_send(&SendWr::send_inline(1, b"")).unwrap();
    assert!(until(send, || channel.wait(limit).unwrap()).is_some());
    while end.cq.poll_one().is_some() {}
    assert!(until(send, || end.cq.wait(limit).unwrap()));
    assert!(until(|| peer.qp.abort(), event).is_some());
}

#[test]
fn whoever_waits_may_have_all_the_time_there_is() {
    for limit in [Duration::MAX, Duration::from_secs(i64::MAX as u64), Duration::from_secs(1 << 62)] {
        let (channel, end) = on_channel();
        wait_for_everything(&channel, &end, Some(limit));
    }
}

extern "C" fn heard(_: i32) {}

/// Handles SIGUSR2 in this thread once a millisecond while `call` runs.
fn pestered<T>(call: impl FnOnce() -> T) -> T {
    let action = SigAction::new(SigHandler::Handler(heard), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
    let done = AtomicBool::new(false);
    // SAFETY: it only tells who runs.
    let this = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one before it ends.
                assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGUSR2) }, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = catch_unwind(AssertUnwindSafe(call));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// A wait goes on until its event has come, whatever signals its thread handles meanwhile.
#[test]
fn no_signal_ends_a_wait_without_a_limit() {
    let (channel, end) = on_channel();
    pestered(|| wait_for_everything(&channel, &end, None));
}

/// A wait does not end before its limit either.
#[test]
fn no_signal_ends_a_wait_before_its_limit() {
    let (end, limit) = (End::new(), Duration::from_millis(60));
    let channel = end.rnic.create_channel().unwrap();
    let listener = end.rnic.listen(local("127.0.0.1:0"), &ConnectOptions::default()).unwrap();
    let waits: [&dyn Fn() -> bool; 4] = [
        &|| listener.accept(Some(limit)).unwrap().is_some(),
        &|| end.rnic.wait_async_event(Some(limit)).unwrap().is_some(),
        &|| channel.wait(Some(limit)).unwrap().is_some(),
        &|| end.cq.wait(Some(limit)).unwrap(),
    ];
    for wait in waits {
        let begin = Instant::now();
        assert!(!pestered(wait));
        assert!(begin.elapsed() >= limit, "it ended after {:?}", begin.elapsed());
    }
}
