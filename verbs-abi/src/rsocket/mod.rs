//! The protocol of rsockets over iWARP: streams of octets by RDMA Writes, each followed by a Send
//! of four octets, since iWARP has no immediate data. No pointers, no system calls.
//!
//! | module | subject |
//! |---|---|
//! | `message` | private data of a connection, messages, places for data |
//! | `mapping` | memory that the peer's program may write to |
//! | `stream` | credits, the ring for what comes, the ends of both directions |

mod mapping;
mod message;
mod stream;

pub(crate) use mapping::Mapping;
pub(crate) use message::{Hello, Message, Place, announced};
pub(crate) use stream::{Stream, Update};

/// A peer that does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;
