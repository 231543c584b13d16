//! The passive side: listeners, and the connection requests that come out of them.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;
use rddp_mpa::{Negotiated, Request};
use rddp_rdma::ConnectOptions;
use socket2::SockAddr;

use super::half_open::HalfOpen;
use super::socket::{TcpSocket, no_delay, tcp_socket, write_all};
use crate::config::startup_config;
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::{ConnectError, Error};
use crate::home::Home;
use crate::io::driver::{Driver, Failure, Source};
use crate::io::notify::Notify;
use crate::io::ready_set::epoll_timeout;
use crate::qp::{QpState, QueuePair};

/// Connections that the kernel may keep ready for us.
const BACKLOG: i32 = 1024;

/// Connections taken in one turn.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a listener that is out of descriptors rests.
const REST: Duration = Duration::from_millis(50);

/// How long a rejected peer has to close.
pub(super) const REJECT_LINGER: Duration = Duration::from_secs(2);

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

/// A peer that asks to be connected. Dropping it closes the connection without an answer.
#[derive(Debug)]
pub struct ConnectRequest(Home<Pending>);

#[derive(Debug)]
struct Pending {
    device: Arc<DeviceInner>,
    options: ConnectOptions,
    socket: TcpSocket,
    request: Request,
    slot: Slot,
}

impl ConnectRequest {
    /// Who asks.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.here().ok()?.socket.peer_addr().ok()?.as_socket()
    }

    /// What the peer's program says. Unauthenticated (RFC 5042 §5.4).
    pub fn private_data(&self) -> &[u8] {
        &self.request().private_data
    }

    /// The MPA Request: revision, depths and wishes of the peer (RFC 6581 §9.1: handed to the program).
    pub fn request(&self) -> &Request {
        &self.0.anywhere().request
    }

    /// Connects `qp`, which must be idle, by the listener's settings. What `qp` posts is sent once the peer's first
    /// FPDU has come ([`Established`](crate::AsyncEventKind::Established)).
    pub fn accept(self, qp: &QueuePair, private_data: &[u8]) -> Result<Negotiated, ConnectError> {
        let options =
            ConnectOptions { private_data: private_data.to_vec(), ..self.0.anywhere().options.clone() };
        self.accept_with(qp, &options)
    }

    /// The same, by other settings.
    pub fn accept_with(self, qp: &QueuePair, options: &ConnectOptions) -> Result<Negotiated, ConnectError> {
        let state = qp.state();
        if state != QpState::Idle {
            return Err(ConnectError::NotIdle(state));
        }
        let inner = qp.inner.here()?;
        let options = &inner.options(options);
        let Pending { socket, request, slot, .. } = self.0.into_inner()?;
        let (reply, negotiated) = request.accept(&startup_config(options), &options.private_data)?;
        write_all(&socket, &reply)?;
        inner.attach(socket, negotiated.clone(), options, false, || ())?;
        drop(slot);
        Ok(negotiated)
    }

    /// Says no, with a reason for the peer's program.
    ///
    /// The connection is kept until the peer has closed it, for two seconds at most: a FIN right behind the Reply makes
    /// some peers (siw) overlook it. So a process should not end at once.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let Pending { device, options, socket, request, slot } = self.0.into_inner()?;
        let reply = request.reject(&startup_config(&options), private_data)?;
        write_all(&socket, &reply)?;
        // A FIN right behind the Reply makes some peers overlook it, so the peer closes first.
        HalfOpen::linger(&device, socket, slot, Deadline::after(REJECT_LINGER))?;
        Ok(())
    }
}

/// Counts connections that have not finished their startup, of the whole device and by peer (RFC 5042 §6.4.2).
#[derive(Debug)]
pub(crate) struct HalfOpenCount {
    max: usize,
    max_per_peer: usize,
    count: Mutex<(usize, HashMap<Origin, usize>)>,
}

/// Whom a connection is counted with: an IPv4 address, or the network of an IPv6 address, of which
/// one host has 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl Origin {
    fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(addr) => Origin::V4(addr),
            IpAddr::V6(addr) => {
                let [a, b, c, d, ..] = addr.segments();
                Origin::V6([a, b, c, d])
            }
        }
    }
}

impl HalfOpenCount {
    pub(crate) fn new(max: usize, max_per_peer: usize) -> Self {
        HalfOpenCount { max, max_per_peer, count: Mutex::default() }
    }

    pub(super) fn take(device: &Arc<DeviceInner>, peer: Option<IpAddr>) -> Option<Slot> {
        let this = &device.half_open;
        let peer = peer.map(Origin::of);
        let mut count = this.count.lock();
        if count.0 >= this.max {
            return None;
        }
        if let Some(peer) = peer {
            let of_peer = count.1.entry(peer).or_default();
            if *of_peer >= this.max_per_peer {
                return None;
            }
            *of_peer += 1;
        }
        count.0 += 1;
        Some(Slot { device: Arc::downgrade(device), peer })
    }

    fn give(&self, peer: Option<Origin>) {
        let mut count = self.count.lock();
        count.0 = count.0.saturating_sub(1);
        if let Some(peer) = peer
            && let Some(of_peer) = count.1.get_mut(&peer)
        {
            *of_peer -= 1;
            if *of_peer == 0 {
                count.1.remove(&peer);
            }
        }
    }
}

/// One of the counted connections.
#[derive(Debug)]
pub(crate) struct Slot {
    device: Weak<DeviceInner>,
    peer: Option<Origin>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            device.half_open.give(self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rnic, RnicConfig};

    /// RFC 5042 §6.4.2: who has a /64 has as many addresses as it likes.
    #[test]
    fn half_open_connections_are_counted_by_network_in_ipv6() {
        let config = RnicConfig { max_half_open_per_peer: 2, ..RnicConfig::default() };
        let device = Rnic::with_config(&config).unwrap();
        let device = device.0.anywhere();
        let take = |peer: &str| HalfOpenCount::take(device, Some(peer.parse().unwrap()));
        let first = take("2001:db8:0:1::1");
        let second = take("2001:db8:0:1:ffff::2");
        assert!(first.is_some() && second.is_some());
        assert!(take("2001:db8:0:1::3").is_none(), "the same /64");
        assert!(take("2001:db8:0:2::1").is_some(), "another");
        drop(first);
        assert!(take("2001:db8:0:1::3").is_some());
        let mapped = [take("::ffff:192.0.2.1"), take("192.0.2.1")];
        assert!(mapped.iter().all(Option::is_some) && take("192.0.2.1").is_none(), "one address");
        assert!(take("192.0.2.2").is_some() && take("::ffff:192.0.2.3").is_some());
    }
}
