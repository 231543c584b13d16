//! Watching a connection's socket: the epoll sets that it is in, and the events they look for.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::EpollFlags;

use rddp_rdma::AsyncEventKind;

use super::link::Link;
use crate::conn::socket::TcpSocket;
use crate::cq::CqInner;
use crate::io::driver::Driver;
use crate::io::sleep::poll_flags;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::wire::LinkEvent;

/// Turns in a row in which the background thread has read a socket, behind which it stays armed.
const STEADY: u8 = 8;

/// Time for which a QP reads nothing that must not begin a partial FPDU.
const PAUSE: Duration = Duration::from_millis(10);

impl Link {
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

    /// Returns what a thread that sleeps on this connection has to watch.
    pub(crate) fn watch_for(&self) -> (Arc<TcpSocket>, PollFlags) {
        (self.socket.clone(), poll_flags(self.wanted()))
    }

    /// Arms the epoll sets for what the connection waits for.
    pub(crate) fn update_interest(&mut self, cx: &Context<'_>) {
        self.wants_room = self.blocked && self.has_output(cx.sq);
        let interest = self.wanted();
        if interest != self.interest || self.ending.peer_done {
            self.interest = interest;
            let (driver, token) = (&cx.attrs.device.driver, cx.attrs.token);
            cx.attrs.cqs().for_each(|cq| cq.set_interest(self.fd(), token, interest));
            // Out of the set, it is looked after by a program, which asks anew each time.
            if self.watched {
                self.turns = 0;
                driver.arm(self.fd(), token, interest);
            }
        }
    }

    /// Arms the background thread's set again after it has read the socket dry.
    pub(crate) fn rearm(&mut self, attrs: &QpAttributes) -> Result<(), LinkEvent> {
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
            return Err(LinkEvent::Lost(AsyncEventKind::ConnectionLost));
        } else {
            self.watched = true;
        }
        Ok(())
    }

    /// Returns what the epoll sets are to look for now.
    fn wanted(&self) -> EpollFlags {
        // After the peer's FIN the socket is readable for good, and while a Send waits, or this QP
        // for memory, it may be for long: that is no news.
        let idle = self.ending.peer_done || self.is_parked() || self.paused;
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

    /// Returns whether this connection may not read now. RFC 5042 §6.4.1: while the partial FPDUs
    /// of all QPs take up all the memory that they may, no QP begins another.
    pub(crate) fn must_pause(&self, cx: &Context<'_>) -> bool {
        cx.attrs.device.partial.is_exhausted() && self.partial.is_empty() && self.direct.is_none()
    }

    /// Keeps everybody from looking for octets until a timer expires: octets are there, and who
    /// slept on them would wake at once.
    pub(crate) fn pause_reading(&mut self, cx: &Context<'_>) {
        if !std::mem::replace(&mut self.paused, true) {
            cx.attrs.device.driver.at(Instant::now() + PAUSE, cx.attrs.token);
            self.update_interest(cx);
        }
    }

    /// Ends a pause in reading, so that whoever sleeps on the socket looks for octets again.
    #[inline]
    pub(crate) fn resume_reading(&mut self, cx: &Context<'_>) {
        if std::mem::take(&mut self.paused) {
            self.update_interest(cx);
        }
    }
}
