//! Faults in the form of what a peer sends.

use super::Mid;

/// A fault in the form of a message. The connection is aborted, or a Hello rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer octets than a base header has.
    #[error("a message of {0} octets is shorter than its header")]
    ShortHeader(usize),
    /// `Len` is not the number of octets that came.
    #[error("a message says that it has {len} octets, and has {arrived}")]
    LenMismatch {
        /// `Len` of the header.
        len: u32,
        /// The octets that came.
        arrived: usize,
    },
    /// A MID that stands for no message.
    #[error("there is no message with the MID {0:#04x}")]
    UnknownMid(u8),
    /// Fewer octets than the extended header has.
    #[error("a {0} is shorter than its extended header")]
    ShortExtension(Mid),
    /// Payload in a message that has none.
    #[error("a {0} has payload")]
    PayloadNotAllowed(Mid),
    /// `OOB_PRES` in another message than Data.
    #[error("a {0} says that its last octet is urgent")]
    OobPresNotData(Mid),
    /// `OOB_PRES` in a Data without payload.
    #[error("a Data without payload says that its last octet is urgent")]
    OobPresEmpty,
    /// A `ModeChange` to a mode that does not exist.
    #[error("there is no mode {0}")]
    ModeValue(u8),
    /// A Hello or `HelloAck` on a connection that is established.
    #[error("a {0} after the startup")]
    LateHello(Mid),
    /// Another message than the startup asks for.
    #[error("a {0} came where a Hello belongs")]
    NotHello(Mid),
    /// Another major version than 1 and 2.
    #[error("version {0}.x of SDP is not supported")]
    HelloVersion(u8),
    /// Addresses of another version of IP than 4 and 6.
    #[error("there is no IP version {0}")]
    HelloIpVersion(u8),
    /// `MaxAdverts` is 0.
    #[error("a Hello says that its sender takes no advert")]
    HelloMaxAdverts,
    /// Receive buffers that do not hold the longest message without payload.
    #[error("receive buffers of {0} octets are too small for messages of SDP")]
    HelloReceiveSize(u32),
}

impl FormatError {
    /// Returns the name of the rule that was broken, for logs and tests.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::ShortHeader(_) => "short-bsdh",
            Self::LenMismatch { .. } => "len-mismatch",
            Self::UnknownMid(_) => "unknown-mid",
            Self::ShortExtension(_) => "short-ext",
            Self::PayloadNotAllowed(_) => "payload-not-allowed",
            Self::OobPresNotData(_) => "oob-pres-not-data",
            Self::OobPresEmpty => "oob-pres-empty",
            Self::ModeValue(_) => "mode-value",
            Self::LateHello(_) => "late-hello",
            Self::NotHello(_) => "not-hello",
            Self::HelloVersion(_) => "hello-version",
            Self::HelloIpVersion(_) => "hello-ipv",
            Self::HelloMaxAdverts => "hello-max-adverts",
            Self::HelloReceiveSize(_) => "hello-receive-size",
        }
    }
}
