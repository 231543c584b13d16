//! Completion queues (draft-hilland-rddp-verbs §8.2) and who makes progress on their behalf.
//!
//! A thread that polls or waits on a queue reads the sockets of the QPs that use it, so no other
//! thread has to be woken on the way of a message. While it does, the background thread leaves
//! those sockets alone: see [`Presence`].

mod members;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;
use rddp_rdma::Completion;

use self::members::Members;
pub(crate) use self::members::{FEW, Member, Watched};
use crate::channel::ChannelInner;
use crate::deadline::Deadline;
use crate::home::Home;
use crate::io::bell::Asleep;
use crate::io::driver::{Driver, Holder};
use crate::io::lease::{Lease, Presence};
use crate::io::ready_set::ReadySet;
use crate::io::sleep::Sleep;
use crate::srq::SrqInner;
use rddp_rdma::CqNum;

/// A program that has polled lately, but not for so long, does something else.
const MOMENT: Duration = Duration::from_micros(10);

/// A queue of completions. Cloning gives another handle to the same queue.
///
/// ```
/// let rnic = rddp_rnic::Rnic::open()?;
/// let cq = rnic.create_cq(16)?;
/// assert!(cq.poll_one().is_none());
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompletionQueue(pub(crate) Home<Arc<CqInner>>);

impl CompletionQueue {
    /// Takes the oldest completion, after making progress on the sockets of this queue's QPs if there is none yet.
    pub fn poll_one(&self) -> Option<Completion> {
        let cq = self.0.here().ok()?;
        if let Some(completion) = cq.take() {
            return Some(completion);
        }
        cq.look();
        cq.take()
    }

    /// Appends up to `max` completions to `out`, oldest first; how many.
    pub fn poll(&self, max: usize, out: &mut Vec<Completion>) -> usize {
        let Ok(cq) = self.0.here() else { return 0 };
        let count = cq.take_many(max, out);
        if count > 0 || max == 0 {
            return count;
        }
        cq.look();
        cq.take_many(max, out)
    }

    /// Sleeps until there is a completion, for at most `timeout` (`None`: no limit), reading the sockets in this thread.
    /// Whether there is one.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let deadline = Deadline::after_any(timeout);
        loop {
            match self.0.here()?.wait(deadline.left(), &|| false) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Sleeps until there is a completion or `other` is true; a signal ends it with `Interrupted`. Otherwise as
    /// [`wait`](Self::wait). Events of the queue's QPs make it ask `other` again, and so does [`wake`](Self::wake).
    pub fn wait_or(&self, timeout: Option<Duration>, other: impl Fn() -> bool) -> io::Result<bool> {
        self.0.here()?.wait(timeout, &other)
    }

    /// Makes who sleeps in [`wait_or`](Self::wait_or) look again. What there is to see has been stored with `SeqCst`.
    pub fn wake(&self) {
        if let Ok(cq) = self.0.here() {
            cq.ready.bell.ring();
        }
    }

    /// Asks for one event on the queue's channel: at the next completion, or (`solicited_only`) at the next solicited
    /// one or error. One that is in the queue already counts, so nothing is missed between a poll and this call.
    pub fn arm(&self, solicited_only: bool) {
        if let Ok(cq) = self.0.here() {
            cq.arm(solicited_only);
        }
    }

    /// Its number, as events name it.
    pub fn num(&self) -> CqNum {
        self.0.anywhere().num
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> usize {
        self.0.anywhere().capacity
    }

    /// Whether more completions came than it could hold. All its QPs are in error then (RFC 5042 §6.4.6).
    pub fn is_overflowed(&self) -> bool {
        self.0.anywhere().is_overflowed()
    }
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    armed: Option<Armed>,
}

/// A completion, and the shared receive queue that has its receive back once it has been [taken](Self::take), or can no longer be.
#[derive(Debug)]
struct Entry {
    completion: Completion,
    srq: Option<Arc<SrqInner>>,
}

impl Entry {
    fn take(self) -> Completion {
        if let Some(srq) = self.srq {
            srq.release(self.completion.qp);
        }
        self.completion
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Any,
    Solicited,
}

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) num: CqNum,
    capacity: usize,
    queue: Mutex<Queue>,
    /// How many entries there are: polling an empty queue takes no lock.
    len: AtomicUsize,
    overflowed: AtomicBool,
    /// What completes into it. Each leaves when the program lets go of it.
    members: Mutex<Members>,
    /// Once they have been more than a [`FEW`]: their sockets are in `ready`.
    by_epoll: AtomicBool,
    pub(crate) ready: ReadySet,
    channel: Option<Arc<ChannelInner>>,
    driver: Arc<Driver>,
    /// What the program does about the sockets of the QPs.
    presence: Presence,
    /// Tokens of the sources that the background thread has left to this queue's program.
    left: Mutex<HashSet<u64>>,
}

impl CqInner {
    pub(crate) fn new(
        num: CqNum,
        capacity: usize,
        channel: Option<Arc<ChannelInner>>,
        driver: Arc<Driver>,
    ) -> io::Result<Arc<Self>> {
        let cq = Arc::new(CqInner {
            num,
            capacity,
            queue: Mutex::default(),
            len: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            members: Mutex::default(),
            by_epoll: AtomicBool::new(false),
            ready: ReadySet::new()?,
            channel,
            driver,
            presence: Presence::default(),
            left: Mutex::default(),
        });
        if let Some(channel) = &cq.channel {
            channel.add(&cq)?;
        }
        Ok(cq)
    }

