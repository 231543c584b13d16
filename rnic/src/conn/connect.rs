//! Connecting to an address (RFC 5044 §7.1, RFC 6581): the port mapper, TCP, the Request, and a
//! second attempt with revision 1 where the peer refuses revision 2.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use rddp_mpa::{Negotiated, Revision};
use rddp_rdma::{ConnectOptions, PortMapper};
use rddp_verbs_device::ConnectFailed;
use socket2::{SockAddr, Socket};

use super::mss::fit_to_path;
use super::port_mapper::Query;
use super::socket::{DeviceSocket, tcp_socket};
use super::stage::{Next, Stage};
use super::startup::{Plan, Startup};
use crate::error::ConnectError;
use crate::qp::{QpInner, QueuePair};
use crate::queues::options::Transport;
use crate::sys::reset;
use crate::wire::opening::{Opening, again};

/// Time between a refusal by the peer's host and the next attempt.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of a startup that has led to a connection.
///
/// ```
/// use std::time::Duration;
/// use rddp_rnic::{ConnectOptions, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq, options) = (rnic.alloc_pd(), rnic.create_cq(16)?, ConnectOptions::default());
/// let [active, passive] = [pd.create_qp(&QpConfig::new(&cq))?, pd.create_qp(&QpConfig::new(&cq))?];
/// let listener = rnic.listen("127.0.0.1:0".parse()?, &options)?;
/// active.begin_to(listener.local_addr()?, &options)?;
/// let request = listener.accept(Some(Duration::from_secs(5)))?.ok_or("nobody came")?;
/// request.accept(&passive, b"welcome")?;
///
/// active.await_begun(Duration::from_secs(5));
/// let connected = active.begun().ok_or("not in time")??;
/// assert!(connected.negotiated.is_some_and(|agreed| agreed.crc) && connected.private_data == b"welcome");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connected {
    /// The settings that both ends have agreed on, where the wire is iWARP.
    pub negotiated: Option<Negotiated>,
    /// Reads and atomics of the peer that this end answers at a time, where the wire has any.
    pub ird: u16,
    /// Reads and atomics that this end may ask for at a time, where the wire has any.
    pub ord: u16,
    /// The private data of the peer's program. They are not authenticated (RFC 5042 §5.4).
    pub private_data: Vec<u8>,
}

