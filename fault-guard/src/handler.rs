//! The signal handler for faults in guarded work, and its installation by [`install`].

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chain::{self, SIGNALS};
use crate::{held, masks, routine, system};

/// Installs the handler of SIGBUS and SIGSEGV, once for the process. For every signal that guarded
/// work did not cause, the action is carried out that the program had installed.
///
/// A program may install a handler of its own later. The guard goes on working if that handler
/// calls the one that was installed before, or if the program's calls are redirected to
/// [`sigaction`]. In a thread that blocks these signals and was not
/// [adopted](crate::mask::adopt_thread), the kernel ends the process at a guarded fault.
pub fn install() -> io::Result<()> {
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    // Two threads may both do this. Neither waits for the other: after `fork` the other would not
    // exist.
    SIGNALS.into_iter().try_for_each(install_for).map_err(io::Error::from_raw_os_error)?;
    DONE.store(true, Ordering::Release);
    Ok(())
}

/// The `si_code` of a fault for which the processor does not give an address.
const SI_KERNEL: c_int = 128;

static DONE: AtomicBool = AtomicBool::new(!routine::GUARDED);

/// Returns whether [`install`] has installed the handler.
pub fn is_installed() -> bool {
    routine::GUARDED && DONE.load(Ordering::Acquire)
}

fn install_for(signal: c_int) -> Result<(), c_int> {
    let before = system::action(signal, None)?;
    if before.sa_sigaction == ours() {
        return Ok(());
    }
    // Recorded before the handler is installed: a signal may arrive at once.
    chain::record(signal, before);
    let replaced = system::action(signal, Some(&in_front_of(&before)))?;
    // In between, another thread may have installed the program's or our handler.
    if replaced.sa_sigaction != ours() && replaced.sa_sigaction != before.sa_sigaction {
        chain::record(signal, replaced);
    }
    Ok(())
}

/// Returns the action to install where the program's action is `program`: our handler, on the
/// alternate stack and with restarted system calls if the program asks for them.
fn in_front_of(program: &libc::sigaction) -> libc::sigaction {
    let asked = if chain::calls(program) { program.sa_flags } else { !0 };
    let mut action = system::no_action();
    action.sa_sigaction = ours();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | asked & (libc::SA_ONSTACK | libc::SA_RESTART);
    action
}

/// Does what the C library's `sigaction` does, as seen by the program. Its actions for SIGBUS and
/// SIGSEGV are recorded, and are carried out behind our handler.
///
/// # Errors
/// Those of `sigaction`.
pub fn sigaction(signal: c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, c_int> {
    if !is_installed() {
        return system::action(signal, new);
    }
    if !SIGNALS.contains(&signal) {
        return masks::sigaction(signal, new);
    }
    let Some(new) = new else { return Ok(chain::program(signal)) };
    let before = chain::record(signal, *new);
    if new.sa_sigaction == libc::SIG_IGN {
        held::forget(signal);
    }
    system::action(signal, Some(&in_front_of(new)))?;
    Ok(before)
}

/// Makes sure that no handler of the program, for whatever signal, runs with SIGBUS and SIGSEGV
/// blocked: neither those that are installed nor those that [`sigaction`] installs from here on.
pub fn unblock_in_handlers() {
    masks::take_over();
}

/// Runs `work` with the signals really ignored that the program ignores. Needed by a `work` that
/// starts another program, which inherits ignored signals. Guarded faults end the process
/// meanwhile.
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

/// Handles a signal. Neither allocates nor locks, and leaves the program's `errno` as it is.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel passes a valid `info` and `context`; for a fault
    // (`code > 0`), `info` has the address.
    let recovered = unsafe {
        let code = (*info).si_code;
        // x86-64 gives no address when the one that was accessed is not canonical.
        let address = (code != SI_KERNEL).then(|| (*info).si_addr().addr());
        code > 0 && routine::recover(address, context)
    };
    if !recovered {
        // SAFETY: this is a signal handler, and all three are what the kernel called it with.
        unsafe { chain::pass_on(signal, info, context) };
    }
}
