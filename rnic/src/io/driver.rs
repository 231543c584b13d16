//! The background thread: progress for whoever is not there (design: docs/architecture.md, "Who makes progress").
//!
//! Every socket is in its epoll set one-shot: an event disarms it, and it is armed again once the socket has been read
//! dry. When a program polls or waits on a completion queue of that socket (a [`Lease`]), the thread leaves it to that
//! [`Holder`], and looks a millisecond later whether that still holds. So two threads never fight over one socket, and an
//! edge that the program swallowed cannot stall it.
//!
//! A panic over one source ends that source alone, an epoll set that fails all of them: see [`Source::give_up`].

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use super::notify::Notify;
use super::ready_set::epoll_timeout;
use crate::deadline::Deadline;

/// How long a program's last poll keeps the background thread away, about.
const LEASE: Duration = Duration::from_millis(1);

/// The token of the wake-up.
const WAKE: u64 = u64::MAX;

/// Whether a program looks after a socket itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lease {
    /// Nobody does.
    None,
    /// A thread is asleep on it, and will call [`Driver::end_of_wait`].
    Waited,
    /// It polled within about a millisecond.
    Polled,
}

/// Where a program looks after sockets: a completion queue.
pub(crate) trait Holder: Send + Sync {
    /// Whether it does now; `tick` counts milliseconds, roughly.
    fn lease(&self, tick: u64) -> Lease;
    /// Sources that are left to it until the lease has lapsed.
    fn left(&self) -> &Mutex<HashSet<u64>>;
}

/// Something with a socket or a timer.
pub(crate) trait Source: Send + Sync {
    /// Whether a program looks after it, and where.
    fn lease(&self, _tick: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        None
    }
    /// It is left to a program: takes its socket out of the set if that pays.
    fn rest(&self, _driver: &Driver) {}
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
struct Timer {
    due: std::cmp::Reverse<Instant>,
    token: u64,
}

#[derive(Default)]
struct Shared {
    sources: HashMap<u64, Weak<dyn Source>>,
    timers: BinaryHeap<Timer>,
    next_token: u64,
    stopped: bool,
}

pub(crate) struct Driver {
    epoll: Epoll,
    wake: Notify,
    shared: Mutex<Shared>,
    /// The thread has ended because it could not go on.
    failed: AtomicBool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Notify::flag()?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let (shared, failed) = Default::default();
        let driver = Arc::new(Driver { epoll, wake, shared, failed });
        let background = driver.clone();
        // A thread has the signal mask of who starts it: the program's handlers run in the program's threads.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let begun = thread::Builder::new().name("rddp-progress".into()).spawn(move || background.run());
        before.thread_set_mask()?;
        begun?;
        Ok(driver)
    }

