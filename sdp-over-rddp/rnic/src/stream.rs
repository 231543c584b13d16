//! Sockets whose calls sleep: a stream and a listener, as `std::net` has them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rddp_rnic::{CompletionQueue, ConnectError, ConnectOptions, Listener, ProtectionDomain, Rnic};
use rddp_sdp::socket::{Agreed, Config, Ended, Error, OperationId, Options, Socket, answer, answered, hello};
use rddp_sdp::transport::Carrier;

use crate::{Endpoint, EndpointConfig, ProgramMemory, Registry, Scheme};

/// A device with what its SDP sockets share: a protection domain and a registry.
#[derive(Clone, Debug)]
pub struct SdpDevice {
    rnic: Arc<Rnic>,
    pd: ProtectionDomain,
    registry: Arc<Registry>,
    /// Settings of sockets made from now on.
    pub config: Config,
    /// Options of connections made from now on. Their private data are the socket's.
    pub options: ConnectOptions,
}

impl SdpDevice {
    /// Opens the software device.
    ///
    /// # Errors
    /// The host refuses what a device needs.
    pub fn open(config: Config, scheme: Scheme) -> Result<Self, rddp_rnic::Error> {
        let rnic = Rnic::open()?;
        let pd = rnic.alloc_pd();
        let registry = Arc::new(Registry::new(&pd, scheme));
        let options = ConnectOptions { ird: 8, ord: 8, ..ConnectOptions::default() };
        Ok(SdpDevice { rnic: Arc::new(rnic), pd, registry, config, options })
    }

    /// Returns the registrations of the device's sockets.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Connects to a listener of SDP.
    ///
    /// # Errors
    /// Nobody listens there, or not for SDP, or it is no iWARP port.
    pub fn connect(&self, addr: SocketAddr) -> io::Result<SdpStream> {
        let mut endpoint = self.endpoint()?;
        // The port is not known before TCP connects; the peer sees it there.
        let local = source_for(addr)?;
        let private_data = hello(&self.config, local, addr, CARRIER).unwrap_or_default();
        let options = ConnectOptions { private_data, ..self.options.clone() };
        let connected = endpoint.qp().connect(addr, &options).map_err(|error| refused(&error))?;
        let agreed = answered(&connected.private_data, CARRIER).map_err(|_| {
            endpoint.qp().abort();
            io::Error::from(io::ErrorKind::ConnectionRefused)
        })?;
        endpoint.connected(true);
        Ok(SdpStream::new(endpoint, self, agreed))
    }

