//! `fork`: a child's copies of its parent's objects are inert, and never disturb the parent.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{ALL, End, PATIENCE, connect_on, connected, exchange};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rddp_rnic::{Access, ConnectOptions, QpState, RecvWr, SendWr};

/// Runs `child` in a child of fork, which ends with its verdict, or by a signal if it hangs.
fn in_child(child: impl FnOnce()) -> Pid {
    // SAFETY: other threads of the test may hold locks of the allocator, which the C library
    // handles; the locks of this library are what is tested.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            nix::unistd::alarm::set(20);
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_ok();
            // SAFETY: ends the process, without running destructors of objects of the parent's
            // threads.
            unsafe { libc::_exit(if held { 0 } else { 1 }) };
        }
    }
}

fn ends_well(child: Pid) {
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
}

/// Every call of a child on an object of its parent's returns an error or does
/// nothing, and so does every drop.
#[test]
fn a_child_that_drops_or_uses_everything_disturbs_nothing() {
    let (active, passive) = connected(&ConnectOptions::default());
    let listener = passive.rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    let regions = [active.region(64, ALL), passive.region(64, ALL)];
    let window = active.pd.allocate_window().unwrap();
    let inline = SendWr::send_inline(1, b"of the child");
    ends_well(in_child(|| {
        assert!(active.qp.post_send(&inline).is_err() && active.qp.post_recv(RecvWr::new(1, [])).is_err());
        active.qp.disconnect();
        active.qp.terminate();
        active.qp.abort();
        assert!(active.qp.connect(addr, &ConnectOptions::default()).is_err() && !active.qp.reset());
        assert_eq!(active.qp.state(), QpState::Error);
        assert!(active.cq.poll_one().is_none() && active.cq.wait(None).is_err());
        active.cq.arm(false);
        assert!(listener.accept(None).is_err() && listener.try_accept().is_none());
        assert!(active.rnic.wait_async_event(None).is_err() && active.rnic.async_event().is_none());
        assert!(
            active.rnic.create_cq(1).is_err()
                && active.rnic.listen(addr, &ConnectOptions::default()).is_err()
        );
        assert!(active.pd.allocate(8, ALL).is_err() && active.pd.allocate_window().is_err());
        assert!(regions[0].deregister().is_err() && regions[0].reregister(ALL).is_err());
        assert!(!format!("{:?}", (&active.qp, &listener, &regions, &window)).is_empty());
        drop((active, passive, listener, regions, window));
    }));
}

/// The parent's connections, its listener and its threads go on while a child uses its copies.
#[test]
fn the_parent_goes_on_whatever_its_child_does() {
    let ends = connected(&ConnectOptions::default());
    let (active, passive) = &ends;
    for _ in 0..20 {
        let child = in_child(|| {
            // SAFETY: reads the child's own copy; the parent's is in another process.
            let copies = unsafe { std::ptr::read(&raw const ends) };
            copies.0.qp.disconnect();
            drop(copies);
        });
        ends_well(child);
        exchange(active, passive);
        exchange(passive, active);
    }
    let other = End::new();
    connect_on(
        "127.0.0.1:0",
        &other,
        &passive.sibling(),
        &ConnectOptions::default(),
        &ConnectOptions::default(),
    );
}

/// A device that the child opens works, beside the parent's.
#[test]
fn a_child_opens_a_device_of_its_own() {
    let (active, passive) = connected(&ConnectOptions::default());
    let options = ConnectOptions::default();
    let listener = passive.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = listener.local_addr().unwrap();
    let child = in_child(|| {
        let end = End::new();
        end.qp.connect(addr, &options).unwrap();
        end.qp.post_send(&SendWr::send_inline(1, b"child")).unwrap();
        end.success();
    });
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("the child does not come");
    let other = passive.sibling();
    let inbox = other.region(64, Access::LOCAL_WRITE);
    other.qp.post_recv(RecvWr::one(7, inbox.whole())).unwrap();
    request.accept(&other.qp, b"").unwrap();
    assert_eq!(other.success().byte_len, 5);
    ends_well(child);
    exchange(&active, &passive);
}

/// A child never waits for locks that other threads held at the fork.
#[test]
fn a_child_waits_for_no_thread_of_its_parents() {
    let ends = connected(&ConnectOptions::default());
    let (active, passive) = &ends;
    let (source, target) = (active.region(4096, ALL), passive.region(4096, ALL));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                active.qp.post_send(&SendWr::write(1, source.whole(), target.remote(0))).unwrap();
                active.success();
            }
        });
        for _ in 0..200 {
            ends_well(in_child(|| {
                assert!(active.qp.post_send(&SendWr::send_inline(1, b"")).is_err());
                assert!(active.cq.poll_one().is_none());
                // SAFETY: reads the child's own copy.
                drop(unsafe { std::ptr::read(&raw const ends) });
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Runs a program that connects to the address in `RDDP_FORK_TEST`, forks, and lives on in its
/// child.
fn parent_of_one(addr: SocketAddr) {
    let end = End::new();
    end.qp.connect(addr, &ConnectOptions::default()).unwrap();
    end.qp.post_send(&SendWr::send_inline(1, b"here")).unwrap();
    end.success();
    in_child(|| {
        // SAFETY: reads the child's own copy; the parent's is in another process.
        drop(unsafe { std::ptr::read(&raw const end) });
        println!("dropped {}", std::process::id());
        std::io::stdout().flush().unwrap();
        nix::unistd::alarm::cancel();
        std::thread::sleep(Duration::from_secs(300));
    });
    std::thread::sleep(Duration::from_secs(300));
}

/// The descriptors that a child inherits keep no connection of its parent's open.
#[test]
fn the_peer_sees_the_end_of_a_parent_whose_child_lives() {
    if let Ok(addr) = std::env::var("RDDP_FORK_TEST") {
        return parent_of_one(addr.parse().unwrap());
    }
    let passive = End::new();
    let listener = passive.rnic.listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default()).unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_peer_sees_the_end_of_a_parent_whose_child_lives",
            "--nocapture",
            "--include-ignored",
        ])
        .env("RDDP_FORK_TEST", listener.local_addr().unwrap().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    listener.accept(Some(PATIENCE)).unwrap().expect("nobody came").accept(&passive.qp, b"").unwrap();
    passive.success();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("dropped ")).expect("the child has not dropped its copies");
    let child = Pid::from_raw(line.split("dropped ").nth(1).unwrap().trim().parse().unwrap());
    assert_eq!(passive.qp.state(), QpState::ReadyToSend, "the child has ended its parent's connection");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begin = Instant::now();
    while passive.qp.state() == QpState::ReadyToSend && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    let state = passive.qp.state();
    kill(child, Signal::SIGKILL).unwrap();
    assert_ne!(state, QpState::ReadyToSend, "the child keeps its parent's connection alive");
}
