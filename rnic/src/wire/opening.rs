//! The beginning of a connection, by whatever wire: what the two ends tell each other on a TCP
//! connection before the queue pair takes it over. Who waits for the socket, for how long, and who
//! is told, is the affair of [`conn`](crate::conn).

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};

use rddp_mpa::{FrameOctets, Negotiated, Request, StartupMisuse};
use rddp_rdma::ConnectOptions;
use rddp_verbs_device as verbs;
use socket2::Socket;

pub(crate) use super::device::Lengths;
use super::device::{self, Device};
use super::iwarp::opening as mpa;
use crate::conn::socket::{DeviceSocket, finish_sending, write_all};
use crate::error::{AnswerError, ConnectError};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::options::Transport;
use crate::trace;

/// An opening, as far as it has come.
#[derive(Debug)]
pub(crate) enum Opening {
    Iwarp(mpa::Opening),
    /// TCP is all that there is to open.
    Tcp {
        active: bool,
    },
    /// A device of the host, which this end has to find the peer.
    Device(device::Opening),
}

/// The result of reading what has come.
pub(crate) enum Progress {
    /// More is to come.
    Wait,
    /// There is more to do at once.
    Again,
    /// The peer's wish is here, and is to be answered.
    Asked(Asked),
    /// Both ends agree: there is a connection.
    Agreed { terms: Terms, private_data: Vec<u8> },
}

/// The wish of a peer to be connected.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Iwarp(Request),
    /// The peer has connected TCP, and says no more.
    Tcp,
}

/// The terms that both ends have agreed on.
#[derive(Debug)]
pub(crate) enum Terms {
    Iwarp(Negotiated),
    Tcp,
    /// A device of the host, which keeps what it has agreed on.
    Device(Box<Device>),
}

/// An answer to a peer's wish, which is still to be sent.
pub(crate) struct Reply {
    octets: Option<FrameOctets>,
    /// The terms that are agreed on, if the answer accepts.
    terms: Option<Terms>,
}

/// The reason why an answer cannot be given. The peer's wish still waits.
pub(crate) enum Unsayable {
    Misuse(StartupMisuse),
    /// The wire carries no private data.
    PrivateData,
}

impl From<StartupMisuse> for Unsayable {
    fn from(misuse: StartupMisuse) -> Self {
        Unsayable::Misuse(misuse)
    }
}

impl From<Unsayable> for ConnectError {
    fn from(why: Unsayable) -> Self {
        match why {
            Unsayable::Misuse(misuse) => misuse.into(),
            Unsayable::PrivateData => ConnectError::PrivateData,
        }
    }
}

impl From<Unsayable> for AnswerError {
    fn from(why: Unsayable) -> Self {
        match why {
            Unsayable::Misuse(misuse) => misuse.into(),
            Unsayable::PrivateData => AnswerError::PrivateData,
        }
    }
}

/// An opening that has failed.
pub(crate) struct Failed {
    pub(crate) error: ConnectError,
    /// TCP is to be kept until the peer has closed it, so that what was sent is not lost.
    pub(crate) lingers: bool,
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Self {
        Failed { error, lingers: false }
    }
}

impl Opening {
    /// Prepares the opening of the end that makes the connection.
    pub(crate) fn active(transport: Transport, options: &ConnectOptions) -> Result<Self, ConnectError> {
        match transport {
            Transport::Iwarp | Transport::Acknowledged => Ok(Opening::Iwarp(mpa::Opening::active(options)?)),
            _ if !options.private_data.is_empty() => Err(ConnectError::PrivateData),
            // A device of the host begins with an address, and UDP has no connections.
            Transport::Udp | Transport::Unreliable | Transport::Device => Err(ConnectError::Transport),
            Transport::Tcp | Transport::Record => Ok(Opening::Tcp { active: true }),
        }
    }

    /// Begins the opening by a device of the host, for queues of these lengths. Returns what is to
    /// be watched, too.
    pub(crate) fn of_device(
        attrs: &QpAttributes,
        lengths: &Lengths,
        addr: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<(DeviceSocket, Self), ConnectError> {
        let (socket, opening) = device::Opening::begin(attrs, lengths, addr, options)?;
        Ok((socket, Opening::Device(opening)))
    }

    /// Accepts the request of a peer by a device of the host, for queues of these lengths. Returns
    /// what is to be watched, too.
    pub(crate) fn accept_by_device(
        cx: &Context<'_>,
        lengths: &Lengths,
        request: verbs::Request,
        options: &ConnectOptions,
    ) -> Result<(DeviceSocket, Terms), ConnectError> {
        let (socket, wire) = device::accept(cx, lengths, request, options)?;
        Ok((socket, Terms::Device(wire)))
    }

    /// Prepares the opening of the other end.
    pub(crate) fn passive(transport: Transport) -> Self {
        match transport {
            Transport::Iwarp | Transport::Acknowledged => Opening::Iwarp(mpa::Opening::passive()),
            // UDP has no connections: listeners and startups of it are refused.
            _ => Opening::Tcp { active: false },
        }
    }

    /// Sends what this end has to say first, once TCP is connected.
    pub(crate) fn begin(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Opening::Iwarp(opening) => opening.begin(socket),
            Opening::Tcp { .. } | Opening::Device(_) => Ok(()),
        }
    }

    /// Hands receives over that are posted before there is a connection, where the wire takes them
    /// by then.
    pub(crate) fn give_receives(&mut self, cx: &Context<'_>) {
        if let Opening::Device(opening) = self {
            opening.give_receives(cx);
        }
    }