    pub(crate) fn add_member(&self, token: u64, member: Arc<dyn Member>) -> io::Result<()> {
        let are_few = self.members.lock().insert(token, member);
        if are_few { Ok(()) } else { self.use_epoll() }
    }

    pub(crate) fn remove_member(&self, token: u64) {
        self.members.lock().remove(token);
    }

    /// Whether the sockets of its QPs are in its epoll set.
    pub(crate) fn is_by_epoll(&self) -> bool {
        self.by_epoll.load(Ordering::Acquire)
    }

    /// Puts the sockets of all its QPs into the epoll set, now and from now on.
    pub(crate) fn use_epoll(&self) -> io::Result<()> {
        if self.by_epoll.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // One that connects meanwhile has seen the flag, or is found connected here.
        let members = self.members.lock().all();
        if let Err(error) = members.iter().try_for_each(|member| member.enter(self)) {
            // The kernel is out of watches: the QP that is one too many will not be made.
            self.by_epoll.store(false, Ordering::Release);
            return Err(error);
        }
        self.ready.bell.ring();
        Ok(())
    }

    /// One of its QPs has been connected.
    pub(crate) fn admit(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        if self.is_by_epoll() {
            self.ready.add(socket, token)?;
        }
        self.ready.bell.ring();
        Ok(())
    }

