//! Watching a connection's socket: the epoll sets that it is in, and the events they look for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::EpollFlags;

use rddp_rdma::{AsyncEventKind, ConnectOptions};

use super::silence::Silence;
use super::tcp_end::TcpEnd;
use crate::conn::socket::DeviceSocket;
use crate::cq::CqInner;
use crate::io::driver::Driver;
use crate::io::sleep::poll_flags;
use crate::queues::attributes::QpAttributes;
use crate::sys::reset;
use crate::wire::WireEvent;

/// Turns in a row in which the background thread has read a socket, behind which it stays armed.
const STEADY: u8 = 8;

/// Time for which a QP reads nothing that must not begin a partial FPDU.
const PAUSE: Duration = Duration::from_millis(10);

/// The socket of a connection, who looks for what on it, and how far its end has come: what no wire
/// over a socket does otherwise.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Shared with threads that are asleep on it.
    pub(super) socket: Arc<DeviceSocket>,
    /// The socket is in the background thread's set.
    watched: bool,
    /// The next timer of those that end waits of moments.
    timer: Option<Instant>,
    /// Turns of the background thread since a program last read the socket, up to [`STEADY`]: then
    /// it stays armed in that set.
    turns: u8,
    /// TCP did not take all of the last write.
    pub(super) blocked: bool,
    /// The epoll sets look for room to send.
    wants_room: bool,
    /// A message waits for a receive, and nothing is read meanwhile unless `reads_on`.
    pub(super) waits: bool,
    pub(super) reads_on: bool,
    /// The connection waits for memory, and nobody looks for octets meanwhile: see
    /// [`Connection::must_pause`](super::Connection::must_pause).
    paused: bool,
    /// The events that the epoll sets were last told to look for.
    interest: EpollFlags,
    pub(super) end: TcpEnd,
    /// Set if the connection has a user timeout.
    pub(super) silence: Option<Silence>,
}

impl Watch {
    pub(super) fn new(socket: DeviceSocket, options: &ConnectOptions) -> Self {
        let silence = options.user_timeout_in_force().map(Silence::after);
        Watch { silence, ..Self::of_datagrams(socket) }
    }

    /// Watches a socket that has no connection, or the descriptor of a device.
    pub(super) fn of_datagrams(socket: DeviceSocket) -> Self {
        Watch {
            socket: Arc::new(socket),
            watched: false,
            timer: None,
            turns: 0,
            blocked: false,
            wants_room: false,
            waits: false,
            reads_on: false,
            paused: false,
            interest: EpollFlags::EPOLLIN,
            end: TcpEnd::default(),
            silence: None,
        }
    }

    /// Returns the socket of the connection.
    pub(crate) fn socket(&self) -> &Arc<DeviceSocket> {
        &self.socket
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether TCP did not take all of the last write.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns whether a message waits for a receive.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Returns whether nothing is read before a receive is posted.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.waits && !self.reads_on
    }

    /// Makes TCP reset the connection.
    pub(super) fn reset(&self) {
        reset(self.fd());
    }

    /// Leaves the connection to the device: see [`TcpEnd::linger`].
    pub(super) fn linger(self, attrs: &QpAttributes, owed: Vec<u8>, discards: usize) {
        self.end.linger(attrs, self.socket, owed, discards);
    }

    /// Puts the socket into the epoll sets.
    pub(crate) fn watch(&mut self, attrs: &QpAttributes) -> io::Result<()> {
        for cq in attrs.cqs() {
            cq.admit(self.fd(), attrs.token)?;
        }
        attrs.device.driver.watch(self.fd(), attrs.token, EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP)?;
        self.watched = true;
        Ok(())
    }

    /// Takes the socket out of the epoll sets.
    pub(crate) fn unwatch(&self, attrs: &QpAttributes) {
        attrs.device.driver.unwatch(self.fd());
        attrs.cqs().for_each(|cq| cq.dismiss(self.fd(), attrs.token));
    }

    /// Puts the socket into the epoll set of a completion queue that begins to use one.
    pub(crate) fn enter(&self, attrs: &QpAttributes, cq: &CqInner) -> io::Result<()> {
        cq.admit(self.fd(), attrs.token)?;
        cq.set_interest(self.fd(), attrs.token, self.wanted());
        Ok(())
    }

    /// Takes the socket out of the background thread's set: it is left to the program.
    pub(crate) fn leave_to_program(&mut self, driver: &Driver) {
        self.turns = 0;
        if std::mem::take(&mut self.watched) {
            driver.unwatch(self.fd());
        }
    }

