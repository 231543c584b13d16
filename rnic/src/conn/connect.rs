//! The active side (RFC 5044 §7.1, RFC 6581): port mapper, TCP, Request, Reply, and revision 1 for a peer that wants it.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use rddp_iwarp::{OwnMessage, Refusal};
use rddp_mpa::{Framer, Framing, Initiator, InitiatorStep, Negotiated, Revision};
use rddp_rdma::{ConnectOptions, PortMapper};
use rddp_rdmap::TerminateRepr;
use socket2::{SockAddr, Socket};

use super::port_mapper;
use super::socket::{TcpSocket, no_delay, tcp_socket, write_all};
use crate::config::startup_config;
use crate::deadline::Deadline;
use crate::error::ConnectError;
use crate::qp::{QpState, QueuePair};

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
        let state = self.state();
        if state != QpState::Idle {
            return Err(ConnectError::NotIdle(state));
        }
        let options = &self.inner.here()?.options(options);
        let deadline = Deadline::after(options.timeout);
        let first = self.try_connect(addr, options, deadline);
        match first {
            Err(error) if options.fall_back && options.revision == Revision::Two && refuses_two(&error) => {
                tracing::info!(%addr, %error, "trying again with MPA revision 1");
                let options = ConnectOptions { revision: Revision::One, ..options.clone() };
                self.try_connect(addr, &options, deadline).map_err(|second| match second {
                    // RFC 5044 §7.1.2: what the peer's program says is for ours.
                    ConnectError::Rejected { .. } => second,
                    // Else the first answer tells more than a second refusal.
                    _ => error,
                })
            }
            result => result,
        }
    }

    fn try_connect(
        &self,
        addr: SocketAddr,
        options: &ConnectOptions,
        deadline: Deadline,
    ) -> Result<Connected, ConnectError> {
        let initiator = Initiator::new(&startup_config(options), &options.private_data)?;
        let attempt = Attempt { deadline, timeout: options.timeout };
        let socket = attempt.tcp(addr, options)?;
        let connected = attempt.startup(&socket, initiator)?;
        self.inner.here()?.attach(socket, connected.negotiated.clone(), options, true, || ())?;
        Ok(connected)
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

struct Attempt {
    deadline: Deadline,
    timeout: Duration,
}

impl Attempt {
    fn left(&self) -> Result<Duration, ConnectError> {
        // The system calls take a time without end for the longest that they know.
        let left = self.deadline.left().unwrap_or(Duration::MAX);
        if left.is_zero() { Err(ConnectError::TimedOut(self.timeout)) } else { Ok(left) }
    }

    fn failed(&self, error: io::Error) -> ConnectError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ConnectError::TimedOut(self.timeout),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                ConnectError::Closed
            }
            _ => ConnectError::Tcp(error),
        }
    }

    fn tcp(&self, addr: SocketAddr, options: &ConnectOptions) -> Result<TcpSocket, ConnectError> {
        let socket = tcp_socket(&addr, options)?;
        let addr = match options.port_mapper {
            PortMapper::Auto if !addr.ip().is_loopback() => port_mapper::query(&socket, addr).unwrap_or(addr),
            PortMapper::Auto | PortMapper::Off => addr,
        };
        socket.connect_timeout(&SockAddr::from(addr), self.left()?).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => ConnectError::TimedOut(self.timeout),
            _ => ConnectError::Tcp(error),
        })?;
        no_delay(&socket)?;
        Ok(socket)
    }

    fn startup(&self, socket: &Socket, mut initiator: Initiator) -> Result<Connected, ConnectError> {
        socket.set_write_timeout(Some(self.left()?))?;
        write_all(socket, initiator.request()).map_err(|error| self.failed(error))?;
        let mut reply = Vec::new();
        loop {
            match initiator.handle(&reply) {
                // What follows the Reply is FPDUs: no more is read than it has.
                Ok(InitiatorStep::Need { total }) => self.read_some(socket, &mut reply, total, &initiator)?,
                Ok(InitiatorStep::Accepted { negotiated, private_data, .. }) => {
                    return Ok(Connected { negotiated, private_data });
                }
                Ok(InitiatorStep::Rejected { private_data, .. }) => {
                    return Err(ConnectError::Rejected { private_data });
                }
                Err(error) => {
                    let refusal = Refusal::of(&error, initiator.tx(), false);
                    if let Refusal::Terminate { terminate: what, framing } = refusal {
                        terminate(socket, &what, framing);
                    }
                    return Err(error.into());
                }
            }
        }
    }

    /// Reads some of what is missing of `total` octets: what is wrong with a frame shows at its first wrong octet.
    fn read_some(
        &self,
        socket: &Socket,
        octets: &mut Vec<u8>,
        total: usize,
        initiator: &Initiator,
    ) -> Result<(), ConnectError> {
        socket.set_read_timeout(Some(self.left()?))?;
        let mut chunk = [0; 64];
        let want = chunk.len().min(total - octets.len());
        match (&*socket).read(&mut chunk[..want]) {
            Ok(0) => Err(initiator.closed(octets).into()),
            Ok(count) => {
                octets.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
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

/// The same, and waits a moment for the peer to close.
fn terminate(socket: &Socket, terminate: &TerminateRepr, framing: Framing) {
    send_terminate(socket, terminate, framing);
    let mut rest = [0; 512];
    let _ = socket.set_read_timeout(Some(Duration::from_millis(500)));
    let _ = (&*socket).read(&mut rest);
}
