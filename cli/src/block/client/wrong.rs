//! The mistakes that end a client.

use rddp_block::nbd::handshake::Refused;
use rddp_block::nbd::request::NoRequest;
use rddp_rnic::{MemError, PostError, PostListError};

use crate::block::session::PATIENCE;

/// The end of a client that did something wrong, or to which nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub(in crate::block) enum Wrong {
    /// A handshake that makes no sense.
    #[error(transparent)]
    Handshake(#[from] Refused),
    /// A reply to an option for which there is no memory.
    #[error("no memory for what it asks in its handshake")]
    NoMemory,
    /// Octets that are no request.
    #[error(transparent)]
    Request(#[from] NoRequest),
    /// A client that says nothing.
    #[error("no handshake within {} s", PATIENCE.as_secs())]
    Silent,
    /// A connection that does not take a request of ours.
    #[error("posting: {0}")]
    Post(#[from] PostError),
    /// A connection that does not take several requests.
    #[error("posting: {0}")]
    PostList(#[from] PostListError),
    /// Registered memory that is not there.
    #[error("memory: {0}")]
    Memory(#[from] MemError),
}
