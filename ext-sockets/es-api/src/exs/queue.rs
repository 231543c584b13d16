//! Event queues: the events of operations that have ended, and the callers that wait for them.
//!
//! An operation reserves its event's place when it is posted, so that there is always room for it
//! (EX4). A waiting caller sleeps in `poll`, over an eventfd of its own and the descriptors of the
//! queue's tasks; it makes progress with these tasks itself.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rddp_real::Errno;

use crate::progress::Progress;
use crate::sys::exs::{Event, EventPlaces};
use crate::threads::{self, Bell, Direction, Rounds, Task};

/// `EXS_EVTVEC_MAX`, and the largest depth.
pub const MOST: usize = 65536;

/// One event queue.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    progress: AtomicI32,
    wait: AtomicI32,
}

struct Inner {
    events: VecDeque<Event>,
    /// Operations that were posted and have not ended.
    pending: usize,
    depth: usize,
    is_deleted: bool,
    /// Tasks with operations of this queue.
    tasks: Vec<(Direction, Arc<dyn Task>)>,
    sleepers: Vec<Sleeper>,
    idle_bells: Vec<Arc<Bell>>,
    /// Eventfd that is readable while there are events; made when the program asks for it.
    readable: Option<Bell>,
}

struct Sleeper {
    bell: Arc<Bell>,
    wants: usize,
}

/// Ways to wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Wait {
    /// Poll for a short time, then sleep.
    Adaptive = 1,
    /// Sleep.
    Notify = 2,
    /// Poll all the time.
    BusyPoll = 3,
}

/// Time for which [`Wait::Adaptive`] polls: about the cost of sleeping and being woken.
const SHORT: Duration = Duration::from_micros(50);

/// Number of events that a caller wants, and its time limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Number of events to wait for.
    pub(super) least: usize,
    /// Time at which fewer are enough.
    pub(super) until: Option<Instant>,
}

impl Queue {
    pub(super) fn new(depth: c_int, progress: Progress) -> Result<Self, Errno> {
        let inner = Inner {
            events: VecDeque::new(),
            pending: 0,
            depth: depth_of(depth)?,
            is_deleted: false,
            tasks: Vec::new(),
            sleepers: Vec::new(),
            idle_bells: Vec::new(),
            readable: None,
        };
        let (progress, wait) = (AtomicI32::new(progress as c_int), AtomicI32::new(Wait::Notify as c_int));
        Ok(Queue { inner: Mutex::new(inner), progress, wait })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress::numbered(self.progress.load(Ordering::Relaxed)).unwrap_or(Progress::Caller)
    }

    /// Reserves a place for one more event.
    pub(super) fn reserve(&self) -> Result<(), Errno> {
        let mut inner = self.inner();
        if inner.is_deleted {
            return Err(Errno::INVALID);
        }
        if inner.pending + inner.events.len() >= inner.depth {
            return Err(Errno::WOULD_BLOCK);
        }
        inner.pending += 1;
        Ok(())
    }

    /// Gives back the place of an operation that was not accepted after all.
    pub(super) fn release(&self) {
        self.inner().pending -= 1;
    }

    /// Adds an operation's event.
    pub(super) fn complete(&self, event: Event) {
        let mut inner = self.inner();
        inner.pending -= 1;
        inner.events.push_back(event);
        if inner.events.len() == 1
            && let Some(readable) = &inner.readable
        {
            readable.ring();
        }
        inner.ring_satisfied();
    }

    /// Adds a task, with which waiting callers make progress.
    pub(super) fn watch(&self, direction: Direction, task: &Arc<dyn Task>) {
        let mut inner = self.inner();
        if !inner.tasks.iter().any(|(_, known)| known.id() == task.id()) {
            inner.tasks.push((direction, task.clone()));
            inner.ring_all();
        }
    }

    /// Takes out a task that has nothing left to do.
    pub(super) fn unwatch(&self, id: u64) {
        self.inner().tasks.retain(|(_, task)| task.id() != id);
    }

    /// Wakes waiting callers, so that they collect anew what the tasks wait for.
    pub(super) fn wake_waiters(&self) {
        self.inner().ring_all();
    }

    /// Takes events, when there are enough or time is over; returns their number.
    pub(super) fn dequeue(&self, places: &mut EventPlaces, wanted: Wanted) -> Result<usize, Errno> {
        let mut rounds = Rounds::default();
        let poll_until = self.poll_until();
        let tasks = self.inner().snapshot();
        for task in tasks {
            task.advance();
        }
        loop {
            if let Some(count) = self.inner().take(places, wanted.least)? {
                return Ok(count);
            }
            let now = Instant::now();
            if wanted.until.is_some_and(|until| until <= now) {
                return Ok(self.inner().take(places, 0)?.unwrap_or(0));
            }
            let until = if poll_until.is_some_and(|until| now < until) { Some(now) } else { wanted.until };
            self.wait(&mut rounds, wanted.least, until)?;
        }
    }

