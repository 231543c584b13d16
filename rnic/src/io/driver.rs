//! The background thread: progress for programs whose threads do something else (design:
//! rnic/README.md, "Who makes progress"). The work of each turn is in
//! [`turns`](super::turns).
//!
//! Every socket is in the thread's epoll set one-shot: an event disarms it, and it is armed again
//! once everything has been read. One that the thread has read many times in a row stays armed,
//! which saves a system call for each message, until a program reads it. While a program polls or
//! waits on a completion queue of that socket (which gives it a [`Lease`]), the thread leaves the
//! disarmed socket to the queue, its [`Holder`]. It asks the holder soon whether the program still
//! does so, and later and later as long as the answer is yes. So no two threads read one socket in
//! turns, and no socket is forgotten when the program stops: the thread takes it back and looks at
//! it.
//!
//! A panic in a function of one source ends that source alone; an epoll set that fails ends all of
//! them: see [`Source::give_up`].

use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
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
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;

use super::lease::Lease;
use super::notify::Notify;
use super::ready_set::epoll_timeout;
use super::thread::spawn;
use super::turns::Turns;
use crate::deadline::Deadline;

/// Sleeps shorter than this end on the microsecond, which costs another system call: `epoll_wait`
/// counts in milliseconds.
const SHORT: Duration = Duration::from_micros(500);

/// The time in nanoseconds by which the kernel may wake the thread late. The kernel's default is 50
/// microseconds, longer than the shortest sleeps.
const SLACK: u64 = 1;

/// Time within which the thread has another turn where it is to show something.
pub(crate) const SOON: Duration = Duration::from_millis(1);

/// The token of the thread's own wake-up in the epoll set.
pub(super) const WAKE: u64 = u64::MAX;

/// A token that no source has: they are counted from 1 on.
const NOWHERE: u64 = 0;

/// A completion queue, as far as the background thread leaves sockets to its program.
pub(crate) trait Holder: Send + Sync {
    /// Returns whether the program reads these sockets itself, as far as is known in this turn of
    /// the background thread.
    fn lease(&self, turn: u64) -> Lease;
    /// Returns the tokens of the sources that are left to this holder until its lease has ended.
    fn left(&self) -> &Mutex<HashSet<u64>>;
}

/// An object with something to show to a program, unless the program has seen it before.
pub(crate) trait Show: Send + Sync {
    /// Shows it. Returns true if that is to be asked once more, later. Called by the background
    /// thread.
    fn show(&self) -> bool;
}

/// An object whose socket and timers the background thread looks after: a QP, a startup, a
/// listener, or a connection that ends.
pub(crate) trait Source: Send + Sync {
    /// Returns the lease that a program has of the socket, and its holder; `None` if the socket is
    /// the background thread's to read.
    fn lease(&self, _turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        None
    }
    /// Returns whether there is something to read.
    fn has_arrived(&self) -> bool {
        false
    }
    /// Takes the socket out of the set, now that it is left to a program: a socket in a set costs
    /// the kernel time with each packet. Returns false if that is to be tried again.
    fn leave_to_program(&self, _driver: &Driver) -> bool {
        true
    }
    /// Disarms a socket that stays armed behind an event, now that it is left to a program. What
    /// fails is tried again at the next event.
    fn disarm(&self, _driver: &Driver) {}
    /// Handles a socket that is ready, or may be, and arms it again. Returns whether there is more
    /// to do at once.
    fn on_ready(&self, driver: &Driver) -> bool;
    /// Handles a timer that was set by [`Driver::at`]. Timers are not taken back, so an older one
    /// may run out that no longer matters.
    fn on_timer(&self, driver: &Driver, now: Instant);
    /// Ends the source, which can no longer be looked after, and tells the program.
    fn give_up(&self, driver: &Driver, failure: Failure);
}

/// The reason why a source is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A function of the source has panicked, and has left its state in disorder.
    Panic,
    /// The background thread cannot go on.
    Device,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        io::Error::other(match failure {
            Failure::Panic => {
                "the background thread panicked over this socket, a defect of the library: please report it"
            }
            Failure::Device => "the device's background thread cannot go on: open the device anew",
        })
    }
}

/// The time at which the `on_timer` of a source is to be called. The greatest is due first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) due: std::cmp::Reverse<Instant>,
    pub(super) token: u64,
}

/// The part of a [`Driver`] that its lock protects.
#[derive(Default)]
pub(crate) struct Shared {
    pub(super) sources: HashMap<u64, Weak<dyn Source>>,
    pub(super) timers: BinaryHeap<Timer>,
    next_token: u64,
    pub(super) stopped: bool,
    /// The end of the thread's sleep, and of its next one; `None` if nothing ends it but an event.
    pub(crate) next_turn: Option<Instant>,
    /// Objects with something to show, and when they are due.
    pub(crate) to_show: VecDeque<(Instant, Weak<dyn Show>)>,
}

