//! Signals held back while the peer may read or write memory of the program.
//!
//! A handler may change that memory, run for as long as it likes, or leave the call by
//! `siglongjmp`. So while memory is out the thread's signals are blocked, and a sleep ends when one
//! waits: the memory is withdrawn, and then the handler runs. `pthread_cancel` waits in the same
//! way: a thread is cancelled only where [`Kernel::asleep`](super::Kernel) lets it.

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use super::Calls;

/// Signals of the calling thread, held back until dropped. Handlers then run at once.
#[derive(Debug)]
pub(crate) struct HeldBack {
    before: u64,
    calls: Calls,
    /// The descriptor that is readable while a signal waits; -1: not made yet.
    descriptor: RawFd,
}

/// Signals that are never held back: those of a thread's own faults, and the two that the C library
/// uses between threads.
const LET_THROUGH: [c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
    32,
    33,
];

/// Signals that do nothing unless the program has a handler.
const HARMLESS: [c_int; 4] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

impl HeldBack {
    /// Holds back the signals of the calling thread from here on.
    pub(crate) fn here(calls: &Calls) -> Self {
        let through = LET_THROUGH.iter().fold(0, |all, signal| all | bit(*signal));
        Self { before: block(!through), calls: *calls, descriptor: -1 }
    }

    /// Returns whether a signal waits that does anything. Those that do nothing are dropped.
    pub(crate) fn is_waiting(&self) -> bool {
        let waiting = pending() & !self.before & !LET_THROUGH.iter().fold(0, |all, one| all | bit(*one));
        let ignored = (1..=64).filter(|one| waiting & bit(*one) != 0 && is_ignored(*one));
        let ignored = ignored.fold(0, |all, one| all | bit(one));
        if ignored != 0 {
            drop_one(ignored);
        }
        waiting & !ignored != 0
    }

    /// Returns a descriptor that is readable while a signal waits. `None`: there is no number left
    /// for one.
    pub(crate) fn descriptor(&mut self) -> Option<RawFd> {
        if self.descriptor < 0 {
            let through = LET_THROUGH.iter().fold(0, |all, signal| all | bit(*signal));
            self.descriptor = open(&self.calls, !self.before & !through)?;
            (self.calls.0.own.hide)(self.descriptor);
        }
        Some(self.descriptor)
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        if self.descriptor >= 0 {
            (self.calls.0.own.show)(self.descriptor);
            // SAFETY: the number is that of a descriptor of ours, which nothing else uses any more.
            unsafe { (self.calls.0.own.close)(self.descriptor) };
        }
        set(libc::SIG_SETMASK, self.before);
    }
}

fn block(signals: u64) -> u64 {
    set(libc::SIG_BLOCK, signals)
}

/// Changes the mask of the calling thread, of 64 signals as the kernel has them: the C library's
/// functions may be interposed. Returns the mask before.
fn set(how: c_int, signals: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (&raw const signals, &raw mut before);
    // SAFETY: both point at 8 octets, as the last argument says, which live until it returns.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>()) };
    before
}

fn pending() -> u64 {
    let mut waiting = 0_u64;
    // SAFETY: the kernel writes the 8 octets that the last argument names.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut waiting, size_of::<u64>()) };
    waiting
}

/// Takes one waiting signal of these, which stay blocked meanwhile.
fn drop_one(signals: u64) {
    let no_time = [0 as c_long; 2];
    let none = ptr::null_mut::<u8>();
    let set = &raw const signals;
    // SAFETY: the set has the 8 octets that the last argument names, the time is two words of
    // zeros, and without a place for it the kernel tells nothing of the signal.
    unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, set, none, no_time.as_ptr(), size_of::<u64>()) };
}

/// Returns whether a signal does nothing, as the program has it.
fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads only; on success the structure is filled, else it stays zero, which is a valid
    // value.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_IGN => true,
        libc::SIG_DFL => HARMLESS.contains(&signal),
        _ => false,
    }
}

/// Opens a `signalfd` under a high number: a program may count on getting the lowest free one.
fn open(calls: &Calls, signals: u64) -> Option<RawFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    let set = &raw const signals;
    // SAFETY: the set has the 8 octets that the third argument names.
    let low = unsafe { libc::syscall(libc::SYS_signalfd4, -1, set, size_of::<u64>(), flags) };
    let low = RawFd::try_from(low).ok().filter(|number| *number >= 0)?;
    // SAFETY: `F_DUPFD_CLOEXEC` takes an integer.
    let duplicate = |from: &usize| unsafe { (calls.0.fcntl)(low, libc::F_DUPFD_CLOEXEC, *from) };
    let high = super::edges_pool::HIGH.iter().map(duplicate).find(|number| *number >= 0);
    // SAFETY: the number was made above and is used nowhere else.
    unsafe { (calls.0.own.close)(low) };
    high
}
