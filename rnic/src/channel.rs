//! Completion channels: descriptors that are readable when an armed completion queue has a
//! completion.

mod owed;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nix::poll::PollFlags;
use parking_lot::Mutex;
use smallvec::SmallVec;

use self::owed::{Found, Owed};
use crate::cq::{CompletionQueue, CqInner, FEW, Member, Waiter};
use crate::deadline::Deadline;
use crate::home::Home;
use crate::io::alarm::alarm;
use crate::io::bell::Asleep;
use crate::io::counter::Counter;
use crate::io::driver::{Driver, Show};
use crate::io::ready_set::ReadySet;
use crate::io::sleep::Sleep;

/// A channel to which [armed](CompletionQueue::arm) completion queues report, made by
/// [`Rnic::create_channel`](crate::Rnic::create_channel). Cloning gives another handle to the same
/// channel.
///
/// A program may sleep on the channel's descriptor, by poll, select, epoll, mio or tokio's
/// `AsyncFd`. Once it has asked for it ([`AsFd`], [`AsRawFd`], [`watch`](Self::watch)), the
/// descriptor is readable until [`next_event`](Self::next_event) has taken every event. Its
/// `O_NONBLOCK` is set at first, and is the program's own to clear; the program does not read the
/// descriptor.
///
/// ```
/// use std::time::Duration;
/// use rddp_rnic::{QpConfig, Rnic, SendWr};
/// let rnic = Rnic::open()?;
/// let (pd, channel) = (rnic.alloc_pd(), rnic.create_channel()?);
/// let cq = rnic.create_cq_on(&channel, 16)?;
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// cq.arm(false);
/// # qp.abort();
/// qp.post_send(&SendWr::send_inline(1, b"hello"))?;
/// let told = channel.wait(Some(Duration::from_secs(5)))?.ok_or("nothing completed")?;
/// assert_eq!((told.num(), told.completions().count()), (cq.num(), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionChannel(pub(crate) Home<Arc<ChannelInner>>);

impl CompletionChannel {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(CompletionChannel(Home::new(Arc::new(ChannelInner::new()?))))
    }

    /// Returns the number of completion queues that report to the channel.
    pub fn users(&self) -> usize {
        let Ok(channel) = self.0.here() else { return 0 };
        channel.live_queues().iter().filter(|cq| cq.is_in_use()).count()
    }

    /// Returns the descriptor, as [`AsFd`] does, and takes the program to be about to sleep on it.
    ///
    /// So the background thread reads the sockets while the channel's queues are armed: at once,
    /// where otherwise it finds out within a millisecond that the program no longer does. A
    /// [`wait`](Self::wait) that sleeps ends that until the program calls this again, or is found
    /// to sleep elsewhere: the thread that waits reads the sockets itself. The descriptor shows
    /// events either way.
    pub fn watch(&self) -> BorrowedFd<'_> {
        if let Ok(channel) = self.0.here() {
            channel.watch_elsewhere();
        }
        self.0.anywhere().notify.as_fd()
    }

    /// Ends what asking for the descriptor began, for all threads: it is not readable, and events
    /// cost no system call. Those that come are kept for [`next_event`](Self::next_event), and for
    /// the next time that the program asks.
    pub fn unwatch(&self) {
        if let Ok(channel) = self.0.here() {
            channel.unwatch();
        }
    }

    /// Takes the oldest event. Returns its queue, which has a completion and is no longer armed.
    /// Never sleeps.
    pub fn next_event(&self) -> Option<CompletionQueue> {
        self.0.here().ok()?.next_event()
    }

    /// Returns an iterator that takes events as [`next_event`](Self::next_event) does, until there
    /// is none.
    pub fn events(&self) -> impl Iterator<Item = CompletionQueue> + '_ {
        std::iter::from_fn(|| self.next_event())
    }

    /// Takes the oldest event. Sleeps until there is one, for at most `timeout` (`None`: no limit),
    /// and reads the sockets of the channel's queues in this thread.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<CompletionQueue>> {
        let channel = self.0.here()?;
        let deadline = Deadline::after_any(timeout);
        loop {
            match channel.wait(deadline.left()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Takes the oldest event as [`wait`](Self::wait) does. A signal ends the sleep with
    /// `Interrupted`, whatever flags its handler was installed with.
    pub fn wait_or_signal(&self, timeout: Option<Duration>) -> io::Result<Option<CompletionQueue>> {
        self.0.here()?.wait(timeout)
    }

    /// Takes the oldest event as a program takes one from a device of the kernel, by `read(2)` of
    /// the descriptor: sleeps until there is one, or fails with `WouldBlock` if the descriptor is
    /// non-blocking. The background thread reads the sockets meanwhile.
    ///
    /// A signal whose handler was installed without `SA_RESTART` ends the sleep with `Interrupted`,
    /// no other does, and the thread may be cancelled (`pthread_cancel`).
    pub fn read_event(&self) -> io::Result<CompletionQueue> {
        self.0.here()?.read_event()
    }
}

/// Shows the channel's events by the descriptor from now on.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        if let Ok(channel) = self.0.here() {
            channel.events.lock().show_by(&channel.notify);
        }
        self.0.anywhere().notify.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[derive(Debug)]
