//! Completion queues (draft-hilland-rddp-verbs §8.2).
//!
//! | file | subject |
//! |---|---|
//! | `entries` | the completions that wait in a queue |
//! | `members` | the QPs that complete into a queue |
//! | `progress` | threads that poll or sleep on a queue drive its members on |
//!
//! A thread that polls or waits on a queue reads the sockets of the QPs that use it, so that no
//! message waits for another thread to be woken. Meanwhile the background thread leaves those
//! sockets alone: see [`Presence`].

mod entries;
mod members;
mod progress;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_rdma::{Completion, CqNum};

use self::entries::{Entries, Entry};
use self::members::Members;
pub(crate) use self::members::{FEW, Member, Watched};
pub(crate) use self::progress::Waiter;
use crate::capabilities::CAPABILITIES;
use crate::channel::ChannelInner;
use crate::deadline::Deadline;
use crate::error::{Error, PostError};
use crate::home::Home;
use crate::io::bell::Bell;
use crate::io::driver::Driver;
use crate::io::lease::Presence;
use crate::io::ready_set::ReadySet;
use crate::mem::QpNum;
use crate::queues::srq::SrqInner;
use crate::queues::unpolled::Unpolled;

/// A completion queue: completions of one or more QPs, in the order in which they happened. Cloning
/// gives another handle to the same queue.
///
/// A program polls the queue ([`poll_one`](Self::poll_one), [`poll`](Self::poll)), sleeps on it
/// ([`wait`](Self::wait)), or [arms](Self::arm) it and waits on its
/// [`CompletionChannel`](crate::CompletionChannel).
///
/// ```
/// let rnic = rddp_rnic::Rnic::open()?;
/// let cq = rnic.create_cq(16)?;
/// assert!(cq.poll_one().is_none());
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Debug)]
pub struct CompletionQueue(pub(crate) Home<Arc<CqInner>>);

impl CompletionQueue {
    pub(crate) fn new(cq: Arc<CqInner>) -> Self {
        cq.handles.fetch_add(1, Ordering::Relaxed);
        CompletionQueue(Home::new(cq))
    }

    /// Returns the number of QPs that complete into the queue.
    pub fn users(&self) -> usize {
        self.0.here().map_or(0, |cq| cq.member_count())
    }

    /// Takes the oldest completion. If there is none, the sockets of this queue's QPs are read
    /// first. Never sleeps.
    pub fn poll_one(&self) -> Option<Completion> {
        let cq = self.0.here().ok()?;
        // Only a poll that finds nothing reads sockets: a program that has completions left works
        // on those before it asks the kernel for more.
        if cq.is_empty() && !cq.look_for_one() {
            return None;
        }
        cq.take()
    }

    /// Returns an iterator that takes completions as [`poll_one`](Self::poll_one) does, until there
    /// is none.
    pub fn completions(&self) -> impl Iterator<Item = Completion> + '_ {
        std::iter::from_fn(|| self.poll_one())
    }

    /// Appends up to `max` completions to `out`, oldest first, and returns their number. Otherwise
    /// works as [`poll_one`](Self::poll_one).
    pub fn poll(&self, max: usize, out: &mut Vec<Completion>) -> usize {
        let Ok(cq) = self.0.here() else { return 0 };
        if max > 0 && cq.is_empty() {
            cq.look();
        }
        cq.take_many(max, out)
    }

    /// Sleeps until there is a completion, for at most `timeout` (`None`: no limit), and reads the
    /// sockets of the queue's QPs in this thread. Returns whether there is a completion.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let deadline = Deadline::after_any(timeout);
        loop {
            match self.0.here()?.wait(deadline.left(), &|| false) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Sleeps until there is a completion or `other` returns true. A signal ends the sleep with
    /// `Interrupted`; otherwise works as [`wait`](Self::wait). An asynchronous event of one of the
    /// queue's QPs, and [`wake`](Self::wake), lead to another call of `other`.
    pub fn wait_or(&self, timeout: Option<Duration>, other: impl Fn() -> bool) -> io::Result<bool> {
        self.0.here()?.wait(timeout, &other)
    }

    /// Makes each thread that sleeps in [`wait_or`](Self::wait_or) call its `other` again. The
    /// program stores with `SeqCst` before this call what `other` is to see.
    pub fn wake(&self) {
        if let Ok(cq) = self.0.here() {
            cq.bell.ring();
        }
    }

    /// Asks for one event on the queue's channel: at the next completion, or (`solicited_only`) at
    /// the next that is solicited or an error. A device of the host does not tell: where its
    /// receives complete, each completion counts. One that is in the queue already does, too, so
    /// nothing is missed between a poll and this call.
    pub fn arm(&self, solicited_only: bool) {
        if let Ok(cq) = self.0.here() {
            cq.arm(solicited_only);
        }
    }

    /// Asks for one event as [`arm`](Self::arm) does, at a completion that is still to come: one
    /// that is in the queue does not count (draft-hilland-rddp-verbs §8.2), so the program polls
    /// once more behind this call.
    pub fn arm_next(&self, solicited_only: bool) {
        if let Ok(cq) = self.0.here() {
            cq.entries.lock().arm_next(solicited_only);
            cq.watch_elsewhere();
        }
    }

    /// Returns the number by which events name the queue.
    pub fn num(&self) -> CqNum {
        self.0.anywhere().num
    }

    /// Returns the number of completions that the queue can hold.
    pub fn capacity(&self) -> usize {
        self.0.here().map_or(0, |cq| cq.capacity())
    }

    /// Changes the number of completions that the queue can hold (draft-hilland-rddp-verbs §5.2.4).
    /// An overflow that has happened stays.
    ///
    /// # Errors
    /// The device makes no queue of that capacity, or the queue holds more completions now.
    pub fn resize(&self, capacity: usize) -> Result<(), Error> {
        check_capacity(capacity)?;
        match self.0.here()?.entries.lock().resize(capacity) {
            true => Ok(()),
            false => Err(Error::InUse("a completion queue that holds more completions")),
        }
    }

    /// Returns whether more completions came than the queue could hold. All its QPs are in Error
    /// then (RFC 5042 §6.4.6).
    pub fn is_overflowed(&self) -> bool {
        self.0.anywhere().is_overflowed()
    }
}

