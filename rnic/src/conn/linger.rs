//! Lingering connections: those whose QP the program has dropped (draft-hilland-rddp-verbs §6.2),
//! and those that were rejected.
//!
//! Requests that completed before have been handed to TCP, which has not sent all of them yet. A
//! reset would discard them, and so would closing a socket with octets unread. So the background
//! thread ends the connection in order: it sends the rest of what TCP has begun to take, then FIN,
//! and throws away what the peer still sends until the peer's FIN. The number of such connections,
//! the octets that they keep and their time are bounded.
//!
//! A rejected peer closes first: some (siw) overlook a Reply with a FIN right behind it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::mem::{self, MaybeUninit};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;

use super::socket::{DeviceSocket, finish_sending, send_now};
use crate::io::driver::{Driver, Failure, Source};
use crate::io::ready_set::epoll_timeout;
use crate::io::sleep::poll_flags;

/// The greatest number of connections of a device that linger without their QP.
pub(crate) const MAX: usize = 1024;

/// The octets that all of them together may still have to send. Beyond that the oldest are closed.
const MAX_OWED: usize = 64 << 20;

/// The octets of one peer that are thrown away, unless a Terminate ended its connection.
pub(crate) const MAX_DISCARDED: usize = 64 << 20;

/// The octets that are thrown away in one turn of the background thread.
const TURN: usize = 1 << 20;

/// The time that a rejected peer has to close.
const REJECT_LINGER: Duration = Duration::from_secs(2);

/// The octets of a rejected peer that are thrown away: it has no reason to send more.
const REJECT_DISCARDED: usize = 32 << 10;

/// Lingering connections of a device. Rejected ones have a set of their own, so that peers which
/// ask for nothing else end no other connection.
#[derive(Debug)]
pub(crate) struct LingerSet {
    /// The greatest number. Beyond that the oldest are closed.
    max: usize,
    all: Mutex<Lingerers>,
}

#[derive(Debug, Default)]
struct Lingerers {
    /// By their tokens, which grow.
    by_token: BTreeMap<u64, Arc<Lingering>>,
    owed: usize,
}

/// A connection without a QP.
#[derive(Debug)]
struct Lingering {
    token: u64,
    set: Weak<LingerSet>,
    socket: Arc<DeviceSocket>,
    deadline: Instant,
    /// The number of octets that were to be sent at first.
    owed: usize,
    rest: Mutex<Rest>,
}

/// The part of a connection's end that is still to come.
#[derive(Debug)]
struct Rest {
    /// Octets that are to be sent before the FIN.
    owed: Vec<u8>,
    /// No FIN of ours is to come before the socket is closed.
    fin_sent: bool,
    peer_done: bool,
    /// Octets that may still be thrown away. A connection with more is no longer read.
    discards: usize,
}

/// The progress that a connection has made.
enum Progress {
    Over,
    /// There is more to throw away.
    More,
    /// Waits for these events; where there are none, for its deadline only.
    Wait(EpollFlags),
}