pub(crate) struct ChannelInner {
    notify: Counter,
    /// Used when the queues, or the members of one, are more than [`FEW`].
    pub(crate) ready: Arc<ReadySet>,
    events: Mutex<Events>,
    queues: Mutex<Vec<Weak<CqInner>>>,
    /// The number of threads that are asleep in [`ChannelInner::wait`].
    asleep: AtomicUsize,
}

#[derive(Debug, Default)]
struct Events {
    /// `notify` shows them only if a thread may sleep on it: a thread that makes progress itself
    /// looks here, and saves two system calls.
    queues: VecDeque<Weak<CqInner>>,
    /// Set while the program may sleep on the descriptor at any time.
    shown: bool,
    /// Set while the program is taken to sleep on the descriptor by means of its own.
    watched_elsewhere: bool,
    /// The number of threads in [`ChannelInner::wait`], asleep or not.
    waiting: usize,
    /// Events that are not shown yet.
    owed: Owed,
}

impl Events {
    fn pop(&mut self) -> Option<Weak<CqInner>> {
        self.owed.take();
        self.queues.pop_front()
    }
}

impl Events {
    /// Has the descriptor show the events that there are, and those to come.
    fn show_by(&mut self, notify: &Counter) {
        self.shown = true;
        notify.show(self.queues.len());
    }
}

/// A list that needs no allocation where a thread names all sockets when it goes to sleep.
type Few<T> = SmallVec<[T; FEW]>;

/// A thread in [`ChannelInner::wait`], which takes an event that comes meanwhile before anybody
/// else learns of it.
struct Waiting<'a>(&'a ChannelInner);

impl<'a> Waiting<'a> {
    fn new(channel: &'a ChannelInner) -> Self {
        channel.events.lock().waiting += 1;
        Waiting(channel)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut events = self.0.events.lock();
        events.waiting -= 1;
        if events.shown {
            // Events that this thread leaves are for those who sleep on the descriptor.
            self.0.notify.show(events.queues.len());
        }
    }
}

impl ChannelInner {
    fn new() -> io::Result<Self> {
        let (ready, events, queues, asleep) = Default::default();
        Ok(ChannelInner { notify: Counter::new()?, ready, events, queues, asleep })
    }

    pub(crate) fn is_watched_elsewhere(&self) -> bool {
        self.events.lock().watched_elsewhere
    }

    fn watch_elsewhere(&self) {
        let mut events = self.events.lock();
        events.show_by(&self.notify);
        let was_watched = std::mem::replace(&mut events.watched_elsewhere, true);
        drop(events);
        if !was_watched {
            // Queues that have been armed already: see `CqInner::arm`.
            self.live_queues().iter().for_each(|cq| cq.give_back());
        }
    }

    fn unwatch(&self) {
        let mut events = self.events.lock();
        (events.shown, events.watched_elsewhere) = (false, false);
        self.notify.hide(0);
    }

