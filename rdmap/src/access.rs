//! Answers of a check of memory. The memory is the caller's, which reports to the
//! protocol in these types.

/// The reason why octets that a peer named may not be accessed, in the order of the checks
/// (RFC 5041 §7.1, RFC 5040 §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// The STag is unknown, its key differs, or it is not valid now.
    #[error("invalid STag")]
    Stag,
    /// The STag belongs to another protection domain or stream.
    #[error("STag is not associated with this stream")]
    Pd,
    /// The STag does not give this right.
    #[error("access right not given")]
    Rights,
    /// TO + length passes 2^64.
    #[error("TO wraps")]
    Wrap,
    /// Some octet lies outside the buffer.
    #[error("outside the buffer")]
    Bounds,
}

/// The reason why an STag that a peer wants invalidated stays valid
/// (draft-hilland-rddp-verbs §7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidateError {
    /// No such STag.
    #[error("unknown STag")]
    Unknown,
    /// The index is known, the key differs.
    #[error("STag with another key")]
    Key,
    /// The STag belongs to another protection domain or stream.
    #[error("STag is not associated with this stream")]
    Pd,
    /// The STag gives no remote right, or not the right to be invalidated by a peer.
    #[error("STag may not be invalidated remotely")]
    Rights,
    /// A region with windows bound to it.
    #[error("windows are bound to the region")]
    WindowsBound,
    /// A shared region, which is valid for as long as it exists.
    #[error("a shared region cannot be invalidated")]
    Shared,
}
