//! Sends of a lane whose memory the peer reads (SDP, zero copy): several at a time.
//!
//! What lends memory between calls has to answer the peer at any time, and to be one thread whose
//! death is seen. So a lane whose first send is long enough has a thread of its own, whoever makes
//! progress with the others. It lends that send and those behind it, as far as they are long
//! enough, and has the lane to itself until that is empty: an operation between two long sends, and
//! what comes back of one, is tried by the thread as well. It ends when it has had nothing to do
//! for a while.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, pollfd};
use rddp_real::{Errno, Recall};

use super::lane::{Inner, Lane};
use super::operation::{Conclusion, Operation};
use crate::as_program::{self, Loan, Outgoing};
use crate::sys::threads::spawn;
use crate::threads::{self, Bell, Task};

/// The thread that lends for a lane.
#[derive(Default)]
pub(super) enum Lender {
    #[default]
    None,
    /// A thread without work: the lane's condition tells it of some.
    Idle(Arc<Bell>),
    /// The first operations are its own, and nobody else tries one.
    AtWork(Arc<Bell>),
}

/// Most threads that lend, of a process. Sends of more sockets go by copies.
const MOST: usize = 64;
/// Time for which a thread waits for another send.
const IDLE: Duration = Duration::from_millis(200);

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Forgets the threads of the parent, in a child of `fork`.
pub(super) fn after_fork() {
    THREADS.store(0, Ordering::Relaxed);
}

impl Lender {
    pub(super) fn is_at_work(&self) -> bool {
        matches!(self, Lender::AtWork(_))
    }

    /// Has the thread look for sends, and at whether memory is wanted back.
    pub(super) fn ring(&self) {
        if let Lender::AtWork(bell) = self {
            bell.ring();
        }
    }

    /// Puts the thread to work. `false`: there is none, nor can there be.
    fn begin(&mut self, lane: &Arc<Lane>) -> bool {
        let bell = match std::mem::take(self) {
            Lender::Idle(bell) | Lender::AtWork(bell) => bell,
            Lender::None => match begin_thread(lane) {
                Ok(bell) => bell,
                Err(_) => return false,
            },
        };
        *self = Lender::AtWork(bell);
        true
    }
}

fn begin_thread(lane: &Arc<Lane>) -> Result<Arc<Bell>, Errno> {
    let more = |count| (count < MOST).then_some(count + 1);
    THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Errno::WOULD_BLOCK)?;
    let begun = Bell::new().and_then(|bell| {
        let bell = Arc::new(bell);
        let (lane, of_thread) = (lane.clone(), bell.clone());
        spawn("rddp-lend", move || {
            lane.lend(&of_thread);
            THREADS.fetch_sub(1, Ordering::Relaxed);
        })?;
        Ok(bell)
    });
    if begun.is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
    begun
}

impl Lane {
    /// Returns whether the first operations are the lending thread's: they were, or are from now
    /// on.
    pub(super) fn is_lending(&self, inner: &mut Inner) -> bool {
        if inner.lender.is_at_work() {
            return true;
        }
        if !inner.operations.front().is_some_and(|first| self.lends(first)) {
            return false;
        }
        let begun = self.myself().is_some_and(|me| inner.lender.begin(&me));
        if begun {
            self.changed.notify_all();
        } else if let Some(first) = inner.operations.front_mut() {
            first.copies = true;
        }
        begun
    }

    /// Returns whether the operation's memory may be lent.
    pub(super) fn lends(&self, operation: &Operation) -> bool {
        let octets = operation.octets_to_lend();
        octets > 0 && as_program::lends(self.fd(), octets) && self.is_same_socket()
    }

    /// The life of the thread.
    fn lend(&self, bell: &Bell) {
        loop {
            let lent = as_program::lend(self.fd(), &mut Loans { lane: self, bell, told: 0 });
            let mut inner = self.inner();
            self.end_loan(&mut inner, lent);
            inner = self.drive(inner, bell);
            if !inner.is_closed && inner.operations.front().is_some_and(|first| self.lends(first)) {
                continue;
            }
            self.pass_on(&mut inner);
            let idles = |inner: &mut Inner| matches!(inner.lender, Lender::Idle(_)) && !inner.is_closed;
            let waited = self.changed.wait_timeout_while(inner, IDLE, idles);
            let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !inner.lender.is_at_work() {
                inner.lender = Lender::None;
                return;
            }
        }
    }