impl LingerSet {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(LingerSet { max, all: Mutex::default() })
    }

    /// Ends a connection in order, after `owed` has been sent, and throws away up to `discards`
    /// octets of its peer. At `deadline` the connection is closed, however far it has come.
    pub(crate) fn add(
        self: &Arc<Self>,
        driver: &Driver,
        socket: Arc<DeviceSocket>,
        owed: Vec<u8>,
        discards: usize,
        deadline: Instant,
    ) {
        self.insert(driver, socket, Rest { owed, fin_sent: false, peer_done: false, discards }, deadline);
    }

    /// Keeps a rejected connection until its peer has closed it. Closing it sends the FIN.
    pub(crate) fn add_rejected(self: &Arc<Self>, driver: &Driver, socket: DeviceSocket) {
        let rest = Rest { owed: Vec::new(), fin_sent: true, peer_done: false, discards: REJECT_DISCARDED };
        self.insert(driver, Arc::new(socket), rest, Instant::now() + REJECT_LINGER);
    }

    fn insert(self: &Arc<Self>, driver: &Driver, socket: Arc<DeviceSocket>, rest: Rest, deadline: Instant) {
        let lingering = Arc::new_cyclic(|weak: &Weak<Lingering>| {
            let source: Weak<dyn Source> = weak.clone();
            Lingering {
                token: driver.add(source),
                set: Arc::downgrade(self),
                socket,
                deadline,
                owed: rest.owed.len(),
                rest: Mutex::new(rest),
            }
        });
        let token = lingering.token;
        let interest = match lingering.advance() {
            Progress::Over => return driver.remove(token),
            Progress::More => EpollFlags::EPOLLIN,
            Progress::Wait(interest) => interest,
        };
        let mut all = self.all.lock();
        all.owed += lingering.owed;
        all.by_token.insert(token, lingering.clone());
        let surplus = all.surplus(self.max);
        drop(all);
        surplus.into_iter().for_each(|oldest| oldest.end(driver));
        driver.at(deadline, token);
        if driver.watch(lingering.socket.as_fd(), token, interest).is_err() {
            lingering.end(driver);
        }
    }

    /// Waits until all connections are over, or until `limit`, and makes progress for them in the
    /// calling thread.
    pub(crate) fn wait(&self, driver: &Driver, limit: Instant) {
        loop {
            let all: Vec<_> = self.all.lock().by_token.values().cloned().collect();
            let now = Instant::now();
            if all.is_empty() || now >= limit {
                return;
            }
            let until = all.iter().map(|lingering| lingering.deadline).fold(limit, Instant::min);
            let mut fds = Vec::with_capacity(all.len());
            let mut ended = false;
            for lingering in &all {
                let interest = match lingering.advance() {
                    Progress::More => EpollFlags::EPOLLIN,
                    Progress::Wait(interest) if now < lingering.deadline => interest,
                    Progress::Wait(_) | Progress::Over => {
                        lingering.end(driver);
                        ended = true;
                        continue;
                    }
                };
                if !interest.is_empty() {
                    fds.push(PollFd::new(lingering.socket.as_fd(), poll_flags(interest)));
                }
            }
            if !ended {
                // After a signal, or an error, the connections are looked at again.
                let _ = nix::poll::poll(&mut fds, epoll_timeout(Some(until.saturating_duration_since(now))));
            }
        }
    }
}

impl Lingerers {
    /// Takes out the oldest connections, as far as there are too many.
    fn surplus(&mut self, max: usize) -> Vec<Arc<Lingering>> {
        let mut surplus = Vec::new();
        while self.by_token.len() > max || (self.owed > MAX_OWED && self.by_token.len() > 1) {
            let Some((_, oldest)) = self.by_token.pop_first() else { break };
            self.owed -= oldest.owed;
            surplus.push(oldest);
        }
        surplus
    }
}

impl Lingering {
    /// Sends and discards what can be sent and discarded now.
    fn advance(&self) -> Progress {
        let mut rest = self.rest.lock();
        match rest.advance(&self.socket) {
            Ok(progress) => progress,
            Err(error) => {
                tracing::debug!(%error, "a connection without its QP is over");
                Progress::Over
            }
        }
    }

    /// Closes the connection. The kernel still sends what it has taken, unless octets of the peer
    /// are unread: then it resets TCP.
    fn end(&self, driver: &Driver) {
        driver.unwatch(self.socket.as_fd());
        driver.remove(self.token);
        if let Some(set) = self.set.upgrade() {
            let mut all = set.all.lock();
            if all.by_token.remove(&self.token).is_some() {
                all.owed -= self.owed;
            }
        }
    }
}

