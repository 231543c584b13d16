//! The state of SIGBUS and SIGSEGV (the guarded signals) in each thread: blocked or not, as far as
//! its program knows.
//!
//! A thread in which the kernel blocks these signals is killed by a guarded fault, whatever handler
//! is installed. So once a thread has been [adopted](adopt_thread), the kernel never blocks them
//! there. What the program has set is recorded in the thread-local `Signals`, and `held` and the
//! handler act on it. For a thread that was not adopted nothing is recorded: its mask is the
//! kernel's. Code that starts threads or programs, which inherit the kernel's mask, asks for the
//! program's mask by [`as_set`].

use std::cell::Cell;
use std::ffi::c_int;

use crate::chain::SIGNALS;
use crate::{held, routine, system};

/// The record of a thread's signals. All zeros at first.
#[repr(C)]
pub(crate) struct Signals {
    /// The members of [`SIGNALS`] that are blocked, and the bits [`LOCKED`] and [`ADOPTED`].
    state: Cell<u32>,
    depth: Cell<u32>,
    running: [Cell<Running>; DEPTH],
}

/// A handler of the program that has been called and has not returned.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Running {
    /// An address on the handler's stack, above its own frames.
    at: usize,
    /// The bounds of the alternate stack if the handler runs there, or else 0.
    low: usize,
    high: usize,
    /// The signals that were blocked before.
    before: usize,
}

const DEPTH: usize = 4;
const BLOCKED: u32 = 3;
/// The thread holds a lock, so that no handler of the program is called for a signal that was sent.
const LOCKED: u32 = 1 << 2;
const ADOPTED: u32 = 1 << 3;

impl Signals {
    fn set(&self, mask: u32, to: u32) {
        self.state.set(self.state.get() & !mask | to);
    }

    /// Forgets handlers that were left by `longjmp`: those whose frames are not above the stack
    /// pointer `sp`.
    fn forget_left(&self, sp: usize, alternate: (usize, usize)) {
        while let Some(last) = self.depth.get().checked_sub(1) {
            let running = self.running[last as usize % DEPTH].get();
            if running.is_above(sp, alternate) {
                return;
            }
            self.depth.set(last);
            self.set(BLOCKED, running.before as u32);
        }
    }
}

impl Running {
    /// Returns whether code that runs at the stack pointer `sp` was called by this handler;
    /// `alternate` is the alternate stack.
    fn is_above(self, sp: usize, (low, high): (usize, usize)) -> bool {
        if self.low != self.high {
            return (self.low..self.high).contains(&sp) && sp < self.at;
        }
        sp < self.at || (low..high).contains(&sp)
    }
}

fn bit(signal: c_int) -> u32 {
    SIGNALS.iter().position(|ours| *ours == signal).map_or(0, |at| 1 << at)
}

fn bits_of(set: &libc::sigset_t) -> u32 {
    SIGNALS.into_iter().filter(|signal| held::has(set, *signal)).map(bit).sum()
}

fn add(set: &mut libc::sigset_t, bits: u32) {
    for signal in SIGNALS.into_iter().filter(|signal| bits & bit(*signal) != 0) {
        // SAFETY: `set` is a valid set.
        unsafe { libc::sigaddset(set, signal) };
    }
}

/// Takes [`SIGNALS`] out of a set, and returns which of them were in it.
pub(crate) fn scrub(set: &mut libc::sigset_t) -> u32 {
    let bits = bits_of(set);
    for signal in SIGNALS {
        // SAFETY: `set` is a valid set.
        unsafe { libc::sigdelset(set, signal) };
    }
    bits
}

/// Puts the signals back into a set that [`scrub`] took out.
pub(crate) fn restore(set: &mut libc::sigset_t, bits: u32) {
    add(set, bits);
}

fn set_of(bits: u32) -> libc::sigset_t {
    let mut set = system::no_signals();
    add(&mut set, bits);
    set
}

/// Returns whether [`adopt_thread`] has been called in this thread.
#[inline]
#[must_use]
pub fn is_adopted() -> bool {
    routine::signals().state.get() & ADOPTED != 0
}

/// Adopts the calling thread: from here on the kernel delivers SIGBUS and SIGSEGV to it, whatever
/// its program has blocked or will block. Costs one load in a thread that is adopted.
#[inline]
pub fn adopt_thread() {
    if routine::GUARDED && !is_adopted() {
        adopt();
    }
}

