//! A listening socket, and the connections that are not established yet.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rnic::{ConnectRequest, Listener};
use rddp_sdp::socket::answer;

use crate::bell::Bell;
use crate::{SdpDevice, SdpStream};

/// Most connections that are waiting for their peer's first word.
const BACKLOG: usize = 128;

/// A listening socket.
#[derive(Debug)]
pub struct SdpListener {
    listener: Listener,
    device: SdpDevice,
    /// Rung when one of `children` is established, or over.
    bell: Arc<Bell>,
    children: Mutex<Vec<Child>>,
    is_stopped: AtomicBool,
}

/// A connection that the peer has said nothing on yet.
#[derive(Debug)]
struct Child {
    stream: SdpStream,
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

    /// Waits for a connection on which the peer has said its first word. Requests without a good
    /// Hello are rejected, and not seen.
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
                self.answer(request)?;
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

    fn answer(&self, request: ConnectRequest) -> io::Result<()> {
        let local = self.local_addr()?;
        let Some(peer) = request.peer_addr() else { return Ok(()) };
        let (config, carrier) = (&self.device.config, self.device.carrier);
        let answer = answer(config, request.private_data(), local, peer, carrier);
        let is_full = self.children().len() >= BACKLOG;
        let Ok((agreed, reply)) = answer else {
            // A peer that has left needs no answer.
            let _ = request.reject(b"");
            return Ok(());
        };
        if is_full {
            let _ = request.reject(b"");
            return Ok(());
        }
        let mut endpoint = self.device.endpoint()?;
        if request.accept(endpoint.qp(), &reply).is_ok() {
            endpoint.connected();
            let stream = SdpStream::new(endpoint, &self.device, agreed, Some(self.bell.clone()))?;
            let until = Instant::now() + config.times.answer;
            self.children().push(Child { stream, until });
        }
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
