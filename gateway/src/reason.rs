//! Reasons why a connection was refused, or ended.

use std::io::{self, ErrorKind};

use nix::libc;
use rddp_mpa::{StartupError, StartupMisuse};
use rddp_rdmap::TerminateCode;
use rddp_verbs_device::{ConnectFailed, Device, DeviceError, PostError};

use crate::bridge::Stop;

/// The reason why a gateway serves no longer, though nobody asked it to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// All listeners were a device's that is gone; the reason is the last one's.
    #[error("no listener is left: {0}")]
    NoListener(Reason),
    /// The gateway cannot wait, or has no descriptors for that.
    #[error("the gateway cannot wait: {0}{hint}", hint = hint(.0))]
    Wait(#[from] io::Error),
}

impl RunError {
    /// Returns the reason without what helps.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            RunError::NoListener(reason) => format!("no listener is left: {}", reason.cause()),
            RunError::Wait(error) => format!("the gateway cannot wait: {error}"),
        }
    }

    /// Returns what helps, if something is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            RunError::NoListener(_) => Some("start the gateway again when the device is back"),
            RunError::Wait(error) => remedy(error),
        }
    }
}

/// The reason why a connection was refused, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The gateway has no place for this peer.
    #[error("{0}")]
    NotAdmitted(String),
    /// The plain host has closed its end, and all that it asked for is done.
    #[error("the plain host has closed the connection")]
    PlainClosed,
    /// The plain host has closed its end in the middle of a message, or of an FPDU.
    #[error("the plain host has closed the connection in the middle of a message")]
    PlainCut,
    /// The device's host has ended the connection.
    #[error("the device's host has closed the connection")]
    DeviceClosed,
    /// The gateway was asked to stop.
    #[error("the gateway stops")]
    Stopped,
    /// TCP failed, or was reset.
    #[error("TCP to the plain host: {0}{hint}", hint = hint(.0))]
    Tcp(#[from] io::Error),
    /// This host lacks a descriptor, or a thread, for another connection.
    #[error("{0}{hint}", hint = hint(.0))]
    Host(io::Error),
    /// The name of the host behind the gateway is not known.
    #[error("looking up {name}: {error}")]
    Unknown {
        /// The name.
        name: String,
        /// The resolver's answer.
        error: io::Error,
    },
    /// The plain host's startup frame is wrong.
    #[error("MPA startup: {0}")]
    Startup(#[from] StartupError),
    /// The plain host has rejected the connection.
    #[error("the plain host rejected the connection")]
    PlainRejected {
        /// Private data of its program.
        private_data: Vec<u8>,
    },
    /// The startup frame cannot hold what the device's host has said.
    #[error("MPA startup: {0}")]
    Misuse(#[from] StartupMisuse),
    /// A leg took too long.
    #[error("{0} took too long")]
    TooLong(&'static str),
    /// The device's leg did not come about.
    #[error("the device's leg: {0}")]
    Connect(ConnectFailed),
    /// The device, or its memory, failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device did not take a receive.
    #[error("posting a receive: {0}")]
    Receive(#[from] PostError),
    /// An end has broken a rule, or asked for what cannot go on.
    #[error("{cause}")]
    Broken {
        /// The cause in words.
        cause: String,
        /// The Terminate that the plain host got, or has sent.
        code: Option<TerminateCode>,
    },
}

/// Returns what helps against an error of this host, with brackets, behind its words.
fn hint(error: &io::Error) -> String {
    remedy(error).map_or_else(String::new, |remedy| format!(" ({remedy})"))
}

/// Returns what helps against an error of a socket, a descriptor or a thread.
fn remedy(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => Some("raise the limit of open files, see `ulimit -n`"),
        Some(libc::EAGAIN) => Some("raise the limit of threads: `ulimit -u`; TasksMax= of systemd"),
        Some(libc::ENOMEM | libc::ENOBUFS) => Some("this host has no memory left: lower --max-pairs"),
        _ => None,
    }
}

/// Returns whether an error of TCP is that this host lacks something.
fn is_lack(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
}

/// Returns whether a device's error comes of the peer, or of the way to it.
fn is_of_peer(error: &DeviceError) -> bool {
    match error {
        DeviceError::PrivateData { .. } => true,
        DeviceError::Call { call: "rdma_accept" | "rdma_reject", error, .. } => {
            matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EINVAL | libc::ENOTCONN))
        }
        DeviceError::Call { error, .. } => {
            matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        }
        _ => false,
    }
}

impl Reason {
    /// Returns the reason that a device was removed.
    pub(crate) fn removed(device: &Device) -> Self {
        DeviceError::Removed { device: device.name().to_owned() }.into()
    }

    /// Returns the reason of an end by a fault, before the plain host has been told of it.
    pub(crate) fn of(stop: &Stop) -> Self {
        let code = match stop {
            Stop::Terminated(code) => Some(*code),
            _ => None,
        };
        Reason::Broken { cause: stop.to_string(), code }
    }

    /// Returns whether this host is what lacks something, and neither peer has done anything.
    #[must_use]
    pub fn is_of_this_host(&self) -> bool {
        match self {
            Reason::Host(_) => true,
            Reason::Tcp(error) => is_lack(error),
            Reason::Device(error) => !is_of_peer(error),
            Reason::Receive(error) => !matches!(error, PostError::NotConnected),
            _ => false,
        }
    }

    /// Returns the reason without what helps.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Reason::Tcp(error) => format!("TCP to the plain host: {error}"),
            Reason::Host(error) => error.to_string(),
            Reason::Device(error) => error.cause(),
            reason => reason.to_string(),
        }
    }

    /// Returns what helps, if something is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Reason::Tcp(error) | Reason::Host(error) => remedy(error),
            Reason::Device(error) => error.remedy(),
            Reason::Unknown { .. } => {
                Some("check the name: `getent hosts NAME` shows whether this host knows it")
            }
            _ => None,
        }
    }

    /// Returns whether the connection ended as it should.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        matches!(self, Reason::PlainClosed | Reason::DeviceClosed | Reason::Stopped)
    }

    /// Returns the Terminate that the plain host got, or has sent.
    #[must_use]
    pub fn terminate(&self) -> Option<TerminateCode> {
        match self {
            Reason::Broken { code, .. } => *code,
            _ => None,
        }
    }
}
