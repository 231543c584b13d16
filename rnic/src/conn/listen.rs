//! The passive side: listeners, and the connection requests that come out of them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;
use rddp_mpa::Request;
use rddp_rdma::ConnectOptions;
use socket2::SockAddr;

use super::half_open::HalfOpen;
use super::half_open_count::{HalfOpenCount, Slot};
use super::request::{ConnectRequest, Pending};
use super::socket::{TcpSocket, no_delay, tcp_socket};
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::home::Home;
use crate::io::driver::{Driver, Failure, Source};
use crate::io::notify::Notify;
use crate::io::ready_set::epoll_timeout;

/// Connections that the kernel may keep ready for us.
const BACKLOG: i32 = 1024;

/// Connections taken in one turn.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a listener that is out of descriptors rests.
const REST: Duration = Duration::from_millis(50);

/// Waits for peers that connect. Its descriptor is readable while there is a [`ConnectRequest`] to take.
#[derive(Debug)]
pub struct Listener(Home<Arc<ListenerInner>>);

impl Listener {
    pub(crate) fn bind(
        device: &Arc<DeviceInner>,
        addr: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        let socket = listen(&addr, options).map_err(Error::host("listening"))?;
        let ready = Notify::counter().map_err(Error::host("making a listener's descriptor"))?;
        let inner = Arc::new_cyclic(|weak: &Weak<ListenerInner>| {
            let source: Weak<dyn Source> = weak.clone();
            ListenerInner {
                token: device.driver.add(source),
                this: weak.clone(),
                device: device.clone(),
                socket,
                options: options.clone(),
                requests: Mutex::default(),
                ready,
                failure: Mutex::default(),
            }
        });
        device
            .driver
            .watch(inner.socket.as_fd(), inner.token, EpollFlags::EPOLLIN)
            .map_err(Error::host("watching the listener"))?;
        Ok(Listener(Home::new(inner)))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.0.here()?.socket.local_addr()?;
        addr.as_socket().ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Takes the oldest request. Never sleeps.
    pub fn try_accept(&self) -> Option<ConnectRequest> {
        self.0.here().ok()?.take()
    }

    /// Sleeps until a peer asks to be connected, for at most `timeout` (`None`: no limit).
    pub fn accept(&self, timeout: Option<Duration>) -> io::Result<Option<ConnectRequest>> {
        let listener = self.0.here()?;
        let deadline = Deadline::after_any(timeout);
        loop {
            if let Some(request) = listener.take() {
                return Ok(Some(request));
            }
            if let Some(failure) = *listener.failure.lock() {
                return Err(failure.into());
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let mut fds = [PollFd::new(listener.ready.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, epoll_timeout(left)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.anywhere().ready.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Ok(inner) = self.0.here() else { return };
        inner.device.driver.unwatch(inner.socket.as_fd());
        inner.device.driver.leave(inner.token);
        inner.device.half_opens.forget(&inner.this, &inner.device.driver);
        inner.requests.lock().clear();
    }
}

fn listen(addr: &SocketAddr, options: &ConnectOptions) -> io::Result<TcpSocket> {
    let socket = tcp_socket(addr, options)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(*addr))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[derive(Debug)]
pub(crate) struct ListenerInner {
    token: u64,
    this: Weak<ListenerInner>,
    device: Arc<DeviceInner>,
    socket: TcpSocket,
    options: ConnectOptions,
    requests: Mutex<VecDeque<ConnectRequest>>,
    ready: Notify,
    /// The failure that ended the listening, if one has; `ready` is readable for good then.
    failure: Mutex<Option<Failure>>,
}

impl ListenerInner {
    fn take(&self) -> Option<ConnectRequest> {
        let request = self.requests.lock().pop_front()?;
        self.ready.take();
        Some(request)
    }

    pub(super) fn push(&self, socket: TcpSocket, request: Request, slot: Slot) {
        let (device, options) = (self.device.clone(), self.options.clone());
        self.requests.lock().push_back(ConnectRequest(Home::new(Pending {
            device,
            options,
            socket,
            request,
            slot,
        })));
        self.ready.give();
    }

    /// Takes what the kernel has ready; whether there may be more.
    fn accept_ready(&self) -> io::Result<bool> {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.socket.accept() {
                Ok((socket, peer)) => self.admit(TcpSocket::new(socket), peer.as_socket()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn admit(&self, socket: TcpSocket, peer: Option<SocketAddr>) {
        let Some(slot) = HalfOpenCount::take(&self.device, peer.map(|peer| peer.ip())) else {
            tracing::warn!(?peer, "refused: too many connections have not finished their startup");
            return;
        };
        let deadline = Deadline::after(self.options.timeout);
        let admitted = socket
            .set_nonblocking(true)
            .and_then(|()| no_delay(&socket))
            .and_then(|()| HalfOpen::await_request(&self.device, self.this.clone(), socket, slot, deadline));
        if let Err(error) = admitted {
            tracing::warn!(?peer, %error, "refused");
        }
    }
}

impl Source for ListenerInner {
    fn on_ready(&self, driver: &Driver) -> bool {
        match self.accept_ready() {
            Ok(true) => return true,
            Ok(false) => driver.arm(self.socket.as_fd(), self.token, EpollFlags::EPOLLIN),
            Err(error) => {
                // Most likely out of descriptors: others may be closed meanwhile.
                tracing::warn!(%error, "cannot take connections");
                driver.at(Instant::now() + REST, self.token);
            }
        }
        false
    }

    fn on_timer(&self, driver: &Driver, _now: Instant) {
        driver.arm(self.socket.as_fd(), self.token, EpollFlags::EPOLLIN);
    }

    fn give_up(&self, driver: &Driver, failure: Failure) {
        driver.unwatch(self.socket.as_fd());
        driver.remove(self.token);
        // Whoever connects is refused from now on.
        let _ = self.socket.shutdown(Shutdown::Both);
        *self.failure.lock() = Some(failure);
        self.ready.give();
    }
}
