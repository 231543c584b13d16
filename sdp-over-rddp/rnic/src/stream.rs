//! Sockets whose calls sleep: a stream and a listener, as `std::net` has them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rddp_rnic::{
    Capabilities, CompletionQueue, ConnectError, ConnectFailed, ConnectOptions, ProtectionDomain, Rnic,
};
use rddp_sdp::machine::Urgent;
use rddp_sdp::socket::{Agreed, Config, Ended, Error, OperationId, Options, Socket, answered, hello};
use rddp_sdp::transport::Carrier;
use rddp_sdp::wire::Hello;

use crate::bell::Bell;
use crate::endpoint::READS;
use crate::listener::SdpListener;
use crate::service::{Calls, Service};
use crate::watcher::Watcher;
use crate::{Endpoint, EndpointConfig, Octets, ProgramMemory, Registry, Scheme};

/// A device with what its SDP sockets share: a protection domain and a registry.
#[derive(Clone, Debug)]
pub struct SdpDevice {
    rnic: Rnic,
    pd: ProtectionDomain,
    registry: Arc<Registry>,
    service: Arc<Service>,
    pub(crate) carrier: Carrier,
    /// Settings of sockets made from now on.
    pub config: Config,
    /// Options of connections made from now on. Their private data are the socket's.
    pub options: ConnectOptions,
}

impl SdpDevice {
    /// Opens the software device, or the device of the host that `RDDP_DEVICE` names.
    ///
    /// # Errors
    /// The host refuses what a device needs, or the one that is named cannot be used.
    pub fn open(config: Config, scheme: Scheme) -> io::Result<Self> {
        Self::on(Rnic::open().map_err(io::Error::other)?, config, scheme)
    }

    /// Takes a device that the program has opened, by its
    /// [`RnicConfig`](rddp_rnic::RnicConfig) one of the host.
    ///
    /// ```
    /// use rddp_rnic::{Rnic, RnicConfig};
    /// use rddp_sdp::socket::Config;
    /// use rddp_sdp_rnic::{Scheme, SdpDevice};
    ///
    /// let settings = RnicConfig { device: Some("no such device".into()), ..Default::default() };
    /// Rnic::with_config(&settings).expect_err("a device of another name");
    /// let rnic = Rnic::with_config(&RnicConfig { device: Some("soft".into()), ..settings })?;
    /// SdpDevice::on(rnic, Config::default(), Scheme::PerCall)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The host refuses what a device needs.
    pub fn on(rnic: Rnic, config: Config, scheme: Scheme) -> io::Result<Self> {
        let limits = rnic.capabilities();
        let service = Service::new(&rnic)?;
        let pd = rnic.alloc_pd();
        let registry = Arc::new(Registry::new(&pd, scheme));
        let (ird, ord) = (limits.max_ird.min(READS), limits.max_ord.min(READS));
        let options = ConnectOptions { ird, ord, ..ConnectOptions::default() };
        Ok(SdpDevice { rnic, pd, registry, service, carrier: carrier(&limits), config, options })
    }

    /// Returns the registrations of the device's sockets.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns whether the thread runs that answers peers between the calls of the program: as
    /// long as there are streams.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.service.is_running()
    }

    /// Waits until the peers' hosts have all that was sent by streams which are dropped, at most
    /// for this time: a process that ends takes them with it.
    pub fn finish(&self, limit: Duration) {
        self.service.finish(limit);
    }

    /// Connects to a listener of SDP.
    ///
    /// # Errors
    /// Nobody listens there, or not for SDP, or the device cannot connect or register its buffers.
    pub fn connect(&self, addr: SocketAddr) -> io::Result<SdpStream> {
        let mut endpoint = self.endpoint()?;
        // The port is not known before TCP connects; the peer sees it there.
        let local = source_for(addr)?;
        let private_data = hello(&self.config, local, addr, self.carrier).unwrap_or_default();
        let options = ConnectOptions { private_data, ..self.options.clone() };
        let connected = endpoint.qp().connect(addr, &options).map_err(refused)?;
        let agreed = answered(&connected.private_data, self.carrier).map_err(|_| {
            endpoint.qp().abort();
            io::Error::from(io::ErrorKind::ConnectionRefused)
        })?;
        endpoint.connected();
        SdpStream::new(endpoint, self, agreed, None)
    }

    /// Listens for connections.
    ///
    /// # Errors
    /// The address is taken, or not this host's.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<SdpListener> {
        let listener = self.rnic.listen(addr, &self.options).map_err(io::Error::other)?;
        SdpListener::new(listener, self.clone())
    }

    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        let sizes = EndpointConfig {
            buffers: self.config.buffers,
            buffer_size: self.config.buffer_size,
            send_size: self.config.longest_message(),
            ..EndpointConfig::default()
        };
        let (rnic, channel) = (&self.rnic, self.service.channel());
        Endpoint::on_channel(rnic, channel, &self.pd, &self.registry, sizes).map_err(io::Error::other)
    }
}

