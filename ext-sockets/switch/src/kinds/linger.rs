//! Closed sockets that are not finished: octets wait for room in TCP or for the startup, or the
//! peer is in the middle of a startup.
//!
//! `close` does not wait for them. A thread does, with a number of its own for each socket, as the
//! kernel does for the octets in its buffers. The thread is started for the first such socket and
//! ends with the last. Where numbers are short, the oldest socket is reset. The exit of the process
//! waits for the thread. A process that is killed, or leaves by `_exit`, loses the octets that TCP
//! does not have yet.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rddp_real::{self as real, hidden};

use super::kind::Ours;

/// The time for which the exit of the process waits for a peer that reads nothing, or does not
/// answer.
const AT_EXIT: Duration = Duration::from_secs(5);
/// The number of closed sockets that may linger even where numbers are short.
const A_FEW: usize = 8;
/// The longest sleep of the thread.
pub(super) const A_WHILE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Lingering {
    /// The socket, under a number of the thread's own.
    ours: Ours,
    /// The events that the epoll set was last asked for.
    asked: u32,
    until: Instant,
}

pub(super) struct Line {
    /// The sockets by the order in which they were closed, which is also their data in the epoll
    /// set.
    waiting: BTreeMap<u64, Lingering>,
    closed: u64,
    /// The epoll set that the thread sleeps on.
    set: Option<c_int>,
    /// The process whose thread finishes these sockets; 0: there is no thread.
    thread_of: u32,
}

/// The closed sockets.
static LINE: Mutex<Line> = Mutex::new(Line { waiting: BTreeMap::new(), closed: 0, set: None, thread_of: 0 });
static EMPTY: Condvar = Condvar::new();
static EXITS: AtomicBool = AtomicBool::new(false);

pub(super) fn line() -> real::Locked<Line> {
    real::lock(&LINE)
}

/// Prepares for the exit, which closes all sockets and waits for those that are not finished.
pub(super) fn exit_begins() {
    EXITS.store(true, Ordering::Relaxed);
}

pub(super) fn is_exit() -> bool {
    EXITS.load(Ordering::Relaxed)
}

/// Gives a socket that is about to be closed, and is not finished, to the thread.
pub(super) fn see_to(ours: &Ours) {
    let mut line = line();
    if !line.take(ours) {
        drop(line);
        return ours.end(false);
    }
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

/// Resets the oldest socket, for a program that has no number left. Returns whether there was one.
pub fn makes_room() -> bool {
    let mut line = line();
    line.thread_of == std::process::id() && line.reset_oldest()
}

/// Runs the thread: sleeps until one of the sockets can go on.
fn run() {
    let mut ready = [0; 64];
    loop {
        let Some(set) = line().set else { return };
        let count = real::wait_for_set(set, &mut ready, A_WHILE);
        let mut line = line();
        ready[..count].iter().for_each(|number| line.step(*number));
        line.end_late();
        if line.waiting.is_empty() {
            line.end_thread();
            return;
        }
    }
}

impl Line {
    /// Takes a number of its own for the socket, at the cost of the oldest if no number is free.
    fn take(&mut self, ours: &Ours) -> bool {
        let fd = ours.fd();
        while self.is_in_the_way(fd) && self.reset_oldest() {}
        let Some(set) = self.get(|line| line.set.or_else(high_set)) else { return false };
        if self.set.replace(set).is_none() {
            hidden::hide(set);
        }
        let Some(fd) = self.get(|_| real::duplicate_high(fd)) else { return false };
        hidden::hide(fd);
        let ours = Ours::new(ours.held().clone(), fd);
        let asked = interest(&ours);
        self.closed += 1;
        let until = Instant::now() + ours.patience();
        let one = Lingering { ours, asked, until };
        let _ = real::control(set, libc::EPOLL_CTL_ADD, fd, wanted(asked, self.closed));
        self.waiting.insert(self.closed, one);
        true
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

    /// Does for one socket as much as is possible now.
    fn step(&mut self, number: u64) {
        let (Some(one), Some(set)) = (self.waiting.get_mut(&number), self.set) else { return };
        // A program that closes every number may have put something else under this one.
        if !one.ours.held().is_under(one.ours.fd()) {
            self.waiting.remove(&number);
            return;
        }
        if one.ours.finishes() {
            return self.end(number, false);
        }
        let asked = interest(&one.ours);
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
    }

    /// Returns how long the exit waits for the sockets that are there now.
    fn longest_at_exit(&self) -> Duration {
        let now = Instant::now();
        let of_one = |one: &Lingering| {
            // A peer that has long not answered the startup will probably not answer now.
            let longest = AT_EXIT.saturating_sub(one.ours.silence());
            one.until.saturating_duration_since(now).min(longest)
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
        let longest = line.longest_at_exit();
        let _ = EMPTY.wait_timeout_while(line, longest, |line| !line.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::super::{closing, received, store};
    use super::*;
    use crate::socket::{self, KindId, Mode, Settings};
    use rddp_stream::{Options, Process, Role};

    #[test]
    fn a_lingering_socket_that_comes_back_in_a_message_is_open_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        // As `recvmsg` gives the program a number that the library knows nothing of.
        let again = server.try_clone().unwrap();
        let settings = Settings {
            mode: Mode::Starting,
            kind: KindId::Framed,
            role: Some(Role::Responder),
            ..Settings::default()
        };
        let held = socket::adopt(server.as_raw_fd(), settings).unwrap();
        held.set_state(store::create(held.cookie(), &Options::new(Role::Responder)).unwrap());
        closing(server.as_raw_fd());
        drop(server);
        assert!(held.is_closed());
        received(again.as_raw_fd());
        let now = socket::hold(again.as_raw_fd()).unwrap();
        assert_eq!(now.index(), held.index());
        assert!(!now.is_closed());
        drop(held);
        line().reset_oldest();
        assert!(now.state().unwrap().is_held(|holder| holder == Process::me()));
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        socket::forget(again.as_raw_fd());
    }
}
