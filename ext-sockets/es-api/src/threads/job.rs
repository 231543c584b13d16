//! Blocking calls that one of the threads makes.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rddp_real::{Errno, deadline};

use super::task::{Task, Waits, next_id};
use super::{Direction, IS_WORKER, post};
use crate::as_program;
use crate::sys::threads::{self as sys, Lent};

/// The result of one try.
#[derive(Debug)]
pub enum Tried<R> {
    /// The call is done, with this result.
    Done(R),
    /// The call has to wait.
    Later(Waiting),
}

/// The condition for another try: events of a descriptor, as for `poll`, or a time.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The descriptor to poll.
    pub fd: c_int,
    /// Events as for `poll`.
    pub events: i16,
    /// Time of the next try in any case.
    pub until: Option<Instant>,
}

/// Has one of the threads make a call, and sleeps until it is done: the way of `read` and `write`
/// of a socket in DDPMODE whose `DDP_PROGRESS` is `threads`.
///
/// `attempt` does what can be done without waiting, like the call with `MSG_DONTWAIT`; it runs on
/// the thread, once at first and again whenever what it waits for is there, and never after this
/// function has returned. Raising a signal (SIGPIPE) is left to the caller, which has the result:
/// the threads have all signals but those of their faults blocked. A call that is not to wait need
/// not come here. On the threads themselves `attempt` runs at once, in place.
///
/// ```
/// use rddp_es_api::threads::{Direction, Tried, run};
///
/// assert_eq!(run(Direction::Send, None, || Tried::Done(7)), Ok(7));
/// ```
///
/// # Errors
/// `EAGAIN`: the descriptor socket is full, or `timeout` is over. `EINTR`: a signal came whose
/// handler does not restart calls. `ECONNABORTED`: the thread has died. In all of these `attempt`
/// has not been done.
pub fn run<R: Send>(
    direction: Direction,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> Tried<R> + Send,
) -> Result<R, Errno> {
    let until = deadline::after(timeout);
    if IS_WORKER.get() {
        return in_place(until, attempt);
    }
    let mut result = None;
    let mut store = || match attempt() {
        Tried::Done(done) => {
            result = Some(done);
            None
        }
        Tried::Later(waiting) => Some(waiting),
    };
    let ended = sys::lend(&mut store, |lent| hand_over(direction, until, lent));
    // A call that is done counts, even if a signal came at the same time.
    result.map_or_else(|| Err(ended.err().unwrap_or(Errno::ABORTED)), Ok)
}

fn hand_over(direction: Direction, until: Option<Instant>, lent: Lent) -> Result<(), Errno> {
    let job = Arc::new(Job { id: next_id(), lent, state: AtomicU32::new(UNDER_WAY) });
    let task: Arc<dyn Task> = job.clone();
    // `lend` takes the attempt back before it returns, so that the thread finds nothing to do.
    post(direction, &task)?;
    while job.state.load(Ordering::Acquire) == UNDER_WAY {
        sys::sleep_on(&job.state, UNDER_WAY, until)?;
    }
    if job.state.load(Ordering::Acquire) == DONE { Ok(()) } else { Err(Errno::ABORTED) }
}

fn in_place<R>(until: Option<Instant>, mut attempt: impl FnMut() -> Tried<R>) -> Result<R, Errno> {
    loop {
        let waiting = match attempt() {
            Tried::Done(done) => return Ok(done),
            Tried::Later(waiting) => waiting,
        };
        let now = Instant::now();
        if until.is_some_and(|until| until <= now) {
            return Err(Errno::WOULD_BLOCK);
        }
        let first = until.into_iter().chain(waiting.until).min();
        let mut one = [libc::pollfd { fd: waiting.fd, events: waiting.events, revents: 0 }];
        as_program::poll(&mut one, first.map(|until| until.saturating_duration_since(now)))?;
    }
}

struct Job {
    id: u64,
    lent: Lent,
    state: AtomicU32,
}

const UNDER_WAY: u32 = 0;
const DONE: u32 = 1;
const ABANDONED: u32 = 2;

impl Job {
    fn end(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        sys::wake(&self.state);
    }
}

impl Task for Job {
    fn id(&self) -> u64 {
        self.id
    }

    fn fd(&self) -> c_int {
        self.lent.waiting().map_or(-1, |waiting| waiting.fd)
    }

    fn advance(&self) -> bool {
        if self.lent.attempt() {
            return true;
        }
        self.end(DONE);
        false
    }

    fn waits_for(&self, waits: &mut Waits) -> bool {
        let Some(waiting) = self.lent.waiting() else { return false };
        waits.add(waiting.fd, waiting.events);
        waiting.until.into_iter().for_each(|until| waits.until(until));
        true
    }

    fn abandon(&self, _: Errno) {
        self.end(ABANDONED);
    }
}
