//! Errors of the library's own caller, and of the host. Misbehaviour of a peer becomes completions
//! and asynchronous events instead ([`crate::AsyncEventKind`]).
//!
//! The text of an error is complete: it says the cause, too, where there is one. So no error of
//! this crate has that cause as its `source`, or programs that print chains would print it twice;
//! the variants hold it.

use std::io;

use rddp_ddp::Stag;
use rddp_mpa::{StartupError, StartupMisuse};
use rddp_rdma::CqNum;
use rddp_rdmap::AccessError;
use rddp_verbs_device::{ConnectFailed, DeviceError};

use crate::home::Forked;
use crate::mem::MemError;
use crate::queues::state::QpState;

/// An error of making a device, a queue, a region or another object.
///
/// ```
/// use rddp_rnic::{Error, Rnic};
/// let rnic = Rnic::open()?;
/// let refused = rnic.create_cq(0).unwrap_err();
/// assert!(matches!(refused, Error::OutOfRange { value: 0, .. }), "{refused}");
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory could not be allocated or registered.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The host refused a descriptor, a thread or a socket.
    #[error("{what} failed: {error}")]
    Host {
        /// The step that failed.
        what: &'static str,
        /// The host's answer.
        error: io::Error,
    },
    /// A configured size is zero or beyond the device.
    #[error("{what} is {value}: it may be 1 to {max}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// The value that was asked for.
        value: usize,
        /// The device's limit.
        max: usize,
    },
    /// The object belongs to another protection domain or device.
    #[error("{0} belongs to another device or protection domain: objects of one are used together")]
    Foreign(&'static str),
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// The object is in use, which excludes the change.
    #[error("{0} cannot be changed so")]
    InUse(&'static str),
    /// A completion queue has overflowed, and takes part in no more connections (RFC 5042 §6.4.6).
    #[error(
        "completion queue {} has overflowed, and serves no more queue pairs: \
         make another one with room for all their requests, or poll it more often",
        .cq.0
    )]
    CqOverflow {
        /// The completion queue.
        cq: CqNum,
    },
    /// A device of the host cannot be used, or does not have what was asked for.
    #[error("{0}")]
    Device(DeviceError),
    /// The device of the host by which connections were to be made cannot be used.
    #[error("{error} ({})", named(*.by))]
    NamedDevice {
        /// The reason.
        error: DeviceError,
        /// The giver of its name.
        by: NamedBy,
    },
    /// A child of `fork` uses an object of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The giver of a device's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The program, by [`RnicConfig::device`](crate::RnicConfig::device).
    Program,
    /// The variable `RDDP_DEVICE`.
    Variable,
}

/// Returns where a device's name came from, and what does without the device.
fn named(by: NamedBy) -> &'static str {
    match by {
        NamedBy::Program => {
            "the program asks for it in RnicConfig::device: by the name soft, rddp itself moves the octets"
        }
        NamedBy::Variable => {
            "the variable RDDP_DEVICE asks for it: if it is unset, or soft, rddp itself moves the octets"
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Error::Device(error)
    }
}

impl Error {
    /// Returns a function for `map_err` that names the step which the host refused.
    pub(crate) fn host<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |error| Error::Host { what, error: error.into() }
    }
}

/// The reason why a work request was refused. The request was not posted.
///
/// ```
/// use rddp_rnic::{PostError, QpConfig, Rnic, SendWr};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// let max = rnic.capabilities().max_inline;
/// let long = vec![0; max + 1];
/// let refused = qp.post_send(&SendWr::send_inline(1, &long)).unwrap_err();
/// assert_eq!(refused, PostError::InlineTooLong { len: long.len(), max });
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// Too many requests are outstanding: poll the completion queue first.
    #[error("the queue holds {capacity} requests already: poll for completions first")]
    QueueFull {
        /// The number of requests that the queue can hold.
        capacity: usize,
    },
    /// The completion queue of the request has overflowed, so that its completion could not be
    /// reported. The connection has ended (RFC 5042 §6.4.6), and the queue takes part in no other:
    /// a larger one is made, or it is polled more often.
    #[error(
        "completion queue {} has overflowed, which ends its connections: \
         make one with room for all requests of its queue pairs, or poll it more often",
        .cq.0
    )]
    CqOverflow {
        /// The completion queue.
        cq: CqNum,
    },
    /// Too many scatter or gather elements.
    #[error("the request has {count} scatter or gather elements: at most {max} are allowed")]
    TooManySges {
        /// The number of elements in the request.
        count: usize,
        /// The greatest number allowed.
        max: usize,
    },
    /// Too much inline data.
    #[error("the request has {len} octets inline: at most {max} are allowed, more are sent from a region")]
    InlineTooLong {
        /// The number of octets in the request.
        len: usize,
        /// The greatest number allowed.
        max: usize,
    },
    /// The message is 4 GiB or longer (RFC 5041 §5.2), or longer than the device's longest.
    #[error(
        "a message of {len} octets: a DDP message is shorter than 4 GiB, and that of another device than \
         software may have to be (Rnic::capabilities), so send it as several"
    )]
    MessageTooLong {
        /// The number of octets in the request.
        len: u64,
    },
    /// The wire of the QP has no such request.
    #[error("the wire of this queue pair has no such request: see QpConfig::transport")]
    Transport,
    /// The device does not know the operation.
    #[error("this device does not know the operation: see Rnic::capabilities")]
    Unsupported,
    /// The QP takes its receives from a shared queue.
    #[error("this QP uses a shared receive queue: post to that")]
    UsesSharedQueue,
    /// A child of `fork` posts to a queue of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// An element names memory that the request can never use. (Memory that becomes invalid later
    /// ends the connection, with [`Status::LocalProtection`](crate::Status::LocalProtection).)
    #[error("scatter or gather element {index}, STag {stag}: {fault}")]
    Memory {
        /// The index of the element, from 0 on.
        index: usize,
        /// The element's STag.
        stag: Stag,
        /// The rule that the element breaks.
        fault: SgeFault,
    },
}

