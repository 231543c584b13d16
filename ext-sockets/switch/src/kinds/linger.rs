//! The helper thread: it does for sockets what no call of the program does.
//!
//! **Closed sockets that are not finished**: octets wait for room in TCP or for the startup, the
//! peer is in the middle of a startup, or the close is one of the protocol and not of the kernel
//! ([`Close::farewell`](super::Close::farewell)). `close` does not wait for them. **Open sockets
//! with an [obligation](super::Obligation)**: the peer waits for something that the program may
//! never make a call for.
//!
//! The thread has a hidden number of its own for each socket, whose `SO_COOKIE` it checks before
//! each use. It is started for the first such socket, ends with the last, and takes no signals.
//! Where numbers are short, the oldest closed socket is reset. The exit of the process closes all
//! sockets and waits for the thread, for a limited time. A process that is killed, or leaves by
//! `_exit`, loses the octets that TCP does not have yet. The thread is its process's: a child of
//! `fork` that finds an obligation open, and a program that gets the socket through `exec`, start
//! their own.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rddp_real::{self as real, hidden};

use super::kind::{Farewell, Ours};
use crate::socket::{self, Held};
use crate::{exit, table};

/// The time for which the exit of the process waits for a peer that reads nothing, or does not
/// answer.
const AT_EXIT: Duration = Duration::from_secs(5);
/// The number of closed sockets that may linger even where numbers are short.
const A_FEW: usize = 8;
/// The time that the peer's end has to come, once the peer's TCP has all that was sent.
const FOR_THE_PEERS_END: Duration = Duration::from_secs(1);
/// The time that a late message of the peer has to come, where nothing else can: its end has been
/// read, or the process exits.
const FOR_A_LATE_MESSAGE: Duration = Duration::from_millis(50);
/// The time between two looks at what the peer has not acknowledged, which is no event.
const TO_LOOK: Duration = Duration::from_millis(5);
/// Events that an obliged socket is watched for: everything that happens on it, kicks too.
const EDGES: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// The longest sleep of the thread.
pub(super) const A_WHILE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Lingering {
    /// The socket, under a number of the thread's own.
    ours: Ours,
    /// The events that the epoll set was last asked for.
    asked: u32,
    until: Instant,
    /// Set if the close is not the kernel's: it is watched for edges, as octets that come are read
    /// and dropped, and the peer's end stays readable.
    says_farewell: bool,
    /// Set while only time or an acknowledgement takes the close on.
    is_to_look: bool,
    /// Moment at which the peer's TCP was first seen to have all.
    all_there: Option<Instant>,
    /// Octets that the peer's TCP had not acknowledged at the last look, and the moment at which
    /// they became fewer.
    left: usize,
    moved: Instant,
}

/// An open socket with an obligation, under a number of the thread's own.
#[derive(Debug)]
struct Obliged {
    ours: Ours,
    /// Moment at which to go on though nothing happens.
    due: Option<Instant>,
}

pub(super) struct Line {
    /// The closed sockets by the order in which they were closed, which is also their data in the
    /// epoll set.
    waiting: BTreeMap<u64, Lingering>,
    /// The open sockets with an obligation; their numbers are of the same row.
    obliged: BTreeMap<u64, Obliged>,
    closed: u64,
    /// The epoll set that the thread sleeps on.
    set: Option<c_int>,
    /// The process whose thread finishes these sockets; 0: there is no thread.
    thread_of: u32,
}

/// The closed sockets.
static LINE: Mutex<Line> = Mutex::new(Line {
    waiting: BTreeMap::new(),
    obliged: BTreeMap::new(),
    closed: 0,
    set: None,
    thread_of: 0,
});
/// Set once any socket had an obligation in this process, or in the one that it was forked from.
static WERE_OBLIGED: AtomicBool = AtomicBool::new(false);
static EMPTY: Condvar = Condvar::new();

pub(super) fn line() -> real::Locked<Line> {
    real::lock(&LINE)
}

/// Returns whether a farewell has come so far that the kernel may close the socket, once the peer's
/// TCP has all. An exit does not wait for the peer's end.
pub(super) fn is_said(farewell: Farewell) -> bool {
    farewell == Farewell::Over || farewell == Farewell::Sent && exit::has_begun()
}

