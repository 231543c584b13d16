//! Listeners: TCP sockets that take connections, read their Requests and hand them to the program;
//! or those of a device of the host, which does as much itself.

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
use rddp_verbs_device::{self as verbs, DeviceError};
use socket2::{SockAddr, Socket};

use super::half_open::HalfOpen;
use super::peer_count::Counted;
use super::request::{ConnectRequest, Pending, Wish};
use super::socket::{DeviceSocket, no_delay, tcp_socket};
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::home::Home;
use crate::io::counter::Counter;
use crate::io::driver::{Driver, Failure, Source};
use crate::io::ready_set::epoll_timeout;
use crate::mem::HostDevice;
use crate::queues::options::Transport;
use crate::trace;
use crate::wire::opening::{Asked, Opening};

/// The number of connections that the kernel may keep ready for a listener.
const BACKLOG: u32 = 1024;

/// The number of connections that one turn of the background thread takes.
const ACCEPTS_PER_TURN: usize = 64;

/// The pause of a listener that cannot take connections, as when the process is out of descriptors.
const REST: Duration = Duration::from_millis(50);

/// The reason why another request may not wait.
const TOO_MANY: &str = "too many wait for an answer (RnicConfig::max_waiting)";

/// A listener for peers, made by [`Rnic::listen`](crate::Rnic::listen). Its descriptor is readable
/// while there is a [`ConnectRequest`] to take, and for good once a failure has ended the
/// listening, of which [`accept`](Self::accept) tells. Dropping it closes the connections whose
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
        if let Some(host) = &device.host {
            return Self::by_device(device, host, addr, transport, options);
        }
        let socket = bound(&addr, options).map_err(Error::host("listening"))?;
        Self::on(device, socket, BACKLOG, transport, options)
    }

    /// Makes a listener of the device of the host.
    fn by_device(
        device: &Arc<DeviceInner>,
        host: &HostDevice,
        addr: SocketAddr,
        transport: Transport,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        if !matches!(transport, Transport::Iwarp | Transport::Device) {
            return Err(host.lacks("this transport").into());
        }
        host.check_options(options)?;
        let listener = verbs::Listener::open(host.device(), addr, BACKLOG as i32)?;
        Self::begin(device, Hears::Device(listener), options)
    }

    /// Makes a listener of a bound socket.
    pub(crate) fn on(
        device: &Arc<DeviceInner>,
        socket: DeviceSocket,
        backlog: u32,
        transport: Transport,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        device.only_software("listeners on a program's own socket")?;
        if transport.is_of_datagrams() {
            return Err(Error::Conflict("UDP has no listeners: bind the queue pair"));
        }
        listen(&socket, backlog).map_err(Error::host("listening"))?;
        Self::begin(device, Hears::Tcp { socket, transport }, options)
    }

    /// Has the background thread take the peers that come.
    fn begin(device: &Arc<DeviceInner>, hears: Hears, options: &ConnectOptions) -> Result<Self, Error> {
        let ready = Counter::new().map_err(Error::host("making a listener's descriptor"))?;
        let inner = Arc::new_cyclic(|weak: &Weak<ListenerInner>| {
            let source: Weak<dyn Source> = weak.clone();
            ListenerInner {
                token: device.driver.add(source),
                this: weak.clone(),
                device: device.clone(),
                hears,
                options: options.clone(),
                requests: Mutex::default(),
                ready,
                failure: Mutex::default(),
            }
        });
        device
            .driver
            .watch(inner.hears.as_fd(), inner.token, EpollFlags::EPOLLIN)
            .map_err(Error::host("watching the listener"))?;
        Ok(Listener(Home::new(inner)))
    }

    /// Returns the address at which the listener listens, with the port that the kernel has chosen
    /// if it was 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = match &self.0.here()?.hears {
            Hears::Tcp { socket, .. } => socket.local_addr()?.as_socket(),
            Hears::Device(listener) => Some(listener.address()),
        };
        addr.ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Takes the oldest request, if there is one. Never sleeps. Of a listening that has ended,
    /// [`failure`](Self::failure) tells.
    pub fn try_accept(&self) -> Option<ConnectRequest> {
        self.0.here().ok()?.take()
    }

    /// Returns the failure that has ended the listening, if one has: no more requests come, and the
    /// descriptor stays readable.
    pub fn failure(&self) -> Option<io::Error> {
        self.0.here().ok()?.failure.lock().clone().map(io::Error::other)
    }

    /// Takes the oldest request. Sleeps until there is one, for at most `timeout` (`None`: no
    /// limit).
    ///
    /// # Errors
    /// The listening has ended, as when the device of the host was removed.
    pub fn accept(&self, timeout: Option<Duration>) -> io::Result<Option<ConnectRequest>> {
        let listener = self.0.here()?;
        let deadline = Deadline::after_any(timeout);
        loop {
            if let Some(request) = listener.take() {
                return Ok(Some(request));
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
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
        inner.device.driver.unwatch(inner.hears.as_fd());
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

/// The place where a listener hears of peers.
#[derive(Debug)]
enum Hears {
    Tcp {
        socket: DeviceSocket,
        transport: Transport,
    },
    /// A device of the host.
    Device(verbs::Listener),
}

impl AsFd for Hears {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Hears::Tcp { socket, .. } => socket.as_fd(),
            Hears::Device(listener) => listener.as_fd(),
        }
    }
}

/// The reason why peers cannot be taken.
enum Deaf {
    /// For a while.
    Now(io::Error),
    /// For good.
    Ever(DeviceError),
}

/// The part of a [`Listener`] that the background thread shares.
#[derive(Debug)]
pub(crate) struct ListenerInner {
    token: u64,
    this: Weak<ListenerInner>,
    device: Arc<DeviceInner>,
    hears: Hears,
    options: ConnectOptions,
    requests: Mutex<VecDeque<ConnectRequest>>,
    ready: Counter,
    /// The failure that ended the listening, if one has; `ready` is readable for good then.
    failure: Mutex<Option<String>>,
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
            tracing::warn!("Request refused: {TOO_MANY}");
            return;
        };
        drop(counted);
        self.await_answer(Wish::Tcp { socket, asked }, waiting);
    }

    fn await_answer(&self, wish: Wish, counted: Counted) {
        trace::requested(wish.peer_addr(), wish.private_data().len());
        let (device, options) = (self.device.clone(), self.options.clone());
        let pending = Pending { device, options, wish, counted };
        let mut requests = self.requests.lock();
        requests.push_back(ConnectRequest(Home::new(pending)));
        self.ready.give();
    }

    /// Takes what is there of peers. Returns whether there may be more.
    fn take_peers(&self) -> Result<bool, Deaf> {
        match &self.hears {
            Hears::Tcp { socket, transport } => self.accept_ready(socket, *transport).map_err(Deaf::Now),
            Hears::Device(listener) => self.take_ready(listener).map_err(Deaf::Ever),
        }
    }

    /// Takes requests that the device has ready. One for which there is no place is rejected.
    fn take_ready(&self, listener: &verbs::Listener) -> Result<bool, DeviceError> {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(request) = listener.take()? else { return Ok(false) };
            match self.device.waiting.take(request.asked().peer.map(|peer| peer.ip())) {
                Some(counted) => self.await_answer(Wish::Device(request), counted),
                None => tracing::warn!("Request rejected: {TOO_MANY}"),
            }
        }
        Ok(true)
    }

    /// Takes connections that the kernel has ready.
    fn accept_ready(&self, socket: &Socket, transport: Transport) -> io::Result<bool> {
        for _ in 0..ACCEPTS_PER_TURN {
            match socket.accept() {
                Ok((socket, peer)) => self.admit(DeviceSocket::new(socket), peer.as_socket(), transport),
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

    /// Ends the listening, of which the program is told.
    fn end(&self, driver: &Driver, failure: String) {
        driver.unwatch(self.hears.as_fd());
        driver.remove(self.token);
        if let Hears::Tcp { socket, .. } = &self.hears {
            // The kernel refuses connections from now on.
            let _ = socket.shutdown(Shutdown::Both);
        }
        *self.failure.lock() = Some(failure);
        self.ready.give();
    }

    /// Has the background thread read the Request of a new connection.
    fn admit(&self, socket: DeviceSocket, peer: Option<SocketAddr>, transport: Transport) {
        let Some(counted) = self.place(peer.map(|peer| peer.ip())) else {
            tracing::warn!(
                ?peer,
                "connection refused: too many have not finished their startup (RnicConfig::max_half_open)"
            );
            return;
        };
        let opening = Opening::passive(transport);
        if let Some(asked) = opening.asked_at_once() {
            return self.push(socket, asked, counted);
        }
        let deadline = Deadline::after(self.options.timeout);
        let (device, this) = (&self.device, self.this.clone());
        let admitted = socket
            .set_nonblocking(true)
            .and_then(|()| no_delay(&socket))
            .and_then(|()| HalfOpen::await_request(device, this, (socket, peer), opening, counted, deadline));
        if let Err(error) = admitted {
            tracing::warn!(?peer, %error, "connection refused");
        }
    }
}

impl Source for ListenerInner {
    fn on_ready(&self, driver: &Driver) -> bool {
        match self.take_peers() {
            Ok(true) => return true,
            Ok(false) => driver.arm(self.hears.as_fd(), self.token, EpollFlags::EPOLLIN),
            Err(Deaf::Ever(error)) => {
                tracing::error!(%error, "a listener ends");
                self.end(driver, error.to_string());
            }
            Err(Deaf::Now(error)) => {
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
        driver.arm(self.hears.as_fd(), self.token, EpollFlags::EPOLLIN);
    }

    fn give_up(&self, driver: &Driver, failure: Failure) {
        self.end(driver, io::Error::from(failure).to_string());
    }
}