impl Clone for CompletionQueue {
    fn clone(&self) -> Self {
        self.0.anywhere().handles.fetch_add(1, Ordering::Relaxed);
        CompletionQueue(self.0.clone())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.0.anywhere().handles.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) num: CqNum,
    /// The number of handles that the program has. The device may hold the queue for a moment
    /// longer.
    handles: AtomicUsize,
    entries: Mutex<Entries>,
    /// The number of entries, stored apart so that to poll an empty queue takes no lock.
    len: AtomicUsize,
    /// The number of completions that the program has taken.
    taken: Arc<AtomicU64>,
    overflowed: AtomicBool,
    /// The QPs that complete into the queue, until the program drops them.
    members: Mutex<Members>,
    pub(crate) bell: Bell,
    /// Used once there have been more members than [`FEW`]; shared with the other queues of the
    /// channel.
    ready: Arc<ReadySet>,
    channel: Option<Arc<ChannelInner>>,
    driver: Arc<Driver>,
    /// The polls and waits of the program, by which the background thread knows that the program
    /// reads the sockets.
    presence: Presence,
    /// Tokens of the sources that the background thread leaves to this queue's program.
    left: Mutex<HashSet<u64>>,
    /// Waits that found nothing when they began: see `sleeps_first`.
    vain: AtomicU32,
}

impl CqInner {
    pub(crate) fn new(
        num: CqNum,
        capacity: usize,
        channel: Option<Arc<ChannelInner>>,
        driver: Arc<Driver>,
    ) -> Arc<Self> {
        let cq = Arc::new(CqInner {
            num,
            handles: AtomicUsize::new(0),
            entries: Mutex::new(Entries::new(capacity)),
            len: AtomicUsize::new(0),
            taken: Arc::default(),
            overflowed: AtomicBool::new(false),
            members: Mutex::default(),
            bell: Bell::default(),
            ready: channel.as_ref().map_or_else(Arc::default, |channel| channel.ready.clone()),
            channel,
            driver,
            presence: Presence::default(),
            left: Mutex::default(),
            vain: AtomicU32::new(0),
        });
        if let Some(channel) = &cq.channel {
            channel.add(&cq);
        }
        cq
    }

    /// Returns whether the program can still use the queue, by a handle or through a QP.
    pub(crate) fn is_in_use(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0 || self.member_count() > 0
    }

    pub(crate) fn capacity(&self) -> usize {
        self.entries.lock().capacity()
    }