    /// What the thread does.
    fn run(&self) {
        match catch_unwind(AssertUnwindSafe(|| Loop::new(self).run())) {
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

    fn give_up(&self, token: u64, failure: Failure) {
        let Some(source) = self.source(token) else { return };
        if catch_unwind(AssertUnwindSafe(|| source.give_up(self, failure))).is_err() {
            tracing::error!(token, "a panic over a source that was given up");
            self.remove(token);
        }
    }

    /// Calls one of the functions of a source. A panic in it ends that source and no other.
    fn call<T>(&self, token: u64, function: impl FnOnce() -> T) -> Option<T> {
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

    pub(crate) fn source(&self, token: u64) -> Option<Arc<dyn Source>> {
        self.shared.lock().sources.get(&token)?.upgrade()
    }
}

/// What only the background thread holds.
struct Loop<'a> {
    driver: &'a Driver,
    tick: u64,
    ticked: Instant,
    /// Sources are left to these, because a program polls.
    polled: Vec<Arc<dyn Holder>>,
    /// The same, because a program is asleep on them.
    waited: Vec<Arc<dyn Holder>>,
    /// Had more to do than one turn allows.
    again: Vec<u64>,
}

impl<'a> Loop<'a> {
    fn new(driver: &'a Driver) -> Self {
        let (polled, waited, again) = Default::default();
        Loop { driver, tick: 1, ticked: Instant::now(), polled, waited, again }
    }

    /// Goes on until the driver is stopped, or the epoll set fails.
    fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        while !self.driver.shared.lock().stopped {
            let timeout = self.timeout();
            let count = match self.driver.epoll.wait(&mut events, epoll_timeout(timeout)) {
                Err(Errno::EINTR) => 0,
                result => result?,
            };
            let now = Instant::now();
            let woken = events[..count].iter().any(|event| event.data() == WAKE);
            let ticks = woken || now.duration_since(self.ticked) >= LEASE;
            if ticks {
                self.tick += 1;
                self.ticked = now;
            }
            for event in &events[..count] {
                match event.data() {
                    WAKE => {
                        self.driver.wake.take();
                        self.polled.append(&mut self.waited);
                    }
                    token => self.serve(token),
                }
            }
            for token in std::mem::take(&mut self.again) {
                self.serve(token);
            }
            if ticks {
                for holder in std::mem::take(&mut self.polled) {
                    self.review(holder);
                }
            }
            self.expire(now);
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.driver.shared.lock().timers.peek().map(|timer| timer.due.0);
        let timer = timer.map(|due| due.saturating_duration_since(Instant::now()));
        match timer {
            _ if self.polled.is_empty() => timer,
            Some(timer) => Some(timer.min(LEASE)),
            None => Some(LEASE),
        }
    }

    fn serve(&mut self, token: u64) {
        let Some(source) = self.driver.source(token) else { return };
        let driver = self.driver;
        let Some(lease) = driver.call(token, || source.lease(self.tick)) else { return };
        match lease {
            Some((lease, holder)) => {
                if driver.call(token, || source.rest(driver)).is_none() {
                    return;
                }
                let mut left = holder.left().lock();
                let first = left.is_empty();
                left.insert(token);
                drop(left);
                // One that had some already is in a list.
                if first {
                    self.list(lease, holder);
                }
            }
            None => {
                if driver.call(token, || source.on_ready(driver)) == Some(true) {
                    self.again.push(token);
                }
            }
        }
    }

    fn list(&mut self, lease: Lease, holder: Arc<dyn Holder>) {
        match lease {
            Lease::Waited => self.waited.push(holder),
            Lease::Polled | Lease::None => self.polled.push(holder),
        }
    }

    /// Takes back what was left to a holder whose lease has lapsed.
    fn review(&mut self, holder: Arc<dyn Holder>) {
        match holder.lease(self.tick) {
            Lease::None => {
                let back = std::mem::take(&mut *holder.left().lock());
                back.into_iter().for_each(|token| self.serve(token));
            }
            lease => self.list(lease, holder),
        }
    }

    fn expire(&mut self, now: Instant) {
        loop {
            let mut shared = self.driver.shared.lock();
            match shared.timers.peek() {
                Some(timer) if timer.due.0 <= now => {}
                _ => return,
            }
            let Some(Timer { token, .. }) = shared.timers.pop() else { return };
            let source = shared.sources.get(&token).and_then(Weak::upgrade);
            drop(shared);
            if let Some(source) = source {
                self.driver.call(token, || source.on_timer(self.driver, now));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Makes the driver's epoll set a file of another kind, as a program does that closes descriptors of others and opens its
    /// own. The thread finds out at once.
    #[allow(unsafe_code)]
    pub(crate) fn break_set(driver: &Driver) {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both numbers are open descriptors, and the set is of no use after that.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), driver.epoll.0.as_raw_fd()) } >= 0);
        driver.wake.give();
    }

    /// Waits until `is_so`.
    fn await_that(what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where a [`Probe`] panics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        Nowhere,
        Lease,
        Rest,
        Ready,
        Timer,
        GivingUp,
    }

    /// A source that counts what is asked of it.
    struct Probe {
        socket: Notify,
        fault: Fault,
        served: AtomicUsize,
        given_up: Mutex<Vec<Failure>>,
        holder: Option<Arc<Polled>>,
    }

    /// A holder whose program polls.
    #[derive(Default)]
    struct Polled(Mutex<HashSet<u64>>);

    impl Holder for Polled {
        fn lease(&self, _tick: u64) -> Lease {
            Lease::Polled
        }

        fn left(&self) -> &Mutex<HashSet<u64>> {
            &self.0
        }
    }

    impl Probe {
        /// Puts one into the driver that is ready at once, and whose timer has run out.
        fn put(driver: &Driver, fault: Fault) -> Arc<Self> {
            let holder = (fault == Fault::Rest).then(Arc::default);
            let (socket, served, given_up) = (Notify::flag().unwrap(), AtomicUsize::new(0), Mutex::default());
            let probe = Arc::new(Probe { socket, fault, served, given_up, holder });
            let source: Arc<dyn Source> = probe.clone();
            let token = driver.add(Arc::downgrade(&source));
            driver.watch(probe.socket.as_fd(), token, EpollFlags::EPOLLIN).unwrap();
            match fault {
                Fault::Timer => driver.at(Instant::now(), token),
                _ => probe.socket.give(),
            }
            probe
        }

        fn may_panic(&self, here: Fault) {
            assert!(self.fault != here, "as a test wants it");
        }

        fn failures(&self) -> Vec<Failure> {
            self.given_up.lock().clone()
        }
    }

    impl Source for Probe {
        fn lease(&self, tick: u64) -> Option<(Lease, Arc<dyn Holder>)> {
            self.may_panic(Fault::Lease);
            let holder = self.holder.clone()?;
            Some((holder.lease(tick), holder))
        }

        fn rest(&self, _driver: &Driver) {
            self.may_panic(Fault::Rest);
        }

        fn on_ready(&self, _driver: &Driver) -> bool {
            self.may_panic(Fault::Ready);
            self.may_panic(Fault::GivingUp);
            self.served.fetch_add(1, Ordering::SeqCst);
            false
        }

        fn on_timer(&self, _driver: &Driver, _now: Instant) {
            self.may_panic(Fault::Timer);
        }

        fn give_up(&self, _driver: &Driver, failure: Failure) {
            self.given_up.lock().push(failure);
            self.may_panic(Fault::GivingUp);
        }
    }

    /// A panic over one source, whichever of its functions it comes from, is told to that source; others go on.
    #[test]
    fn a_source_that_panics_is_given_up_alone() {
        let driver = Driver::start().unwrap();
        for fault in [Fault::Lease, Fault::Rest, Fault::Ready, Fault::Timer, Fault::GivingUp] {
            let faulty = Probe::put(&driver, fault);
            await_that("it is not given up", || faulty.failures() == [Failure::Panic]);
            let sound = Probe::put(&driver, Fault::Nowhere);
            await_that("the thread is gone", || sound.served.load(Ordering::SeqCst) == 1);
            assert_eq!(sound.failures(), []);
        }
        driver.stop();
    }

    /// A program that closes the descriptor of the set has no thread that spins on it, and is told.
    #[test]
    fn without_its_set_the_thread_ends_and_gives_up_all() {
        let driver = Driver::start().unwrap();
        let sources = [Fault::Nowhere, Fault::GivingUp, Fault::Nowhere].map(|fault| {
            let holder = None;
            let (socket, served, given_up) = (Notify::flag().unwrap(), AtomicUsize::new(0), Mutex::default());
            Arc::new(Probe { socket, fault, served, given_up, holder })
        });
        for source in &sources {
            let source: Arc<dyn Source> = source.clone();
            driver.add(Arc::downgrade(&source));
        }
        break_set(&driver);
        await_that("the thread goes on", || Arc::strong_count(&driver) == 1);
        assert!(sources.iter().all(|source| source.failures() == [Failure::Device]));
        let late = Notify::flag().unwrap();
        driver.watch(late.as_fd(), 7, EpollFlags::EPOLLIN).unwrap_err();
    }
}
