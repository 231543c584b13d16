//! Queues of asynchronous events (draft-hilland-rddp-verbs §8.3.3).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use parking_lot::Mutex;
use rddp_rdma::{AsyncEvent, AsyncEventKind, QpNum};

use crate::deadline::Deadline;
use crate::error::Error;
use crate::home::Home;
use crate::io::notify::Notify;
use crate::io::ready_set::epoll_timeout;

/// Events that a queue for all kinds keeps.
const KEPT: usize = 4096;

/// Where QPs report what happens to them: the device's own queue, or one that a [`QpConfig`](crate::QpConfig) names. Its
/// descriptor is readable while there are events. Cloning gives another handle to the same queue.
#[derive(Clone, Debug)]
pub struct EventQueue(Home<Arc<Events>>);

#[derive(Debug)]
struct Events {
    events: Mutex<VecDeque<AsyncEvent>>,
    wanted: fn(&AsyncEventKind) -> bool,
    /// More are not kept: the oldest go.
    kept: usize,
    /// How many there are, to be looked at without the lock.
    len: AtomicUsize,
    notify: Notify,
}

impl EventQueue {
    /// An empty one, which keeps the latest 4096.
    pub fn new() -> Result<Self, Error> {
        Self::make(KEPT, |_| true)
    }

    /// An empty one, which keeps all that are `wanted`, and no others.
    pub fn of(wanted: fn(&AsyncEventKind) -> bool) -> Result<Self, Error> {
        Self::make(usize::MAX, wanted)
    }

    fn make(kept: usize, wanted: fn(&AsyncEventKind) -> bool) -> Result<Self, Error> {
        let notify = Notify::counter().map_err(Error::host("making the event descriptor"))?;
        let (events, len) = Default::default();
        Ok(EventQueue(Home::new(Arc::new(Events { events, wanted, kept, len, notify }))))
    }

    pub(crate) fn push(&self, qp: QpNum, kind: AsyncEventKind) {
        tracing::debug!(qp = qp.0, ?kind, "asynchronous event");
        let Ok(queue) = self.0.here() else { return };
        if !(queue.wanted)(&kind) {
            return;
        }
        let mut events = queue.events.lock();
        if events.len() == queue.kept {
            events.pop_front();
        } else {
            queue.notify.give();
        }
        events.push_back(AsyncEvent { qp, kind });
        queue.len.store(events.len(), Ordering::SeqCst);
    }

    /// Takes the oldest event. Never sleeps.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let queue = self.0.here().ok()?;
        let mut events = queue.events.lock();
        let event = events.pop_front()?;
        queue.len.store(events.len(), Ordering::SeqCst);
        queue.notify.take();
        Some(event)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.anywhere().len.load(Ordering::SeqCst) == 0
    }

    /// Sleeps until there is an event, for at most `timeout` (`None`: no limit).
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<AsyncEvent>> {
        let deadline = Deadline::after_any(timeout);
        loop {
            if let Some(event) = self.next_event() {
                return Ok(Some(event));
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let mut fds = [PollFd::new(self.0.here()?.notify.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, epoll_timeout(left)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.anywhere().notify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_for_some_kinds_loses_none_of_them() {
        let all = EventQueue::new().unwrap();
        let some = EventQueue::of(|kind| *kind == AsyncEventKind::Connected).unwrap();
        for (queue, first) in [(all, QpNum(5000 - KEPT as u32)), (some, QpNum(0))] {
            (0..5000).for_each(|qp| queue.push(QpNum(qp), AsyncEventKind::Connected));
            assert_eq!(queue.next_event().unwrap().qp, first);
        }
    }

    #[test]
    fn what_is_not_wanted_makes_nothing_readable() {
        let queue = EventQueue::of(|kind| *kind == AsyncEventKind::Connected).unwrap();
        queue.push(QpNum(1), AsyncEventKind::Established);
        assert!(queue.is_empty() && queue.wait(Some(Duration::ZERO)).unwrap().is_none());
        queue.push(QpNum(2), AsyncEventKind::Connected);
        assert_eq!(queue.wait(Some(Duration::ZERO)).unwrap().unwrap().qp, QpNum(2));
    }
}
