//! Signals while memory of the program is out: while the peer may still read or write it.
//!
//! No handler of the program may run then, since it may leave by `siglongjmp`, and the memory be
//! another function's. The thread's signals are blocked, but for those of its own faults, and a
//! signalfd beside the set ends the sleep when one has come. The caller withdraws the memory; after
//! that the old mask comes back, and the handler runs. `SIGKILL` and `SIGSTOP` do what they always
//! do. A cancelled thread withdraws the memory as its stack unwinds.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use libc::sigset_t;

use super::edges_pool::HIGH;
use super::kernel::OWN_FAULTS;
use super::{Calls, EdgeSet, Kernel};
use crate::Errno;

/// Memory of the program that is out. It is withdrawn when this is dropped, and only then can a
/// handler run.
pub(crate) struct MemoryOut<'a, W: FnOnce()> {
    withdraw: Option<W>,
    // Dropped last.
    signals: BlockedSignals<'a>,
}

impl<'a, W: FnOnce()> MemoryOut<'a, W> {
    /// Blocks the signals of the calling thread. The caller lets the memory out after that.
    ///
    /// # Errors
    /// That of `signalfd`; `EMFILE` where no high number is left. No signal is blocked then.
    pub(crate) fn begin(calls: &'a Calls, withdraw: W) -> Result<Self, Errno> {
        let signals = BlockedSignals::begin(calls)?;
        Ok(Self { withdraw: Some(withdraw), signals })
    }

    /// Sleeps until the set has an edge, a signal has come, or `longest` is over. Returns whether a
    /// signal has: the memory is to be withdrawn.
    pub(crate) fn sleep(
        &self,
        kernel: &Kernel<'_>,
        set: &mut EdgeSet,
        longest: Option<Duration>,
    ) -> Result<bool, Errno> {
        let slept = kernel.asleep(|| poll_both(kernel.calls, set.number(), self.signals.number, longest));
        set.collect(|_, _| {});
        match slept {
            // A debugger, or SIGSTOP and SIGCONT.
            Err(Errno::INTERRUPTED) => Ok(self.signals.has_one()),
            slept => slept.map(|()| self.signals.has_one()),
        }
    }

    /// Returns whether a signal has come whose handler waits, or that ends or stops the process.
    pub(crate) fn has_signal(&self) -> bool {
        self.signals.has_one()
    }
}

impl<W: FnOnce()> Drop for MemoryOut<'_, W> {
    fn drop(&mut self) {
        if let Some(withdraw) = self.withdraw.take() {
            withdraw();
        }
    }
}

/// A span in which the calling thread takes no signals but those of its own faults.
struct BlockedSignals<'a> {
    calls: &'a Calls,
    before: sigset_t,
    /// The signals that this span blocks.
    held: sigset_t,
    /// A signalfd of them.
    number: RawFd,
}

impl<'a> BlockedSignals<'a> {
    fn begin(calls: &'a Calls) -> Result<Self, Errno> {
        let mut before = MaybeUninit::<sigset_t>::zeroed();
        let mut held = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: all zero is a valid signal set; each lives until the calls return.
        let (before, held) = unsafe {
            libc::sigfillset(held.as_mut_ptr());
            OWN_FAULTS.iter().for_each(|signal| {
                libc::sigdelset(held.as_mut_ptr(), *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            for signal in 1..=libc::SIGRTMAX() {
                // Those that the program has blocked itself wait for the program.
                if libc::sigismember(before.as_ptr(), signal) == 1 {
                    libc::sigdelset(held.as_mut_ptr(), signal);
                }
            }
            (before.assume_init(), held.assume_init())
        };
        let mut this = Self { calls, before, held, number: -1 };
        this.number = this.open()?;
        Ok(this)
    }

    /// Makes the signalfd, under a high and hidden number.
    fn open(&self) -> Result<RawFd, Errno> {
        // SAFETY: the set lives until the call returns.
        let low = unsafe { libc::signalfd(-1, &raw const self.held, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if low < 0 {
            return Err(Errno::last());
        }
        // SAFETY: `F_DUPFD_CLOEXEC` takes an integer.
        let duplicate = |from: &usize| unsafe { (self.calls.0.fcntl)(low, libc::F_DUPFD_CLOEXEC, *from) };
        let high = HIGH.iter().map(duplicate).find(|number| *number >= 0);
        // SAFETY: the number was made above and is used nowhere else.
        unsafe { (self.calls.0.close)(low) };
        let high = high.ok_or(Errno(libc::EMFILE))?;
        (self.calls.0.hide)(high);
        Ok(high)
    }

    /// Returns whether one of the blocked signals has come and does something. One that is ignored
    /// is taken, as it would be lost if it were not blocked.
    fn has_one(&self) -> bool {
        let mut pending = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: the call fills the set, of which zeros are a value too.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        (1..=libc::SIGRTMAX()).any(|signal| {
            // SAFETY: both sets are initialised and live until the calls return.
            let has_come = unsafe {
                libc::sigismember(&raw const pending, signal) == 1
                    && libc::sigismember(&raw const self.held, signal) == 1
            };
            has_come && (does_something(signal) || !take(signal))
        })
    }
}

impl Drop for BlockedSignals<'_> {
    fn drop(&mut self) {
        if self.number >= 0 {
            (self.calls.0.show)(self.number);
            // SAFETY: the number is that of our signalfd, which nothing else uses.
            unsafe { (self.calls.0.close)(self.number) };
        }
        // The last thing: a handler that runs here may leave by `siglongjmp`.
        // SAFETY: the set is the one that the kernel gave, and lives until the call returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// Returns whether a signal has a handler, or ends or stops the process.
fn does_something(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads only; on success the structure is filled, else it stays zero, which is a value.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    match action.sa_sigaction {
        libc::SIG_IGN => false,
        libc::SIG_DFL => ![libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].contains(&signal),
        _ => true,
    }
}

/// Takes a pending signal. Returns whether it was there.
fn take(signal: c_int) -> bool {
    let mut only = MaybeUninit::<sigset_t>::zeroed();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all zero is a valid signal set; the set and the time live until the calls return.
    unsafe {
        libc::sigaddset(only.as_mut_ptr(), signal);
        libc::sigtimedwait(only.as_ptr(), ptr::null_mut(), &raw const now) == signal
    }
}

fn poll_both(calls: &Calls, set: RawFd, signals: RawFd, longest: Option<Duration>) -> Result<(), Errno> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(set), entry(signals)];
    let time = longest.map(super::kernel::timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: two entries and a time that live until the call returns; no signal mask.
    let ready = unsafe { (calls.0.ppoll)(entries.as_mut_ptr(), 2, time, ptr::null()) };
    if ready < 0 { Err(Errno::last()) } else { Ok(()) }
}