/// A request of a list was refused ([`QueuePair::post_sends`](crate::QueuePair::post_sends)): those
/// before it were posted, it and those behind it were not.
///
/// ```
/// use rddp_rnic::{PostError, QpConfig, Rnic, SendWr};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig { max_send: 2, ..QpConfig::new(&cq) })?;
/// let refused = qp.post_sends(&[1, 2, 3].map(|id| SendWr::send_inline(id, b"x"))).unwrap_err();
/// assert_eq!((refused.posted, refused.error), (2, PostError::QueueFull { capacity: 2 }));
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} of the list, counted from 0: {error}")]
pub struct PostListError {
    /// The number of requests that were posted: the index of the one that was refused.
    pub posted: usize,
    /// The reason why that one was refused.
    pub error: PostError,
}

impl From<PostListError> for PostError {
    fn from(refused: PostListError) -> Self {
        refused.error
    }
}

/// The fault of an element in a scatter or gather list.
///
/// ```
/// use rddp_rnic::{Access, PostError, QpConfig, RecvWr, Rnic, SgeFault};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// let region = pd.allocate(64, Access::REMOTE_READ)?;
/// let Err(PostError::Memory { fault, .. }) = qp.post_recv(RecvWr::one(1, region.whole())) else {
///     panic!("a receive is placed where the region lets nothing be placed");
/// };
/// assert_eq!(fault, SgeFault::ReadOnly);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SgeFault {
    /// No region has this STag, or it has been invalidated,
    /// or its region has been registered again under another.
    #[error("no region has this STag now: was it invalidated, or its region registered again?")]
    Invalid,
    /// The region belongs to another protection domain than the queue.
    #[error("the region belongs to another protection domain than the queue: register it in the queue's")]
    OtherPd,
    /// Octets would be placed in a region without
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    #[error("octets are to be placed in the region, which was registered without Access::LOCAL_WRITE")]
    ReadOnly,
    /// The sink of an atomic operation has fewer than eight octets.
    #[error("an atomic operation returns eight octets: the element is shorter")]
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

/// The reason why a QP was not connected.
///
/// ```
/// use std::io::ErrorKind;
/// use rddp_rnic::{ConnectError, ConnectOptions, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// match qp.connect(nobody, &ConnectOptions::default()) {
///     Err(ConnectError::Tcp(error)) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// TCP did not connect, or its connection was lost.
    #[error("TCP: {0}")]
    Tcp(io::Error),
    /// The peer did not answer in time.
    #[error(
        "the peer did not answer within {0:?}: does it listen for the protocol of this end's device (software: iWARP)?"
    )]
    TimedOut(std::time::Duration),
    /// The peer closed TCP instead of answering.
    #[error(
        "the peer closed the connection during MPA startup: it refuses this revision or setting, or is no iWARP listener"
    )]
    Closed,
    /// The peer's startup frame breaks a rule of MPA, or has settings that this end cannot meet.
    #[error("MPA startup: {0}")]
    Startup(StartupError),
    /// The peer's program rejected the connection.
    #[error("the peer's program rejected the connection ({} octets of private data)", private_data.len())]
    Rejected {
        /// The private data of the peer's program, which may say why.
        private_data: Vec<u8>,
    },
    /// A startup frame cannot hold the settings or the private data.
    #[error(transparent)]
    Misuse(#[from] StartupMisuse),
    /// The QP is not idle; or it is, and is being connected already.
    #[error("{}", not_idle(*.0))]
    NotIdle(QpState),
    /// The connection is of another wire than the QP.
    #[error("the connection is of another wire than the QP: see QpConfig::transport and Rnic::listen_by")]
    Transport,
    /// There are private data, and the wire carries none.
    #[error("plain TCP carries no private data: connect without, and send them")]
    PrivateData,
    /// The program of this end has rejected the peer's Request.
    #[error("the program of this end rejected the peer's Request")]
    Declined,
    /// The device of the host refuses, or does not have what was asked for.
    #[error("{0}")]
    Device(DeviceError),
    /// There is no connection by the device of the host.
    #[error("{0}")]
    Unreached(ConnectFailed),
    /// The program has aborted or dropped the QP before the startup was over.
    #[error("the startup was given up: the QP was aborted or dropped before it was over")]
    GivenUp,
    /// A child of `fork` connects a QP of its parent's, or answers a Request for it.
    #[error(transparent)]
    Forked(#[from] Forked),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        ConnectError::Tcp(error)
    }
}