impl Rest {
    fn advance(&mut self, socket: &DeviceSocket) -> io::Result<Progress> {
        self.send(socket)?;
        if !self.peer_done && self.discard(socket)? {
            return Ok(Progress::More);
        }
        if self.fin_sent && self.peer_done {
            return Ok(Progress::Over);
        }
        let reads = !self.peer_done && self.discards > 0;
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, reads);
        interest.set(EpollFlags::EPOLLOUT, !self.fin_sent);
        Ok(Progress::Wait(interest))
    }

    /// Sends the octets that are left, then FIN.
    fn send(&mut self, socket: &DeviceSocket) -> io::Result<()> {
        while !self.owed.is_empty() {
            match send_now(socket, &self.owed) {
                Ok(count) => drop(self.owed.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !mem::replace(&mut self.fin_sent, true) {
            finish_sending(socket)?;
        }
        Ok(())
    }

    /// Throws away what the peer has sent, for one turn. Returns whether there may be more.
    fn discard(&mut self, socket: &DeviceSocket) -> io::Result<bool> {
        let mut chunk = [MaybeUninit::uninit(); 16 * 1024];
        for _ in 0..TURN / chunk.len() {
            if self.discards == 0 {
                return Ok(false);
            }
            match socket.recv_with_flags(&mut chunk, libc::MSG_DONTWAIT) {
                Ok(0) => {
                    self.peer_done = true;
                    return Ok(false);
                }
                Ok(count) => self.discards = self.discards.saturating_sub(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Source for Lingering {
    fn on_ready(&self, driver: &Driver) -> bool {
        match self.advance() {
            Progress::Over => self.end(driver),
            Progress::More => return true,
            // epoll reports the end of a TCP connection whatever it is asked for: a socket that is
            // not to be read, and that were armed, would be reported again and again.
            Progress::Wait(interest) if interest.is_empty() => {}
            Progress::Wait(interest) => driver.arm(self.socket.as_fd(), self.token, interest),
        }
        false
    }

    fn on_timer(&self, driver: &Driver, now: Instant) {
        if now >= self.deadline {
            self.end(driver);
        }
    }

    fn give_up(&self, driver: &Driver, _failure: Failure) {
        self.end(driver);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// Makes a connection. Returns this end of it, then the peer's.
    fn pair() -> (Arc<DeviceSocket>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(DeviceSocket::new(listener.accept().unwrap().0.into())), theirs)
    }

    fn add(set: &Arc<LingerSet>, driver: &Driver, owed: usize, limit: Duration) -> TcpStream {
        let (ours, theirs) = pair();
        set.add(driver, ours, vec![7; owed], MAX_DISCARDED, Instant::now() + limit);
        theirs
    }

    /// RFC 5042 §6.4.2: the connections of peers that do not close are bounded in number, octets
    /// and time.
    #[test]
    fn the_oldest_is_closed_when_there_are_too_many() {
        let driver = Driver::open().unwrap();
        let (set, hour) = (LingerSet::new(MAX), Duration::from_secs(3600));
        let _first = add(&set, &driver, 0, hour);
        let oldest = *set.all.lock().by_token.keys().next().unwrap();
        // More than TCP takes at once, so that they stay owed.
        let _others = [0; 3].map(|_| add(&set, &driver, MAX_OWED / 2, hour));
        let all = set.all.lock();
        assert!(all.by_token.len() == 2 && all.owed <= MAX_OWED, "{} with {}", all.by_token.len(), all.owed);
        assert!(!all.by_token.contains_key(&oldest));
        drop(all);
        driver.stop();
    }

    #[test]
    fn a_peer_that_does_not_close_is_left_at_the_deadline() {
        let driver = Driver::open().unwrap();
        let set = LingerSet::new(MAX);
        let _theirs = add(&set, &driver, 5, Duration::from_millis(1));
        set.wait(&driver, Instant::now() + Duration::from_secs(20));
        assert!(set.all.lock().by_token.is_empty());
        assert_eq!(driver.sources(), 0);
        driver.stop();
    }

    /// RFC 5042 §6.4.2: a peer that goes on sending is read up to a bound, and not to its end.
    #[test]
    fn a_peer_that_goes_on_sending_is_no_longer_read() {
        let (ours, mut theirs) = pair();
        theirs.set_nonblocking(true).unwrap();
        while theirs.write(&[0; 65536]).is_ok() {}
        let mut rest = Rest { owed: Vec::new(), fin_sent: false, peer_done: false, discards: 100_000 };
        let progress = rest.advance(&ours).unwrap();
        assert!(matches!(progress, Progress::Wait(interest) if interest.is_empty()));
        // No more than that, and what the last read brought.
        let arrived = ours.peek(&mut [MaybeUninit::uninit(); 1]).unwrap();
        assert_eq!((rest.discards, arrived), (0, 1));
    }

    #[test]
    fn a_connection_whose_peer_has_closed_does_not_linger() {
        let driver = Driver::open().unwrap();
        let set = LingerSet::new(MAX);
        let (ours, theirs) = pair();
        theirs.shutdown(Shutdown::Write).unwrap();
        let mut fds = [PollFd::new(ours.as_fd(), poll_flags(EpollFlags::EPOLLIN))];
        nix::poll::poll(&mut fds, epoll_timeout(None)).unwrap();
        set.add(&driver, ours, Vec::new(), MAX_DISCARDED, Instant::now() + Duration::from_secs(3600));
        assert!(set.all.lock().by_token.is_empty());
        assert_eq!(driver.sources(), 0);
        driver.stop();
    }
}
