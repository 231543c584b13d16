//! What a closed socket still owes: the rest of an FPDU that TCP had no room for.
//!
//! `close` does not wait, so a thread does, on a number of its own for the socket, as the kernel does for what is in its buffers. It is started
//! when there is the first such socket and ends with the last. When the process exits it is waited for. A process that
//! is killed, or leaves by `_exit`, loses what is not with TCP.

use std::ffi::{c_int, c_short};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::hidden;
use crate::next::{self, CALLS};
use crate::socket::Held;
use crate::stream::Stream;

/// How long a peer may read nothing before what it is owed is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the exit of the process waits.
const AT_EXIT: Duration = Duration::from_secs(5);
/// How many closed sockets are kept; for more, `close` waits a moment itself.
const MANY: usize = 64;

#[derive(Debug)]
struct Lingering {
    held: Held,
    fd: c_int,
    until: Instant,
}

pub(super) struct Line {
    waiting: Vec<Lingering>,
    /// The process whose thread sees to them; 0: there is none.
    thread_of: u32,
}

/// The closed sockets.
static LINE: Mutex<Line> = Mutex::new(Line { waiting: Vec::new(), thread_of: 0 });
static EMPTY: Condvar = Condvar::new();

pub(super) fn line() -> next::Locked<Line> {
    next::lock(&LINE)
}

/// `fd` is about to be closed and owes something to TCP: it goes out when there is room for it.
pub(super) fn see_to(held: &Held, fd: c_int) {
    if !hand_over(held, fd)
        && let Some(state) = held.state()
    {
        let _ = Stream::new(fd, state, &CALLS).finish(Duration::from_secs(1));
    }
}

fn hand_over(held: &Held, fd: c_int) -> bool {
    let mut line = line();
    if line.waiting.len() >= MANY {
        return false;
    }
    let Some(fd) = next::duplicate_high(fd) else { return false };
    hidden::hide(fd);
    line.waiting.push(Lingering { held: held.clone(), fd, until: Instant::now() + PATIENCE });
    let me = std::process::id();
    if line.thread_of != me {
        line.thread_of = me;
        drop(line);
        // The thread takes none of the program's.
        let _no_signals = next::NoSignals::here();
        if std::thread::Builder::new().name("rddp-linger".into()).spawn(run).is_err() {
            return give_up();
        }
    }
    true
}

/// There is no thread to be had.
fn give_up() -> bool {
    line().forget();
    false
}

/// How long the thread sleeps at least, and at most.
const MOMENT: Duration = Duration::from_millis(1);
const A_WHILE: Duration = Duration::from_millis(100);

/// The thread: takes each in turn, and sleeps until one can go on.
fn run() {
    loop {
        let mut line = line();
        line.waiting.retain(|one| !one.is_done());
        if line.waiting.is_empty() {
            line.thread_of = 0;
            EMPTY.notify_all();
            return;
        }
        let wanted: Vec<_> = line.waiting.iter().map(|one| (one.fd, one.interest())).collect();
        drop(line);
        std::thread::sleep(MOMENT);
        next::wait_for_any(wanted, A_WHILE);
    }
}

impl Lingering {
    fn interest(&self) -> c_short {
        self.held.state().map_or(0, |state| Stream::new(self.fd, state, &CALLS).interest_to_pay())
    }

    /// Gives TCP what it takes. Whether it is over.
    fn is_done(&self) -> bool {
        let Some(state) = self.held.state() else { return true };
        let stream = Stream::new(self.fd, state, &CALLS);
        let over = stream.finish(Duration::ZERO) != Ok(false) || Instant::now() >= self.until;
        if over {
            super::end::leave_alone(&self.held, state, self.fd);
            hidden::close(self.fd);
        }
        over
    }
}

/// The process exits: what is owed is waited for, for a while.
pub(super) fn finish() {
    let _no_signals = next::NoSignals::here();
    let line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if line.thread_of != 0 && line.thread_of == std::process::id() {
        let _ = EMPTY.wait_timeout_while(line, AT_EXIT, |line| !line.waiting.is_empty());
    }
}

impl Line {
    /// Another process sees to them.
    pub(super) fn forget(&mut self) {
        self.thread_of = 0;
        for lingering in self.waiting.drain(..) {
            hidden::close(lingering.fd);
        }
    }
}
