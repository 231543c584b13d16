//! NBD: the Network Block Device protocol (`doc/proto.md` of the project NBD), fixed newstyle.
//!
//! | module | what |
//! |---|---|
//! | [`handshake`] | what the ends agree on before requests: the server's end |
//! | [`request`] | requests of a client |
//! | [`reply`] | replies, simple and structured |
//! | [`client`] | the client's end of all that |
//!
//! Sections are those of `doc/proto.md`, by name.

pub mod client;
pub mod handshake;
mod options;
pub mod reply;
pub mod request;

/// Octets of the longest payload, both ways: what clients take for granted where a server names no
/// other ("Block size constraints").
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// The id of the context `base:allocation`, where it was asked for.
const ALLOCATION_ID: u32 = 1;

/// The terms on which the ends have agreed for their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Reads are answered by structured replies.
    pub structured: bool,
    /// The client may ask where the data are (`base:allocation`).
    pub allocation: bool,
}

/// An error that a reply tells ("Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum ErrorValue {
    /// The disk may not be written.
    #[error("not permitted (EPERM)")]
    Perm = 1,
    /// The disk has failed.
    #[error("the disk has failed (EIO)")]
    Io = 5,
    /// There is no memory.
    #[error("no memory (ENOMEM)")]
    NoMem = 12,
    /// The request makes no sense.
    #[error("no such request (EINVAL)")]
    Inval = 22,
    /// The disk is full, or a write goes beyond its end.
    #[error("no room on the disk (ENOSPC)")]
    NoSpc = 28,
    /// The request is too long.
    #[error("the request is too long (EOVERFLOW)")]
    Overflow = 75,
    /// The disk cannot do that.
    #[error("not supported (ENOTSUP)")]
    NotSup = 95,
    /// The server is about to end.
    #[error("the server is about to end (ESHUTDOWN)")]
    Shutdown = 108,
}

impl ErrorValue {
    /// Returns the error of this number. One that the protocol does not have is EINVAL.
    #[must_use]
    pub fn of(number: u32) -> Self {
        use ErrorValue::*;
        let all = [Perm, Io, NoMem, NoSpc, Overflow, NotSup, Shutdown];
        all.into_iter().find(|error| *error as u32 == number).unwrap_or(Inval)
    }
}
