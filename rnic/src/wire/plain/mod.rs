//! Plain TCP (RFC 9293): octets with no framing, to and from any TCP program.
//!
//! A Send is written as it is, and completes when TCP has taken it. A receive completes with what
//! one read brings, or once it is full ([`RecvWr::full`](rddp_rdma::RecvWr::full)). One read takes
//! up to 64 KiB more than the receive at hand, for those to come; without a receive nothing is
//! read, so that TCP's window holds the peer. Each direction ends by itself: the peer's FIN ends
//! the receives, and [`Connection::close`](super::Connection::close) the Sends.

mod read;
mod write;

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Octets that the receive at hand has.
    filled: u64,
    /// The last receive was a large one.
    large: bool,
    /// Octets that have come behind the receives that there were.
    ahead: Vec<u8>,
    /// Memory of the last write has gone bad: requests go one by one until that is found.
    one_by_one: bool,
}
