//! Steps of a startup: what is done in each stage when the socket is ready.

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::time::Duration;

use nix::sys::epoll::EpollFlags;
use rddp_iwarp::Refusal;
use rddp_mpa::{Initiator, InitiatorStep, Request, StartupError};
use rddp_rdma::AsyncEventKind;

use super::connect::send_terminate;
use super::half_open::{nothing_behind, read_request};
use super::socket::{TcpSocket, no_delay, write_all};
use super::stage::{Done, Next, Stage};
use super::startup::Startup;
use crate::config::startup_config;
use crate::error::ConnectError;

impl Startup {
    /// Takes the step that `stage` calls for.
    pub(super) fn step(&self, stage: Stage) -> Result<Next, ConnectError> {
        match stage {
            Stage::Mapper { socket, query, initiator } => self.ask_mapper(socket, query, initiator),
            Stage::Tcp { socket, initiator } => self.begin(socket, initiator),
            Stage::Refused { error, .. } => self.retry(error),
            Stage::Reply { socket, initiator, octets } => self.read_reply(socket, initiator, octets),
            Stage::Request { socket, mut octets, mut total } => {
                match read_request(&socket, &mut octets, &mut total).map_err(startup_error) {
                    Ok(None) => Ok(Next::Wait(Stage::Request { socket, octets, total }, EpollFlags::EPOLLIN)),
                    Ok(Some(request)) if self.plan.asks => Ok(self.ask(socket, request)),
                    Ok(Some(request)) => self.accept(socket, &request),
                    Err(error) => Err(close(&socket, error)),
                }
            }
            Stage::Asked { socket, request } => match nothing_behind(&socket).map_err(startup_error) {
                Ok(()) => Ok(Next::Wait(Stage::Asked { socket, request }, EpollFlags::EPOLLIN)),
                Err(error) => Err(close(&socket, error)),
            },
            Stage::Answered | Stage::Over => Err(ConnectError::GivenUp),
        }
    }

    /// Sends the Request, or begins to await the peer's, once TCP is connected.
    fn begin(&self, socket: TcpSocket, initiator: Option<Initiator>) -> Result<Next, ConnectError> {
        if let Some(error) = socket.take_error()? {
            return self.pause(socket, tcp_error(error, self.options.timeout));
        }
        // Without an error and without a peer's address TCP is still connecting.
        if socket.peer_addr().is_err() {
            return Ok(Next::Wait(Stage::Tcp { socket, initiator }, EpollFlags::EPOLLOUT));
        }
        no_delay(&socket)?;
        let octets = Vec::new();
        Ok(Next::Again(match initiator {
            Some(initiator) => {
                // This does not wait: the frame is small, and the socket's send buffer is empty.
                write_all(&socket, initiator.request())
                    .map_err(|error| startup_tcp_error(error, self.options.timeout))?;
                Stage::Reply { socket, initiator, octets }
            }
            None => Stage::Request { socket, octets, total: 1 },
        }))
    }

    /// Has the program answer the Request, and watches the peer meanwhile.
    fn ask(&self, socket: TcpSocket, request: Request) -> Next {
        self.outcome.lock().request = Some(request.clone());
        if let Some(qp) = self.qp.upgrade() {
            qp.attrs.report(AsyncEventKind::Requested);
        }
        Next::Wait(Stage::Asked { socket, request }, EpollFlags::EPOLLIN)
    }

    /// Accepts the Request without asking the program.
    fn accept(&self, socket: TcpSocket, request: &Request) -> Result<Next, ConnectError> {
        let (reply, negotiated) =
            request.accept(&startup_config(&self.options), &self.options.private_data)?;
        write_all(&socket, &reply).map_err(|error| tcp_error(error, self.options.timeout))?;
        let private_data = request.private_data.clone();
        Ok(Next::Done(Done { socket, negotiated, private_data, active: false }))
    }

    /// Takes exactly the Reply's octets from the socket: those behind them are FPDUs.
    fn read_reply(
        &self,
        socket: TcpSocket,
        mut initiator: Initiator,
        mut octets: Vec<u8>,
    ) -> Result<Next, ConnectError> {
        loop {
            let step = initiator.handle(&octets);
            if !matches!(step, Ok(InitiatorStep::Need { .. })) {
                rddp_capture::received(&socket, &octets);
            }
            let total = match step {
                Ok(InitiatorStep::Need { total }) => total,
                Ok(InitiatorStep::Accepted { negotiated, private_data, .. }) => {
                    return Ok(Next::Done(Done { socket, negotiated, private_data, active: true }));
                }
                // RFC 5044 §7.1.2: a rejection leaves TCP open, for the program to use.
                Ok(InitiatorStep::Rejected { private_data, .. }) => {
                    return Err(ConnectError::Rejected { private_data });
                }
                Err(error) => return Err(self.refuse_reply(socket, &initiator, error)),
            };
            let mut chunk = [0; 64];
            let want = chunk.len().min(total - octets.len());
            match (&*socket).read(&mut chunk[..want]) {
                Ok(0) => return Err(close(&socket, initiator.closed(&octets).into())),
                Ok(count) => octets.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Next::Wait(Stage::Reply { socket, initiator, octets }, EpollFlags::EPOLLIN));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(startup_tcp_error(error, self.options.timeout)),
            }
        }
    }

    /// Ends the connection after a Reply that breaks a rule, or that this end cannot meet. Returns
    /// the error to report.
    fn refuse_reply(&self, socket: TcpSocket, initiator: &Initiator, error: StartupError) -> ConnectError {
        let Refusal::Terminate { terminate, framing } = Refusal::of(&error, initiator.tx(), false) else {
            return close(&socket, error.into());
        };
        send_terminate(&socket, &terminate, framing);
        // TCP may lose the Terminate if the socket is closed now. A socket of the program's own
        // stays open anyway.
        if self.plan.addr.is_some() {
            self.linger(socket);
        }
        error.into()
    }
}

/// Closes the TCP connection, even where the program holds the socket, too, and passes `error` on.
/// RFC 5044 §7.1.2: so does an end whose peer does not speak MPA, or not in time.
pub(super) fn close(socket: &TcpSocket, error: ConnectError) -> ConnectError {
    let _ = socket.shutdown(Shutdown::Both);
    error
}

/// Returns the error of reading a Request.
fn startup_error(error: io::Error) -> ConnectError {
    match error.downcast::<StartupError>() {
        Ok(error) => error.into(),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => ConnectError::Closed,
        Err(error) => ConnectError::Tcp(error),
    }
}

/// Returns the error of connecting TCP or writing to it.
fn tcp_error(error: io::Error, timeout: Duration) -> ConnectError {
    match error.kind() {
        ErrorKind::TimedOut => ConnectError::TimedOut(timeout),
        _ => ConnectError::Tcp(error),
    }
}

/// Returns the error of a TCP connection that was there: the peer has left in place of answering.
fn startup_tcp_error(error: io::Error, timeout: Duration) -> ConnectError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ConnectError::Closed,
        _ => tcp_error(error, timeout),
    }
}