impl QueuePair {
    /// Connects to a peer that listens at `addr`. Sleeps until that is done, or `options.timeout`
    /// has passed.
    ///
    /// # Errors
    /// The QP is not idle, a startup frame cannot hold the settings or the private data, or the
    /// peer cannot be reached, is no iWARP listener, rejects the connection, or does not answer in
    /// time.
    pub fn connect(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<Connected, ConnectError> {
        self.begin_connecting(addr, options, false)?.outcome()
    }

    /// Begins to connect to a peer that listens at `addr`, as [`connect`](Self::connect) does, with
    /// the port mapper and the fall-back to MPA revision 1, and returns at once. The event
    /// [`Connected`](crate::AsyncEventKind::Connected) or
    /// [`NotConnected`](crate::AsyncEventKind::NotConnected) reports the end, and
    /// [`begun`](Self::begun) has the result.
    ///
    /// # Errors
    /// The QP is not idle or is being connected already, a startup frame cannot hold the settings
    /// or the private data, TCP refuses the address, `options.mss`, `options.congestion` or
    /// `options.keepalive`, or the process has no descriptor left.
    pub fn begin_to(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<(), ConnectError> {
        self.begin_connecting(addr, options, true).map(drop)
    }

    fn begin_connecting(
        &self,
        addr: SocketAddr,
        options: &ConnectOptions,
        reports: bool,
    ) -> Result<Arc<Startup>, ConnectError> {
        let inner = self.inner.here()?;
        let transport = inner.attrs.transport;
        let plan = Plan { reports, addr: Some(addr), asks: false, transport };
        self.begin_by(options, plan, |options| attempt(inner, addr, options))
    }
}

/// Makes the first stage of a connection to `addr`.
fn attempt(qp: &QpInner, addr: SocketAddr, options: &ConnectOptions) -> Result<Stage, ConnectError> {
    let transport = qp.attrs.transport;
    if transport == Transport::Device {
        let (socket, opening) = qp.begin_by_device(addr, options)?;
        return Ok(Stage::Open { socket, opening });
    }
    let opening = Opening::active(transport, options)?;
    let socket = active_socket(addr, options)?;
    let asks =
        transport == Transport::Iwarp && options.port_mapper == PortMapper::Auto && !addr.ip().is_loopback();
    let query = asks.then(|| Query::begin(&socket, addr)).flatten();
    connect_tcp(&socket, addr)?;
    Ok(match query {
        Some(query) => Stage::Mapper { socket, query, opening },
        None => Stage::Tcp { socket, opening },
    })
}

/// Returns whether nothing listens there, by the word of the peer's host.
fn was_refused(error: &ConnectError) -> bool {
    match error {
        ConnectError::Tcp(cause) => cause.kind() == ErrorKind::ConnectionRefused,
        ConnectError::Unreached(why) => matches!(why, ConnectFailed::Refused { .. }),
        _ => false,
    }
}

/// Makes a socket that is to connect to `addr`.
fn active_socket(addr: SocketAddr, options: &ConnectOptions) -> io::Result<DeviceSocket> {
    let socket = tcp_socket(&addr, options)?;
    if let Some(source) = options.source {
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(source))?;
    }
    if options.mss.is_none() {
        fit_to_path(&socket, addr);
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Has TCP connect, without waiting for the end of that.
fn connect_tcp(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    match socket.connect(&SockAddr::from(addr)) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

impl Startup {
    /// Connects to the port that the mapper names, or goes on with the one that was given if no
    /// mapper answers.
    pub(super) fn ask_mapper(
        &self,
        socket: DeviceSocket,
        mut query: Query,
        opening: Opening,
    ) -> Result<Next, ConnectError> {
        let driver = &self.device.driver;
        let Some(addr) = query.advance(&socket, Instant::now()) else {
            driver.at(query.due(), self.token);
            return Ok(Next::Wait(Stage::Mapper { socket, query, opening }, EpollFlags::EPOLLIN));
        };
        driver.unwatch(query.as_fd());
        let socket = if Some(addr) == self.plan.addr { socket } else { self.redirect(socket, addr)? };
        let stage = Stage::Tcp { socket, opening };
        self.watch(&stage)?;
        Ok(Next::Again(stage))
    }

    /// Connects to another address than `socket` does, which is reset: whoever listens at the port
    /// that was given is not the one who is meant.
    fn redirect(&self, socket: DeviceSocket, addr: SocketAddr) -> io::Result<DeviceSocket> {
        reset(socket.as_fd());
        drop(socket);
        let socket = active_socket(addr, &self.options)?;
        connect_tcp(&socket, addr)?;
        Ok(socket)
    }

    /// Pauses after a refusal by the peer's host, if it is to be tried again; else returns the
    /// error.
    pub(super) fn pause(&self, socket: DeviceSocket, error: ConnectError) -> Result<Next, ConnectError> {
        let now = Instant::now();
        let is_refused = was_refused(&error) && !self.refused_until.is_over(now);
        if self.plan.addr.is_none() || !is_refused && !self.may_take_another_port(&error) {
            return Err(error);
        }
        self.device.driver.at(now + PAUSE, self.token);
        // Nobody waits for this socket any more: the next attempt has one of its own.
        Ok(Next::Wait(Stage::Refused { socket, error }, EpollFlags::empty()))
    }

    /// Returns whether the next attempt has a port of its own that may be free: of an RNIC, the
    /// connection manager chooses one without asking the host's TCP.
    fn may_take_another_port(&self, error: &ConnectError) -> bool {
        let ConnectError::Unreached(ConnectFailed::Failed(cause)) = error else { return false };
        let is_chosen = self.options.source.is_none_or(|source| source.port() == 0);
        is_chosen && cause.kind() == ErrorKind::AddrInUse
    }

    /// Begins the next attempt after a refusal, with the revision of the last.
    pub(super) fn retry(&self, error: ConnectError) -> Result<Next, ConnectError> {
        let (Some(addr), Some(qp)) = (self.plan.addr, self.qp.upgrade()) else { return Err(error) };
        let fell_back = self.refusal.lock().is_some();
        let revision = if fell_back { Revision::One } else { self.options.revision };
        let stage = attempt(&qp, addr, &ConnectOptions { revision, ..self.options.clone() })?;
        self.watch(&stage)?;
        Ok(Next::Again(stage))
    }

    /// Begins a second attempt after `error`, if there is to be one; else returns the error.
    pub(super) fn begin_again(&self, error: ConnectError) -> Result<Stage, ConnectError> {
        let stage = self.fall_back(error)?;
        self.watch(&stage)?;
        Ok(stage)
    }

    /// Makes the first stage of an attempt with revision 1 (RFC 6581 §10), if this end has made the
    /// TCP connection and the peer has refused revision 2; else returns the error.
    fn fall_back(&self, error: ConnectError) -> Result<Stage, ConnectError> {
        let options = &self.options;
        let (Some(addr), Some(qp)) = (self.plan.addr, self.qp.upgrade()) else { return Err(error) };
        let mut refusal = self.refusal.lock();
        let again = if refusal.is_none() { again(self.plan.transport, options, &error) } else { None };
        let Some(again) = again else { return Err(error) };
        tracing::info!(%addr, %error, "trying again with MPA revision 1");
        let source = options.source.map(|source| SocketAddr::new(source.ip(), 0));
        match attempt(&qp, addr, &ConnectOptions { source, ..again }) {
            Ok(stage) => {
                *refusal = Some(error);
                Ok(stage)
            }
            Err(_) => Err(error),
        }
    }

    /// Returns the error to report: that of revision 2 where revision 1 was tried and failed, too.
    pub(super) fn blame(&self, error: ConnectError) -> ConnectError {
        match error {
            // RFC 5044 §7.1.2: a rejection is the answer of the peer's program to this program.
            ConnectError::Rejected { .. } => error,
            // Any other error of the second attempt says less than the first one did.
            _ => self.refusal.lock().take().unwrap_or(error),
        }
    }
}
