//! Plain TCP (RFC 9293): octets with no framing, to and from any TCP program.
//!
//! A Send is written as it is, and completes when TCP has taken it. A receive completes with what
//! one read brings, or once it is full ([`RecvWr::full`](rddp_rdma::RecvWr::full)). One read takes
//! up to 64 KiB more than the receive at hand, for those to come; without a receive nothing is
//! read, so that TCP's window holds the peer. Each direction ends by itself: the peer's FIN ends
//! the receives, and [`Connection::close`](super::Connection::close) the Sends.
//!
//! Where both ends agree on records, each message has its length in front, and completes one
//! receive.

mod read;
mod records;
mod write;

use self::records::{HEADER, Records};
use crate::queues::options::RecordOptions;

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    /// Octets that the receive at hand has.
    filled: u64,
    /// The last receive was a large one.
    large: bool,
    /// Octets that have come behind the receives that there were.
    ahead: Vec<u8>,
    /// Octets of those that receives have had since.
    delivered: usize,
    /// Memory of the last write has gone bad: requests go one by one until that is found.
    one_by_one: bool,
    /// Set where the messages are records.
    records: Option<Records>,
}

impl Plain {
    /// Makes the state of a connection, whose messages are records if `options` say how.
    pub(super) fn new(options: Option<RecordOptions>) -> Self {
        Plain { records: options.map(Records::new), ..Plain::default() }
    }

    /// Returns the number of octets in front of each message.
    fn header_len(&self) -> usize {
        if self.records.is_some() { HEADER } else { 0 }
    }
}
