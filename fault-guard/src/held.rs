//! SIGBUS and SIGSEGV that were sent while the program blocks them. The kernel does not block the
//! two in a thread that moves octets, so they arrive; they are held here until the program unblocks
//! them, or takes them by `sigwait` or a similar call.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::chain::{self, SIGNALS};
use crate::system;

/// The number of signals that can be held at a time. Each of the two may be held once for every
/// thread, and once for the process.
const ROOM: usize = 16;

static HELD: [Place; ROOM] = [const { Place::new() }; ROOM];

/// The thread that waits for each of [`SIGNALS`] by `sigwait` or a similar call; 0 for none.
static WAITERS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

/// Room for one held signal.
struct Place {
    state: AtomicU32,
    signal: AtomicI32,
    /// The thread to which the signal was sent; 0 for the process.
    thread: AtomicI32,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

// SAFETY: `info` is accessed only by the thread that has set `state` to `BUSY`.
unsafe impl Sync for Place {}

// The states of a `Place`.
const FREE: u32 = 0;
/// One thread is filling or emptying the place.
const BUSY: u32 = 1;
/// A signal is held here.
const FULL: u32 = 2;

impl Place {
    const fn new() -> Self {
        Place {
            state: AtomicU32::new(FREE),
            signal: AtomicI32::new(0),
            thread: AtomicI32::new(0),
            info: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    fn is(&self, state: u32) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether a signal of `wanted` is held here for this thread.
    fn holds(&self, wanted: &libc::sigset_t, thread: c_int) -> bool {
        let (signal, to) = (self.signal.load(Ordering::Relaxed), self.thread.load(Ordering::Relaxed));
        self.is(FULL) && has(wanted, signal) && (to == 0 || to == thread)
    }
}

/// Holds a signal that has arrived, or sends it to the thread that waits for it.
///
/// # Safety
/// `info` is what the kernel gave the handler of `signal`.
pub(crate) unsafe fn hold(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: `info` is the kernel's `siginfo_t`, which lives until the handler returns.
    let to_thread = unsafe { (*info).si_code } == libc::SI_TKILL;
    let waiter = WAITERS[usize::from(signal == SIGNALS[1])].load(Ordering::Acquire);
    // SAFETY: `info` came with a signal to this process.
    if waiter != 0 && !to_thread && unsafe { send(waiter, signal, info) } {
        return;
    }
    let thread = if to_thread { system::thread() } else { 0 };
    let same = |place: &Place| {
        place.is(FULL)
            && place.signal.load(Ordering::Relaxed) == signal
            && place.thread.load(Ordering::Relaxed) == thread
    };
    // As in the kernel, a signal that is already pending is not held twice.
    if HELD.iter().any(same) {
        return;
    }
    // If all places are in use, the signal is lost: a signal handler cannot wait for a place.
    let Some(place) = HELD.iter().find(|place| place.change(FREE, BUSY)) else { return };
    place.signal.store(signal, Ordering::Relaxed);
    place.thread.store(thread, Ordering::Relaxed);
    // SAFETY: `BUSY` was set by this call, so that nobody else accesses the place; `info` is the
    // kernel's `siginfo_t`.
    unsafe { (*place.info.get()).write(info.read()) };
    place.state.store(FULL, Ordering::Release);
}

/// Takes a held signal of `wanted` that is for the calling thread.
pub(crate) fn take(wanted: &libc::sigset_t) -> Option<(c_int, libc::siginfo_t)> {
    if HELD.iter().all(|place| place.is(FREE)) {
        return None;
    }
    let thread = system::thread();
    let place = HELD.iter().find(|place| place.holds(wanted, thread) && place.change(FULL, BUSY))?;
    // SAFETY: `BUSY` was set by this call, and a place that was full has been written.
    let info = unsafe { (*place.info.get()).assume_init_read() };
    let signal = place.signal.load(Ordering::Relaxed);
    place.state.store(FREE, Ordering::Release);
    Some((signal, info))
}

/// Returns whether a signal is held for the calling thread.
pub(crate) fn is_pending(signal: c_int) -> bool {
    let (wanted, thread) = (only(signal), system::thread());
    HELD.iter().any(|place| place.holds(&wanted, thread))
}

/// Forgets all that is held of one signal, for whichever thread.
pub(crate) fn forget(signal: c_int) {
    for place in &HELD {
        if place.signal.load(Ordering::Relaxed) == signal {
            place.change(FULL, FREE);
        }
    }
}

/// Forgets all held signals, in a child of `fork`: none of them was sent to it.
pub fn after_fork() {
    HELD.iter().for_each(|place| place.state.store(FREE, Ordering::Relaxed));
    WAITERS.iter().for_each(|waiter| waiter.store(0, Ordering::Relaxed));
}

/// Sends the calling thread the held signals of `wanted`, except those that the program now
/// ignores. Returns whether one was sent.
pub(crate) fn deliver(wanted: &libc::sigset_t) -> bool {
    let mut any = false;
    while let Some((signal, info)) = take(wanted) {
        if chain::program(signal).sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: `info` is what came with the signal.
        unsafe { send(system::thread(), signal, &raw const info) };
        any = true;
    }
    any
}

/// Notes that the calling thread waits for `signals`, or with `on` unset that it no longer does.
pub(crate) fn wait(signals: &libc::sigset_t, on: bool) {
    let thread = system::thread();
    for (signal, waiter) in SIGNALS.into_iter().zip(&WAITERS) {
        if has(signals, signal) {
            let (from, to) = if on { (0, thread) } else { (thread, 0) };
            let _ = waiter.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Sends a signal with its `info` to a thread of this process. Returns whether that worked.
///
/// # Safety
/// `info` is what came with a signal to this process.
unsafe fn send(thread: c_int, signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: the arguments are numbers, and an `info` that lives until the call returns.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), thread, signal, info) == 0 }
}

/// Returns whether a signal is in a set.
pub(crate) fn has(set: &libc::sigset_t, signal: c_int) -> bool {
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Returns the set of one signal.
pub(crate) fn only(signal: c_int) -> libc::sigset_t {
    let mut set = system::no_signals();
    // SAFETY: `set` is a valid set on this stack.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    set
}