    /// Reads what has come.
    pub(crate) fn advance(&mut self, socket: &Socket) -> Result<Progress, Failed> {
        match self {
            Opening::Iwarp(opening) => opening.advance(socket),
            Opening::Tcp { active: true } => {
                Ok(Progress::Agreed { terms: Terms::Tcp, private_data: Vec::new() })
            }
            Opening::Tcp { active: false } => Ok(Progress::Asked(Asked::Tcp)),
            Opening::Device(opening) => opening.advance(),
        }
    }

    /// Returns what a peer wants that need not say it.
    pub(crate) fn asked_at_once(&self) -> Option<Asked> {
        matches!(self, Opening::Tcp { .. }).then_some(Asked::Tcp)
    }
}

/// Returns the options of a second attempt behind an error, if there is to be one.
pub(crate) fn again(
    transport: Transport,
    options: &ConnectOptions,
    error: &ConnectError,
) -> Option<ConnectOptions> {
    match transport {
        Transport::Iwarp | Transport::Acknowledged => mpa::again(options, error),
        _ => None,
    }
}

impl Asked {
    /// Returns the private data of the peer's program.
    pub(crate) fn private_data(&self) -> &[u8] {
        match self {
            Asked::Iwarp(request) => &request.private_data,
            Asked::Tcp => &[],
        }
    }

    /// Makes the answer that accepts.
    pub(crate) fn accept(&self, options: &ConnectOptions, private_data: &[u8]) -> Result<Reply, Unsayable> {
        match self {
            Asked::Iwarp(request) => {
                let (octets, negotiated) = mpa::accept(request, options, private_data)?;
                Ok(Reply { octets: Some(octets), terms: Some(Terms::Iwarp(negotiated)) })
            }
            Asked::Tcp => Reply::of_tcp(private_data, Some(Terms::Tcp)),
        }
    }

    /// Makes the answer that rejects.
    pub(crate) fn reject(&self, options: &ConnectOptions, private_data: &[u8]) -> Result<Reply, Unsayable> {
        match self {
            Asked::Iwarp(request) => {
                let octets = mpa::reject(request, options, private_data)?;
                Ok(Reply { octets: Some(octets), terms: None })
            }
            Asked::Tcp => Reply::of_tcp(private_data, None),
        }
    }
}

impl Terms {
    /// Returns the terms as a QP keeps to them.
    pub(crate) fn kept_by(self, attrs: &QpAttributes) -> Self {
        match self {
            Terms::Iwarp(negotiated) => Terms::Iwarp(attrs.without_reads(negotiated)),
            other => other,
        }
    }

    /// Returns whether they are terms of a QP of this wire. Records need no agreement that the
    /// device could see.
    pub(crate) fn fit(&self, transport: Transport) -> bool {
        match self {
            Terms::Iwarp(_) => matches!(transport, Transport::Iwarp | Transport::Acknowledged),
            Terms::Tcp => matches!(transport, Transport::Tcp | Transport::Record),
            Terms::Device(_) => transport == Transport::Device,
        }
    }

    /// Returns the outcome of the MPA startup, if there was one.
    pub(crate) fn negotiated(&self) -> Option<Negotiated> {
        match self {
            Terms::Iwarp(negotiated) => Some(negotiated.clone()),
            Terms::Tcp | Terms::Device(_) => None,
        }
    }

    /// Returns IRD and ORD, which are 0 where the wire has no Reads.
    pub(crate) fn depths(&self) -> (u16, u16) {
        match self {
            Terms::Iwarp(negotiated) => (negotiated.ird, negotiated.ord),
            Terms::Device(device) => device.depths(),
            Terms::Tcp => (0, 0),
        }
    }

    /// Tells that a QP is connected on these terms.
    pub(crate) fn trace(&self, attrs: &QpAttributes, active: bool) {
        match self {
            Terms::Iwarp(negotiated) => trace::connected(attrs.num, negotiated, active),
            Terms::Tcp | Terms::Device(_) => {
                trace::connected_plain(attrs.num, attrs.transport.name(), active);
            }
        }
    }
}

impl Reply {
    /// Makes an answer of plain TCP, which says nothing.
    fn of_tcp(private_data: &[u8], terms: Option<Terms>) -> Result<Self, Unsayable> {
        if private_data.is_empty() { Ok(Reply { octets: None, terms }) } else { Err(Unsayable::PrivateData) }
    }

    /// Sends the answer. Returns what is agreed on by it.
    pub(crate) fn send(self, socket: &Socket) -> io::Result<Option<Terms>> {
        match (self.octets, &self.terms) {
            (Some(octets), _) => write_all(socket, &octets)?,
            (None, Some(_)) => {}
            // A FIN is all that plain TCP can say.
            (None, None) => finish_sending(socket)?,
        }
        Ok(self.terms)
    }
}

/// Closes the TCP connection, even where the program holds the socket, too, and passes `error` on.
/// RFC 5044 §7.1.2: so does an end whose peer does not speak MPA, or not in time.
pub(crate) fn close(socket: &Socket, error: ConnectError) -> ConnectError {
    let _ = socket.shutdown(Shutdown::Both);
    error
}

/// Returns the error of a TCP connection that was there: the peer has left in place of answering.
pub(crate) fn closed_or(error: io::Error) -> ConnectError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ConnectError::Closed,
        _ => ConnectError::Tcp(error),
    }
}