    /// Listens for connections.
    ///
    /// # Errors
    /// The address is taken, or not this host's.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<SdpListener> {
        let listener = self.rnic.listen(addr, &self.options).map_err(io::Error::other)?;
        Ok(SdpListener { listener, device: self.clone() })
    }

    fn endpoint(&self) -> io::Result<Endpoint> {
        let sizes = EndpointConfig {
            buffers: self.config.buffers,
            buffer_size: self.config.buffer_size,
            ..EndpointConfig::default()
        };
        Endpoint::new(&self.rnic, &self.pd, &self.registry, sizes).map_err(io::Error::other)
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct SdpListener {
    listener: Listener,
    device: SdpDevice,
}

impl SdpListener {
    /// Returns the address.
    ///
    /// # Errors
    /// The system does not know it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for a connection. Requests without a good Hello are rejected, and not seen.
    ///
    /// # Errors
    /// The device cannot go on.
    pub fn accept(&self) -> io::Result<SdpStream> {
        let local = self.local_addr()?;
        loop {
            let Some(request) = self.listener.accept(None)? else { continue };
            let Some(peer) = request.peer_addr() else { continue };
            let answer = answer(&self.device.config, request.private_data(), local, peer, CARRIER);
            let Ok((agreed, reply)) = answer else {
                // A peer that has left needs no answer.
                let _ = request.reject(b"");
                continue;
            };
            let mut endpoint = self.device.endpoint()?;
            if request.accept(endpoint.qp(), &reply).is_ok() {
                endpoint.connected(false);
                return Ok(SdpStream::new(endpoint, &self.device, agreed));
            }
        }
    }
}

/// A connected socket. Its calls sleep; one thread can read while another writes.
#[derive(Debug)]
pub struct SdpStream {
    shared: Arc<Shared>,
}

struct Shared {
    socket: Mutex<Socket<Endpoint>>,
    cq: CompletionQueue,
    /// Counts what calls have done that others may wait for.
    changes: AtomicU64,
    began: Instant,
    registry: Arc<Registry>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl SdpStream {
    fn new(endpoint: Endpoint, device: &SdpDevice, agreed: Agreed) -> Self {
        let (cq, changes) = (endpoint.cq().clone(), AtomicU64::new(0));
        let socket = Mutex::new(Socket::new(endpoint, device.config, agreed));
        let registry = device.registry.clone();
        let shared = Arc::new(Shared { socket, cq, changes, began: Instant::now(), registry });
        shared.progress(&mut shared.lock());
        SdpStream { shared }
    }

    /// Sends octets, and returns how many were sent: fewer than there are only with `non_blocking`.
    ///
    /// # Errors
    /// The connection is over, or nothing can be sent without waiting.
    pub fn send(&self, octets: &[u8], options: Options) -> io::Result<usize> {
        ProgramMemory::while_reading(octets, |memory| self.shared.run(|socket| socket.send(memory, options)))
    }

    /// Receives octets, and returns how many; 0 at the end of the stream.
    ///
    /// # Errors
    /// The connection is over, or nothing can be received without waiting.
    pub fn receive(&self, octets: &mut [u8], options: Options) -> io::Result<usize> {
        ProgramMemory::while_writing(octets, |memory| {
            self.shared.run(|socket| socket.receive(memory, options))
        })
    }

    /// Ends the stream that this end sends; the other direction goes on.
    pub fn shutdown_send(&self) {
        let mut socket = self.shared.lock_now();
        socket.shutdown_send();
        self.shared.progress(&mut socket);
    }

    /// Resets the connection.
    pub fn abort(&self) {
        self.shared.lock().abort();
        self.shared.changed();
    }

    /// Returns the octets that were copied between memory of the program and private memory.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.shared.lock().transport().copied()
    }

    /// Returns the registrations of the device.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Socket<Endpoint>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the socket and tells it the time, from which its limits count for what begins now.
    fn lock_now(&self) -> MutexGuard<'_, Socket<Endpoint>> {
        let mut socket = self.lock();
        self.progress(&mut socket);
        socket
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.cq.wake();
    }

    fn progress(&self, socket: &mut Socket<Endpoint>) {
        if socket.progress(self.began.elapsed()) {
            self.changed();
        }
    }

    /// Carries an operation out and sleeps until it has ended.
    fn run(&self, begin: impl FnOnce(&mut Socket<Endpoint>) -> OperationId) -> io::Result<usize> {
        let id = begin(&mut self.lock_now());
        loop {
            let seen = self.changes.load(Ordering::SeqCst);
            let deadline = {
                let mut socket = self.lock();
                self.progress(&mut socket);
                if let Some(ended) = socket.take(id) {
                    return outcome(ended);
                }
                socket.deadline()
            };
            let timeout = deadline.map(|at| at.saturating_sub(self.began.elapsed()));
            let others = || self.changes.load(Ordering::SeqCst) != seen;
            if self.cq.wait_or(timeout, others).is_err() {
                // The memory may not go back while the peer could use it.
                self.lock().abort();
            }
        }
    }

    /// Drives a socket on that nobody uses any more, until its connection is over.
    fn finish(&self) {
        loop {
            let (deadline, seen) = {
                let mut socket = self.lock();
                self.progress(&mut socket);
                if socket.is_over() {
                    return;
                }
                (socket.deadline(), self.changes.load(Ordering::SeqCst))
            };
            let timeout = deadline.map(|at| at.saturating_sub(self.began.elapsed()));
            let others = || self.changes.load(Ordering::SeqCst) != seen;
            if self.cq.wait_or(timeout, others).is_err() {
                return self.lock().abort();
            }
        }
    }
}

impl Drop for SdpStream {
    fn drop(&mut self) {
        let mut socket = self.shared.lock_now();
        socket.close();
        self.shared.progress(&mut socket);
        if socket.is_over() {
            return;
        }
        drop(socket);
        // `DisConn` and the peer's answer: a close does not wait for them.
        let shared = self.shared.clone();
        if std::thread::Builder::new().name("rddp-sdp-close".into()).spawn(move || shared.finish()).is_err() {
            self.shared.lock().abort();
        }
    }
}

impl Read for &SdpStream {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        self.receive(octets, Options::default())
    }
}

impl Write for &SdpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(octets, Options::default())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for SdpStream {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        (&*self).read(octets)
    }
}

impl Write for SdpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        (&*self).write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn outcome(ended: Ended) -> io::Result<usize> {
    match ended.error {
        Some(error) if ended.octets == 0 => Err(io_error(error)),
        _ => Ok(ended.octets),
    }
}

fn io_error(error: Error) -> io::Error {
    let kind = match error {
        Error::WouldBlock => io::ErrorKind::WouldBlock,
        Error::Cancelled => io::ErrorKind::Interrupted,
        Error::Address => io::ErrorKind::InvalidInput,
        Error::Closed => io::ErrorKind::BrokenPipe,
        Error::Reset => io::ErrorKind::ConnectionReset,
        Error::Aborted => io::ErrorKind::ConnectionAborted,
        Error::TimedOut => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

/// A peer that rejects, or that speaks no MPA, is none for SDP.
fn refused(error: &ConnectError) -> io::Error {
    match error {
        ConnectError::Tcp(error) => io::Error::new(error.kind(), error.to_string()),
        other => io::Error::new(io::ErrorKind::ConnectionRefused, other.to_string()),
    }
}

/// Returns this host's address on the way to another.
fn source_for(addr: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(addr)?;
    Ok(SocketAddr::new(socket.local_addr()?.ip(), 0))
}

/// IRD and ORD may take four octets of the private data, so no more are used than fit then.
const CARRIER: Carrier = Carrier::EnhancedMpa;
