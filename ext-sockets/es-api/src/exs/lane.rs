//! The operations of one socket in one direction: carried out one at a time, in the order of
//! posting (EX2).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT};
use rddp_real::{self as real, Errno};

use super::lending::Lender;
use super::operation::{Conclusion, Operation};
use super::polled::Polled;
use super::queue::Queue;
use super::work::Outcome;
use crate::as_program;
use crate::progress::Progress;
use crate::threads::{self, Direction, Task, Waits};

/// The operations of one socket in one direction.
pub(super) struct Lane {
    id: u64,
    fd: c_int,
    cookie: Option<u64>,
    direction: Direction,
    /// Shared with the other direction, which waits for the end of `connect`.
    connecting: Arc<AtomicBool>,
    inner: Mutex<Inner>,
    /// Told of when `Inner::lender` has changed, or the lane was closed.
    pub(super) changed: Condvar,
    polled: Polled,
    me: Weak<Lane>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) operations: VecDeque<Operation>,
    /// Number of the first operations whose memory is lent to the peer.
    pub(super) lent: usize,
    pub(super) lender: Lender,
    /// Time since which the first operation waits.
    since: Option<Instant>,
    timeout: Option<Timeout>,
    pub(super) is_closed: bool,
    /// Queues whose waiting callers make progress with this lane.
    pub(super) watchers: Vec<Arc<Queue>>,
}

/// Limit for the time that the first operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeout {
    /// Time from when an operation has become the first.
    pub(super) after: Duration,
    /// Set if the limit holds for the next operation that waits, and for no other.
    pub(super) is_once: bool,
}

/// The errno for a descriptor that is not a socket.
const NO_SOCKET: Errno = Errno(libc::ENOTSOCK);

/// The result of posting.
pub(super) enum Posted {
    /// The operation was accepted: there will be an event.
    Accepted,
    /// The operation was refused: there will be none.
    Refused(Errno),
    /// The number belongs to no socket, or to another one than before, which the operation goes to.
    OtherSocket(Operation),
}