/// A connected socket. Its calls sleep; one thread can read while another writes.
#[derive(Debug)]
pub struct SdpStream {
    pub(crate) shared: Arc<Shared>,
}

/// State of a stream that its calls and the service share.
pub(crate) struct Shared {
    socket: Mutex<Socket<Endpoint>>,
    cq: CompletionQueue,
    pub(crate) service: Arc<Service>,
    calls: Calls,
    /// The program has dropped the stream.
    is_closed: AtomicBool,
    /// Rung once, when the peer has said its first word or the connection is over.
    birth: Mutex<Option<Arc<Bell>>>,
    linger: Mutex<Option<Duration>>,
    /// Counts what calls have done that others may wait for.
    changes: AtomicU64,
    pub(crate) delivered: AtomicU64,
    began: Instant,
    registry: Arc<Registry>,
    pub(crate) watcher: OnceLock<Arc<dyn Watcher>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl SdpStream {
    pub(crate) fn new(
        endpoint: Endpoint,
        device: &SdpDevice,
        agreed: Agreed,
        birth: Option<Arc<Bell>>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            cq: endpoint.cq().clone(),
            socket: Mutex::new(Socket::new(endpoint, device.config, agreed)),
            service: device.service.clone(),
            calls: Calls::default(),
            is_closed: AtomicBool::new(false),
            birth: Mutex::new(birth),
            linger: Mutex::default(),
            changes: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            began: Instant::now(),
            registry: device.registry.clone(),
            watcher: OnceLock::new(),
        });
        shared.progress(&mut shared.lock());
        device.service.add(&shared)?;
        Ok(SdpStream { shared })
    }

    /// Returns whether the peer has said its first word.
    pub(crate) fn is_established(&self) -> bool {
        self.shared.lock().is_established()
    }

    /// Returns whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.is_over()
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
        let count = ProgramMemory::while_writing(octets, |memory| {
            self.shared.run(|socket| socket.receive(memory, options))
        })?;
        if !options.peek {
            self.shared.delivered.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Ends the stream that this end sends; the other direction goes on.
    pub fn shutdown_send(&self) {
        let mut socket = self.shared.lock_now();
        socket.shutdown_send();
        self.shared.progress(&mut socket);
        drop(socket);
        self.shared.service.ring();
    }

    /// Resets the connection: by an `AbortConn` where the protocol has one, which is given a moment
    /// to leave.
    pub fn abort(&self) {
        self.shared.lock_now().abort();
        self.shared.changed();
        self.shared.service.ring();
    }

    /// Says what dropping the stream does (`SO_LINGER`). `None`: the connection is closed while the
    /// program goes on. No time: it is reset. Any time: the drop waits for so long until the peer
    /// has everything and has closed, too; then the program goes on.
    pub fn set_linger(&self, linger: Option<Duration>) {
        *self.shared.linger() = linger;
    }

    /// Sets the fewest octets that a receive waits for (`SO_RCVLOWAT`), where it has room for them.
    pub fn set_low_water(&self, octets: usize) {
        self.shared.lock().set_low_water(octets);
    }

    /// Leaves urgent octets in the stream (`SO_OOBINLINE`).
    pub fn set_urgent_inline(&self, inline: bool) {
        self.shared.lock().set_urgent_inline(inline);
    }

    /// Returns what is known of urgent octets of the peer.
    #[must_use]
    pub fn urgent(&self) -> Urgent {
        self.shared.lock_now().urgent()
    }

    /// Receives the urgent octet alone (`MSG_OOB`); with `peek` it stays.
    ///
    /// # Errors
    /// `InvalidInput` (`EINVAL`): there is none, it was received before, or it is in the stream.
    /// `WouldBlock`: it is announced and has not come.
    pub fn receive_urgent(&self, peek: bool) -> io::Result<u8> {
        let octet = self.shared.lock_now().receive_urgent(peek).map_err(io_error)?;
        self.shared.delivered.fetch_add(u64::from(!peek), Ordering::Relaxed);
        Ok(octet)
    }

    /// Returns the octets by the way that they went. Those copied by both ends, divided by what was
    /// [`delivered`](Self::delivered), are the copies per octet.
    #[must_use]
    pub fn octets(&self) -> Octets {
        self.shared.lock().transport().octets()
    }

    /// Returns the octets that this end's program has received.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.shared.delivered.load(Ordering::Relaxed)
    }

    /// Returns the registrations of the device.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Socket<Endpoint>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the socket and tells it the time, from which its limits count for what begins now.
    pub(crate) fn lock_now(&self) -> MutexGuard<'_, Socket<Endpoint>> {
        let mut socket = self.lock();
        self.progress(&mut socket);
        socket
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.cq.wake();
    }

    pub(crate) fn progress(&self, socket: &mut Socket<Endpoint>) {
        if socket.progress(self.began.elapsed()) {
            self.changed();
        }
        if socket.is_established() || socket.is_over() {
            let birth = self.birth.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(bell) = birth {
                bell.ring();
            }
        }
        if let Some(watcher) = self.watcher.get() {
            watcher.now(socket.ready());
        }
    }

    pub(crate) fn has_watcher(&self) -> bool {
        self.watcher.get().is_some()
    }

    /// Carries an operation out and sleeps until it has ended.
    fn run(&self, begin: impl FnOnce(&mut Socket<Endpoint>) -> OperationId) -> io::Result<usize> {
        let _inside = self.calls.enter(&self.service);
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

    /// Drives the socket on for the service. Returns the time until it wants to be driven on though
    /// nothing has happened.
    pub(crate) fn drive(&self) -> Option<Duration> {
        let mut socket = self.lock();
        self.progress(&mut socket);
        socket.deadline().map(|at| at.saturating_sub(self.began.elapsed()))
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    pub(crate) fn has_said_all(&self) -> bool {
        self.lock().has_said_all()
    }

    fn linger(&self) -> MutexGuard<'_, Option<Duration>> {
        self.linger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the connection is over, at most for this time.
    fn wait_for_end(&self, limit: Duration) {
        let until = self.began.elapsed().saturating_add(limit);
        loop {
            let (deadline, seen) = {
                let mut socket = self.lock();
                self.progress(&mut socket);
                if socket.is_over() || self.began.elapsed() >= until {
                    return;
                }
                (socket.deadline(), self.changes.load(Ordering::SeqCst))
            };
            let next = deadline.map_or(until, |at| at.min(until));
            let others = || self.changes.load(Ordering::SeqCst) != seen;
            if self.cq.wait_or(Some(next.saturating_sub(self.began.elapsed())), others).is_err() {
                return;
            }
        }
    }
}

impl Drop for SdpStream {
    fn drop(&mut self) {
        let linger = *self.shared.linger();
        let mut socket = self.shared.lock_now();
        if linger == Some(Duration::ZERO) {
            socket.abort();
        } else {
            socket.close();
        }
        self.shared.progress(&mut socket);
        drop(socket);
        if let Some(limit) = linger {
            let _inside = self.shared.calls.enter(&self.shared.service);
            self.shared.wait_for_end(limit);
        }
        // `DisConn` and the peer's answer: a close does not wait for them.
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.service.ring();
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

pub(crate) fn outcome(ended: Ended) -> io::Result<usize> {
    match ended.error {
        Some(error) if ended.octets == 0 => Err(io_error(error)),
        _ => Ok(ended.octets),
    }
}

fn io_error(error: Error) -> io::Error {
    let kind = match error {
        Error::WouldBlock => io::ErrorKind::WouldBlock,
        Error::Cancelled => io::ErrorKind::Interrupted,
        Error::Address | Error::NoUrgent => io::ErrorKind::InvalidInput,
        Error::Closed => io::ErrorKind::BrokenPipe,
        Error::Reset => io::ErrorKind::ConnectionReset,
        Error::Aborted => io::ErrorKind::ConnectionAborted,
        Error::TimedOut => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

/// A peer that rejects, or that speaks no MPA, is none for SDP.
fn refused(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::Device(error) => return io::Error::other(rddp_rnic::Error::Device(error)),
        ConnectError::Tcp(ref error) | ConnectError::Unreached(ConnectFailed::Failed(ref error)) => {
            error.kind()
        }
        ConnectError::Unreached(ConnectFailed::NoRoute { .. }) => io::ErrorKind::NetworkUnreachable,
        ConnectError::TimedOut(_) | ConnectError::Unreached(ConnectFailed::Unreachable { .. }) => {
            io::ErrorKind::TimedOut
        }
        _ => io::ErrorKind::ConnectionRefused,
    };
    io::Error::new(kind, error.to_string())
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

/// Returns the carrier of Hello and `HelloAck`. On iWARP, IRD and ORD may take four octets of the
/// private data, so no more are used than fit then.
fn carrier(limits: &Capabilities) -> Carrier {
    if limits.max_request_data < Hello::LEN { Carrier::IpCm } else { Carrier::EnhancedMpa }
}
