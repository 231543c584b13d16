//! The end of a handshake without an export.

/// The end of a handshake without an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The first octets are not those of a server.
    #[error("no NBD server: its first octets are others")]
    NoServer,
    /// A server of the time before newstyle, or one that keeps to that.
    #[error("the server speaks oldstyle NBD, which has no names of exports")]
    Oldstyle,
    /// A reply that makes no sense.
    #[error("the server breaks the protocol: {0}")]
    Nonsense(&'static str),
    /// The server has no such export.
    #[error("the server has no such export{0}")]
    Unknown(Said),
    /// The server does not talk without TLS.
    #[error("the server wants TLS{0}")]
    WantsTls(Said),
    /// The server refuses for another reason.
    #[error("the server refuses{0}")]
    Refused(Said),
    /// The server does not list its exports.
    #[error("the server does not list its exports{0}")]
    NoList(Said),
}

/// A text of a server, in front of which a colon is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(pub String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

impl Said {
    /// Returns the text of a refusal, or of an error.
    pub(in crate::nbd::client) fn of(data: &[u8]) -> Self {
        Said(String::from_utf8_lossy(data).trim().to_owned())
    }
}
