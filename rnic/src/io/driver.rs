//! The background thread: progress for whoever is not there (design: docs/architecture.md, "Who makes progress").
//!
//! Every socket is in its epoll set one-shot: an event disarms it, and it is armed again once the socket has been read
//! dry. When a program polls or waits on a completion queue of that socket (a [`Lease`]), the thread leaves it to that
//! [`Holder`], and asks soon whether that still holds, and later and later while it does. So two threads never fight over one
//! socket, and an edge that the program swallowed cannot stall it.
//!
//! A panic over one source ends that source alone, an epoll set that fails all of them: see [`Source::give_up`].

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;

use super::lease::Lease;
use super::notify::Notify;
use super::ready_set::epoll_timeout;
use crate::deadline::Deadline;

/// After how long a holder is asked anew whether its program still polls: at first, and in the end. Each time that it does,
/// the next question takes twice as long.
const FIRST_LEASE: Duration = Duration::from_micros(30);
const LEASE: Duration = Duration::from_millis(1);

/// Times shorter than this are kept to the microsecond, which costs a system call more.
const SHORT: Duration = Duration::from_micros(500);

/// How late the kernel may wake the thread, in nanoseconds; as a rule it is 50 microseconds.
const SLACK: u64 = 1;

/// The token of the wake-up.
const WAKE: u64 = u64::MAX;

/// Where a program looks after sockets: a completion queue.
pub(crate) trait Holder: Send + Sync {
    /// Whether it does now; `turn` counts what the thread has done.
    fn lease(&self, turn: u64) -> Lease;
    /// Sources that are left to it until the lease has lapsed.
    fn left(&self) -> &Mutex<HashSet<u64>>;
}