impl From<DeviceError> for ConnectError {
    fn from(error: DeviceError) -> Self {
        ConnectError::Device(error)
    }
}

impl From<StartupError> for ConnectError {
    fn from(error: StartupError) -> Self {
        ConnectError::Startup(error)
    }
}

/// A system call that failed while a connection was made.
impl From<nix::errno::Errno> for ConnectError {
    fn from(error: nix::errno::Errno) -> Self {
        ConnectError::Tcp(io::Error::from(error))
    }
}

fn not_idle(state: QpState) -> String {
    match state {
        QpState::Idle => "the QP is being connected already: wait for the end of that".into(),
        _ => format!("the QP is in state {state}: only an idle QP can be connected"),
    }
}

/// The reason why a Request was not answered.
///
/// ```
/// use rddp_rnic::{Answer, AnswerError, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// assert_eq!(qp.answer(Answer::Accept, b""), Err(AnswerError::NoRequest));
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// A child of `fork` answers a Request of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// No Request has come, or the connection that it came on is over.
    #[error("no Request waits for an answer: none has come, or its connection is over")]
    NoRequest,
    /// There are private data, and the wire carries none. The peer still waits.
    #[error("plain TCP carries no private data: answer without, and send them")]
    PrivateData,
    /// The Request has been answered before.
    #[error("the Request has been answered already")]
    Answered,
    /// A Reply cannot hold the settings or the private data. The Request still waits.
    #[error(transparent)]
    Misuse(#[from] StartupMisuse),
}

#[cfg(test)]
mod tests {
    use rddp_rdma::{Completed, Completion, QpNum, Status};

    use super::*;

    /// Returns the text of an error that the host has given.
    fn host() -> io::Error {
        io::Error::from_raw_os_error(libc::EACCES)
    }

    fn each() -> Vec<Box<dyn std::error::Error>> {
        let os = || MemError::Os { call: "mlock", len: 4096, error: host() };
        let fault = SgeFault::ReadOnly;
        let post = PostError::Memory { index: 0, stag: Stag(0x100), fault };
        let misuse = StartupMisuse::NoRtr;
        let completion = Completion {
            wr_id: 1,
            status: Status::LocalProtection,
            completed: Completed::Read,
            byte_len: 0,
            qp: QpNum(1),
            invalidated: None,
            immediate: None,
            source: None,
            solicited: false,
        };
        vec![
            Box::new(os()),
            Box::new(MemError::Maps(host())),
            Box::new(MemError::Forked(Forked)),
            Box::new(Error::Memory(os())),
            Box::new(Error::Host { what: "listening", error: host() }),
            Box::new(Error::Forked(Forked)),
            Box::new(post),
            Box::new(PostListError { posted: 3, error: post }),
            Box::new(ConnectError::from(host())),
            Box::new(ConnectError::from(StartupError::Revision(7))),
            Box::new(ConnectError::from(misuse)),
            Box::new(ConnectError::Forked(Forked)),
            Box::new(AnswerError::from(misuse)),
            Box::new(completion.ok().unwrap_err()),
        ]
    }

    #[test]
    fn no_text_of_a_chain_repeats_its_source() {
        for error in each() {
            let mut link: &dyn std::error::Error = &*error;
            while let Some(source) = link.source() {
                assert!(!link.to_string().contains(&source.to_string()), "{link} has {source}");
                link = source;
            }
        }
    }

    /// A program that prints the error alone learns the cause.
    #[test]
    fn the_text_of_an_error_says_its_cause() {
        let denied = host().to_string();
        let texts: Vec<String> = each().iter().map(ToString::to_string).collect();
        assert_eq!(texts.iter().filter(|text| text.contains(&denied)).count(), 5, "{texts:#?}");
        for cause in [
            SgeFault::ReadOnly.to_string(),
            StartupError::Revision(7).to_string(),
            Status::LocalProtection.to_string(),
        ] {
            assert!(texts.iter().any(|text| text.contains(&cause)), "{cause}");
        }
    }
}
