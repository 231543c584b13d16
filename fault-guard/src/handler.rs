//! The signal handler for faults in guarded work, and its installation: [`install`].

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chain::{self, SIGNALS};
use crate::{held, masks, routine, system};

/// Installs the handler of SIGBUS and SIGSEGV, once for the process. What the program had installed
/// is called for every signal that is not a guarded copy's.
///
/// A program that installs its own later, and calls from it what it found, keeps the guard; one
/// that does not call it has none, unless its calls are led to [`sigaction`]. Nor has a thread that
/// blocks these signals and was not [adopted](crate::mask::adopt_thread): there the kernel ends the
/// process.
pub fn install() -> io::Result<()> {
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    // Two threads may both do this. Neither waits for the other, which `fork` may take away.
    SIGNALS.into_iter().try_for_each(install_for).map_err(io::Error::from_raw_os_error)?;
    DONE.store(true, Ordering::Release);
    Ok(())
}

/// A fault of which the processor tells no address.
const SI_KERNEL: c_int = 128;

static DONE: AtomicBool = AtomicBool::new(!routine::GUARDED);

/// Returns whether [`install`] has done its work.
pub fn is_installed() -> bool {
    routine::GUARDED && DONE.load(Ordering::Acquire)
}

fn install_for(signal: c_int) -> Result<(), c_int> {
    let before = system::action(signal, None)?;
    if before.sa_sigaction == ours() {
        return Ok(());
    }
    // Known before the first signal can come.
    chain::note(signal, before);
    let replaced = system::action(signal, Some(&in_front_of(&before)))?;
    // Another thread of the program may have come in between; or another of ours.
    if replaced.sa_sigaction != ours() && replaced.sa_sigaction != before.sa_sigaction {
        chain::note(signal, replaced);
    }
    Ok(())
}

/// Our action where the program's is this one: on the stack that it asks for, and as to calls that
/// are interrupted.
fn in_front_of(program: &libc::sigaction) -> libc::sigaction {
    let asked = if chain::calls(program) { program.sa_flags } else { !0 };
    let mut action = system::no_action();
    action.sa_sigaction = ours();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | asked & (libc::SA_ONSTACK | libc::SA_RESTART);
    action
}

/// `sigaction` as the program sees it, whose own action of SIGBUS and SIGSEGV stands behind ours.
///
/// # Errors
/// That of `sigaction`.
pub fn sigaction(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
    if !is_installed() {
        return system::action(signal, new);
    }
    if !SIGNALS.contains(&signal) {
        return masks::sigaction(signal, new);
    }
    let Some(new) = new else { return Ok(chain::program(signal)) };
    let before = chain::note(signal, *new);
    if new.sa_sigaction == libc::SIG_IGN {
        held::forget(signal);
    }
    system::action(signal, Some(&in_front_of(new)))?;
    Ok(before)
}

/// Has no handler of the program's, of whatever signal, run with SIGBUS and SIGSEGV blocked: those
/// that are installed, and from here on [`sigaction`]'s.
pub fn unblock_in_handlers() {
    masks::take_over();
}

/// Runs `work` with what the program ignores really ignored: for what starts another program. No
/// guarded fault is survived meanwhile.
pub fn as_ignored<T>(work: impl FnOnce() -> T) -> T {
    let ignored = |signal: &c_int| chain::program(*signal).sa_sigaction == libc::SIG_IGN;
    if !is_installed() || !SIGNALS.iter().any(ignored) {
        return work();
    }
    for signal in SIGNALS.into_iter().filter(ignored) {
        let _ = system::action(signal, Some(&chain::program(signal)));
    }
    let result = work();
    for signal in SIGNALS.into_iter().filter(ignored) {
        let _ = system::action(signal, Some(&in_front_of(&chain::program(signal))));
    }
    result
}

fn ours() -> libc::sighandler_t {
    on_signal as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as libc::sighandler_t
}

/// Allocates and locks nothing, and changes no `errno` of the program's.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel gives both; of these signals of its own it tells the
    // address.
    let recovered = unsafe {
        let code = (*info).si_code;
        // x86-64 does not tell an address that cannot be one.
        let address = (code != SI_KERNEL).then(|| (*info).si_addr().addr());
        code > 0 && routine::recover(address, context)
    };
    if !recovered {
        // SAFETY: this is a signal handler, and all three are what the kernel called it with.
        unsafe { chain::pass_on(signal, info, context) };
    }
}
