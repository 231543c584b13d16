//! The program's handlers and masks of signals, where the fault guard handles SIGBUS and SIGSEGV.
//!
//! The guard's handler stays installed, and the kernel blocks neither signal in a thread that has
//! moved octets; the program is shown, and gets, what it has set. Before the first framed socket
//! all of these calls go on to the C library unchanged.

use std::ffi::c_int;
use std::ptr;

use libc::{SIGBUS, SIGSEGV, sighandler_t, siginfo_t, sigset_t, timespec};
use rddp_fault_guard::{is_installed, mask};
use rddp_real as real;
use rddp_stream::{Errno, lent};

use crate::hook::{fail, returned};

/// Returns whether the guard keeps the action of this signal.
fn is_guarded(signal: c_int) -> bool {
    matches!(signal, SIGBUS | SIGSEGV) && is_installed()
}

/// Stands before the C library's `sigaction`.
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
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { real::sigaction(signal, new, old) };
    }
    returned(|| {
        // SAFETY: null, or the program's action.
        let before = rddp_fault_guard::sigaction(signal, unsafe { new.as_ref() }).map_err(Errno)?;
        // SAFETY: null, or the program's place for an action.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = before;
        }
        Ok(0)
    })
}

/// Stands before the C library's `__sigaction`, another name of `sigaction`.
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
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { sigaction(signal, new, old) }
}

/// Installs a handler with these flags that blocks only `signal` itself; returns the handler
/// before, or `SIG_ERR`.
fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: all zeros is the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    returned(|| match rddp_fault_guard::sigaction(signal, Some(&action)) {
        Ok(before) => Ok(before.sa_sigaction),
        Err(errno) => Err(Errno(errno)),
    })
}

/// Functions that install a handler; for a guarded signal the guard does, with these flags.
macro_rules! signals {
    ($($name:ident by $real:ident with $flags:expr;)*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
                if is_guarded(signal) && handler != libc::SIG_ERR {
                    return install(signal, handler, $flags);
                }
                // SAFETY: the program's own arguments, passed on unchanged.
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

/// Stands before the C library's `sigset`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_guarded(signal) {
        // SAFETY: the program's own arguments, passed on unchanged.
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

/// Blocks or unblocks one signal.
fn change(how: c_int, signal: c_int) -> c_int {
    // SAFETY: all zeros is a valid set, which lives until the calls return.
    let set = unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        set
    };
    returned(|| mask::sigmask(how, Some(&set)).map(|_| 0).map_err(Errno))
}

fn is_blocked(signal: c_int) -> bool {
    // SAFETY: a set that lives until the call returns.
    mask::sigmask(libc::SIG_BLOCK, None)
        .is_ok_and(|set| unsafe { libc::sigismember(&raw const set, signal) } == 1)
}

/// Stands before the C library's `sighold`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return change(libc::SIG_BLOCK, signal);
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::sighold(signal) }
}

/// Stands before the C library's `sigrelse`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return change(libc::SIG_UNBLOCK, signal);
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::sigrelse(signal) }
}

/// Stands before the C library's `sigignore`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if is_guarded(signal) {
        return if install(signal, libc::SIG_IGN, 0) == libc::SIG_ERR { -1 } else { 0 };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::sigignore(signal) }
}

/// Stands before the C library's `siginterrupt`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, flag: c_int) -> c_int {
    if !is_guarded(signal) {
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { real::siginterrupt(signal, flag) };
    }
    returned(|| {
        let mut action = rddp_fault_guard::sigaction(signal, None).map_err(Errno)?;
        action.sa_flags &= !libc::SA_RESTART;
        action.sa_flags |= if flag == 0 { libc::SA_RESTART } else { 0 };
        rddp_fault_guard::sigaction(signal, Some(&action)).map(|_| 0).map_err(Errno)
    })
}