/// The background thread of one device, and what other threads share with it.
pub(crate) struct Driver {
    epoll: Epoll,
    pub(super) wake: Notify,
    /// The leases are to be asked for anew.
    asks_anew: AtomicBool,
    pub(crate) shared: Mutex<Shared>,
    /// Set when the thread has ended because it could not go on.
    failed: AtomicBool,
    /// The token of the source whose function the thread calls at the moment, or [`NOWHERE`]. Set
    /// to a token while `shared` is locked, so that [`Driver::leave`] misses no call.
    at: AtomicU64,
    thread: OnceLock<ThreadId>,
    /// This driver, for the thread that is to run it; empty in a test that runs it itself.
    this: Weak<Driver>,
    /// Set once there is a thread, or was.
    begun: AtomicBool,
    beginning: Mutex<()>,
    /// Makes the next turn of the thread fail, for a test.
    #[cfg(test)]
    pub(crate) breaks: AtomicBool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// A source while the background thread calls its functions.
pub(crate) struct Visit<'a> {
    /// `None` in `drop` alone.
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
        // The source goes first, as this may be its end: `leave` waits until `at` is another.
        self.source = None;
        self.driver.at.store(self.before, Ordering::Release);
    }
}

impl Driver {
    fn new(epoll: Epoll, wake: Notify, this: Weak<Driver>) -> Self {
        let (shared, failed, thread, begun, beginning) = Default::default();
        Driver {
            epoll,
            wake,
            asks_anew: AtomicBool::default(),
            shared,
            failed,
            at: AtomicU64::new(NOWHERE),
            thread,
            this,
            begun,
            beginning,
            #[cfg(test)]
            breaks: AtomicBool::default(),
        }
    }