    /// Sleeps until there may be more events, and makes progress with tasks that are ready.
    fn wait(&self, rounds: &mut Rounds, least: usize, until: Option<Instant>) -> Result<(), Errno> {
        let (bell, tasks) = {
            let mut inner = self.inner();
            // A bell before this moment was meant for callers that waited then.
            if inner.is_deleted || inner.events.len() >= least {
                return Ok(());
            }
            (inner.enlist(least)?, inner.snapshot())
        };
        let woken = rounds.wait(bell.fd(), &tasks, until);
        self.inner().dismiss(bell);
        woken?;
        for (index, task) in tasks.iter().enumerate() {
            if rounds.is_due(index) {
                task.advance();
            }
        }
        Ok(())
    }

    fn poll_until(&self) -> Option<Instant> {
        match self.wait_style() {
            Wait::Notify => None,
            Wait::Adaptive => Some(Instant::now() + SHORT),
            Wait::BusyPoll => Some(Instant::now() + A_LIFETIME),
        }
    }

    pub(super) fn wait_style(&self) -> Wait {
        let style = self.wait.load(Ordering::Relaxed);
        [Wait::Adaptive, Wait::BusyPoll]
            .into_iter()
            .find(|wait| *wait as c_int == style)
            .unwrap_or(Wait::Notify)
    }

    pub(super) fn set_wait_style(&self, style: c_int) -> Result<(), Errno> {
        if ![Wait::Adaptive, Wait::Notify, Wait::BusyPoll].iter().any(|wait| *wait as c_int == style) {
            return Err(Errno::INVALID);
        }
        self.wait.store(style, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how progress is made; work under way goes on in the new way, too.
    pub(super) fn set_progress(&self, progress: Progress) -> Result<(), Errno> {
        self.progress.store(progress as c_int, Ordering::Relaxed);
        let tasks: Vec<_> = match progress {
            Progress::Caller => Vec::new(),
            Progress::Threads => self.inner().tasks.clone(),
        };
        tasks.iter().try_for_each(|(direction, task)| threads::post(*direction, task))
    }

    pub(super) fn depth(&self) -> usize {
        self.inner().depth
    }

    /// Sets the depth; places that are reserved already stay reserved (EX4).
    pub(super) fn set_depth(&self, depth: c_int) -> Result<(), Errno> {
        let depth = depth_of(depth)?;
        let mut inner = self.inner();
        if inner.pending + inner.events.len() > depth {
            return Err(Errno(libc::EBUSY));
        }
        inner.depth = depth;
        Ok(())
    }

    pub(super) fn waiting_events(&self) -> usize {
        self.inner().events.len()
    }

    pub(super) fn pending(&self) -> usize {
        self.inner().pending
    }

    /// Returns a descriptor that is readable while there are events.
    pub(super) fn readable(&self) -> Result<c_int, Errno> {
        let mut inner = self.inner();
        if let Some(readable) = &inner.readable {
            return Ok(readable.fd());
        }
        let readable = Bell::new()?;
        if !inner.events.is_empty() {
            readable.ring();
        }
        let fd = readable.fd();
        inner.readable = Some(readable);
        Ok(fd)
    }

    /// Deletes the queue; events that were not taken are lost.
    pub(super) fn delete(&self) -> Result<(), Errno> {
        let mut inner = self.inner();
        if inner.pending != 0 {
            return Err(Errno(libc::EBUSY));
        }
        inner.is_deleted = true;
        inner.events.clear();
        inner.readable = None;
        inner.ring_all();
        Ok(())
    }
}

impl Inner {
    fn snapshot(&self) -> Vec<Arc<dyn Task>> {
        self.tasks.iter().map(|(_, task)| task.clone()).collect()
    }

    /// Takes the events that are there, if they are enough.
    fn take(&mut self, places: &mut EventPlaces, least: usize) -> Result<Option<usize>, Errno> {
        if self.is_deleted {
            return Err(Errno::INVALID);
        }
        if self.events.len() < least {
            return Ok(None);
        }
        let count = places.count().min(self.events.len());
        let count = places.put(self.events.drain(..count));
        if self.events.is_empty()
            && let Some(readable) = &self.readable
        {
            readable.quiet();
        }
        Ok(Some(count))
    }

    fn enlist(&mut self, wants: usize) -> Result<Arc<Bell>, Errno> {
        let bell = match self.idle_bells.pop() {
            Some(bell) => bell,
            None => Arc::new(Bell::new()?),
        };
        self.sleepers.push(Sleeper { bell: bell.clone(), wants });
        Ok(bell)
    }

    fn dismiss(&mut self, bell: Arc<Bell>) {
        self.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
        bell.quiet();
        self.idle_bells.push(bell);
    }

    fn ring_satisfied(&self) {
        let there = self.events.len();
        self.sleepers.iter().filter(|sleeper| sleeper.wants <= there).for_each(|sleeper| sleeper.bell.ring());
    }

    fn ring_all(&self) {
        self.sleepers.iter().for_each(|sleeper| sleeper.bell.ring());
    }
}

fn depth_of(depth: c_int) -> Result<usize, Errno> {
    usize::try_from(depth).ok().filter(|depth| (1..=MOST).contains(depth)).ok_or(Errno::INVALID)
}

const A_LIFETIME: Duration = Duration::from_secs(u32::MAX as u64);
