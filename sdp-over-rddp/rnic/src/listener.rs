//! A listening socket, and the connections that are not established yet.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rnic::{ConnectRequest, Listener};
use rddp_sdp::socket::{Agreed, answer};

use crate::bell::Bell;
use crate::{Endpoint, SdpDevice, SdpStream};

/// Most connections that are waiting for their peer's first word. Each has private buffers, which
/// a device locks in memory (RFC 5042 §6.4.2).
const BACKLOG: usize = 128;

/// The share of one peer.
const BACKLOG_PER_PEER: usize = BACKLOG / 2;

/// Longest wait for that word: the active end says it as soon as it is connected.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// A listening socket.
#[derive(Debug)]
pub struct SdpListener {
    listener: Listener,
    device: SdpDevice,
    /// Rung when one of `children` is established, or over.
    bell: Arc<Bell>,
    children: Mutex<Vec<Child>>,
    is_stopped: AtomicBool,
    on_rejected: OnceLock<Rejected>,
}

/// A function that is told of a peer that this host's lack of something has rejected, and of what.
type Rejected = fn(SocketAddr, &io::Error);

/// The endpoint for a request, what was agreed on, and the private data of the reply.
type Prepared = (Endpoint, Agreed, Vec<u8>);

/// A connection that the peer has said nothing on yet.
#[derive(Debug)]
struct Child {
    stream: SdpStream,
    origin: IpAddr,
    until: Instant,
}

impl SdpListener {
    pub(crate) fn new(listener: Listener, device: SdpDevice) -> io::Result<Self> {
        Ok(SdpListener {
            listener,
            device,
            bell: Arc::new(Bell::new()?),
            children: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            on_rejected: OnceLock::new(),
        })
    }

    /// Returns the address.
    ///
    /// # Errors
    /// The system does not know it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the failure that has ended the listening for good, if one has: the device was
    /// removed, say.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        self.listener.failure()
    }

    /// Has a function told, inside [`accept`](Self::accept), of each peer that is rejected for a
    /// reason of this host's: too little locked memory, say. The first call of this counts.
    pub fn tell_rejected(&self, tell: fn(peer: SocketAddr, reason: &io::Error)) {
        let _ = self.on_rejected.set(tell);
    }

    /// Waits for a connection on which the peer has said its first word. Requests without a good
    /// Hello are rejected, and not seen, and so are those for which there is no memory.
    ///
    /// # Errors
    /// The device cannot go on, or the listener was [stopped](Self::stop) (`Interrupted`).
    pub fn accept(&self) -> io::Result<SdpStream> {
        loop {
            self.bell.silence();
            if self.is_stopped.load(Ordering::SeqCst) {
                // For other threads that sleep here.
                self.bell.ring();
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some(stream) = self.established() {
                return Ok(stream);
            }
            if let Some(request) = self.listener.accept(Some(Duration::ZERO))? {
                self.answer(request);
            } else {
                self.wait()?;
            }
        }
    }

    /// Ends all calls of [`accept`](Self::accept), those that sleep and those to come.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Takes the oldest connection that is established, and drops those that are over.
    fn established(&self) -> Option<SdpStream> {
        let (now, mut children) = (Instant::now(), self.children());
        let mut at = 0;
        while let Some(child) = children.get(at) {
            if child.stream.is_established() {
                let stream = children.remove(at).stream;
                // Another one may be for another thread, which this one has kept asleep.
                self.bell.ring();
                return Some(stream);
            }
            if child.stream.is_over() || child.until <= now {
                children.remove(at).stream.abort();
            } else {
                at += 1;
            }
        }
        None
    }

    /// Answers a request. What fails is the affair of this peer alone, and others come.
    fn answer(&self, request: ConnectRequest) {
        let Some(peer) = request.peer_addr() else { return };
        match self.prepare(&request, peer) {
            Ok(Some(prepared)) => {
                if let Err(error) = self.take(request, prepared, peer) {
                    tracing::warn!(%peer, %error, "a connection is dropped");
                }
                return;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%peer, %error, "a connection is rejected");
                if let Some(tell) = self.on_rejected.get() {
                    tell(peer, &error);
                }
            }
        }
        // A peer that has left needs no answer.
        let _ = request.reject(b"");
    }

    /// Makes what a connection needs. Returns `None` without a good Hello.
    fn prepare(&self, request: &ConnectRequest, peer: SocketAddr) -> io::Result<Option<Prepared>> {
        let (config, carrier) = (&self.device.config, self.device.carrier);
        let answer = answer(config, request.private_data(), self.local_addr()?, peer, carrier);
        let Ok((agreed, reply)) = answer else { return Ok(None) };
        if self.is_full(origin(peer.ip())) {
            return Err(io::Error::other("too many wait for their peer's first word"));
        }
        Ok(Some((self.device.endpoint()?, agreed, reply)))
    }

    fn is_full(&self, origin: IpAddr) -> bool {
        let children = self.children();
        let of_peer = children.iter().filter(|child| child.origin == origin).count();
        children.len() >= BACKLOG || of_peer >= BACKLOG_PER_PEER
    }

    /// Accepts a request, and waits for the first word from then on.
    fn take(&self, request: ConnectRequest, prepared: Prepared, peer: SocketAddr) -> io::Result<()> {
        let (mut endpoint, agreed, reply) = prepared;
        request.accept(endpoint.qp(), &reply).map_err(io::Error::other)?;
        endpoint.connected();
        let stream = SdpStream::new(endpoint, &self.device, agreed, Some(self.bell.clone()))?;
        let until = Instant::now() + self.device.config.times.answer.min(FIRST_WORD);
        self.children().push(Child { stream, origin: origin(peer.ip()), until });
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let first = self.children().iter().map(|child| child.until).min();
        let left = first.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        let mut fds = [
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what a peer is counted by: its address, or the network of an IPv6 address, since one
/// host may have all 2^64 addresses of its network.
fn origin(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}