    /// Makes a driver that a test runs itself, if anybody does.
    #[cfg(test)]
    pub(super) fn without_thread(epoll: Epoll) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self::new(epoll, Notify::new()?, Weak::new())))
    }

    /// Makes a driver whose thread begins with the first socket or timer. So a program that only
    /// asks what a device can do, or that forks before it connects, gets no thread that it did not
    /// make.
    pub(crate) fn open() -> io::Result<Arc<Self>> {
        let (epoll, wake) = (Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, Notify::new()?);
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(Arc::new_cyclic(|this| Self::new(epoll, wake, this.clone())))
    }

    /// Begins the thread, if that has not been done.
    #[inline]
    fn begin(&self) -> io::Result<()> {
        if self.begun.load(Ordering::Acquire) { Ok(()) } else { self.begin_thread() }
    }

    #[cold]
    fn begin_thread(&self) -> io::Result<()> {
        let _beginning = self.beginning.lock();
        let Some(background) = self.this.upgrade() else { return Ok(()) };
        if self.begun.load(Ordering::Acquire) {
            return Ok(());
        }
        spawn("rddp-progress", move || background.run())?;
        self.begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Runs the thread until it is stopped or cannot go on.
    pub(super) fn run(&self) {
        let _ = self.thread.set(thread::current().id());
        if let Err(error) = set_timerslack(SLACK) {
            tracing::debug!(%error, "the thread's timers may be late");
        }
        let ended = catch_unwind(AssertUnwindSafe(|| Turns::new(self).run()));
        self.show_all();
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.fail(&Failure::Panic.into()),
        }
    }

    /// Shows what was left to a turn that does not come.
    fn show_all(&self) {
        let mut shared = self.shared.lock();
        shared.next_turn = None;
        let to_show = std::mem::take(&mut shared.to_show);
        drop(shared);
        to_show.iter().filter_map(|(_, what)| what.upgrade()).for_each(|what| while what.show() {});
    }

    /// Gives up all sources, since the thread cannot go on.
    fn fail(&self, error: &io::Error) {
        tracing::error!(%error, "the background thread cannot go on: all connections of the device end");
        // A thread that adds a source at this moment is refused by `watch`, which looks at this
        // flag, or its source is in the list that is made here.
        self.failed.store(true, Ordering::SeqCst);
        let tokens: Vec<u64> = self.shared.lock().sources.keys().copied().collect();
        for token in tokens {
            self.give_up(token, Failure::Device);
        }
    }

    /// Sleeps until there are events, for at most `timeout`. Returns their number.
    pub(super) fn sleep(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> io::Result<usize> {
        #[cfg(test)]
        if self.breaks.load(Ordering::SeqCst) {
            return Err(io::Error::other("a failure that a test has asked for"));
        }
        let is_short = |time: &Duration| *time < SHORT && !time.is_zero();
        let timeout = match timeout.filter(is_short) {
            Some(time) => {
                let mut fds = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
                // An error of the set is found by `epoll_wait` below.
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

    /// Has a source take its socket out of the set. Returns false if that is to be tried again.
    pub(super) fn leave_to_program(&self, token: u64) -> bool {
        let Some(source) = self.source(token) else { return true };
        self.call(token, || source.leave_to_program(self)) != Some(false)
    }

    fn give_up(&self, token: u64, failure: Failure) {
        let Some(source) = self.source(token) else { return };
        if catch_unwind(AssertUnwindSafe(|| source.give_up(self, failure))).is_err() {
            tracing::error!(token, "a second panic over the same source, while it was given up");
            self.remove(token);
        }
    }

    /// Calls one of the functions of a source. A panic in the function ends that source and no
    /// other.
    pub(super) fn call<T>(&self, token: u64, function: impl FnOnce() -> T) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(function));
        if result.is_err() {
            tracing::error!(token, "a panic over a source: it is given up");
            self.give_up(token, Failure::Panic);
        }
        result.ok()
    }

    /// Ends the thread after its present turn.
    pub(crate) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.wake.give();
    }

    /// Adds a source. Returns its token.
    pub(crate) fn add(&self, source: Weak<dyn Source>) -> u64 {
        let mut shared = self.shared.lock();
        shared.next_token += 1;
        let token = shared.next_token;
        shared.sources.insert(token, source);
        token
    }

    /// Forgets a source. Its timers run out without an effect.
    pub(crate) fn remove(&self, token: u64) {
        self.shared.lock().sources.remove(&token);
    }

    /// Puts a socket into the set, armed for one event of `interest`.
    pub(crate) fn watch(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) -> io::Result<()> {
        self.begin()?;
        self.epoll.add(socket, EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, token))?;
        if self.failed.load(Ordering::SeqCst) {
            return Err(Failure::Device.into());
        }
        Ok(())
    }

    /// Arms a socket again for one event of `interest`.
    pub(crate) fn arm(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        let mut event = EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, token);
        // This fails for a socket that has left the set, which is not to be armed.
        let _ = self.epoll.modify(socket, &mut event);
    }

    /// Arms a socket for all events of `interest`, until it is armed in another way.
    pub(crate) fn keep_armed(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        // This fails as `arm` does.
        let _ = self.epoll.modify(socket, &mut EpollEvent::new(interest, token));
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
        if first && !self.is_this_thread() {
            self.wake.give();
        }
        if let Err(error) = self.begin() {
            // The next socket or timer tries again.
            tracing::error!(%error, "no thread for the device's timers");
        }
    }

    /// Has the thread show something in a turn that comes soon anyway, and in [`SOON`] from now at
    /// the earliest. Returns false, and does nothing, where there is no such turn.
    pub(crate) fn show_soon(&self, what: Weak<dyn Show>) -> bool {
        let soon = Instant::now() + SOON;
        let mut shared = self.shared.lock();
        let comes = shared.next_turn.is_some_and(|turn| turn <= soon);
        if comes {
            shared.to_show.push_back((soon, what));
        }
        comes
    }

    /// Calls the source's `on_timer` at a deadline, if there is one.
    pub(crate) fn by(&self, deadline: Deadline, token: u64) {
        if let Some(due) = deadline.moment() {
            self.at(due, token);
        }
    }

    /// Tells the background thread that a program's thread which had been asleep goes on: its lease
    /// is to be asked for anew.
    pub(crate) fn end_of_wait(&self) {
        self.asks_anew.store(true, Ordering::SeqCst);
        self.wake.give();
    }

    /// Returns whether leases are to be asked for anew, once.
    pub(super) fn takes_question(&self) -> bool {
        self.asks_anew.swap(false, Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(crate) fn sources(&self) -> usize {
        self.shared.lock().sources.len()
    }

    /// Returns the source of this token, if there still is one. Called by the background thread
    /// alone.
    pub(crate) fn source(&self, token: u64) -> Option<Visit<'_>> {
        // `at` names the source of one thread only.
        debug_assert!(self.thread.get().is_none_or(|thread| *thread == thread::current().id()));
        let shared = self.shared.lock();
        let source = Some(shared.sources.get(&token)?.upgrade()?);
        let before = self.at.swap(token, Ordering::AcqRel);
        Some(Visit { source, driver: self, before })
    }

    /// Returns whether the background thread serves a source at the moment.
    #[inline]
    pub(crate) fn is_at_work(&self) -> bool {
        self.at.load(Ordering::Relaxed) != NOWHERE
    }

    /// Returns whether the calling thread is the background thread.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// Forgets a source. If the background thread is calling one of its functions, waits until the
    /// call has returned: else the source, and all that only it still holds, would be dropped in
    /// that thread, while the program goes on as if it were gone. The caller holds no lock that the
    /// source takes.
    pub(crate) fn leave(&self, token: u64) {
        self.remove(token);
        if self.is_this_thread() {
            return;
        }
        while self.at.load(Ordering::Acquire) == token {
            thread::yield_now();
        }
    }
}
