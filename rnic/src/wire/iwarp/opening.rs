//! The MPA startup on a TCP connection: its frames, and what they come to (RFC 5044 §7.1,
//! RFC 6581). Who waits for the socket, for how long, and who is told, is the affair of
//! [`conn`](crate::conn).

use std::io::{self, ErrorKind, Read};

use rddp_iwarp::{OwnMessage, Refusal};
use rddp_mpa::{
    FrameOctets, Framer, Framing, Initiator, InitiatorStep, Negotiated, Request, Responder, ResponderStep,
    Revision, StartupConfig, StartupError, StartupMisuse,
};
use rddp_rdma::ConnectOptions;
use rddp_rdmap::TerminateRepr;
use socket2::Socket;

use crate::capabilities::CAPABILITIES;
use crate::conn::socket::{finish_sending, write_all};
use crate::error::ConnectError;
use crate::wire::opening::{Asked, Failed, Progress, Terms, close, closed_or};

/// A startup, as far as it has come.
#[derive(Debug)]
pub(crate) enum Opening {
    /// This end sends the Request; the Reply is arriving.
    Active { initiator: Box<Initiator>, octets: Vec<u8> },
    /// The peer's Request is arriving.
    Passive { octets: Vec<u8>, total: usize },
    /// The peer's Request is to be answered.
    Asked,
}

impl Opening {
    /// Prepares the startup of the end that makes the connection.
    pub(in crate::wire) fn active(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let initiator = Box::new(Initiator::new(&startup_config(options), &options.private_data)?);
        Ok(Opening::Active { initiator, octets: Vec::new() })
    }

    /// Prepares the startup of the other end.
    pub(in crate::wire) fn passive() -> Self {
        Opening::Passive { octets: Vec::new(), total: 1 }
    }

    /// Sends what this end has to say first, once TCP is connected. It does not wait: the frame is
    /// small, and the socket's send buffer is empty.
    pub(in crate::wire) fn begin(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Opening::Active { initiator, .. } => write_all(socket, initiator.request()),
            Opening::Passive { .. } | Opening::Asked => Ok(()),
        }
    }

    /// Reads what has come.
    pub(in crate::wire) fn advance(&mut self, socket: &Socket) -> Result<Progress, Failed> {
        match self {
            Opening::Active { initiator, octets } => read_reply(socket, initiator, octets),
            Opening::Passive { octets, total } => match read_request(socket, octets, total) {
                Ok(None) => Ok(Progress::Wait),
                Ok(Some(request)) => {
                    *self = Opening::Asked;
                    Ok(Progress::Asked(Asked::Iwarp(request)))
                }
                Err(error) => Err(close(socket, startup_error(error)).into()),
            },
            Opening::Asked => match nothing_behind(socket) {
                Ok(()) => Ok(Progress::Wait),
                Err(error) => Err(close(socket, startup_error(error)).into()),
            },
        }
    }
}

/// Returns the Reply that accepts a Request, and what is agreed on by it.
pub(in crate::wire) fn accept(
    request: &Request,
    options: &ConnectOptions,
    private_data: &[u8],
) -> Result<(FrameOctets, Negotiated), StartupMisuse> {
    request.accept(&startup_config(options), private_data)
}

/// Returns the Reply that rejects a Request.
pub(in crate::wire) fn reject(
    request: &Request,
    options: &ConnectOptions,
    private_data: &[u8],
) -> Result<FrameOctets, StartupMisuse> {
    request.reject(&startup_config(options), private_data)
}

/// Returns the options of a second attempt behind an error, if there is to be one. RFC 6581 §10: a
/// peer that knows only revision 1 closes the connection, or answers in revision 1.
pub(in crate::wire) fn again(options: &ConnectOptions, error: &ConnectError) -> Option<ConnectOptions> {
    let refuses_two = match error {
        ConnectError::Startup(error) => error.retry_with_revision_one(),
        ConnectError::Closed => true,
        _ => false,
    };
    let tries = refuses_two && options.fall_back && options.revision == Revision::Two;
    tries.then(|| ConnectOptions { revision: Revision::One, ..options.clone() })
}