    /// Disarms the socket in the background thread's set, if it stays armed there.
    pub(crate) fn disarm(&mut self, driver: &Driver, token: u64) {
        if std::mem::take(&mut self.turns) == STEADY {
            driver.arm(self.fd(), token, EpollFlags::empty());
        }
    }

    /// Returns whether the background thread has the socket in its set: else it is left to a
    /// program, and the thread asks soon whether that still reads it.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Returns what a thread that sleeps on this connection has to watch.
    pub(crate) fn watch_for(&self) -> (Arc<DeviceSocket>, PollFlags) {
        (self.socket.clone(), poll_flags(self.wanted()))
    }

    /// Arms the epoll sets for what the connection waits for. `has_output` is only asked where it
    /// counts.
    #[inline]
    pub(super) fn update_interest(&mut self, attrs: &QpAttributes, has_output: impl FnOnce() -> bool) {
        self.wants_room = self.blocked && has_output();
        let interest = self.wanted();
        if interest != self.interest || self.end.is_peer_done() {
            self.interest = interest;
            let (driver, token) = (&attrs.device.driver, attrs.token);
            attrs.cqs().for_each(|cq| cq.set_interest(self.fd(), token, interest));
            // Out of the set, it is looked after by a program, which asks anew each time.
            if self.watched {
                self.turns = 0;
                driver.arm(self.fd(), token, interest);
            }
        }
    }

    /// Arms the background thread's set again after it has read the socket dry.
    pub(crate) fn rearm(&mut self, attrs: &QpAttributes) -> Result<(), WireEvent> {
        let (driver, token) = (&attrs.device.driver, attrs.token);
        let interest = self.wanted();
        self.interest = interest;
        // Only octets are read until there are none: any other event would come again at once.
        let turns = if interest == EpollFlags::EPOLLIN { self.turns } else { 0 };
        if self.watched && turns == STEADY {
            return Ok(());
        }
        self.turns = turns + 1;
        if self.watched && self.turns == STEADY {
            driver.keep_armed(self.fd(), token, interest);
        } else if self.watched {
            driver.arm(self.fd(), token, interest);
        } else if let Err(error) = driver.watch(self.fd(), token, interest) {
            // The kernel is out of memory or of its limit of watches, and without one nobody would
            // ever look.
            tracing::warn!(qp = attrs.num.0, %error, "the socket can no longer be watched");
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        } else {
            self.watched = true;
        }
        Ok(())
    }

    /// Returns what the epoll sets are to look for now.
    fn wanted(&self) -> EpollFlags {
        // After the peer's FIN the socket is readable for good, and while a Send waits, or this QP
        // for memory, it may be for long: that is no news.
        let idle = self.end.is_peer_done() || self.is_shut() || self.paused;
        let reads = if idle { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
        if self.wants_room { reads | EpollFlags::EPOLLOUT } else { reads }
    }

    /// Returns whether there is something to read.
    pub(crate) fn has_arrived(&self) -> bool {
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Returns whether to try the socket for octets, and for room. While TCP is full, building a
    /// train and having it refused would cost more than to ask first; and to ask does not lock the
    /// socket, which its sender then needs.
    pub(crate) fn readiness(&self) -> (bool, bool) {
        if !self.blocked {
            return (true, true);
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
        match nix::poll::poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => {
                let ready = fds[0].revents().unwrap_or(PollFlags::all());
                let ended = ready.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
                (ended || ready.contains(PollFlags::POLLIN), ended || ready.contains(PollFlags::POLLOUT))
            }
            Err(_) => (true, true),
        }
    }

    /// Has a timer expire at this moment, or before.
    pub(super) fn wake_by(&mut self, until: Instant, now: Instant, attrs: &QpAttributes) {
        if self.timer.is_none_or(|timer| timer <= now || until < timer) {
            self.timer = Some(until);
            attrs.device.driver.at(until, attrs.token);
        }
    }

    /// Keeps everybody from looking for octets until a timer expires: octets are there, and who
    /// slept on them would wake at once. Returns whether that is new.
    pub(super) fn pause_reading(&mut self, attrs: &QpAttributes) -> bool {
        let is_new = !std::mem::replace(&mut self.paused, true);
        if is_new {
            attrs.device.driver.at(Instant::now() + PAUSE, attrs.token);
        }
        is_new
    }

    /// Ends a pause in reading. Returns whether there was one.
    #[inline]
    pub(super) fn end_pause(&mut self) -> bool {
        std::mem::take(&mut self.paused)
    }
}

/// Accessors for tests of a queue pair.
#[cfg(test)]
impl Watch {
    /// Has the connection believe that TCP is full.
    pub(crate) fn block(&mut self) {
        self.blocked = true;
    }
}