    /// Returns whether the queue belongs to the device with this background thread.
    pub(crate) fn is_of(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// Returns a list for completions of the queue.
    pub(crate) fn unpolled(&self) -> Unpolled {
        Unpolled::of(self.taken.clone())
    }

    /// Adds a completion, unless the queue is full. Returns its number: that of the completions
    /// that the queue has had before it.
    pub(crate) fn push(self: &Arc<Self>, completion: Completion, srq: Option<&Arc<SrqInner>>) -> Option<u64> {
        let mut entries = self.entries.lock();
        if entries.is_full() {
            drop(entries);
            self.overflow(completion, srq);
            return None;
        }
        let number = self.taken.load(Ordering::Relaxed) + entries.len() as u64;
        let fires = entries.push(completion, srq);
        // A thread that waits for a completion counts itself with the bell before it looks at
        // `len`, and the bell looks at that count after this store: so either the thread sees the
        // completion, or the bell wakes it. A thread that waits for the channel's event is woken by
        // the channel alone.
        self.len.store(entries.len(), Ordering::SeqCst);
        drop(entries);
        if fires {
            self.fire();
        }
        self.bell.ring_for_completion();
        Some(number)
    }

    /// Drops a completion for which there is no room. The queue is in error for good then. Its QPs
    /// see that by [`is_overflowed`](Self::is_overflowed) whenever they do anything, and those that
    /// are idle are made to look now. QPs of other queues go on (RFC 5042 §6.4.6).
    #[cold]
    fn overflow(&self, completion: Completion, srq: Option<&Arc<SrqInner>>) {
        if let Some(srq) = srq {
            srq.release(completion.qp);
        }
        if !self.overflowed.swap(true, Ordering::AcqRel) {
            self.rouse_members();
        }
    }

    /// Reports to the completion channel, if the queue has one.
    fn fire(self: &Arc<Self>) {
        if let Some(channel) = &self.channel {
            channel.push(self, &self.driver);
        }
    }

    fn arm(self: &Arc<Self>, solicited_only: bool) {
        let fires = self.entries.lock().arm(solicited_only);
        if fires {
            self.fire();
        } else {
            self.watch_elsewhere();
        }
    }

    /// Has the background thread read the sockets of a queue that was armed, if the program is
    /// likely to sleep on the channel's descriptor next, where it reads none.
    fn watch_elsewhere(&self) {
        if self.channel.as_ref().is_some_and(|channel| channel.is_watched_elsewhere()) {
            self.give_back();
        }
    }

    /// Reads the sockets of the queue's QPs. Returns whether there is a completion now. Apart, so
    /// that to take one that is there needs few registers.
    #[inline(never)]
    fn look_for_one(&self) -> bool {
        self.look();
        !self.is_empty()
    }

    /// Takes the oldest completion. A program that polls finds none most of the time: it asks
    /// `is_empty` first, which touches no lock.
    fn take(&self) -> Option<Completion> {
        let mut entries = self.entries.lock();
        let entry = entries.pop();
        self.count_taken(u64::from(entry.is_some()), &entries);
        // To release a shared receive takes that queue's lock, for which this one need not be held.
        drop(entries);
        entry.map(Entry::take)
    }

    fn take_many(&self, max: usize, out: &mut Vec<Completion>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut entries = self.entries.lock();
        let count = max.min(entries.len());
        // One by one: most polls take a few, and a drain has to close the gap that it leaves.
        for _ in 0..count {
            if let Some(entry) = entries.pop() {
                out.push(entry.take());
            }
        }
        self.count_taken(count as u64, &entries);
        count
    }

    /// Counts completions that the program has just taken, under the lock.
    fn count_taken(&self, count: u64, entries: &Entries) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + count, Ordering::Release);
        self.len.store(entries.len(), Ordering::Release);
    }

    /// Removes the completions of a QP for which the program does not ask any more. They count as
    /// taken at once, and those of other QPs in front of them so many polls early. So these QPs may
    /// post before there is room for what completes; exact numbers would cost each poll.
    #[cold]
    pub(crate) fn forget(&self, qp: QpNum) {
        let mut entries = self.entries.lock();
        let removed = entries.remove(qp);
        self.count_taken(removed.len() as u64, &entries);
        drop(entries);
        removed.into_iter().map(Entry::take).for_each(drop);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Has every completion notify also who waits for solicited ones alone.
    pub(crate) fn take_all_for_urgent(&self) {
        self.entries.lock().take_all_for_urgent();
    }

    pub(crate) fn is_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Acquire)
    }

    /// Refuses a request whose completion could not be reported.
    #[inline]
    pub(crate) fn refuse_if_overflowed(&self) -> Result<(), PostError> {
        if self.is_overflowed() { Err(PostError::CqOverflow { cq: self.num }) } else { Ok(()) }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.purge();
        }
        // No program takes these completions any more: their shared receives are free again.
        self.entries.get_mut().drain(usize::MAX).map(Entry::take).for_each(drop);
    }
}

/// Refuses capacities beyond the device.
pub(crate) fn check_capacity(capacity: usize) -> Result<(), Error> {
    let max = CAPABILITIES.max_cqes;
    if capacity == 0 || capacity > max {
        return Err(Error::OutOfRange { what: "a completion queue's capacity", value: capacity, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
