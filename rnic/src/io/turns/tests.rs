//! Sources and holders that do what a test says.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollFlags};
use parking_lot::Mutex;

use super::*;
use crate::io::driver::{Failure, Show, Source};
use crate::io::notify::Notify;

const PATIENCE: Duration = Duration::from_secs(20);

fn without_thread() -> Arc<Driver> {
    Driver::without_thread(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap()).unwrap()
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

/// The function in which a [`Probe`] panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nowhere,
    Lease,
    Leave,
    Ready,
    Timer,
    GivingUp,
    /// In none, but its socket cannot leave the set at once.
    Stays,
}

/// A source that counts the calls of its functions, and panics in one of them if a test wants that.
struct Probe {
    socket: Notify,
    fault: Fault,
    served: AtomicUsize,
    left: AtomicUsize,
    has_arrived: AtomicBool,
    given_up: Mutex<Vec<Failure>>,
    holder: Option<Arc<Scripted>>,
}

/// A holder whose program has the lease that a test sets.
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
        let (served, left, has_arrived, given_up) = Default::default();
        let socket = Notify::new().unwrap();
        Arc::new(Probe { socket, fault, served, left, has_arrived, given_up, holder })
    }

    fn add_to(self: &Arc<Self>, driver: &Driver) -> u64 {
        let source: Arc<dyn Source> = self.clone();
        driver.add(Arc::downgrade(&source))
    }

    fn count(&self) -> [usize; 2] {
        [&self.served, &self.left].map(|count| count.load(Ordering::SeqCst))
    }

    /// Adds a source to the driver that is ready at once, and whose timer has run out.
    fn put(driver: &Driver, fault: Fault) -> Arc<Self> {
        let holder = (fault == Fault::Leave).then(|| holder(Lease::Polled));
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
        lease.is_held().then_some((lease, holder))
    }

    fn has_arrived(&self) -> bool {
        self.has_arrived.load(Ordering::SeqCst)
    }

    fn leave_to_program(&self, _driver: &Driver) -> bool {
        self.may_panic(Fault::Leave);
        let again = self.left.fetch_add(1, Ordering::SeqCst) > 0;
        self.fault != Fault::Stays || again
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

/// A panic in any function of a source is reported to that source; the other sources go on.
#[test]
fn a_source_that_panics_is_given_up_alone() {
    let driver = Driver::open().unwrap();
    for fault in [Fault::Lease, Fault::Leave, Fault::Ready, Fault::Timer, Fault::GivingUp] {
        let faulty = Probe::put(&driver, fault);
        await_that("it is not given up", || faulty.failures() == [Failure::Panic]);
        let sound = Probe::put(&driver, Fault::Nowhere);
        await_that("the thread is gone", || sound.served.load(Ordering::SeqCst) == 1);
        assert_eq!(sound.failures(), []);
    }
    driver.stop();
}

/// A source whose function lasts until a test lets it return.
struct Slow {
    socket: Notify,
    begun: AtomicBool,
    may_end: AtomicBool,
}

impl Source for Slow {
    fn has_arrived(&self) -> bool {
        false
    }

    fn leave_to_program(&self, _driver: &Driver) -> bool {
        true
    }

    fn on_ready(&self, _driver: &Driver) -> bool {
        self.begun.store(true, Ordering::SeqCst);
        await_that("the test does not go on", || self.may_end.load(Ordering::SeqCst));
        false
    }

    fn on_timer(&self, _driver: &Driver, _now: Instant) {}

    fn give_up(&self, _driver: &Driver, _failure: Failure) {}
}

/// An object is dropped in the thread that lets go of it last. For the owner of a source that is
/// never the background thread.
#[test]
fn the_thread_that_leaves_a_source_is_the_last_that_has_it() {
    let driver = Driver::open().unwrap();
    for _ in 0..50 {
        let (begun, may_end) = Default::default();
        let slow = Arc::new(Slow { socket: Notify::new().unwrap(), begun, may_end });
        let source: Arc<dyn Source> = slow.clone();
        let token = driver.add(Arc::downgrade(&source));
        drop(source);
        driver.watch(slow.socket.as_fd(), token, EpollFlags::EPOLLIN).unwrap();
        slow.socket.give();
        await_that("the thread does not come", || slow.begun.load(Ordering::SeqCst));
        thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                driver.leave(token);
                Arc::strong_count(&slow)
            });
            thread::yield_now();
            slow.may_end.store(true, Ordering::SeqCst);
            assert_eq!(leaving.join().unwrap(), 1);
        });
    }
    driver.stop();
}

/// A program that closes the descriptor of the thread's epoll set, and opens another file under its
/// number, ends the thread, which else would fail again and again. All sources are told.
#[test]
fn without_its_set_the_thread_ends_and_gives_up_all() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let driver = Driver::without_thread(Epoll(file.into())).unwrap();
    let faults = [Fault::Nowhere, Fault::GivingUp, Fault::Nowhere];
    let sources = faults.map(|fault| Probe::new(fault, None));
    for source in &sources {
        source.add_to(&driver);
    }
    driver.run();
    assert!(sources.iter().all(|source| source.failures() == [Failure::Device]));
    let late = Notify::new().unwrap();
    driver.watch(late.as_fd(), 7, EpollFlags::EPOLLIN).unwrap_err();
}