#[cold]
fn adopt() {
    let (signals, ours) = (routine::signals(), set_of(BLOCKED));
    // A signal that is pending is delivered between the two changes of the mask, and is held.
    let Ok(before) = system::mask(libc::SIG_BLOCK, Some(&ours)) else { return };
    signals.set(BLOCKED | ADOPTED, bits_of(&before) | ADOPTED);
    let _ = system::mask(libc::SIG_UNBLOCK, Some(&ours));
}

/// Does what `pthread_sigmask` does, as seen by the program of an adopted thread.
///
/// # Errors
/// `EINVAL` for an unknown `how`.
pub fn sigmask(how: c_int, set: Option<&libc::sigset_t>) -> Result<libc::sigset_t, c_int> {
    sigmask_by(system::mask, how, set)
}

/// Does what [`sigmask`] does, but changes the kernel's mask by `change`.
///
/// # Errors
/// Those of `change`.
pub fn sigmask_by(
    change: impl FnOnce(c_int, Option<&libc::sigset_t>) -> Result<libc::sigset_t, c_int>,
    how: c_int,
    set: Option<&libc::sigset_t>,
) -> Result<libc::sigset_t, c_int> {
    let signals = routine::signals();
    if signals.state.get() & ADOPTED == 0 {
        return change(how, set);
    }
    forget_left();
    let mut scrubbed = set.copied();
    let asked = scrubbed.as_mut().map(scrub);
    let mut before = change(how, scrubbed.as_ref())?;
    let blocked = signals.state.get() & BLOCKED;
    add(&mut before, blocked);
    if let Some(asked) = asked {
        block(match how {
            libc::SIG_BLOCK => blocked | asked,
            libc::SIG_UNBLOCK => blocked & !asked,
            _ => asked,
        });
    }
    Ok(before)
}

/// Records which signals are blocked, and delivers those that were held and are no longer blocked.
/// Returns whether there was such a signal.
fn block(bits: u32) -> bool {
    let signals = routine::signals();
    signals.set(BLOCKED, bits);
    let free = BLOCKED & !bits;
    signals.state.get() & LOCKED == 0 && free != 0 && held::deliver(&set_of(free))
}

fn forget_left() {
    let signals = routine::signals();
    if signals.depth.get() > 0 {
        signals.forget_left(here(), alternate());
    }
}

/// Returns an address on the calling function's stack, or a little below.
#[inline(never)]
fn here() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here).addr()
}

/// Returns the bounds of the alternate stack if the calling thread has one, or else zeros.
fn alternate() -> (usize, usize) {
    // SAFETY: `stack_t` is a pointer and integers, for which all zeros is a value.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: without a new stack the call only writes the old one to `stack`.
    unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) };
    bounds(&stack)
}

fn bounds(stack: &libc::stack_t) -> (usize, usize) {
    let low = stack.ss_sp.addr();
    if stack.ss_flags & libc::SS_DISABLE != 0 { (0, 0) } else { (low, low + stack.ss_size) }
}

/// Runs `work` while the kernel's mask is the program's, for a `work` that starts a thread or a
/// program, which inherits the mask. Nothing is guarded meanwhile.
pub fn as_set<T>(work: impl FnOnce() -> T) -> T {
    let state = routine::signals().state.get();
    if state & ADOPTED == 0 || state & BLOCKED == 0 {
        return work();
    }
    let blocked = set_of(state & BLOCKED);
    let _ = system::mask(libc::SIG_BLOCK, Some(&blocked));
    let result = work();
    let _ = system::mask(libc::SIG_UNBLOCK, Some(&blocked));
    result
}

/// Runs `wait`, which is meant to sleep with `mask`, with a mask that does not block the guarded
/// signals. Returns `None` if a signal was held that `mask` lets through: it has been delivered,
/// and `wait` was not called.
pub fn during<T>(mask: &libc::sigset_t, wait: impl FnOnce(&libc::sigset_t) -> T) -> Option<T> {
    if !is_adopted() {
        return Some(wait(mask));
    }
    forget_left();
    let mut scrubbed = *mask;
    let asked = scrub(&mut scrubbed);
    let before = routine::signals().state.get() & BLOCKED;
    let result = if block(asked) { None } else { Some(wait(&scrubbed)) };
    block(before);
    result
}