    pub(crate) fn live_queues(&self) -> Few<Arc<CqInner>> {
        self.queues.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add(&self, cq: &Arc<CqInner>) {
        self.queues.lock().push(Arc::downgrade(cq));
    }

    /// Forgets the queues that are gone.
    pub(crate) fn purge(&self) {
        self.queues.lock().retain(|queue| queue.strong_count() > 0);
    }

    /// Adds an event of a queue of the device with this background thread.
    pub(crate) fn push(self: &Arc<Self>, cq: &Arc<CqInner>, driver: &Driver) {
        let mut events = self.events.lock();
        events.queues.push_back(Arc::downgrade(cq));
        // A thread that goes to sleep counts itself in `asleep`, then looks for events once more:
        // so either it sees this one, or it is woken.
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.notify.show(events.queues.len());
        } else if events.shown && events.waiting == 0 {
            // No thread of the program was here to read the sockets.
            let in_background = driver.is_this_thread();
            events.watched_elsewhere |= in_background;
            if in_background || !self.leaves(&mut events, driver) {
                self.notify.show(events.queues.len());
            }
        }
    }

    /// Returns whether an event is left to the background thread, which has a turn soon, to show.
    fn leaves(self: &Arc<Self>, events: &mut Events, driver: &Driver) -> bool {
        let leaves = events.owed.may_wait()
            && (events.owed.is_asked() || driver.show_soon(Arc::downgrade(self) as Weak<dyn Show>));
        if leaves && !events.owed.is_asked() {
            events.owed.ask();
        }
        leaves
    }

    fn next_event(&self) -> Option<CompletionQueue> {
        loop {
            let mut events = self.events.lock();
            let cq = events.pop()?;
            self.notify.hide(events.queues.len());
            drop(events);
            if let Some(cq) = cq.upgrade() {
                return Some(CompletionQueue::new(cq));
            }
        }
    }