/// Gives a socket that is about to be closed, and is not finished, to the thread.
pub(super) fn see_to(ours: &Ours) {
    let mut line = line();
    if !line.take(ours) {
        drop(line);
        return ours.end(false);
    }
    start(line);
}

/// Starts the thread, if this process has none.
fn start(mut line: real::Locked<Line>) {
    let me = std::process::id();
    if line.thread_of != me {
        line.thread_of = me;
        drop(line);
        // The thread inherits this signal mask, so it takes none of the program's signals.
        let _no_signals = real::NoSignals::here();
        if std::thread::Builder::new().name("rddp-linger".into()).spawn(run).is_err() {
            self::line().forget();
        }
    }
}

/// Gives an open socket to the thread, if it has an obligation. Returns whether the thread has it.
/// The caller holds no lock of the kind.
pub(crate) fn oblige(ours: &Ours) -> bool {
    if ours.obligation().is_none() {
        return false;
    }
    WERE_OBLIGED.store(true, Ordering::Relaxed);
    let mut line = line();
    let is_its = |one: &Obliged| one.ours.held().index() == ours.held().index();
    if !line.obliged.values().any(is_its) && !line.take_obliged(ours) {
        return false;
    }
    start(line);
    true
}

/// Gives up the obligation of a socket whose last number of this process is closed.
pub(super) fn release(held: &Held) {
    if !WERE_OBLIGED.load(Ordering::Relaxed) {
        return;
    }
    let mut line = line();
    let its = |(number, one): (&u64, &Obliged)| (one.ours.held().index() == held.index()).then_some(*number);
    let its: Vec<u64> = line.obliged.iter().filter_map(its).collect();
    its.into_iter().for_each(|number| line.end_obligation(number));
}

/// Takes up the obligations that the child of a `fork` finds open.
pub(super) fn take_up() {
    if !WERE_OBLIGED.load(Ordering::Relaxed) {
        return;
    }
    for fd in table::within(0, c_int::MAX) {
        if let Some(held) = socket::hold(fd) {
            oblige(&Ours::new(held, fd));
        }
    }
}

/// Resets the oldest socket, for a program that has no number left. Returns whether there was one.
pub fn makes_room() -> bool {
    let mut line = line();
    line.thread_of == std::process::id() && line.reset_oldest()
}

/// Runs the thread: sleeps until one of the sockets can go on.
fn run() {
    real::block_faults();
    let mut ready = [0; 64];
    loop {
        let (set, nap) = {
            let line = line();
            let Some(set) = line.set else { return };
            (set, line.nap())
        };
        // The kernel reports the ready sockets in turn, so that those beyond the first 64 follow.
        let count = real::wait_for_set(set, &mut ready, nap);
        let mut line = line();
        ready[..count].iter().for_each(|number| line.step(*number));
        line.step_due();
        line.end_late();
        if line.waiting.is_empty() {
            EMPTY.notify_all();
        }
        if line.waiting.is_empty() && line.obliged.is_empty() {
            line.end_thread();
            return;
        }
    }
}

impl Lingering {
    /// Does as much as is possible now. Returns whether the kernel may close the socket.
    fn finishes(&mut self) -> bool {
        let Some(farewell) = self.ours.farewell() else { return self.ours.finishes() };
        self.is_to_look = farewell != Farewell::Sending;
        // A close with octets of the peer's unread, or that come later, is a reset, which destroys
        // what the peer's TCP does not have.
        let left = real::unacknowledged(self.ours.fd());
        if std::mem::replace(&mut self.left, left) != left {
            // A slow reader has all the time that it takes.
            self.moved = Instant::now();
            self.until = self.moved + self.ours.patience();
        }
        if farewell == Farewell::Sending || left > 0 {
            return false;
        }
        let since = *self.all_there.get_or_insert_with(Instant::now);
        // Not by events: the end that SDP has told stays readable without a FIN.
        let has_left = real::has_peers_fin(self.ours.fd());
        let time = if is_said(farewell) { FOR_A_LATE_MESSAGE } else { FOR_THE_PEERS_END };
        farewell == Farewell::Over && has_left || since.elapsed() >= time
    }
}