    /// Carries out the operations up to the next that lends: what came back from the peer goes on,
    /// though the program may wait for just that in another call.
    fn drive<'l>(&'l self, mut inner: MutexGuard<'l, Inner>, bell: &Bell) -> MutexGuard<'l, Inner> {
        loop {
            // What rings from here on ends the wait below.
            bell.quiet();
            self.end_cancelled(&mut inner);
            let is_for_others = inner.operations.front().is_none_or(|first| self.lends(first));
            if is_for_others || inner.is_closed || !self.is_same_socket() {
                return inner;
            }
            if let Some(end) = inner.end_of_first(self.fd()) {
                if let Some(first) = inner.operations.pop_front() {
                    self.end_first(&mut inner, first, end);
                }
                continue;
            }
            let left = inner.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            drop(inner);
            let wanted = [(self.fd(), POLLOUT), (bell.fd(), POLLIN)];
            let mut wanted = wanted.map(|(fd, events)| pollfd { fd, events, revents: 0 });
            // An error is the next try's.
            let _ = as_program::poll(&mut wanted, left);
            inner = self.inner();
        }
    }

    /// Ends what a loan has ended besides the sends that are accepted.
    fn end_loan(&self, inner: &mut Inner, lent: Result<bool, Errno>) {
        let was_lent = std::mem::take(&mut inner.lent) > 0;
        match lent {
            Err(errno) if was_lent => {
                if let Some(first) = inner.operations.pop_front() {
                    self.end_first(inner, first, Conclusion::Of(Err(errno)));
                }
            }
            Ok(false) => {}
            Ok(true) | Err(_) => {
                if let Some(first) = inner.operations.front_mut() {
                    first.copies = true;
                }
            }
        }
    }

    /// Leaves the lane to whoever makes progress with others, and to who closes.
    fn pass_on(&self, inner: &mut Inner) {
        if let Lender::AtWork(bell) = std::mem::take(&mut inner.lender) {
            inner.lender = Lender::Idle(bell);
        }
        if inner.operations.is_empty() {
            self.rest(inner);
        }
        inner.watchers.iter().for_each(|watcher| watcher.wake_waiters());
        threads::nudge();
        self.changed.notify_all();
    }
}

/// The sends of a lane that lend.
struct Loans<'l> {
    lane: &'l Lane,
    bell: &'l Bell,
    /// Octets of which the operations were told.
    told: usize,
}

impl Outgoing for Loans<'_> {
    fn next(&mut self) -> Option<Loan> {
        let mut inner = self.lane.inner();
        let next = inner.operations.get(inner.lent).filter(|next| !next.is_cancelled)?;
        let loan = self.lane.lends(next).then(|| next.to_lend()).flatten()?;
        inner.lent += 1;
        Some(loan)
    }

    fn accepted(&mut self, octets: usize) {
        let mut more = octets.saturating_sub(self.told);
        if more == 0 {
            return;
        }
        self.told = octets;
        let mut inner = self.lane.inner();
        while more > 0
            && let Some(first) = inner.operations.front_mut()
        {
            more -= first.pass(more);
            if first.octets_left() > 0 {
                break;
            }
            let result = match () {
                () if first.is_cancelled => Err(Errno(libc::ECANCELED)),
                () if inner.is_closed => Err(Errno::ABORTED),
                () => Ok(()),
            };
            inner.lent -= 1;
            if let Some(first) = inner.operations.pop_front() {
                self.lane.end_first(&mut inner, first, Conclusion::Of(result));
            }
        }
        if inner.operations.is_empty() {
            self.lane.rest(&mut inner);
        }
    }

    fn recall(&mut self) -> Recall {
        // What rings from here on is looked at the next time.
        self.bell.quiet();
        let inner = self.lane.inner();
        match () {
            () if inner.is_closed => Recall::AtOnce,
            () if inner.operations.iter().take(inner.lent).any(|lent| lent.is_cancelled) => Recall::Asked,
            () => Recall::No,
        }
    }

    fn descriptor(&self) -> c_int {
        self.bell.fd()
    }

    fn left(&self) -> Option<Duration> {
        let deadline = self.lane.inner().deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }
}
