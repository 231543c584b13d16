//! Errors of this crate's callers and of the host. Misbehaviour of a peer becomes completions and
//! asynchronous events instead ([`crate::AsyncEventKind`]).

use std::io;

use rddp_ddp::Stag;
use rddp_mpa::{StartupError, StartupMisuse};
use rddp_rdmap::AccessError;

use crate::home::Forked;
use crate::mem::MemError;
use crate::qp::QpState;

/// An error of creating an object: memory, a queue, a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be allocated or registered.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The host refused a descriptor, a thread or a socket.
    #[error("{what}: {source}")]
    Host {
        /// The call that failed.
        what: &'static str,
        /// The host's answer.
        source: io::Error,
    },
    /// A configured size is zero or beyond the device.
    #[error("{what} is {value}: at most {max}, at least 1")]
    OutOfRange {
        /// The setting that is out of range.
        what: &'static str,
        /// The value that the caller gave.
        value: usize,
        /// The device's limit.
        max: usize,
    },
    /// An object that belongs to another protection domain or device.
    #[error("{0} belongs to another device or protection domain")]
    Foreign(&'static str),
    /// Settings that exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// A child of `fork` used an object of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
}

impl Error {
    /// Returns a closure for `map_err` that names the failed call to the host.
    pub(crate) fn host<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Host { what, source: source.into() }
    }
}

/// The reason why a work request was refused. It was not posted; of a list, neither were those
/// behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// Too many requests are outstanding: poll the completion queue first.
    #[error("the queue holds {capacity} requests already: poll for completions first")]
    QueueFull {
        /// The number of requests that the queue can hold.
        capacity: usize,
    },
    /// Too many scatter or gather elements.
    #[error("{count} scatter or gather elements, at most {max}")]
    TooManySges {
        /// In the request.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// Too much inline data.
    #[error("{len} octets inline, at most {max}")]
    InlineTooLong {
        /// In the request.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The message is 4 GiB or longer (RFC 5041 §5.2).
    #[error("a message of {len} octets: DDP messages are shorter than 4 GiB")]
    MessageTooLong {
        /// In the request.
        len: u64,
    },
    /// The device does not know the operation.
    #[error("this device has no such operation")]
    Unsupported,
    /// The QP takes its receives from a shared queue.
    #[error("this QP uses a shared receive queue: post to that")]
    UsesSharedQueue,
    /// A child of `fork` posted to a queue of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// An element names memory that the request can never use. (What goes bad later ends the
    /// connection, with [`Status::LocalProtection`](crate::Status::LocalProtection).)
    #[error("scatter or gather element {index}, STag {stag}: {fault}")]
    Memory {
        /// The index of the element in the list, from 0 on.
        index: usize,
        /// The element's STag.
        stag: Stag,
        /// The rule that the element breaks.
        fault: SgeFault,
    },
}

/// A fault of one element of a scatter or gather list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SgeFault {
    /// No region has this STag, or it has been invalidated,
    /// or its region has been registered again under another.
    #[error("it names no valid region")]
    Invalid,
    /// The region belongs to another protection domain than the queue.
    #[error("the region belongs to another protection domain")]
    OtherPd,
    /// Octets would be placed in a region without
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    #[error("the region was registered without the local write right")]
    ReadOnly,
    /// The sink of an atomic operation has fewer than eight octets.
    #[error("it has fewer than the eight octets that an atomic operation returns")]
    TooShort,
    /// The octets are not all inside the region.
    #[error("the octets are not all inside the region")]
    OutOfBounds,
}

impl From<AccessError> for SgeFault {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Stag => SgeFault::Invalid,
            AccessError::Pd => SgeFault::OtherPd,
            AccessError::Rights => SgeFault::ReadOnly,
            AccessError::Wrap | AccessError::Bounds => SgeFault::OutOfBounds,
        }
    }
}

/// The reason why a connection was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// TCP did not connect, or broke.
    #[error("TCP: {0}")]
    Tcp(#[from] io::Error),
    /// The peer did not answer in time.
    #[error("the peer did not answer the MPA startup within {0:?}: is it an iWARP listener?")]
    TimedOut(std::time::Duration),
    /// The peer closed TCP instead of answering.
    #[error(
        "the peer closed the connection during MPA startup: it refuses this revision or setting, or is no iWARP listener"
    )]
    Closed,
    /// The peer answered something that is no proper MPA startup.
    #[error("MPA startup: {0}")]
    Startup(#[from] StartupError),
    /// The peer's program rejected the connection.
    #[error("rejected by the peer ({} octets of private data)", private_data.len())]
    Rejected {
        /// Private data of the rejecting Reply (RFC 5044 §7.1).
        private_data: Vec<u8>,
    },
    /// The settings make no valid startup frame.
    #[error(transparent)]
    Misuse(#[from] StartupMisuse),
    /// The QP is not idle.
    #[error("the QP is in state {0}: only an idle QP can be connected")]
    NotIdle(QpState),
    /// This end's program rejected the Request.
    #[error("rejected by this end")]
    Declined,
    /// The program gave up, or let go of the QP, before the startup was over.
    #[error("given up before the startup was over")]
    GivenUp,
    /// A child of `fork` used a QP of its parent's to connect or to answer.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The reason why a Request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// A child of `fork` answered a Request of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// No Request is waiting for an answer: none has come, or its connection is over.
    #[error("no Request waits for an answer")]
    NoRequest,
    /// The Request has been answered already.
    #[error("the Request has been answered")]
    Answered,
    /// The settings or the private data make no valid Reply. The Request is still waiting.
    #[error(transparent)]
    Misuse(#[from] StartupMisuse),
}