    fn read_event(&self) -> io::Result<CompletionQueue> {
        loop {
            self.watch_elsewhere();
            self.notify.read()?;
            let mut events = self.events.lock();
            self.notify.note_read();
            // There is none if a thread that did not sleep was faster.
            let cq = events.pop();
            self.notify.hide(events.queues.len());
            drop(events);
            if let Some(cq) = cq.and_then(|cq| cq.upgrade()) {
                return Ok(CompletionQueue::new(cq));
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<CompletionQueue>> {
        let _waiting = Waiting::new(self);
        let queues = self.live_queues();
        let _waiters: Few<Waiter<'_>> = queues.iter().map(|cq| Waiter::new(cq)).collect();
        let deadline = Deadline::after_any(timeout);
        if let Some(cq) = self.next_event() {
            return Ok(Some(cq));
        }
        if self.ready.is_used() {
            self.ready.serve()?;
        } else if !queues.iter().all(|cq| cq.sleeps_first(timeout)) {
            queues.iter().for_each(|cq| cq.look_first());
        }
        loop {
            if let Some(cq) = self.next_event() {
                return Ok(Some(cq));
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.asleep.fetch_add(1, Ordering::SeqCst);
            let slept = self.sleep(&queues, left);
            self.asleep.fetch_sub(1, Ordering::SeqCst);
            slept?;
            if self.ready.is_used() {
                self.ready.serve()?;
            } else {
                progress(&queues);
            }
        }
    }

    /// Sleeps until there is an event, or progress to be made. A signal ends the sleep with
    /// `Interrupted`.
    fn sleep(&self, queues: &[Arc<CqInner>], timeout: Option<Duration>) -> io::Result<()> {
        let alarm = alarm()?;
        let _asleep: Few<Asleep<'_>> = queues.iter().map(|cq| cq.bell.fall_asleep(&alarm)).collect();
        let mut events = self.events.lock();
        if !events.queues.is_empty() {
            return Ok(());
        }
        events.watched_elsewhere = false;
        drop(events);
        if let [cq, ..] = queues
            && queues.len() > FEW
        {
            cq.use_epoll()?;
        }
        let mut sleep = Sleep::default();
        if self.ready.is_used() {
            sleep.add(self.ready.clone(), PollFlags::POLLIN);
        } else {
            queues.iter().for_each(|cq| cq.watch(&mut sleep));
        }
        sleep.wait([self.notify.as_fd(), alarm.as_fd()], timeout)
    }
}

/// Has the members of these queues make progress, once where one completes into several: most QPs
/// have both of their queues on one channel, and the second read would be in vain.
fn progress(queues: &[Arc<CqInner>]) {
    let mut tried: Few<Arc<dyn Member>> = SmallVec::new();
    for cq in queues {
        let Some(members) = cq.few_members() else {
            cq.progress();
            continue;
        };
        for member in &*members {
            if !tried.iter().any(|other| Arc::ptr_eq(other, member)) {
                member.try_progress();
                tried.push(member.clone());
            }
        }
    }
}

impl Show for ChannelInner {
    fn show(&self) -> bool {
        let mut events = self.events.lock();
        let has_events = !events.queues.is_empty() && events.shown && events.waiting == 0;
        let found = events.owed.look(has_events);
        if found == Found::Old {
            self.notify.show(events.queues.len());
        }
        found == Found::New
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollTimeout};

    use std::time::Instant;

    use super::*;
    use crate::Rnic;

    /// A thread that waits, and is awake, takes an event without the descriptor; those it leaves
    /// are shown.
    #[test]
    fn the_descriptor_shows_what_a_thread_that_waits_has_left() {
        let rnic = Rnic::open().unwrap();
        let channel = rnic.create_channel().unwrap();
        let cq = rnic.create_cq_on(&channel, 1).unwrap();
        let descriptor = channel.watch();
        let is_readable = || {
            let mut fds = [PollFd::new(descriptor, PollFlags::POLLIN)];
            nix::poll::poll(&mut fds, PollTimeout::ZERO) == Ok(1)
        };
        let (inner, cq) = (channel.0.anywhere(), cq.0.anywhere());
        let waiting = Waiting::new(inner);
        let driver = &rnic.0.anywhere().driver;
        (0..2).for_each(|_| inner.push(cq, driver));
        assert!(channel.next_event().is_some() && !is_readable());
        drop(waiting);
        assert!(is_readable() && channel.next_event().is_some());
        assert!(!is_readable() && channel.next_event().is_none());
        inner.push(cq, driver);
        assert!(is_readable(), "nobody waits");
    }

    /// An event that the program takes at once costs no system call, where the background thread
    /// has a turn soon; and if the program does not take it, that thread shows it.
    #[test]
    fn an_event_is_left_to_a_turn_of_the_background_thread_that_comes_soon() {
        let rnic = Rnic::open().unwrap();
        let channel = rnic.create_channel().unwrap();
        let cq = rnic.create_cq_on(&channel, 1).unwrap();
        let descriptor = channel.watch();
        let is_readable = || {
            let mut fds = [PollFd::new(descriptor, PollFlags::POLLIN)];
            nix::poll::poll(&mut fds, PollTimeout::ZERO) == Ok(1)
        };
        let (inner, cq) = (channel.0.anywhere(), cq.0.anywhere());
        // There is no thread before there is a connection.
        let driver = &rnic.0.anywhere().driver;
        let has_turn = |turn| driver.shared.lock().next_turn = turn;
        let to_show = || std::mem::take(&mut driver.shared.lock().to_show).len();
        has_turn(Some(Instant::now() + Duration::from_secs(60)));
        inner.push(cq, driver);
        assert!(is_readable() && to_show() == 0, "no turn comes soon");
        assert!(channel.next_event().is_some() && !is_readable());
        has_turn(Some(Instant::now()));
        for _ in 0..100 {
            inner.push(cq, driver);
            assert!(!is_readable() && channel.next_event().is_some());
        }
        assert_eq!(to_show(), 1, "one turn is for all");
        assert!(!inner.show() && !is_readable());
        (0..2).for_each(|_| inner.push(cq, driver));
        assert!(channel.next_event().is_some());
        assert!(inner.show() && !is_readable(), "the second may be new");
        assert!(!inner.show() && is_readable(), "the program has taken none since");
        assert!(channel.next_event().is_some() && !is_readable());
        inner.push(cq, driver);
        assert!(is_readable(), "it sleeps on the descriptor");
        has_turn(None);
    }

    /// The background thread may hold a queue for a moment after the program has dropped it.
    #[test]
    fn a_queue_that_the_program_has_dropped_does_not_count() {
        let rnic = Rnic::open().unwrap();
        let channel = rnic.create_channel().unwrap();
        let cq = rnic.create_cq_on(&channel, 1).unwrap();
        let held = cq.0.anywhere().clone();
        assert_eq!(channel.users(), 1);
        drop(cq);
        assert_eq!((channel.users(), Arc::strong_count(&held)), (0, 1));
    }
}
