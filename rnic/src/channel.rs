//! Completion channels: a descriptor that is readable exactly when an armed completion queue has something.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use parking_lot::Mutex;

use crate::cq::{CompletionQueue, CqInner, Waiter};
use crate::io::notify::Notify;
use crate::io::ready_set::epoll_timeout;

/// Where armed completion queues report. Its descriptor works in poll, select, epoll and mio; each event that
/// [`next_event`](Self::next_event) takes makes it readable once less.
#[derive(Clone, Debug)]
pub struct CompletionChannel(pub(crate) Arc<ChannelInner>);

impl CompletionChannel {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(CompletionChannel(Arc::new(ChannelInner::new()?)))
    }

    /// Takes one event: the queue that has something, and is no longer armed. Never sleeps.
    pub fn next_event(&self) -> Option<CompletionQueue> {
        self.0.next_event()
    }

    /// Sleeps until there is an event, for at most `timeout` (`None`: no limit), reading the sockets of the channel's
    /// queues in this thread.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<CompletionQueue>> {
        self.0.wait(timeout)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watched_elsewhere.store(true, Ordering::Relaxed);
        self.0.notify.as_fd()
    }
}

#[derive(Debug)]
pub(crate) struct ChannelInner {
    notify: Notify,
    /// `notify` and the epoll sets of all queues.
    epoll: Epoll,
    events: Mutex<VecDeque<Weak<CqInner>>>,
    queues: Mutex<Vec<Weak<CqInner>>>,
    /// The program has taken the descriptor, to sleep on it by means of its own.
    watched_elsewhere: AtomicBool,
}

impl ChannelInner {
    fn new() -> io::Result<Self> {
        let (notify, epoll) = (Notify::new()?, Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        epoll.add(&notify, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(ChannelInner {
            notify,
            epoll,
            events: Mutex::default(),
            queues: Mutex::default(),
            watched_elsewhere: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_watched_elsewhere(&self) -> bool {
        self.watched_elsewhere.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, cq: &Arc<CqInner>) -> io::Result<()> {
        self.epoll.add(&cq.ready, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        self.queues.lock().push(Arc::downgrade(cq));
        Ok(())
    }

    pub(crate) fn remove(&self, cq: &CqInner) {
        let _ = self.epoll.delete(&cq.ready);
        self.queues.lock().retain(|queue| queue.strong_count() > 0);
    }

    pub(crate) fn push(&self, cq: &Arc<CqInner>) {
        self.events.lock().push_back(Arc::downgrade(cq));
        self.notify.give();
    }

    fn next_event(&self) -> Option<CompletionQueue> {
        loop {
            let cq = self.events.lock().pop_front()?;
            self.notify.take();
            if let Some(cq) = cq.upgrade() {
                return Some(CompletionQueue(cq));
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<CompletionQueue>> {
        let queues: Vec<Arc<CqInner>> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        let _waiters: Vec<Waiter<'_>> = queues.iter().map(|cq| Waiter::new(cq)).collect();
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut events = [EpollEvent::empty(); 16];
        loop {
            if let Some(cq) = self.next_event() {
                return Ok(Some(cq));
            }
            queues.iter().for_each(|cq| cq.progress());
            if let Some(cq) = self.next_event() {
                return Ok(Some(cq));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            match self.epoll.wait(&mut events, epoll_timeout(left)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
