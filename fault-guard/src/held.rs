//! Signals that were sent to a thread that blocks them, as far as its program knows.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::chain::{self, SIGNALS};
use crate::system;

/// Number of signals that wait at a time; of one signal for one thread, or for the process, one.
const ROOM: usize = 16;

static HELD: [Place; ROOM] = [const { Place::new() }; ROOM];

/// The thread that waits for each of the signals by `sigwait` or its like; 0 for none.
static WAITERS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

struct Place {
    state: AtomicU32,
    signal: AtomicI32,
    /// The thread that it was sent to; 0 for the process.
    thread: AtomicI32,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

// SAFETY: `info` is touched by whoever has set `state` to `BUSY`, and by nobody else.
unsafe impl Sync for Place {}

const FREE: u32 = 0;
const BUSY: u32 = 1;
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

    /// Returns whether it holds a signal of `wanted` for this thread.
    fn holds(&self, wanted: &libc::sigset_t, thread: c_int) -> bool {
        let (signal, to) = (self.signal.load(Ordering::Relaxed), self.thread.load(Ordering::Relaxed));
        self.is(FULL) && has(wanted, signal) && (to == 0 || to == thread)
    }
}

/// Keeps a signal that has come, or gives it to the thread that waits for it.
///
/// # Safety
/// `info` is what the kernel gave the handler of `signal`.
pub(crate) unsafe fn hold(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: the caller's word.
    let to_thread = unsafe { (*info).si_code } == libc::SI_TKILL;
    let waiter = WAITERS[usize::from(signal == SIGNALS[1])].load(Ordering::Acquire);
    // SAFETY: the caller's word.
    if waiter != 0 && !to_thread && unsafe { send(waiter, signal, info) } {
        return;
    }
    let thread = if to_thread { system::thread() } else { 0 };
    let same = |place: &Place| {
        place.is(FULL)
            && place.signal.load(Ordering::Relaxed) == signal
            && place.thread.load(Ordering::Relaxed) == thread
    };
    if HELD.iter().any(same) {
        return;
    }
    let Some(place) = HELD.iter().find(|place| place.change(FREE, BUSY)) else { return };
    place.signal.store(signal, Ordering::Relaxed);
    place.thread.store(thread, Ordering::Relaxed);
    // SAFETY: `BUSY` was set here; the caller's word for `info`.
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
    // SAFETY: `BUSY` was set here, and what was full has been written.
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

/// Forgets what is held of one signal, whomever it is for.
pub(crate) fn forget(signal: c_int) {
    for place in &HELD {
        if place.signal.load(Ordering::Relaxed) == signal {
            place.change(FULL, FREE);
        }
    }
}

/// Forgets all of them, in a child of `fork`, for which none of them was.
pub fn after_fork() {
    HELD.iter().for_each(|place| place.state.store(FREE, Ordering::Relaxed));
    WAITERS.iter().for_each(|waiter| waiter.store(0, Ordering::Relaxed));
}

/// Sends the calling thread the held signals of `wanted`, and drops those that are ignored by now.
/// Returns whether it sent one.
pub(crate) fn deliver(wanted: &libc::sigset_t) -> bool {
    let mut any = false;
    while let Some((signal, info)) = take(wanted) {
        if chain::program(signal).sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: it is what came with the signal.
        unsafe { send(system::thread(), signal, &raw const info) };
        any = true;
    }
    any
}

/// Has the calling thread get what is sent of `signals`, from here on or, without `on`, no more.
pub(crate) fn wait(signals: &libc::sigset_t, on: bool) {
    let thread = system::thread();
    for (signal, waiter) in SIGNALS.into_iter().zip(&WAITERS) {
        if has(signals, signal) {
            let (from, to) = if on { (0, thread) } else { (thread, 0) };
            let _ = waiter.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// # Safety
/// `info` is what came with a signal to this process.
unsafe fn send(thread: c_int, signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: numbers, and an `info` that lives until the call returns.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), thread, signal, info) == 0 }
}

/// Returns whether a set has a signal.
pub(crate) fn has(set: &libc::sigset_t, signal: c_int) -> bool {
    // SAFETY: a set that lives.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// The set of one signal.
pub(crate) fn only(signal: c_int) -> libc::sigset_t {
    let mut set = system::no_signals();
    // SAFETY: a set that lives.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    set
}
