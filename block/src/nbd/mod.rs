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

use crate::export::DiskError;

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

/// The errors that a reply can tell, and their numbers ("Error values").
const ERRORS: [(DiskError, u32); 8] = [
    (DiskError::Perm, 1),
    (DiskError::Io, 5),
    (DiskError::NoMem, 12),
    (DiskError::Inval, 22),
    (DiskError::NoSpc, 28),
    (DiskError::Overflow, 75),
    (DiskError::NotSup, 95),
    (DiskError::Shutdown, 108),
];

/// Returns the number of an error.
fn number_of(error: DiskError) -> u32 {
    ERRORS.iter().find(|(of, _)| *of == error).map_or(22, |(_, number)| *number)
}

/// Returns the error of a number. One that the protocol does not have is EINVAL.
fn error_of(number: u32) -> DiskError {
    ERRORS.iter().find(|(_, of)| *of == number).map_or(DiskError::Inval, |(error, _)| *error)
}