/// Takes a signal of `wanted` that is held, or runs `wait`, which is meant to take one from the
/// kernel.
///
/// # Errors
/// The result of `wait`.
pub fn take<T>(wanted: &libc::sigset_t, wait: impl FnOnce() -> T) -> Result<(c_int, libc::siginfo_t), T> {
    let ours = set_of(bits_of(wanted));
    if bits_of(wanted) == 0 || !crate::handler::is_installed() {
        return Err(wait());
    }
    // From here on the kernel keeps signals that arrive, and `wait` finds them.
    let _ = system::mask(libc::SIG_BLOCK, Some(&ours));
    held::begin_wait(&ours);
    let result = held::take(wanted).ok_or_else(wait);
    held::end_wait(&ours);
    if is_adopted() {
        let _ = system::mask(libc::SIG_UNBLOCK, Some(&ours));
    }
    result
}

/// Adds to a set the signals that are held for the calling thread, as `sigpending` does.
pub fn add_pending(set: &mut libc::sigset_t) {
    let pending = SIGNALS.into_iter().filter(|signal| held::is_pending(*signal)).map(bit).sum();
    add(set, pending);
}

/// Puts off the program's handlers for a SIGBUS or SIGSEGV that is sent to the calling thread,
/// until [`unlock`].
pub fn lock() {
    routine::signals().set(LOCKED, LOCKED);
}

/// Ends [`lock`]. The caller then calls [`deliver`].
pub fn unlock() {
    routine::signals().set(LOCKED, 0);
}

/// Delivers the signals that arrived in the calling thread while it held a lock.
pub fn deliver() {
    // In a thread that was not adopted, the kernel knows which signals are blocked, and keeps them
    // itself.
    block(routine::signals().state.get() & BLOCKED);
}

/// Returns whether a signal is blocked, or, if it was `sent`, must be held because of a lock.
pub(crate) fn is_blocked(signal: c_int, sent: bool) -> bool {
    let state = routine::signals().state.get();
    state & bit(signal) != 0 || (sent && state & LOCKED != 0)
}

/// Records that the program's handler of a signal begins; it runs with `blocked` blocked in
/// addition.
///
/// # Safety
/// `context` is what the kernel gave the calling handler, and `at` is an address in that handler's
/// frame.
pub(crate) unsafe fn begin_handler(at: usize, blocked: &libc::sigset_t, context: *mut libc::ucontext_t) {
    let signals = routine::signals();
    // SAFETY: `context` is a `ucontext_t` of the kernel's that lives until the handler returns, and
    // only the handler, in one thread, refers to it.
    let (stack, mask) = unsafe { (&(*context).uc_stack, &mut (*context).uc_sigmask) };
    let (low, high) = bounds(stack);
    let before = signals.state.get() & BLOCKED;
    add(mask, before);
    let (low, high) = if (low..high).contains(&at) { (low, high) } else { (0, 0) };
    let depth = signals.depth.get();
    if (depth as usize) < DEPTH {
        signals.running[depth as usize].set(Running { at, low, high, before: before as usize });
        signals.depth.set(depth + 1);
    }
    signals.set(BLOCKED, before | bits_of(blocked));
}

/// Records that the handler ended: the signals in the mask that it leaves in the context are
/// blocked from here on.
///
/// # Safety
/// Those of [`begin_handler`].
pub(crate) unsafe fn end_handler(at: usize, context: *mut libc::ucontext_t) {
    let signals = routine::signals();
    // Handlers that were called later, and are still in the list, were left by `longjmp`.
    let depth = signals.depth.get() as usize;
    if let Some(own) = signals.running[..depth.min(DEPTH)].iter().position(|running| running.get().at == at) {
        signals.depth.set(own as u32);
    }
    // SAFETY: `context` is a `ucontext_t` of the kernel's that lives until the handler returns, and
    // only the handler, in one thread, refers to it.
    let blocked = unsafe { scrub(&mut (*context).uc_sigmask) };
    block(blocked);
}

/// Forgets, when a signal arrives, handlers that were left by `longjmp`.
///
/// # Safety
/// `context` is what the kernel gave the calling handler.
pub(crate) unsafe fn at_signal(context: *mut libc::ucontext_t) {
    let signals = routine::signals();
    if signals.depth.get() > 0 {
        // SAFETY: `context` is a `ucontext_t` of the kernel's that lives until the calling handler
        // returns.
        let (stack, sp) = unsafe { (bounds(&(*context).uc_stack), routine::stack_pointer(context)) };
        signals.forget_left(sp, stack);
    }
}
