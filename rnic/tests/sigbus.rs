//! A program with a SIGBUS handler of its own. Runs alone in its process, whose signals it changes.
#![allow(missing_docs)]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;
#[path = "lent/memory.rs"]
mod memory;

use std::ffi::{c_int, c_void};
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use common::raw::{Role, with_plain_raw, write_to};
use common::{ALL, End, PATIENCE};
use memory::{LEN, Lent};
use nix::sys::signal::Signal;
use rddp_rdmap::TerminateCode;
use rddp_rnic::ConnectOptions;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
/// The descriptor of the file that the handler makes whole again.
static FILE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn handler(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the kernel's; and a call that may be made in a handler.
    unsafe {
        CODE.store((*info).si_code, SeqCst);
        libc::ftruncate(FILE.load(SeqCst), LEN as libc::off_t);
    }
}

/// The program's handler gets its own faults, and signals that others send; it does not get a fault
/// of the engine's, in whatever thread.
#[test]
fn a_programs_own_handler_has_what_is_its_own() {
    // SAFETY: the handler does what one may.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction =
            handler as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, null_mut()), 0);
    }
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let lent = Lent::new(&end.pd, ALL);
    lent.cut(0);
    // By the background thread.
    raw.send(&write_to(&lent.region, 0, b"octets"));
    assert_eq!(raw.terminate_code(), TerminateCode::TAGGED_BOUNDS);
    // By this one.
    assert!(lent.region.read(0, 1).is_err());
    assert_eq!(CALLS.load(SeqCst), 0);

    FILE.store(lent.file.as_raw_fd(), SeqCst);
    // SAFETY: the program's own memory, which its handler makes valid again.
    unsafe { lent.start.read_volatile() };
    assert_eq!(CALLS.load(SeqCst), 1);
    assert!(CODE.load(SeqCst) > 0);
    // SAFETY: sends a signal to this thread, which has a handler for it.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CALLS.load(SeqCst), 2);
    assert!(CODE.load(SeqCst) <= 0, "sent by a thread");
}

/// A fault of the program's code in the background thread (none is ours) would be the handler's as
/// well: the signals of faults are not blocked there.
#[test]
fn the_background_thread_leaves_the_signals_of_faults_open() {
    let end = End::new();
    let options = ConnectOptions::default();
    let _listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let background = loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let status = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default()
        };
        let named: Vec<_> = tasks.map(status).filter(|status| status.contains("rddp-progress")).collect();
        // A thread gives itself its name.
        if !named.is_empty() {
            break named;
        }
        assert!(Instant::now() < deadline, "no background thread");
    };
    for status in background {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        let blocked = |signal: Signal| mask >> (signal as i32 - 1) & 1 == 1;
        use Signal::{SIGBUS, SIGFPE, SIGILL, SIGINT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1};
        assert!([SIGINT, SIGTERM, SIGUSR1].into_iter().all(blocked));
        assert!(![SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS].into_iter().any(blocked), "{mask:x}");
    }
}