impl Line {
    /// Takes a number of its own for a closed socket, at the cost of the oldest if no number is
    /// free.
    fn take(&mut self, ours: &Ours) -> bool {
        let fd = ours.fd();
        while self.is_in_the_way(fd) && self.reset_oldest() {}
        let says_farewell = ours.farewell().is_some();
        let asked = if says_farewell { EDGES } else { interest(ours) };
        let Some(ours) = self.enter(ours, asked) else { return false };
        let until = Instant::now() + ours.patience();
        let one = Lingering {
            ours,
            asked,
            until,
            says_farewell,
            is_to_look: says_farewell,
            all_there: None,
            left: 0,
            moved: Instant::now(),
        };
        self.waiting.insert(self.closed, one);
        true
    }

    /// Takes a number of its own for an open socket with an obligation.
    fn take_obliged(&mut self, ours: &Ours) -> bool {
        let Some(ours) = self.enter(ours, EDGES) else { return false };
        self.obliged.insert(self.closed, Obliged { ours, due: Some(Instant::now()) });
        true
    }

    /// Puts a socket into the set, under a number of the thread's own.
    fn enter(&mut self, ours: &Ours, asked: u32) -> Option<Ours> {
        let fd = ours.fd();
        let set = self.get(|line| line.set.or_else(high_set))?;
        if self.set.replace(set).is_none() {
            hidden::hide(set);
        }
        let fd = self.get(|_| real::duplicate_high(fd))?;
        hidden::hide(fd);
        self.closed += 1;
        let _ = real::control(set, libc::EPOLL_CTL_ADD, fd, wanted(asked, self.closed));
        Some(Ours::new(ours.held().clone(), fd))
    }

    /// Makes something that needs a number, at the cost of the oldest connections while no number
    /// is free.
    fn get<T>(&mut self, something: impl Fn(&Self) -> Option<T>) -> Option<T> {
        loop {
            let got = something(self);
            if got.is_some() || !self.reset_oldest() {
                return got;
            }
        }
    }

    /// Returns whether the closed sockets have more than half of the numbers that the program
    /// leaves.
    fn is_in_the_way(&self, fd: c_int) -> bool {
        let left = || real::descriptor_limit().saturating_sub(real::lowest_free(fd).unwrap_or(usize::MAX));
        self.waiting.len() >= A_FEW && self.waiting.len() >= left() / 2
    }

    /// Returns how long to sleep at most.
    fn nap(&self) -> Duration {
        let now = Instant::now();
        let due = self.obliged.values().filter_map(|one| one.due);
        let due = due.map(|due| due.saturating_duration_since(now)).min().unwrap_or(A_WHILE);
        let looks = self.waiting.values().any(|one| one.is_to_look);
        // A sleep is of whole milliseconds.
        due.min(if looks { TO_LOOK } else { A_WHILE }).max(Duration::from_millis(1))
    }

    /// Takes a step for each socket for which one is due without an event.
    fn step_due(&mut self) {
        let now = Instant::now();
        let is_due = |one: &Obliged| one.due.is_some_and(|due| due <= now);
        let due = self.obliged.iter().filter(|(_, one)| is_due(one)).map(|(number, _)| *number);
        let looks = self.waiting.iter().filter(|(_, one)| one.is_to_look).map(|(number, _)| *number);
        let all: Vec<u64> = due.chain(looks).collect();
        all.into_iter().for_each(|number| self.step(number));
    }

    /// Meets as much of an obligation as is possible now.
    fn meet(&mut self, number: u64) {
        let Some(one) = self.obliged.get_mut(&number) else { return };
        if one.ours.held().is_under(one.ours.fd()) {
            one.ours.meet_obligation();
            if let Some(left) = one.ours.obligation() {
                one.due = left.within.map(|within| Instant::now() + within);
                return;
            }
        }
        self.end_obligation(number);
    }

    fn end_obligation(&mut self, number: u64) {
        let Some(one) = self.obliged.remove(&number) else { return };
        let fd = one.ours.fd();
        if !one.ours.held().is_under(fd) {
            // The number is something of the program's by now.
            return hidden::show(fd);
        }
        if let Some(set) = self.set {
            let _ = real::control(set, libc::EPOLL_CTL_DEL, fd, wanted(0, 0));
        }
        hidden::close(fd);
    }

