//! The active side (RFC 5044 §7.1, RFC 6581): port mapper, TCP, Request, Reply, and revision 1 for a peer that wants it.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use rddp_iwarp::OwnMessage;
use rddp_mpa::{Framer, Framing, Initiator, Negotiated, Revision};
use rddp_rdma::{ConnectOptions, PortMapper};
use rddp_rdmap::TerminateRepr;
use socket2::{SockAddr, Socket};

use super::port_mapper::Query;
use super::socket::{TcpSocket, tcp_socket, write_all};
use super::stage::{Next, Stage};
use super::startup::{Plan, Startup};
use crate::config::startup_config;
use crate::error::ConnectError;
use crate::qp::QueuePair;

/// What the peer answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Connected {
    /// What both ends hold to now.
    pub negotiated: Negotiated,
    /// What the peer's program says. Unauthenticated (RFC 5042 §5.4).
    pub private_data: Vec<u8>,
}

impl QueuePair {
    /// Connects to a listening peer. Sleeps until that is done, or `options.timeout` has passed.
    pub fn connect(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<Connected, ConnectError> {
        self.depart(addr, options, false)?.outcome()
    }

    /// Begins to connect to a listening peer as [`connect`](Self::connect) does, with the port mapper and the fall-back to
    /// MPA revision 1, and returns at once. [`Connected`](crate::AsyncEventKind::Connected) or
    /// [`NotConnected`](crate::AsyncEventKind::NotConnected) tells the end, and [`begun`](Self::begun) what has come of it.
    ///
    /// # Errors
    /// The QP is not idle, the settings make no startup frame, or TCP refuses the address.
    pub fn begin_to(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<(), ConnectError> {
        self.depart(addr, options, true).map(drop)
    }

    fn depart(
        &self,
        addr: SocketAddr,
        options: &ConnectOptions,
        reports: bool,
    ) -> Result<Arc<Startup>, ConnectError> {
        let plan = Plan { reports, addr: Some(addr), ..Plan::default() };
        self.begin_by(options, plan, |options| attempt(addr, options))
    }
}

/// The first stage of a connection to `addr`.
fn attempt(addr: SocketAddr, options: &ConnectOptions) -> Result<Stage, ConnectError> {
    let initiator = Initiator::new(&startup_config(options), &options.private_data)?;
    let socket = tcp_socket(&addr, options)?;
    socket.set_nonblocking(true)?;
    let asks = options.port_mapper == PortMapper::Auto && !addr.ip().is_loopback();
    if let Some(query) = asks.then(|| Query::begin(&socket, addr)).flatten() {
        return Ok(Stage::Mapper { socket, query, initiator });
    }
    connect_tcp(&socket, addr)?;
    Ok(Stage::Tcp { socket, initiator: Some(initiator) })
}

/// Has TCP connect, and does not wait for that.
fn connect_tcp(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    match socket.connect(&SockAddr::from(addr)) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

impl Startup {
    /// Goes on with the port that the mapper names, once it does.
    pub(super) fn ask_mapper(
        &self,
        socket: TcpSocket,
        mut query: Query,
        initiator: Initiator,
    ) -> Result<Next, ConnectError> {
        let driver = &self.device.driver;
        let Some(addr) = query.advance(Instant::now()) else {
            driver.at(query.due(), self.token);
            return Ok(Next::Wait(Stage::Mapper { socket, query, initiator }, EpollFlags::EPOLLIN));
        };
        driver.unwatch(query.as_fd());
        connect_tcp(&socket, addr)?;
        let stage = Stage::Tcp { socket, initiator: Some(initiator) };
        self.watch(&stage)?;
        Ok(Next::Again(stage))
    }

    /// The first stage of a second attempt, if there is to be one; else the error.
    pub(super) fn begin_again(&self, error: ConnectError) -> Result<Stage, ConnectError> {
        let stage = self.fall_back(error)?;
        self.watch(&stage)?;
        Ok(stage)
    }

    /// RFC 6581 §10: the first stage with revision 1, where a peer that was connected to by its address has refused
    /// revision 2; else the error.
    fn fall_back(&self, error: ConnectError) -> Result<Stage, ConnectError> {
        let options = &self.options;
        let Some(addr) = self.plan.addr else { return Err(error) };
        let mut refusal = self.refusal.lock();
        let tries = refusal.is_none() && options.fall_back && options.revision == Revision::Two;
        if !tries || !refuses_two(&error) {
            return Err(error);
        }
        tracing::info!(%addr, %error, "trying again with MPA revision 1");
        match attempt(addr, &ConnectOptions { revision: Revision::One, ..options.clone() }) {
            Ok(stage) => {
                *refusal = Some(error);
                Ok(stage)
            }
            Err(_) => Err(error),
        }
    }

    /// The error to tell of: that of revision 2 where 1 was tried in vain.
    pub(super) fn blame(&self, error: ConnectError) -> ConnectError {
        match error {
            // RFC 5044 §7.1.2: what the peer's program says is for ours.
            ConnectError::Rejected { .. } => error,
            // Else the first answer tells more than a second refusal.
            _ => self.refusal.lock().take().unwrap_or(error),
        }
    }
}

/// RFC 6581 §10: a peer that knows only revision 1 closes, or answers in revision 1.
fn refuses_two(error: &ConnectError) -> bool {
    match error {
        ConnectError::Startup(error) => error.retry_with_revision_one(),
        ConnectError::Closed => true,
        _ => false,
    }
}

/// RFC 6581 §9: what the Reply makes impossible is told in a Terminate, the only FPDU of this connection. A courtesy: the
/// connection is over whatever becomes of it.
pub(super) fn send_terminate(socket: &Socket, terminate: &TerminateRepr, framing: Framing) {
    let (message, mut framer) = (OwnMessage::terminate(terminate), Framer::new(framing));
    let mut fpdu = vec![0; message.fpdu_len(&framer)];
    message.emit(&mut framer, &mut fpdu);
    let _ = write_all(socket, &fpdu);
    let _ = socket.shutdown(Shutdown::Write);
}