/// Returns the turns of a driver without a thread, after the first event of a source whose program
/// has a lease.
fn served<'a>(driver: &'a Driver, probe: &Arc<Probe>) -> Turns<'a> {
    let token = probe.add_to(driver);
    let mut this = Turns::new(driver);
    this.serve(token);
    this
}

fn ask_again(this: &mut Turns<'_>) {
    let left = this.polled.pop().expect("a holder");
    this.review(left);
}

/// A program that goes on polling is asked later and later, and its sockets leave the epoll set
/// once it has polled for long enough.
#[test]
fn a_program_that_polls_without_pause_is_asked_ever_later() {
    let driver = without_thread();
    let probe = Probe::new(Fault::Stays, Some(holder(Lease::Polled)));
    let mut this = served(&driver, &probe);
    let mut time = FIRST_LEASE;
    while time < LEASE {
        assert_eq!((this.polled[0].time, probe.count()), (time, [0, 0]));
        ask_again(&mut this);
        time *= 2;
    }
    assert_eq!((this.polled[0].time, probe.count()), (time, [0, 1]));
    while time < LONGEST {
        ask_again(&mut this);
        time = (2 * time).min(LONGEST);
        assert_eq!((this.polled[0].time, probe.count()), (time, [0, 2]));
    }
    ask_again(&mut this);
    assert_eq!((this.polled[0].time, probe.count()), (LONGEST, [0, 2]));
}

/// A program that has not polled from one question to the next loses its lease. The next question
/// comes soon if it has left octets unread.
#[test]
fn a_program_that_has_stopped_polling_gives_its_sockets_back() {
    let driver = without_thread();
    for arrives in [false, true] {
        let program = holder(Lease::Polled);
        let probe = Probe::new(Fault::Nowhere, Some(program.clone()));
        let mut this = served(&driver, &probe);
        ask_again(&mut this);
        assert_eq!(this.polled[0].time, 2 * FIRST_LEASE);
        *program.0.lock() = Lease::Paused;
        probe.has_arrived.store(arrives, Ordering::SeqCst);
        ask_again(&mut this);
        let soon = this.polled[0].due < Instant::now() + 2 * FIRST_LEASE;
        assert_eq!((this.polled[0].doubted, probe.count()), (arrives, [0, 0]));
        assert!(soon || !arrives, "what has arrived waits");
        let time = if arrives { 2 * FIRST_LEASE } else { FIRST_LEASE };
        assert_eq!(this.polled[0].time, time, "what polls now and then is asked earlier");
        *program.0.lock() = Lease::None;
        ask_again(&mut this);
        assert_eq!((this.polled.len(), probe.count()), (0, [1, 0]));
    }
    // What comes when it does something else is not left to it in the first place.
    let probe = Probe::new(Fault::Nowhere, Some(holder(Lease::Paused)));
    assert!(served(&driver, &probe).polled.is_empty());
    assert_eq!(probe.count(), [1, 0]);
}

/// A program that sleeps on its sockets has their lease at once, and is asked again when it goes
/// on.
#[test]
fn a_program_that_waits_keeps_its_sockets() {
    let driver = without_thread();
    let program = holder(Lease::Returning);
    let probe = Probe::new(Fault::Nowhere, Some(program.clone()));
    let mut this = served(&driver, &probe);
    assert_eq!((this.polled[0].time, probe.count()), (LEASE, [0, 1]));
    *program.0.lock() = Lease::Waited;
    ask_again(&mut this);
    assert_eq!((this.polled.len(), this.waited.len(), this.timeout()), (0, 1, None));
    let now = Instant::now();
    this.wake(now);
    assert_eq!(this.waited.len(), 1, "a new timer is no news of it");
    driver.end_of_wait();
    this.wake(now);
    assert_eq!((this.polled[0].due, this.waited.len()), (now, 0));
}

/// Wants to be asked once more after the first time.
#[derive(Default)]
struct Shown(AtomicUsize);

impl Show for Shown {
    fn show(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) == 0
    }
}

#[test]
fn what_is_to_be_shown_waits_for_a_turn_that_comes_soon() {
    let driver = without_thread();
    let shown = Arc::new(Shown::default());
    let weak: Arc<dyn Show> = shown.clone();
    let show_soon = || driver.show_soon(Arc::downgrade(&weak));
    let probe = Probe::new(Fault::Nowhere, Some(holder(Lease::Polled)));
    assert_eq!((Turns::new(&driver).timeout(), show_soon()), (None, false), "no turn comes");
    let mut this = served(&driver, &probe);
    let now = Instant::now();
    assert!(this.timeout().is_some() && show_soon());
    this.polled.clear();
    let calls = |this: &mut Turns<'_>, now| {
        this.show(now);
        shown.0.load(Ordering::SeqCst)
    };
    assert!(calls(&mut this, now) == 0 && this.timeout().is_some(), "the turn comes, and too early");
    assert_eq!(calls(&mut this, now + 2 * SOON), 1);
    assert!(this.timeout().is_some(), "once more");
    assert_eq!((calls(&mut this, now + 4 * SOON), this.timeout()), (2, None));
}