    /// What one of its connections waits for has changed.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        if self.is_by_epoll() {
            self.ready.set_interest(socket, token, interest);
        } else {
            self.ready.bell.ring();
        }
    }

    /// A connection of one of its QPs is over.
    pub(crate) fn dismiss(&self, socket: BorrowedFd<'_>) {
        if self.is_by_epoll() {
            self.ready.remove(socket);
        }
        self.ready.bell.ring();
    }

    /// Whether it belongs to the device with this background thread.
    pub(crate) fn is_of(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// Adds a completion, unless the queue is full: then the queue is in error for good, and its QPs learn it from
    /// [`is_overflowed`](Self::is_overflowed) when they next do anything, which for idle ones is at once (RFC 5042 §6.4.6:
    /// others are not hurt).
    pub(crate) fn push(self: &Arc<Self>, completion: Completion, srq: Option<&Arc<SrqInner>>) {
        let mut queue = self.queue.lock();
        if queue.entries.len() == self.capacity {
            drop(queue);
            if let Some(srq) = srq {
                srq.release(completion.qp);
            }
            if !self.overflowed.swap(true, Ordering::AcqRel) {
                self.rouse_members();
            }
            return;
        }
        queue.entries.push_back(Entry { completion, srq: srq.cloned() });
        // A thread that falls asleep counts itself before it looks at this: one of the two sees the other.
        self.len.store(queue.entries.len(), Ordering::SeqCst);
        let fires = match queue.armed {
            None => false,
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => completion.is_urgent(),
        };
        if fires {
            queue.armed = None;
        }
        drop(queue);
        if fires {
            self.fire();
        }
        self.ready.bell.ring();
    }

    /// Makes the background thread call each QP's `on_timer`.
    fn rouse_members(&self) {
        let now = Instant::now();
        self.members.lock().tokens().for_each(|token| self.driver.at(now, token));
    }

    fn fire(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.push(self);
        }
    }

    fn arm(self: &Arc<Self>, solicited_only: bool) {
        let mut queue = self.queue.lock();
        let has_one = if solicited_only {
            queue.entries.iter().any(|entry| entry.completion.is_urgent())
        } else {
            !queue.entries.is_empty()
        };
        queue.armed = match (has_one, solicited_only, queue.armed) {
            (true, ..) => None,
            // Who asked for any is not to be put off with less.
            (false, false, _) | (false, true, Some(Armed::Any)) => Some(Armed::Any),
            (false, true, _) => Some(Armed::Solicited),
        };
        drop(queue);
        if has_one {
            self.fire();
        } else if self.channel.as_ref().is_some_and(|channel| channel.is_watched_elsewhere()) {
            // The program is likely to sleep on the descriptor next: the sockets are the background thread's now.
            self.give_back();
        }
    }

    /// Ends the lease of a program that polled and will not for a while.
    fn give_back(&self) {
        self.presence.give_back();
        self.driver.end_of_wait();
    }

    fn take(&self) -> Option<Completion> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.queue.lock();
        let entry = queue.entries.pop_front();
        self.len.store(queue.entries.len(), Ordering::Release);
        drop(queue);
        entry.map(Entry::take)
    }

    fn take_many(&self, max: usize, out: &mut Vec<Completion>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut queue = self.queue.lock();
        let count = max.min(queue.entries.len());
        out.extend(queue.entries.drain(..count).map(Entry::take));
        self.len.store(queue.entries.len(), Ordering::Release);
        count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn is_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Reads the sockets as [`progress`](Self::progress) does, counted as a look, which the
    /// background thread notices.
    fn look(&self) {
        let _look = self.presence.look();
        self.progress();
    }

    /// Reads the sockets of this queue's QPs, as far as they have anything.
    pub(crate) fn progress(&self) {
        let few = self.members.lock().few();
        match few {
            Some(list) => list.iter().for_each(|member| member.try_progress()),
            // Nothing ready is no error, and a failing epoll set shows in `wait`.
            None => drop(self.serve_ready(Some(Duration::ZERO), None)),
        }
    }

    /// See [`CompletionQueue::wait`]; `other` is another reason to wake, for which the bell has rung.
    fn wait(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<bool> {
        let _waiter = Waiter::new(self);
        let deadline = Deadline::after_any(timeout);
        self.progress();
        loop {
            if !self.is_empty() || other() {
                return Ok(true);
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.wait_ready(left, other)?;
        }
    }

    /// Sleeps until a socket has something or there is another reason to look, and makes progress.
    fn wait_ready(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<()> {
        let asleep = self.ready.bell.fall_asleep();
        if !self.is_empty() || other() {
            return Ok(());
        }
        if self.is_by_epoll() {
            return self.serve_ready(timeout, Some(asleep));
        }
        let mut sleep = Sleep::default();
        self.watch(&mut sleep);
        sleep.wait(&[self.ready.bell.as_fd()], timeout)?;
        drop(asleep);
        self.progress();
        Ok(())
    }

    /// What a thread that sleeps on this queue, of a few members, has to watch.
    pub(crate) fn watch(&self, sleep: &mut Sleep) {
        let few = self.members.lock().few();
        let members = few.iter().flat_map(|list| list.iter());
        for (watched, events) in members.filter_map(|member| member.watch_for()) {
            sleep.add(watched, events);
        }
    }

    fn serve_ready(&self, timeout: Option<Duration>, asleep: Option<Asleep<'_>>) -> io::Result<()> {
        self.ready.wait(timeout, asleep, |token| {
            let member = self.members.lock().by_token(token);
            if let Some(member) = member {
                member.try_progress();
            }
        })
    }
}

impl Holder for CqInner {
    fn lease(&self, turn: u64) -> Lease {
        // The program may have no other processor.
        let mut until = None;
        self.presence.lease(turn, || {
            std::thread::yield_now();
            let now = Instant::now();
            now < *until.get_or_insert(now + MOMENT)
        })
    }

    fn left(&self) -> &Mutex<HashSet<u64>> {
        &self.left
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.remove(self);
        }
        // Nobody takes these any more: shared receives are free again.
        self.queue.get_mut().entries.drain(..).map(Entry::take).for_each(drop);
    }
}

/// A thread asleep on a queue.
pub(crate) struct Waiter<'a>(&'a CqInner);

impl<'a> Waiter<'a> {
    pub(crate) fn new(cq: &'a CqInner) -> Self {
        cq.presence.begin_wait();
        Waiter(cq)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.0.presence.end_wait() {
            self.0.driver.end_of_wait();
        }
    }
}

#[cfg(test)]
mod tests;
