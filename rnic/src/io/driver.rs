//! The background thread: progress for whoever is not there (design: docs/architecture.md, "Who
//! makes progress"). What it does in turn is in [`turns`](super::turns).
//!
//! Every socket is in its epoll set one-shot: an event disarms it, and it is armed again once the
//! socket has been read dry. When a program polls or waits on a completion queue of that socket (a
//! [`Lease`]), the thread leaves it to that [`Holder`], and asks soon whether that still holds, and
//! later and later while it does. So two threads never fight over one socket, and an edge that the
//! program swallowed cannot stall it.
//!
//! A panic over one source ends that source alone, an epoll set that fails all of them:
//! see [`Source::give_up`].

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;

use super::lease::Lease;
use super::notify::Notify;
use super::ready_set::epoll_timeout;
use super::turns::Turns;
use crate::deadline::Deadline;

/// Times shorter than this are kept to the microsecond, which costs a system call more.
const SHORT: Duration = Duration::from_micros(500);

/// How late the kernel may wake the thread, in nanoseconds; as a rule it is 50 microseconds.
const SLACK: u64 = 1;

/// What the kernel raises in the thread that is the cause.
const FAULTS: [Signal; 6] =
    [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS];

/// The token of the wake-up.
pub(super) const WAKE: u64 = u64::MAX;

/// No source has this token: they are counted from 1 on.
const NOWHERE: u64 = 0;

/// Where a program looks after sockets: a completion queue.
pub(crate) trait Holder: Send + Sync {
    /// Returns what the program does about these sockets in this turn of the background thread.
    fn lease(&self, turn: u64) -> Lease;
    /// Returns the sources that are left to this holder until the lease has lapsed.
    fn left(&self) -> &Mutex<HashSet<u64>>;
}

/// Something with a socket or a timer.
pub(crate) trait Source: Send + Sync {
    /// Returns what the program does about the socket, and the holder of that lease; `None` if no
    /// program looks after it.
    fn lease(&self, _turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        None
    }
    /// Returns whether there is something to read.
    fn has_arrived(&self) -> bool {
        false
    }
    /// Takes the socket out of the set if that pays, now that it is left to a program. Returns
    /// false if that is to be tried again.
    fn rest(&self, _driver: &Driver) -> bool {
        true
    }
    /// Its socket is ready, or may be. Arms it again; true when there is more to do at once.
    fn on_ready(&self, driver: &Driver) -> bool;
    /// A timer set by [`Driver::at`] has run out (or an earlier one that no longer matters).
    fn on_timer(&self, driver: &Driver, now: Instant);
    /// It cannot be looked after: ends what it has, and tells the program.
    fn give_up(&self, driver: &Driver, failure: Failure);
}

/// Why a source is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// One of its own functions has panicked: its state may be anything.
    Panic,
    /// The background thread cannot go on.
    Device,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        io::Error::other(match failure {
            Failure::Panic => "a panic of the background thread",
            Failure::Device => "the device has failed",
        })
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) due: std::cmp::Reverse<Instant>,
    pub(super) token: u64,
}

#[derive(Default)]
pub(super) struct Shared {
    pub(super) sources: HashMap<u64, Weak<dyn Source>>,
    pub(super) timers: BinaryHeap<Timer>,
    next_token: u64,
    pub(super) stopped: bool,
}

pub(crate) struct Driver {
    epoll: Epoll,
    pub(super) wake: Notify,
    pub(super) shared: Mutex<Shared>,
    /// The thread has ended because it could not go on.
    failed: AtomicBool,
    /// The source that the thread is at, or [`NOWHERE`]. Changes to a source with `shared` locked.
    at: AtomicU64,
    thread: OnceLock<ThreadId>,
    /// The next turn of the thread fails, as a test wants it.
    #[cfg(test)]
    pub(crate) breaks: AtomicBool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// A source while the background thread is at it.
pub(crate) struct Visit<'a> {
    /// Always there, but for a moment in `drop`.
    source: Option<Arc<dyn Source>>,
    driver: &'a Driver,
    before: u64,
}

impl Deref for Visit<'_> {
    type Target = dyn Source;

    fn deref(&self) -> &Self::Target {
        self.source.as_deref().expect("a source is let go of only when its visit ends")
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.source = None;
        self.driver.at.store(self.before, Ordering::Release);
    }
}