    /// Does for one socket as much as is possible now.
    fn step(&mut self, number: u64) {
        if self.obliged.contains_key(&number) {
            return self.meet(number);
        }
        let (Some(one), Some(set)) = (self.waiting.get_mut(&number), self.set) else { return };
        // A program that closes every number may have put something else under this one.
        if !one.ours.held().is_under(one.ours.fd()) {
            hidden::show(one.ours.fd());
            self.waiting.remove(&number);
            return;
        }
        if one.finishes() {
            return self.end(number, false);
        }
        let asked = if one.says_farewell { EDGES } else { interest(&one.ours) };
        if std::mem::replace(&mut one.asked, asked) != asked {
            let _ = real::control(set, libc::EPOLL_CTL_MOD, one.ours.fd(), wanted(asked, number));
        }
    }

    /// Ends the sockets whose time is over.
    fn end_late(&mut self) {
        let now = Instant::now();
        let late = |(number, one): (&u64, &Lingering)| (one.until <= now).then_some(*number);
        let late: Vec<u64> = self.waiting.iter().filter_map(late).collect();
        for number in late {
            self.step(number);
            let loses = self.waiting.get(&number).is_some_and(|one| one.ours.loses_octets());
            self.end(number, loses);
        }
    }

    /// Resets the oldest socket. Returns whether there was one.
    fn reset_oldest(&mut self) -> bool {
        let oldest = self.waiting.keys().next().copied();
        oldest.inspect(|number| self.end(*number, true)).is_some()
    }

    fn end(&mut self, number: u64, by_reset: bool) {
        let Some(one) = self.waiting.remove(&number) else { return };
        if let Some(set) = self.set {
            let _ = real::control(set, libc::EPOLL_CTL_DEL, one.ours.fd(), wanted(0, 0));
        }
        one.ours.end(by_reset);
        hidden::close(one.ours.fd());
    }

    fn end_thread(&mut self) {
        self.thread_of = 0;
        self.set.take().into_iter().for_each(hidden::close);
        EMPTY.notify_all();
    }

    /// Forgets all sockets, which another process finishes.
    pub(super) fn forget(&mut self) {
        self.thread_of = 0;
        self.set.take().into_iter().for_each(hidden::close);
        for lingering in std::mem::take(&mut self.waiting).into_values() {
            hidden::close(lingering.ours.fd());
        }
        for obliged in std::mem::take(&mut self.obliged).into_values() {
            hidden::close(obliged.ours.fd());
        }
    }

    /// Returns how long the exit, which began at `began`, still waits for the sockets that are
    /// there now.
    fn longest_at_exit(&self, began: Instant) -> Duration {
        let now = Instant::now();
        let of_one = |one: &Lingering| {
            // A peer that has long not answered the startup will probably not answer now.
            let longest = AT_EXIT.saturating_sub(one.ours.silence());
            let until = one.until.min(one.moved.max(began) + longest);
            until.saturating_duration_since(now)
        };
        self.waiting.values().map(of_one).max().unwrap_or_default()
    }
}

/// Returns an epoll set under a high number: a program may count on getting the lowest free one.
fn high_set() -> Option<c_int> {
    let low = real::new_set()?;
    let high = real::duplicate_high(low);
    real::close_number(low);
    high
}

fn wanted(events: u32, number: u64) -> real::Wanted {
    real::Wanted { events, data: number }
}

fn interest(ours: &Ours) -> u32 {
    u32::from(ours.interest_to_finish() as u16)
}

/// Waits, at the exit of the process, for the sockets that are not finished, for a limited time.
pub(super) fn finish() {
    let _no_signals = real::NoSignals::here();
    let line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if line.thread_of != 0 && line.thread_of == std::process::id() {
        let began = Instant::now();
        let mut line = line;
        while !line.waiting.is_empty() {
            let longest = line.longest_at_exit(began);
            if longest.is_zero() {
                break;
            }
            line = EMPTY.wait_timeout(line, longest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
#[path = "linger_tests.rs"]
mod tests;