impl Lane {
    pub(super) fn new(fd: c_int, direction: Direction, connecting: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new_cyclic(|me| Lane {
            id: threads::next_id(),
            fd,
            cookie: real::cookie(fd),
            direction,
            connecting: connecting.clone(),
            inner: Mutex::default(),
            changed: Condvar::new(),
            polled: Polled::default(),
            me: me.clone(),
        })
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn myself(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Returns whether the number still belongs to the socket that this lane was made for.
    pub(super) fn is_same_socket(&self) -> bool {
        self.cookie.is_some() && real::cookie(self.fd) == self.cookie
    }

    /// Returns whether the lane accepts operations.
    pub(super) fn is_current(&self) -> bool {
        !self.inner().is_closed && self.is_same_socket()
    }

    /// Accepts an operation whose place is reserved: tries it at once, if none is before it and the
    /// caller makes progress.
    pub(super) fn post(&self, mut operation: Operation) -> Posted {
        let mut inner = self.inner();
        if inner.is_closed {
            return Posted::OtherSocket(operation);
        }
        let by_caller = operation.queue.progress() == Progress::Caller;
        let is_first = inner.operations.is_empty() && !inner.lender.is_at_work();
        if by_caller && is_first && !self.has_to_wait() && !self.lends(&operation) {
            match operation.attempt(self.fd) {
                // The number belongs to no socket now, or to another one.
                Outcome::Ended(Err(NO_SOCKET | Errno::NO_DESCRIPTOR)) if operation.is_untouched() => {
                    return Posted::OtherSocket(operation);
                }
                Outcome::Ended(result) => {
                    operation.end(self.fd, Conclusion::Of(result));
                    return Posted::Accepted;
                }
                Outcome::Later => {}
            }
        }
        if !self.is_same_socket() {
            return Posted::OtherSocket(operation);
        }
        match self.queue_up(&mut inner, operation, by_caller) {
            Ok(()) => Posted::Accepted,
            Err(errno) => Posted::Refused(errno),
        }
    }

    fn queue_up(&self, inner: &mut Inner, operation: Operation, by_caller: bool) -> Result<(), Errno> {
        let Some(me) = self.myself() else { return Err(Errno::ABORTED) };
        let task: Arc<dyn Task> = me;
        let queue = operation.queue.clone();
        if by_caller {
            queue.watch(self.direction, &task);
            if !inner.watchers.iter().any(|watcher| Arc::ptr_eq(watcher, &queue)) {
                inner.watchers.push(queue);
            }
        } else {
            threads::post(self.direction, &task)?;
        }
        if operation.is_connect() {
            self.connecting.store(true, Ordering::Release);
        }
        if inner.operations.is_empty() {
            inner.since = Some(Instant::now());
        }
        inner.operations.push_back(operation);
        if !self.has_to_wait() && self.is_lending(inner) {
            inner.lender.ring();
        }
        self.offer(inner);
        Ok(())
    }

    /// Says how much the receives that wait have room for.
    fn offer(&self, inner: &Inner) {
        let room = inner.operations.iter().map(Operation::room).fold(0, usize::saturating_add);
        if room > 0 && !self.has_to_wait() {
            as_program::offer(self.fd, room);
        }
    }

    /// Returns whether the operation waits for a connect: nothing can be received before that has
    /// ended.
    fn has_to_wait(&self) -> bool {
        self.direction == Direction::Receive && self.connecting.load(Ordering::Acquire)
    }

    /// Ends all operations, and accepts no more (EX1, EX8).
    pub(super) fn close(&self, errno: Errno) {
        let mut inner = self.inner();
        inner.is_closed = true;
        self.changed.notify_all();
        // Memory that is lent is taken back first.
        while inner.lender.is_at_work() {
            inner.lender.ring();
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        while let Some(operation) = inner.operations.pop_front() {
            self.end_first(&mut inner, operation, Conclusion::Of(Err(errno)));
        }
        self.rest(&mut inner);
    }

    /// Waits, after [`close`](Self::close), until no thread has the number in a `poll`. The caller
    /// has nudged the threads.
    pub(super) fn wait_until_unpolled(&self) {
        self.polled.wait();
    }

    /// Takes the lane, which has no operations left, out of its queues.
    pub(super) fn rest(&self, inner: &mut Inner) {
        inner.since = None;
        let is_polled = self.polled.is_polled();
        for watcher in inner.watchers.drain(..) {
            watcher.unwatch(self.id);
            if is_polled {
                watcher.wake_waiters();
            }
        }
    }

    /// Cancels the operations with this handle, or all; returns whether there was one.
    pub(super) fn cancel(&self, ahandle: Option<usize>) -> bool {
        let mut inner = self.inner();
        let mut found = false;
        for operation in &mut inner.operations {
            if !operation.is_cancelled && ahandle.is_none_or(|ahandle| ahandle == operation.ahandle) {
                operation.is_cancelled = true;
                found = true;
            }
        }
        if inner.lender.is_at_work() {
            inner.lender.ring();
        } else {
            self.end_cancelled(&mut inner);
        }
        found
    }

    /// Ends the operations in front that were cancelled.
    pub(super) fn end_cancelled(&self, inner: &mut Inner) {
        while inner.operations.front().is_some_and(|first| first.is_cancelled)
            && let Some(first) = inner.operations.pop_front()
        {
            self.end_first(inner, first, Conclusion::Of(Err(Errno(libc::ECANCELED))));
        }
        if inner.operations.is_empty() {
            self.rest(inner);
        }
    }

    pub(super) fn timeout(&self) -> Option<Timeout> {
        self.inner().timeout
    }

    /// Sets the time limit, also for the operation that is the first now.
    pub(super) fn set_timeout(&self, timeout: Option<Timeout>) {
        let mut inner = self.inner();
        inner.timeout = timeout;
        for watcher in &inner.watchers {
            watcher.wake_waiters();
        }
        inner.lender.ring();
        drop(inner);
        threads::nudge();
    }

    pub(super) fn end_first(&self, inner: &mut Inner, operation: Operation, end: Conclusion) {
        let connects = operation.is_connect();
        inner.since = Some(Instant::now());
        operation.end(self.fd, end);
        if connects {
            // Receives may begin, now that the connect has had its event.
            self.connecting.store(false, Ordering::Release);
            threads::nudge();
        }
    }
}

impl Inner {
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.timeout?.after)
    }

    /// Returns how the first operation ends now, if it does.
    pub(super) fn end_of_first(&mut self, fd: c_int) -> Option<Conclusion> {
        let first = self.operations.front_mut()?;
        match first.attempt(fd) {
            // The descriptor was closed by a call that we did not see.
            Outcome::Ended(Err(NO_SOCKET | Errno::NO_DESCRIPTOR)) => {
                return Some(Conclusion::Of(Err(Errno::ABORTED)));
            }
            Outcome::Ended(result) => return Some(Conclusion::Of(result)),
            Outcome::Later => {}
        }
        if self.deadline().is_none_or(|deadline| Instant::now() < deadline) {
            return None;
        }
        self.timeout = self.timeout.filter(|timeout| !timeout.is_once);
        Some(Conclusion::TooLate)
    }
}

impl Task for Lane {
    fn id(&self) -> u64 {
        self.id
    }

    fn fd(&self) -> c_int {
        self.fd
    }

    fn advance(&self) -> bool {
        if !self.inner().operations.is_empty() && !self.is_same_socket() {
            self.close(Errno::ABORTED);
        }
        let mut inner = self.inner();
        while !self.has_to_wait()
            && !self.is_lending(&mut inner)
            && let Some(end) = inner.end_of_first(self.fd)
        {
            let Some(first) = inner.operations.pop_front() else { break };
            self.end_first(&mut inner, first, end);
        }
        if inner.operations.is_empty() {
            self.rest(&mut inner);
        }
        self.offer(&inner);
        !inner.operations.is_empty()
    }

    fn waits_for(&self, waits: &mut Waits) -> bool {
        let inner = self.inner();
        if inner.operations.is_empty() {
            return false;
        }
        self.polled.begin();
        if inner.lender.is_at_work() {
            // The thread that lends tells when it has ended.
            return true;
        }
        waits.add(self.fd, if self.direction == Direction::Send { POLLOUT } else { POLLIN });
        if !self.has_to_wait()
            && let Some(deadline) = inner.deadline()
        {
            waits.until(deadline);
        }
        true
    }

    fn waited(&self) {
        self.polled.end();
    }

    fn abandon(&self, errno: Errno) {
        self.close(errno);
    }
}