impl Driver {
    /// One without a thread.
    pub(super) fn new(epoll: Epoll) -> io::Result<Arc<Self>> {
        let wake = Notify::flag()?;
        let (shared, failed, thread) = Default::default();
        Ok(Arc::new(Driver {
            epoll,
            wake,
            shared,
            failed,
            at: AtomicU64::new(NOWHERE),
            thread,
            #[cfg(test)]
            breaks: AtomicBool::default(),
        }))
    }

    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let driver = Self::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?)?;
        driver.epoll.add(&driver.wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let background = driver.clone();
        // A thread has the signal mask of who starts it: the program's handlers run in the
        // program's threads. A fault is the thread's own: blocked, its signal would end the
        // process whoever handles it.
        let mut mask = SigSet::all();
        FAULTS.into_iter().for_each(|signal| mask.remove(signal));
        let before = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let begun = thread::Builder::new().name("rddp-progress".into()).spawn(move || background.run());
        before.thread_set_mask()?;
        begun?;
        Ok(driver)
    }

    /// What the thread does.
    pub(super) fn run(&self) {
        let _ = self.thread.set(thread::current().id());
        if let Err(error) = set_timerslack(SLACK) {
            tracing::debug!(%error, "the thread's timers may be late");
        }
        match catch_unwind(AssertUnwindSafe(|| Turns::new(self).run())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.fail(&Failure::Panic.into()),
        }
    }

    /// The thread cannot go on: gives up all sources.
    fn fail(&self, error: &io::Error) {
        tracing::error!(%error, "the background thread cannot go on: all connections of the device end");
        // Whoever puts a socket in has seen this, or is among the sources.
        self.failed.store(true, Ordering::SeqCst);
        let tokens: Vec<u64> = self.shared.lock().sources.keys().copied().collect();
        for token in tokens {
            self.give_up(token, Failure::Device);
        }
    }

    /// Sleeps until there are events, for at most `timeout`; how many.
    pub(super) fn sleep(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> io::Result<usize> {
        #[cfg(test)]
        if self.breaks.load(Ordering::SeqCst) {
            return Err(io::Error::other("as a test wants it"));
        }
        let is_short = |time: &Duration| *time < SHORT && !time.is_zero();
        let timeout = match timeout.filter(is_short) {
            Some(time) => {
                let mut fds = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
                // An error shows below.
                let _ = ppoll(&mut fds, Some(TimeSpec::from(time)), None);
                Some(Duration::ZERO)
            }
            None => timeout,
        };
        match self.epoll.wait(events, epoll_timeout(timeout)) {
            Err(Errno::EINTR) => Ok(0),
            result => Ok(result?),
        }
    }

    /// Has a source take its socket out of the set, if that pays. Returns false if that is to be
    /// tried again.
    pub(super) fn rest(&self, token: u64) -> bool {
        self.source(token).is_none_or(|source| self.call(token, || source.rest(self)) != Some(false))
    }

    fn give_up(&self, token: u64, failure: Failure) {
        let Some(source) = self.source(token) else { return };
        if catch_unwind(AssertUnwindSafe(|| source.give_up(self, failure))).is_err() {
            tracing::error!(token, "a panic over a source that was given up");
            self.remove(token);
        }
    }

    /// Calls one of the functions of a source. A panic in it ends that source and no other.
    pub(super) fn call<T>(&self, token: u64, function: impl FnOnce() -> T) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(function));
        if result.is_err() {
            tracing::error!(token, "a panic over a source: it is given up");
            self.give_up(token, Failure::Panic);
        }
        result.ok()
    }

    /// Ends the thread, after what it is doing now.
    pub(crate) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.wake.give();
    }

    /// Takes a source in, and gives it its token.
    pub(crate) fn add(&self, source: Weak<dyn Source>) -> u64 {
        let mut shared = self.shared.lock();
        shared.next_token += 1;
        let token = shared.next_token;
        shared.sources.insert(token, source);
        token
    }

    /// Forgets a source. Its timers run out unheard.
    pub(crate) fn remove(&self, token: u64) {
        self.shared.lock().sources.remove(&token);
    }

    /// Puts a socket into the set, armed for one event of `interest`.
    pub(crate) fn watch(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) -> io::Result<()> {
        self.epoll.add(socket, EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, token))?;
        if self.failed.load(Ordering::SeqCst) {
            return Err(Failure::Device.into());
        }
        Ok(())
    }

    /// Arms a socket again for one event of `interest`.
    pub(crate) fn arm(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        let mut event = EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, token);
        // A socket that has left the set needs no arming.
        let _ = self.epoll.modify(socket, &mut event);
    }

    /// Takes a socket out of the set.
    pub(crate) fn unwatch(&self, socket: BorrowedFd<'_>) {
        let _ = self.epoll.delete(socket);
    }

    /// Calls the source's `on_timer` at `due`.
    pub(crate) fn at(&self, due: Instant, token: u64) {
        let mut shared = self.shared.lock();
        let first = shared.timers.peek().is_none_or(|timer| due < timer.due.0);
        shared.timers.push(Timer { due: std::cmp::Reverse(due), token });
        drop(shared);
        if first {
            self.wake.give();
        }
    }

    /// The same at a deadline, if there is one.
    pub(crate) fn by(&self, deadline: Deadline, token: u64) {
        if let Some(due) = deadline.moment() {
            self.at(due, token);
        }
    }

    /// A thread that had been asleep while sockets were disarmed goes on: watch its lease again.
    pub(crate) fn end_of_wait(&self) {
        self.wake.give();
    }

    #[cfg(test)]
    pub(crate) fn sources(&self) -> usize {
        self.shared.lock().sources.len()
    }

    /// The source of this token, if there still is one. For the background thread.
    pub(crate) fn source(&self, token: u64) -> Option<Visit<'_>> {
        // `at` has room for one thread's source.
        debug_assert!(self.thread.get().is_none_or(|thread| *thread == thread::current().id()));
        let shared = self.shared.lock();
        let source = Some(shared.sources.get(&token)?.upgrade()?);
        let before = self.at.swap(token, Ordering::AcqRel);
        Some(Visit { source, driver: self, before })
    }

    /// Forgets a source, and waits until the background thread, if it is at it now, has let go of
    /// it: else the last of what the source belongs to might end there, when the program has long
    /// gone on or its process has ended. The caller holds no lock that the source takes.
    pub(crate) fn leave(&self, token: u64) {
        self.remove(token);
        if self.thread.get() == Some(&thread::current().id()) {
            return;
        }
        while self.at.load(Ordering::Acquire) == token {
            thread::yield_now();
        }
    }
}
