//! The program's handlers and masks of signals, behind the fault guard's of SIGBUS and SIGSEGV.
//!
//! The guard's handler stays in front, and the kernel blocks neither signal in a thread that has
//! moved octets; the program sees and gets what it has set. Before the first framed socket all of
//! these go on to the C library as they came.

use std::ffi::c_int;
use std::ptr;

use libc::{SIGBUS, SIGSEGV, sighandler_t, siginfo_t, sigset_t, timespec};
use rddp_fault_guard::{is_installed, mask};
use rddp_real as real;
use rddp_stream::{Errno, lent};

use crate::hook::{fail, returned};

/// Signals whose actions are the guard's business.
fn is_guarded(signal: c_int) -> bool {
    matches!(signal, SIGBUS | SIGSEGV) && is_installed()
}

/// See `sigaction` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !is_installed() {
        // SAFETY: our caller's promise.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: our caller's promise: null, or an action.
    match rddp_fault_guard::sigaction(signal, unsafe { new.as_ref() }) {
        Ok(before) => {
            // SAFETY: our caller's promise: null, or room for an action.
            if let Some(old) = unsafe { old.as_mut() } {
                *old = before;
            }
            0
        }
        Err(errno) => fail(Errno(errno)),
    }
}

/// See `sigaction` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { sigaction(signal, new, old) }
}

/// Installs a handler with these flags and nothing blocked but `signal` itself; the one before, or
/// `SIG_ERR`.
fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: all zeros is the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    let before = rddp_fault_guard::sigaction(signal, Some(&action));
    returned(before.map(|before| before.sa_sigaction).map_err(Errno))
}

/// Functions that install a handler: of a guarded signal by the guard, with these flags.
macro_rules! signals {
    ($($name:ident by $real:ident with $flags:expr;)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
                if is_guarded(signal) && handler != libc::SIG_ERR {
                    return install(signal, handler, $flags);
                }
                // SAFETY: our caller's promise.
                unsafe { real::$real(signal, handler) }
            }
        )*
    };
}

signals! {
    signal by signal with libc::SA_RESTART;
    bsd_signal by signal with libc::SA_RESTART;
    ssignal by signal with libc::SA_RESTART;
    sysv_signal by __sysv_signal with libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal by __sysv_signal with libc::SA_RESETHAND | libc::SA_NODEFER;
}

/// See `sigset` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_guarded(signal) {
        // SAFETY: our caller's promise.
        return unsafe { real::sigset(signal, handler) };
    }
    let holds = handler == SIG_HOLD;
    let was_held = is_blocked(signal);
    let before = if holds {
        rddp_fault_guard::sigaction(signal, None).map_or(libc::SIG_ERR, |action| action.sa_sigaction)
    } else {
        install(signal, handler, 0)
    };
    change(if holds { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK }, signal);
    if was_held { SIG_HOLD } else { before }
}

/// Blocks one signal, or no more.
fn change(how: c_int, signal: c_int) -> c_int {
    // SAFETY: all zeros is a set, which lives.
    let set = unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        set
    };
    returned(mask::sigmask(how, Some(&set)).map(|_| 0).map_err(Errno))
}

fn is_blocked(signal: c_int) -> bool {
    // SAFETY: a set that lives.
    mask::sigmask(libc::SIG_BLOCK, None)
        .is_ok_and(|set| unsafe { libc::sigismember(&raw const set, signal) } == 1)
}

/// See `sighold` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return change(libc::SIG_BLOCK, signal);
    }
    // SAFETY: our caller's promise.
    unsafe { real::sighold(signal) }
}

/// See `sigrelse` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return change(libc::SIG_UNBLOCK, signal);
    }
    // SAFETY: our caller's promise.
    unsafe { real::sigrelse(signal) }
}

/// See `sigignore` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return if install(signal, libc::SIG_IGN, 0) == libc::SIG_ERR { -1 } else { 0 };
    }
    // SAFETY: our caller's promise.
    unsafe { real::sigignore(signal) }
}

/// See `siginterrupt` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, flag: c_int) -> c_int {
    if !is_guarded(signal) {
        // SAFETY: our caller's promise.
        return unsafe { real::siginterrupt(signal, flag) };
    }
    let changed = rddp_fault_guard::sigaction(signal, None).and_then(|mut action| {
        action.sa_flags &= !libc::SA_RESTART;
        action.sa_flags |= if flag == 0 { libc::SA_RESTART } else { 0 };
        rddp_fault_guard::sigaction(signal, Some(&action))
    });
    returned(changed.map(|_| 0).map_err(Errno))
}

