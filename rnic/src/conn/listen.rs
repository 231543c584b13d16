//! Listeners: TCP sockets that take connections, read their Requests and hand them to the program.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;
use rddp_rdma::ConnectOptions;
use socket2::{SockAddr, Socket};

use super::half_open::HalfOpen;
use super::peer_count::Counted;
use super::request::{ConnectRequest, Pending};
use super::socket::{DeviceSocket, no_delay, tcp_socket};
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::home::Home;
use crate::io::counter::Counter;
use crate::io::driver::{Driver, Failure, Source};
use crate::io::ready_set::epoll_timeout;
use crate::queues::options::Transport;
use crate::trace;
use crate::wire::opening::{Asked, Opening};

/// The number of connections that the kernel may keep ready for a listener.
const BACKLOG: u32 = 1024;

/// The number of connections that one turn of the background thread takes.
const ACCEPTS_PER_TURN: usize = 64;

/// The pause of a listener that cannot take connections, as when the process is out of descriptors.
const REST: Duration = Duration::from_millis(50);

/// A listener for iWARP peers, made by [`Rnic::listen`](crate::Rnic::listen). Its descriptor is
/// readable while there is a [`ConnectRequest`] to take. Dropping it closes the connections whose
/// requests were not taken.
///
/// ```
/// use std::time::Duration;
/// use rddp_rnic::{ConnectOptions, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let listener = rnic.listen("127.0.0.1:0".parse()?, &ConnectOptions::default())?;
/// let mut qps = Vec::new();
/// while let Some(request) = listener.accept(Some(Duration::ZERO))? {
///     let qp = pd.create_qp(&QpConfig::new(&cq))?;
///     request.accept(&qp, b"welcome")?;
///     qps.push(qp);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Listener(Home<Arc<ListenerInner>>);

impl Listener {
    pub(crate) fn bind(
        device: &Arc<DeviceInner>,
        addr: SocketAddr,
        transport: Transport,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        let socket = bound(&addr, options).map_err(Error::host("listening"))?;
        Self::on(device, socket, BACKLOG, transport, options)
    }

    /// Makes a listener of a bound socket.
    pub(crate) fn on(
        device: &Arc<DeviceInner>,
        socket: DeviceSocket,
        backlog: u32,
        transport: Transport,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        device.only_software("listeners (not yet)")?;
        if transport.is_of_datagrams() {
            return Err(Error::Conflict("UDP has no listeners: bind the queue pair"));
        }
        listen(&socket, backlog).map_err(Error::host("listening"))?;
        let ready = Counter::new().map_err(Error::host("making a listener's descriptor"))?;
        let inner = Arc::new_cyclic(|weak: &Weak<ListenerInner>| {
            let source: Weak<dyn Source> = weak.clone();
            ListenerInner {
                token: device.driver.add(source),
                this: weak.clone(),
                device: device.clone(),
                socket,
                transport,
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

    /// Returns the address at which the listener listens, with the port that the kernel has chosen
    /// if it was 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.0.here()?.socket.local_addr()?;
        addr.as_socket().ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Takes the oldest request, if there is one. Never sleeps.
    pub fn try_accept(&self) -> Option<ConnectRequest> {
        self.0.here().ok()?.take()
    }

    /// Takes the oldest request. Sleeps until there is one, for at most `timeout` (`None`: no
    /// limit).
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

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
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

fn bound(addr: &SocketAddr, options: &ConnectOptions) -> io::Result<DeviceSocket> {
    let socket = tcp_socket(addr, options)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(*addr))?;
    Ok(socket)
}

fn listen(socket: &Socket, backlog: u32) -> io::Result<()> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)
}

/// The part of a [`Listener`] that the background thread shares.
#[derive(Debug)]
pub(crate) struct ListenerInner {
    token: u64,
    this: Weak<ListenerInner>,
    device: Arc<DeviceInner>,
    socket: DeviceSocket,
    transport: Transport,
    options: ConnectOptions,
    requests: Mutex<VecDeque<ConnectRequest>>,
    ready: Counter,
    /// The failure that ended the listening, if one has; `ready` is readable for good then.
    failure: Mutex<Option<Failure>>,
}

impl ListenerInner {
    fn take(&self) -> Option<ConnectRequest> {
        // Under the lock, as in `push`: the descriptor shows as many as there are.
        let mut requests = self.requests.lock();
        let request = requests.pop_front()?;
        self.ready.take();
        Some(request)
    }

    /// Has a Request wait for the program's answer, unless too many do.
    pub(super) fn push(&self, socket: DeviceSocket, asked: Asked, counted: Counted) {
        let Some(waiting) = self.device.waiting.take_like(&counted) else {
            tracing::warn!("Request refused: too many wait for an answer (RnicConfig::max_waiting)");
            return;
        };
        trace::requested(
            socket.peer_addr().ok().and_then(|peer| peer.as_socket()),
            asked.private_data().len(),
        );
        drop(counted);
        let (device, options) = (self.device.clone(), self.options.clone());
        let pending = Pending { device, options, socket, asked, counted: waiting };
        let mut requests = self.requests.lock();
        requests.push_back(ConnectRequest(Home::new(pending)));
        self.ready.give();
    }

    /// Takes connections that the kernel has ready. Returns whether there may be more.
    fn accept_ready(&self) -> io::Result<bool> {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.socket.accept() {
                Ok((socket, peer)) => self.admit(DeviceSocket::new(socket), peer.as_socket()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes a place among the half-open connections. Where there is none left, the oldest of the
    /// address with the most of them goes (RFC 5042 §6.4.2): slow peers are many at few addresses.
    fn place(&self, peer: Option<IpAddr>) -> Option<Counted> {
        let count = &self.device.half_open_count;
        count.take(peer).or_else(|| {
            self.device.half_opens.end_oldest(count, count.crowd(peer)?);
            count.take(peer)
        })
    }

    /// Has the background thread read the Request of a new connection.
    fn admit(&self, socket: DeviceSocket, peer: Option<SocketAddr>) {
        let Some(counted) = self.place(peer.map(|peer| peer.ip())) else {
            tracing::warn!(
                ?peer,
                "connection refused: too many have not finished their startup (RnicConfig::max_half_open)"
            );
            return;
        };
        let opening = Opening::passive(self.transport);
        if let Some(asked) = opening.asked_at_once() {
            return self.push(socket, asked, counted);
        }
        let deadline = Deadline::after(self.options.timeout);
        let admitted = socket.set_nonblocking(true).and_then(|()| no_delay(&socket)).and_then(|()| {
            HalfOpen::await_request(
                &self.device,
                self.this.clone(),
                (socket, peer),
                opening,
                counted,
                deadline,
            )
        });
        if let Err(error) = admitted {
            tracing::warn!(?peer, %error, "connection refused");
        }
    }
}

impl Source for ListenerInner {
    fn on_ready(&self, driver: &Driver) -> bool {
        match self.accept_ready() {
            Ok(true) => return true,
            Ok(false) => driver.arm(self.socket.as_fd(), self.token, EpollFlags::EPOLLIN),
            Err(error) => {
                // Most likely the process is out of descriptors, and closes some after a while.
                let is_limit = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
                let remedy =
                    is_limit.then(|| tracing::field::display("raise the limit of open files (ulimit -n)"));
                tracing::warn!(%error, remedy, "a listener cannot take connections, and tries again");
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
        // The kernel refuses connections from now on.
        let _ = self.socket.shutdown(Shutdown::Both);
        *self.failure.lock() = Some(failure);
        self.ready.give();
    }
}
