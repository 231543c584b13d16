//! What a check of memory can answer. The memory is the caller's; these are the words it reports to
//! the protocol in.

/// Why octets that a peer named may not be touched, in the order the checks are made
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

/// Why an STag that a peer wants invalidated stays as it is (draft-hilland-rddp-verbs §7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidateError {
    /// No such STag.
    #[error("unknown STag")]
    Unknown,
    /// The index is known, the key differs.
    #[error("STag with another key")]
    Key,
    /// It belongs to another protection domain or stream.
    #[error("STag is not associated with this stream")]
    Pd,
    /// It gives no remote right, or none to be invalidated by a peer.
    #[error("STag may not be invalidated remotely")]
    Rights,
    /// A region with windows bound to it.
    #[error("windows are bound to the region")]
    WindowsBound,
    /// A shared region, which is valid for as long as it exists.
    #[error("a shared region cannot be invalidated")]
    Shared,
}