/// Returns the result of `pthread_sigmask` in a thread whose mask the guard keeps.
///
/// # Safety
///
/// As of `pthread_sigmask`.
unsafe fn masked(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: null, or the program's set.
    match mask::sigmask(how, unsafe { set.as_ref() }) {
        Ok(before) => {
            // SAFETY: null, or the program's place for a set, of which as many octets are written
            // as the kernel writes.
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

/// Stands before the C library's `pthread_sigmask`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if mask::is_adopted() {
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { masked(how, set, old) };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::pthread_sigmask(how, set, old) }
}

/// Stands before the C library's `sigprocmask`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if mask::is_adopted() {
        // SAFETY: the program's own arguments, passed on unchanged.
        return returned(|| match unsafe { masked(how, set, old) } {
            0 => Ok(0),
            errno => Err(Errno(errno)),
        });
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::sigprocmask(how, set, old) }
}

/// Runs a call that sleeps with `mask`, if that is not null, in such a way that the guard works in
/// handlers that run meanwhile.
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
    // SAFETY: not null, so the program's set; `lent` fails where no memory is.
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

/// Reads the signals that the kernel knows from a program's set, which may have room for no more.
///
/// # Safety
///
/// `at` is the program's pointer to a set; memory that is not mapped fails with `EFAULT`.
unsafe fn set_at(at: *const sigset_t) -> Result<sigset_t, Errno> {
    // SAFETY: the program's set begins with the kernel's, which alone is read; `lent` fails where
    // no memory is.
    unsafe { lent::get(at.cast()) }.map(set_of)
}

/// Returns the set with these signals, given as the kernel has them.
pub(crate) fn set_of(bits: u64) -> sigset_t {
    // SAFETY: all zeros is a valid set, which begins with the kernel's octets.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<u64>().write(bits);
        set
    }
}

pub(crate) fn bits_of(set: &sigset_t) -> u64 {
    // SAFETY: a set begins with the kernel's octets, and is aligned as they are.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

/// Stands before the C library's `sigsuspend`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
    // SAFETY: `mask` is the program's: null or a set, as in C.
    unsafe { asleep(mask, |mask| real::sigsuspend(mask)) }
}

/// Stands before the C library's `sigpending`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    // SAFETY: the program's own arguments, passed on unchanged.
    let done = unsafe { real::sigpending(set) };
    if done == 0 && is_installed() {
        // SAFETY: the call succeeded, so it has filled the set.
        mask::add_pending(unsafe { &mut *set });
    }
    done
}

/// Returns a set that is waited for; `None` without the guard, or where no memory is, which the
/// kernel then finds too.
///
/// # Safety
///
/// As of [`set_at`].
unsafe fn set_to_wait_for(set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the program's pointer to a set, which `set_at` reads with a guard.
    if is_installed() { unsafe { set_at(set) }.ok() } else { None }
}

/// Stands before the C library's `sigtimedwait`.
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
    // SAFETY: the program's own arguments, passed on unchanged.
    let wait = || unsafe { real::sigtimedwait(set, info, timeout) };
    // SAFETY: the program's pointer to a set, as `sigtimedwait` takes it.
    let Some(wanted) = (unsafe { set_to_wait_for(set) }) else { return wait() };
    match mask::take(&wanted, || (wait(), Errno::last())) {
        Ok((signal, held)) => {
            // SAFETY: null, or the program's place for it.
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

/// Stands before the C library's `sigwaitinfo`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: the program's own arguments, and no time, as `sigwaitinfo` has none.
    unsafe { sigtimedwait(set, info, ptr::null()) }
}

/// Stands before the C library's `sigwait`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    // SAFETY: the program's own arguments, passed on unchanged.
    let wait = || unsafe { real::sigwait(set, signal) };
    // SAFETY: the program's pointer to a set, as `sigwait` takes it.
    let Some(wanted) = (unsafe { set_to_wait_for(set) }) else { return wait() };
    match mask::take(&wanted, wait) {
        Ok((held, _)) => {
            // SAFETY: the program's place for a signal's number, as `sigwait` takes it.
            unsafe { *signal = held };
            0
        }
        Err(result) => result,
    }
}

/// The handler by which `sigset` is asked to block the signal, or says that it was blocked. Not in
/// `libc`.
const SIG_HOLD: sighandler_t = 2;