/// The result of `pthread_sigmask`, in a thread whose mask the guard keeps.
///
/// # Safety
///
/// As of `pthread_sigmask`.
unsafe fn masked(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the caller's promise: null, or a set.
    match mask::sigmask(how, unsafe { set.as_ref() }) {
        Ok(before) => {
            // SAFETY: the caller's promise: null, or room for a set, of which the kernel fills as
            // much.
            unsafe {
                if !old.is_null() {
                    ptr::from_ref(&before).cast::<u64>().copy_to_nonoverlapping(old.cast(), 1);
                }
            }
            0
        }
        Err(errno) => errno,
    }
}

/// See `pthread_sigmask` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if mask::is_adopted() {
        // SAFETY: our caller's promise.
        return unsafe { masked(how, set, old) };
    }
    // SAFETY: our caller's promise.
    unsafe { real::pthread_sigmask(how, set, old) }
}

/// See `sigprocmask` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if mask::is_adopted() {
        // SAFETY: our caller's promise.
        return match unsafe { masked(how, set, old) } {
            0 => 0,
            errno => fail(Errno(errno)),
        };
    }
    // SAFETY: our caller's promise.
    unsafe { real::sigprocmask(how, set, old) }
}

/// Runs a call that sleeps with `mask`, if that is not null, so that the guard works in handlers
/// that run meanwhile.
///
/// # Safety
///
/// `mask` is null or points to a set.
pub(crate) unsafe fn asleep<T: crate::hook::Failed>(
    mask: *const sigset_t,
    sleep: impl FnOnce(*const sigset_t) -> T,
) -> T {
    if mask.is_null() || !mask::is_adopted() {
        return sleep(mask);
    }
    // SAFETY: the caller's promise.
    let set = match unsafe { set_at(mask) } {
        Ok(set) => set,
        Err(errno) => return fail(errno),
    };
    let result = mask::during(&set, |set| (sleep(set), Errno::last()));
    result.map_or_else(
        || fail(Errno::INTERRUPTED),
        |(result, errno)| {
            errno.set_last();
            result
        },
    )
}

/// The signals of the kernel's in a program's set, of which there may be no more.
///
/// # Safety
///
/// `at` leads to a set, as far as that is there.
unsafe fn set_at(at: *const sigset_t) -> Result<sigset_t, Errno> {
    // SAFETY: the caller's promise.
    unsafe { lent::get(at.cast()) }.map(set_of)
}

/// The set of these signals, as the kernel has it.
pub(crate) fn set_of(bits: u64) -> sigset_t {
    // SAFETY: all zeros is a set, whose first octets are the kernel's.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        set
    }
}

pub(crate) fn bits_of(set: &sigset_t) -> u64 {
    // SAFETY: a set begins with the kernel's, and is aligned as that.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

/// See `sigsuspend` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { asleep(mask, |mask| real::sigsuspend(mask)) }
}

/// See `sigpending` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    // SAFETY: our caller's promise.
    let done = unsafe { real::sigpending(set) };
    if done == 0 && is_installed() {
        // SAFETY: the call has filled it.
        mask::add_pending(unsafe { &mut *set });
    }
    done
}

/// A set that is waited for; `None` without the guard, or if it is not there, which the kernel
/// says.
///
/// # Safety
///
/// As of [`set_at`].
unsafe fn set_to_wait_for(set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the caller's promise.
    if is_installed() { unsafe { set_at(set) }.ok() } else { None }
}

/// See `sigtimedwait` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: our caller's promise.
    let wait = || unsafe { real::sigtimedwait(set, info, timeout) };
    // SAFETY: our caller's promise.
    let Some(wanted) = (unsafe { set_to_wait_for(set) }) else { return wait() };
    match mask::take(&wanted, || (wait(), Errno::last())) {
        Ok((signal, held)) => {
            // SAFETY: our caller's promise: null, or room for it.
            if let Some(info) = unsafe { info.as_mut() } {
                *info = held;
            }
            signal
        }
        Err((result, errno)) => {
            errno.set_last();
            result
        }
    }
}

/// See `sigwaitinfo` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { sigtimedwait(set, info, ptr::null()) }
}

/// See `sigwait` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    // SAFETY: our caller's promise.
    let wait = || unsafe { real::sigwait(set, signal) };
    // SAFETY: our caller's promise.
    let Some(wanted) = (unsafe { set_to_wait_for(set) }) else { return wait() };
    match mask::take(&wanted, wait) {
        Ok((held, _)) => {
            // SAFETY: our caller's promise.
            unsafe { *signal = held };
            0
        }
        Err(result) => result,
    }
}

/// `sigset` is asked to block the signal, or it was blocked. Not in `libc`.
const SIG_HOLD: sighandler_t = 2;
