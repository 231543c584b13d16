//! Threads of the library's own.

use std::io;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Signals that the kernel raises in the thread that has caused them.
const FAULTS: [Signal; 6] =
    [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS];

/// Begins a thread in which no handler of the program's runs.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A new thread has the signal mask of the thread that starts it. Everything is blocked in this
    // one, so that the program's handlers run in the program's threads; all but the faults, since
    // the kernel ends the process at a fault whose signal is blocked, handler or not.
    let mut mask = SigSet::all();
    FAULTS.into_iter().for_each(|signal| mask.remove(signal));
    let before = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let begun = thread::Builder::new().name(name.into()).spawn(run);
    before.thread_set_mask()?;
    begun.map(drop)
}