/// Takes exactly the Reply's octets from the socket: those behind them are FPDUs.
fn read_reply(socket: &Socket, initiator: &mut Initiator, octets: &mut Vec<u8>) -> Result<Progress, Failed> {
    loop {
        let step = initiator.handle(octets);
        if !matches!(step, Ok(InitiatorStep::Need { .. })) {
            rddp_capture::received(socket, octets);
        }
        let total = match step {
            Ok(InitiatorStep::Need { total }) => total,
            Ok(InitiatorStep::Accepted { negotiated, private_data, .. }) => {
                return Ok(Progress::Agreed { terms: Terms::Iwarp(negotiated), private_data });
            }
            // RFC 5044 §7.1.2: a rejection leaves TCP open, for the program to use.
            Ok(InitiatorStep::Rejected { private_data, .. }) => {
                return Err(ConnectError::Rejected { private_data }.into());
            }
            Err(error) => return Err(refuse_reply(socket, initiator, error)),
        };
        let mut chunk = [0; 64];
        let want = chunk.len().min(total - octets.len());
        match (&mut &*socket).read(&mut chunk[..want]) {
            Ok(0) => return Err(close(socket, initiator.closed(octets).into()).into()),
            Ok(count) => octets.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Progress::Wait);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(closed_or(error).into()),
        }
    }
}

/// Ends the connection after a Reply that breaks a rule, or that this end cannot meet.
fn refuse_reply(socket: &Socket, initiator: &Initiator, error: StartupError) -> Failed {
    let Refusal::Terminate { terminate, framing } = Refusal::of(&error, initiator.tx(), false) else {
        return close(socket, error.into()).into();
    };
    send_terminate(socket, &terminate, framing);
    // TCP may lose the Terminate if the socket is closed now.
    Failed { error: error.into(), lingers: true }
}

/// Returns the error of reading a Request.
fn startup_error(error: io::Error) -> ConnectError {
    match error.downcast::<StartupError>() {
        Ok(error) => error.into(),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => ConnectError::Closed,
        Err(error) => ConnectError::Tcp(error),
    }
}

/// Takes exactly the Request's octets from the socket. Returns the Request once all of it has come.
fn read_request(socket: &Socket, octets: &mut Vec<u8>, total: &mut usize) -> io::Result<Option<Request>> {
    loop {
        if octets.len() < *total {
            // `total` is at most the longest frame that MPA allows, however long the peer says its
            // private data are.
            let mut chunk = [0; 64];
            let want = chunk.len().min(*total - octets.len());
            match (&*socket).read(&mut chunk[..want]) {
                Ok(0) => return Err(io::Error::other(Responder::new().closed(octets))),
                Ok(count) => octets.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // RFC 5044 §7.1.1: the first wrong octet of the key ends the connection, so each octet is
        // looked at when it arrives.
        let step = Responder::new().handle(octets);
        if !matches!(step, Ok(ResponderStep::Need { .. })) {
            rddp_capture::received(socket, octets);
        }
        match step.map_err(io::Error::other)? {
            ResponderStep::Need { total: need } => *total = need,
            ResponderStep::Request { request, .. } => {
                return nothing_behind(socket).map(|()| Some(request));
            }
        }
    }
}

/// Checks that the peer has sent nothing behind its Request, and has not closed. RFC 5044 §7.1.5:
/// an initiator sends nothing before it has the Reply.
fn nothing_behind(socket: &Socket) -> io::Result<()> {
    let mut next = [std::mem::MaybeUninit::uninit(); 1];
    match socket.peek(&mut next) {
        Ok(1..) => Err(io::Error::other("octets behind the Request")),
        Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "closed behind the Request")),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends a Terminate, the only FPDU of this connection, to tell the peer that its Reply cannot be
/// met (RFC 6581 §9). Errors are ignored: the connection is over, whether the Terminate arrives or
/// not.
fn send_terminate(socket: &Socket, terminate: &TerminateRepr, framing: Framing) {
    let (message, mut framer) = (OwnMessage::terminate(terminate), Framer::new(framing));
    let mut fpdu = vec![0; message.fpdu_len(&framer)];
    message.emit(&mut framer, &mut fpdu);
    let _ = write_all(socket, &fpdu);
    let _ = finish_sending(socket);
}

/// Returns the settings of the MPA startup that a connection with these options begins with.
fn startup_config(options: &ConnectOptions) -> StartupConfig {
    StartupConfig {
        revision: options.revision,
        crc: options.crc,
        markers: options.markers,
        ird: options.ird.min(CAPABILITIES.max_ird),
        ord: options.ord.min(CAPABILITIES.max_ord),
        max_ird: CAPABILITIES.max_ird,
        assumed_ird: options.assumed_ird,
        peer_to_peer: options.peer_to_peer,
        rtr: options.rtr,
        large_fpdus: options.large_fpdus,
    }
}
