//! The background thread: progress for whoever is not there (design: docs/architecture.md, "Who makes progress").
//!
//! Every socket is in its epoll set one-shot: an event disarms it, and it is armed again once the socket has been read
//! dry. When a program polls or waits on a completion queue of that socket (a [`Lease`]), the thread leaves it to that
//! [`Holder`], and looks a millisecond later whether that still holds. So two threads never fight over one socket, and an
//! edge that the program swallowed cannot stall it.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use parking_lot::Mutex;

use super::notify::Notify;
use super::ready_set::epoll_timeout;

/// How long a program's last poll keeps the background thread away, about.
const LEASE: Duration = Duration::from_millis(1);

/// What the kernel raises in the thread that is the cause.
const FAULTS: [Signal; 6] =
    [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS];

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
        let driver = Arc::new(Driver { epoll, wake, shared: Mutex::default() });
        let background = driver.clone();
        // A thread has the signal mask of who starts it: the program's handlers run in the program's threads. A fault is
        // the thread's own: blocked, its signal would end the process whoever handles it.
        let mut mask = SigSet::all();
        FAULTS.into_iter().for_each(|signal| mask.remove(signal));
        let before = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let begun =
            thread::Builder::new().name("rddp-progress".into()).spawn(move || Loop::new(&background).run());
        before.thread_set_mask()?;
        begun?;
        Ok(driver)
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
        Ok(self.epoll.add(socket, EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, token))?)
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

    fn run(mut self) {
        let mut events = [EpollEvent::empty(); 256];
        while !self.driver.shared.lock().stopped {
            let timeout = self.timeout();
            let count = self.driver.epoll.wait(&mut events, epoll_timeout(timeout)).unwrap_or(0);
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
        match source.lease(self.tick) {
            Some((lease, holder)) => {
                source.rest(self.driver);
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
                if source.on_ready(self.driver) {
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
            let token = shared.timers.pop().map(|timer| timer.token);
            let source = token.and_then(|token| shared.sources.get(&token)?.upgrade());
            drop(shared);
            if let Some(source) = source {
                source.on_timer(self.driver, now);
            }
        }
    }
}
