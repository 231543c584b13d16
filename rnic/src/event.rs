//! Asynchronous events: what happens to a QP that no completion tells (draft-hilland-rddp-verbs §8.3.3).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use parking_lot::Mutex;
use rddp_rdmap::{Fault, TerminateCode};

use crate::io::notify::Notify;
use crate::io::ready_set::epoll_timeout;
use crate::mem::QpNum;

/// Something that happened to a QP, or to what it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The QP.
    pub qp: QpNum,
    /// What happened.
    pub kind: AsyncEventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// The passive side has received the first FPDU: what it posts is sent from now on.
    Established,
    /// The graceful close is complete; the QP is idle again.
    CloseComplete,
    /// The peer closed, or this side was told to, while work was outstanding.
    BadClose,
    /// TCP lost the connection.
    ConnectionLost,
    /// The peer sent a Terminate.
    TerminateReceived(TerminateCode),
    /// The peer broke a rule, or this side could not go on: a Terminate was sent (if one could be), and why.
    Fault(Fault),
    /// A completion queue of this QP has overflowed.
    CqOverflow,
    /// A peer that took part in a shared receive queue has driven it to its limit.
    SrqLimit,
}

/// More events than this are not kept: the oldest go.
const KEPT: usize = 4096;

#[derive(Debug)]
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<AsyncEvent>>,
    notify: Notify,
}

impl EventQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(EventQueue { events: Mutex::default(), notify: Notify::counter()? })
    }

    pub(crate) fn push(&self, qp: QpNum, kind: AsyncEventKind) {
        tracing::debug!(qp = qp.0, ?kind, "asynchronous event");
        let mut events = self.events.lock();
        if events.len() == KEPT {
            events.pop_front();
        } else {
            self.notify.give();
        }
        events.push_back(AsyncEvent { qp, kind });
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        let mut events = self.events.lock();
        let event = events.pop_front()?;
        self.notify.take();
        Some(event)
    }

    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<AsyncEvent>> {
        if let Some(event) = self.pop() {
            return Ok(Some(event));
        }
        let mut fds = [PollFd::new(self.notify.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, epoll_timeout(timeout)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(self.pop()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }
}
