//! SIGBUS and SIGSEGV that were sent while the program blocks them. The kernel does not block the
//! two in a thread that moves octets, so they arrive; they are held here until the program unblocks
//! them, or takes them by `sigwait` or a similar call.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::chain::{self, SIGNALS};
use crate::system;

/// The number of signals that can be held at a time. Each of the two may be held once for every
/// thread, and once for the process.
const ROOM: usize = 16;

static HELD: [HeldSlot; ROOM] = [const { HeldSlot::new() }; ROOM];

/// The thread that waits for each of [`SIGNALS`] by `sigwait` or a similar call; 0 for none.
static WAITERS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

/// Room for one held signal.
struct HeldSlot {
    /// [`FREE`], [`BUSY`], or [`full`]: one word, so that whoever takes the signal takes the one
    /// that it has looked at.
    state: AtomicU64,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

// SAFETY: `info` is accessed only by the thread that has set `state` to `BUSY`.
unsafe impl Sync for HeldSlot {}

/// The state of a slot without a signal.
const FREE: u64 = 0;
/// The state of a slot that one thread is filling or emptying. No signal has this number.
const BUSY: u64 = 1;

/// Returns the state of a slot that holds a signal, sent to a thread or to the process (0).
fn full(signal: c_int, thread: c_int) -> u64 {
    u64::from(thread.cast_unsigned()) << 32 | u64::from(signal.cast_unsigned())
}

/// Returns the signal that a slot in this state holds, and the thread it was sent to.
fn held(state: u64) -> Option<(c_int, c_int)> {
    let (thread, signal) = ((state >> 32) as c_int, state as u32 as c_int);
    (state != FREE && state != BUSY).then_some((signal, thread))
}

impl HeldSlot {
    const fn new() -> Self {
        HeldSlot { state: AtomicU64::new(FREE), info: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    fn change(&self, from: u64, to: u64) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the signal of `wanted` that is held here for `thread`, with the slot's state.
    fn find(&self, wanted: &libc::sigset_t, thread: c_int) -> Option<(c_int, u64)> {
        let state = self.state();
        let (signal, to) = held(state)?;
        (has(wanted, signal) && (to == 0 || to == thread)).then_some((signal, state))
    }

    /// Empties a slot that is still in the state in which its signal was found.
    fn empty(&self, found: u64) -> Option<libc::siginfo_t> {
        if !self.change(found, BUSY) {
            return None;
        }
        // SAFETY: `BUSY` was set by this call, and a slot that was full has been written.
        let info = unsafe { (*self.info.get()).assume_init_read() };
        self.state.store(FREE, Ordering::Release);
        Some(info)
    }
}

/// Holds a signal that has arrived, or sends it to the thread that waits for it.
///
/// # Safety
/// `info` is what the kernel gave the handler of `signal`.
pub(crate) unsafe fn hold(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: `info` is the kernel's `siginfo_t`, which lives until the handler returns.
    let to_thread = unsafe { (*info).si_code } == libc::SI_TKILL;
    let waiter = WAITERS[chain::index(signal)].load(Ordering::Acquire);
    // SAFETY: `info` came with a signal to this process.
    if waiter != 0 && !to_thread && unsafe { send(waiter, signal, info) } {
        return;
    }
    let thread = if to_thread { system::thread() } else { 0 };
    let state = full(signal, thread);
    // As in the kernel, a signal that is already pending is not held twice.
    if HELD.iter().any(|slot| slot.state() == state) {
        return;
    }
    // If all slots are in use, the signal is lost: a signal handler cannot wait for a slot.
    let Some(slot) = HELD.iter().find(|slot| slot.change(FREE, BUSY)) else { return };
    // SAFETY: `BUSY` was set by this call, so that nobody else accesses the slot; `info` is the
    // kernel's `siginfo_t`.
    unsafe { (*slot.info.get()).write(info.read()) };
    slot.state.store(state, Ordering::Release);
}

/// Takes a held signal of `wanted` that is for the calling thread.
pub(crate) fn take(wanted: &libc::sigset_t) -> Option<(c_int, libc::siginfo_t)> {
    if HELD.iter().all(|slot| slot.state() == FREE) {
        return None;
    }
    let thread = system::thread();
    HELD.iter().find_map(|slot| {
        let (signal, state) = slot.find(wanted, thread)?;
        Some((signal, slot.empty(state)?))
    })
}

/// Returns whether a signal is held for the calling thread.
pub(crate) fn is_pending(signal: c_int) -> bool {
    let (wanted, thread) = (only(signal), system::thread());
    HELD.iter().any(|slot| slot.find(&wanted, thread).is_some())
}

/// Forgets all that is held of one signal, for whichever thread.
pub(crate) fn forget(signal: c_int) {
    for slot in &HELD {
        let state = slot.state();
        if held(state).is_some_and(|(found, _)| found == signal) {
            slot.change(state, FREE);
        }
    }
}

/// Forgets all held signals, in a child of `fork`: none of them was sent to it.
pub fn after_fork() {
    HELD.iter().for_each(|slot| slot.state.store(FREE, Ordering::Relaxed));
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

/// Notes that the calling thread waits for `signals`, unless another thread does.
pub(crate) fn begin_wait(signals: &libc::sigset_t) {
    change_waiter(signals, 0, system::thread());
}

/// Notes that the calling thread no longer waits for `signals`.
pub(crate) fn end_wait(signals: &libc::sigset_t) {
    change_waiter(signals, system::thread(), 0);
}

fn change_waiter(signals: &libc::sigset_t, from: c_int, to: c_int) {
    for signal in SIGNALS.into_iter().filter(|signal| has(signals, *signal)) {
        let waiter = &WAITERS[chain::index(signal)];
        let _ = waiter.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a free slot.
    fn fill(slot: &HeldSlot, signal: c_int, thread: c_int) {
        assert!(slot.change(FREE, BUSY));
        // SAFETY: `BUSY` was set by this call, and a `siginfo_t` of zeros is a valid one.
        unsafe { (*slot.info.get()).write(std::mem::zeroed()) };
        slot.state.store(full(signal, thread), Ordering::Release);
    }

    #[test]
    fn a_place_that_was_refilled_for_another_keeps_its_signal() {
        let (one, other) = (1000, 1001);
        for (signal, thread) in [(libc::SIGBUS, other), (libc::SIGSEGV, one)] {
            let slot = HeldSlot::new();
            fill(&slot, libc::SIGBUS, one);
            let (_, found) = slot.find(&only(libc::SIGBUS), one).unwrap();
            assert!(slot.empty(found).is_some());
            fill(&slot, signal, thread);
            assert!(slot.empty(found).is_none());
            assert_eq!(held(slot.state()), Some((signal, thread)));
        }
    }

    #[test]
    fn a_signal_to_a_thread_is_found_by_it_alone() {
        let slot = HeldSlot::new();
        fill(&slot, libc::SIGSEGV, 1000);
        assert!(slot.find(&only(libc::SIGSEGV), 1000).is_some());
        assert!(slot.find(&only(libc::SIGSEGV), 1001).is_none());
        assert!(slot.find(&only(libc::SIGBUS), 1000).is_none());
        let slot = HeldSlot::new();
        fill(&slot, libc::SIGSEGV, 0);
        assert!(slot.find(&only(libc::SIGSEGV), 1001).is_some());
    }
}