/// Something with a socket or a timer.
pub(crate) trait Source: Send + Sync {
    /// The program that looks after it: where, and how. `None`: nobody does.
    fn lease(&self, _turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        None
    }
    /// Returns whether there is something to read.
    fn has_arrived(&self) -> bool {
        false
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
    fn new() -> io::Result<Arc<Self>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Notify::flag()?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let (shared, failed) = Default::default();
        Ok(Arc::new(Driver { epoll, wake, shared, failed }))
    }

    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let driver = Self::new()?;
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
        if let Err(error) = set_timerslack(SLACK) {
            tracing::debug!(%error, "the thread's timers may be late");
        }
        match catch_unwind(AssertUnwindSafe(|| Loop::new(self).run())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.fail(&Failure::Panic.into()),
        }
    }

    /// The thread cannot go on: gives up all sources.
    pub(crate) fn fail(&self, error: &io::Error) {
        tracing::error!(%error, "the background thread cannot go on: all connections of the device end");
        // Whoever puts a socket in has seen this, or is among the sources.
        self.failed.store(true, Ordering::SeqCst);
        let tokens: Vec<u64> = self.shared.lock().sources.keys().copied().collect();
        for token in tokens {
            self.give_up(token, Failure::Device);
        }
    }

    /// Sleeps until there are events, for at most `timeout`; how many.
    fn sleep(&self, events: &mut [EpollEvent], timeout: Option<Duration>) -> io::Result<usize> {
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

    /// Has a source take its socket out of the set, if that pays.
    fn rest(&self, token: u64) {
        if let Some(source) = self.source(token) {
            self.call(token, || source.rest(self));
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

/// Sources are left to a holder, which is asked again when that is `due`.
struct Left {
    holder: Arc<dyn Holder>,
    due: Instant,
    /// From a question to the next.
    time: Duration,
    /// The last one found it at something else, with octets unread, and the next comes sooner.
    doubted: bool,
}

/// What only the background thread holds.
struct Loop<'a> {
    driver: &'a Driver,
    turn: u64,
    /// Sources are left to these, because a program polls.
    polled: Vec<Left>,
    /// The same, because a program is asleep on them.
    waited: Vec<Arc<dyn Holder>>,
    /// Had more to do than one turn allows.
    again: Vec<u64>,
}

impl<'a> Loop<'a> {
    fn new(driver: &'a Driver) -> Self {
        let (polled, waited, again) = Default::default();
        Loop { driver, turn: 0, polled, waited, again }
    }

    /// Goes on until the driver is stopped, or the epoll set fails.
    fn run(mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 256];
        while !self.driver.shared.lock().stopped {
            let count = self.driver.sleep(&mut events, self.timeout())?;
            let now = Instant::now();
            self.turn += 1;
            for event in &events[..count] {
                match event.data() {
                    WAKE => self.wake(now),
                    token => self.serve(token),
                }
            }
            for token in std::mem::take(&mut self.again) {
                self.serve(token);
            }
            for left in self.polled.extract_if(.., |left| left.due <= now).collect::<Vec<_>>() {
                self.review(left);
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
        let due = self.polled.iter().map(|left| left.due).chain(timer).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Somebody who slept goes on: asks all anew.
    fn wake(&mut self, now: Instant) {
        self.driver.wake.take();
        self.polled.iter_mut().for_each(|left| left.due = now);
        let waited = self.waited.drain(..);
        self.polled.extend(waited.map(|holder| Left { holder, due: now, time: LEASE, doubted: false }));
    }

    fn serve(&mut self, token: u64) {
        let Some(source) = self.driver.source(token) else { return };
        let driver = self.driver;
        let Some(lease) = driver.call(token, || source.lease(self.turn)) else { return };
        match lease {
            Some((lease, holder)) => {
                let mut left = holder.left().lock();
                let first = left.is_empty();
                left.insert(token);
                drop(left);
                // One that had some already is in a list.
                if first {
                    self.list(lease, holder, FIRST_LEASE);
                } else if !self.is_new(&holder) {
                    driver.rest(token);
                }
            }
            None => {
                if driver.call(token, || source.on_ready(driver)) == Some(true) {
                    self.again.push(token);
                }
            }
        }
    }

    /// Notes a holder that something is left to, and when to ask it again. One that polls without pause, or sleeps on its
    /// sockets itself, is better off when they are in no set.
    fn list(&mut self, lease: Lease, holder: Arc<dyn Holder>, time: Duration) {
        let time = if lease == Lease::Polled { time.min(LEASE) } else { LEASE };
        if time == LEASE {
            let tokens: Vec<u64> = holder.left().lock().iter().copied().collect();
            tokens.into_iter().for_each(|token| self.driver.rest(token));
        }
        match lease {
            Lease::Waited => self.waited.push(holder),
            _ => self.polled.push(Left { holder, due: Instant::now() + time, time, doubted: false }),
        }
    }

    /// Returns whether it is not yet known that the holder's program polls without pause.
    fn is_new(&self, holder: &Arc<dyn Holder>) -> bool {
        self.polled.iter().any(|left| left.time < LEASE && Arc::ptr_eq(&left.holder, holder))
    }

    /// Takes back what was left to a holder whose lease has lapsed.
    fn review(&mut self, left: Left) {
        let Left { holder, time, doubted, .. } = left;
        match holder.lease(self.turn) {
            Lease::None => self.take_back(&holder),
            Lease::Paused => {
                // It has left something unread: unless it looks very soon, it does something else.
                let doubted = !doubted && self.has_arrived(&holder);
                let due = Instant::now() + if doubted { FIRST_LEASE } else { time };
                self.polled.push(Left { holder, due, time, doubted });
            }
            lease => self.list(lease, holder, time * 2),
        }
    }

    fn has_arrived(&self, holder: &Arc<dyn Holder>) -> bool {
        let tokens: Vec<u64> = holder.left().lock().iter().copied().collect();
        let source = |token| Some((token, self.driver.source(token)?));
        let mut sources = tokens.into_iter().filter_map(source);
        sources.any(|(token, source)| self.driver.call(token, || source.has_arrived()) == Some(true))
    }

    fn take_back(&mut self, holder: &Arc<dyn Holder>) {
        let back = std::mem::take(&mut *holder.left().lock());
        back.into_iter().for_each(|token| self.serve(token));
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
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Makes the driver's epoll set a file of another kind, as a program does that closes descriptors of others and opens its
    /// own. The thread finds out at once.
    #[allow(unsafe_code)]
    fn break_set(driver: &Driver) {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both numbers are open descriptors, and the set is of no use after that.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), driver.epoll.0.as_raw_fd()) } >= 0);
        driver.wake.give();
    }

    fn holder(lease: Lease) -> Arc<Scripted> {
        Arc::new(Scripted(Mutex::new(lease), Mutex::default()))
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
        rested: AtomicUsize,
        has_arrived: AtomicBool,
        given_up: Mutex<Vec<Failure>>,
        holder: Option<Arc<Scripted>>,
    }

    /// A holder whose program does what a test says.
    struct Scripted(Mutex<Lease>, Mutex<HashSet<u64>>);

    impl Holder for Scripted {
        fn lease(&self, _turn: u64) -> Lease {
            *self.0.lock()
        }

        fn left(&self) -> &Mutex<HashSet<u64>> {
            &self.1
        }
    }

    impl Probe {
        fn new(fault: Fault, holder: Option<Arc<Scripted>>) -> Arc<Self> {
            let (served, rested, has_arrived, given_up) = Default::default();
            let socket = Notify::flag().unwrap();
            Arc::new(Probe { socket, fault, served, rested, has_arrived, given_up, holder })
        }

        fn add_to(self: &Arc<Self>, driver: &Driver) -> u64 {
            let source: Arc<dyn Source> = self.clone();
            driver.add(Arc::downgrade(&source))
        }

        fn count(&self) -> [usize; 2] {
            [&self.served, &self.rested].map(|count| count.load(Ordering::SeqCst))
        }

        /// Puts one into the driver that is ready at once, and whose timer has run out.
        fn put(driver: &Driver, fault: Fault) -> Arc<Self> {
            let holder = (fault == Fault::Rest).then(|| holder(Lease::Polled));
            let probe = Probe::new(fault, holder);
            let token = probe.add_to(driver);
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
        fn lease(&self, turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
            self.may_panic(Fault::Lease);
            let holder = self.holder.clone()?;
            let lease = holder.lease(turn);
            lease.is_held().then(|| (lease, holder as Arc<dyn Holder>))
        }

        fn has_arrived(&self) -> bool {
            self.has_arrived.load(Ordering::SeqCst)
        }

        fn rest(&self, _driver: &Driver) {
            self.may_panic(Fault::Rest);
            self.rested.fetch_add(1, Ordering::SeqCst);
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
        let faults = [Fault::Nowhere, Fault::GivingUp, Fault::Nowhere];
        let sources = faults.map(|fault| Probe::new(fault, None));
        for source in &sources {
            source.add_to(&driver);
        }
        break_set(&driver);
        await_that("the thread goes on", || Arc::strong_count(&driver) == 1);
        assert!(sources.iter().all(|source| source.failures() == [Failure::Device]));
        let late = Notify::flag().unwrap();
        driver.watch(late.as_fd(), 7, EpollFlags::EPOLLIN).unwrap_err();
    }
    /// The loop of a driver without a thread, which has come upon something for a source whose program does `lease`.
    fn served<'a>(driver: &'a Driver, probe: &Arc<Probe>) -> Loop<'a> {
        let token = probe.add_to(driver);
        let mut this = Loop::new(driver);
        this.serve(token);
        this
    }

    fn ask_again(this: &mut Loop<'_>) {
        let left = this.polled.pop().expect("a holder");
        this.review(left);
    }

    /// A program that goes on polling is asked later and later, and its sockets leave the set once that is sure.
    #[test]
    fn a_program_that_polls_without_pause_is_asked_ever_later() {
        let driver = Driver::new().unwrap();
        let probe = Probe::new(Fault::Nowhere, Some(holder(Lease::Polled)));
        let mut this = served(&driver, &probe);
        let mut time = FIRST_LEASE;
        while time < LEASE {
            assert_eq!((this.polled[0].time, probe.count()), (time, [0, 0]));
            ask_again(&mut this);
            time = (2 * time).min(LEASE);
        }
        assert_eq!((this.polled[0].time, probe.count()), (LEASE, [0, 1]));
        ask_again(&mut this);
        assert_eq!(this.polled[0].time, LEASE);
    }

    /// One that has not polled from a question to the next gives its sockets back; the next comes soon where it has left
    /// something unread.
    #[test]
    fn a_program_that_has_stopped_polling_gives_its_sockets_back() {
        let driver = Driver::new().unwrap();
        for arrives in [false, true] {
            let program = holder(Lease::Polled);
            let probe = Probe::new(Fault::Nowhere, Some(program.clone()));
            let mut this = served(&driver, &probe);
            ask_again(&mut this);
            *program.0.lock() = Lease::Paused;
            probe.has_arrived.store(arrives, Ordering::SeqCst);
            ask_again(&mut this);
            let soon = this.polled[0].due < Instant::now() + 2 * FIRST_LEASE;
            assert_eq!((this.polled[0].doubted, probe.count()), (arrives, [0, 0]));
            assert!(soon || !arrives, "what has arrived waits");
            *program.0.lock() = Lease::None;
            ask_again(&mut this);
            assert_eq!((this.polled.len(), probe.count()), (0, [1, 0]));
        }
        // What comes when it does something else is not left to it in the first place.
        let probe = Probe::new(Fault::Nowhere, Some(holder(Lease::Paused)));
        assert!(served(&driver, &probe).polled.is_empty());
        assert_eq!(probe.count(), [1, 0]);
    }

    /// A program that sleeps on its sockets itself has them at once, and is asked when it has slept.
    #[test]
    fn a_program_that_waits_keeps_its_sockets() {
        let driver = Driver::new().unwrap();
        let program = holder(Lease::Returning);
        let probe = Probe::new(Fault::Nowhere, Some(program.clone()));
        let mut this = served(&driver, &probe);
        assert_eq!((this.polled[0].time, probe.count()), (LEASE, [0, 1]));
        *program.0.lock() = Lease::Waited;
        ask_again(&mut this);
        assert_eq!((this.polled.len(), this.waited.len(), this.timeout()), (0, 1, None));
        let now = Instant::now();
        this.wake(now);
        assert_eq!((this.polled[0].due, this.waited.len()), (now, 0));
    }
}
