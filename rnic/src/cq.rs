//! Completion queues (draft-hilland-rddp-verbs §8.2) and who makes progress on their behalf.
//!
//! A thread that polls or waits on a queue reads the sockets of the QPs that use it, so no other
//! thread has to be woken on the way of a message. While it does, the background thread leaves
//! those sockets alone: see [`Presence`].

mod entries;
mod members;
mod progress;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_rdma::{Completion, CqNum};

use self::entries::{Armed, Entry, Queue};
use self::members::Members;
pub(crate) use self::members::{FEW, Member, Watched};
pub(crate) use self::progress::Waiter;
use crate::channel::ChannelInner;
use crate::deadline::Deadline;
use crate::home::Home;
use crate::io::driver::Driver;
use crate::io::lease::Presence;
use crate::io::ready_set::ReadySet;
use crate::srq::SrqInner;

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

#[cfg(test)]
mod tests;
