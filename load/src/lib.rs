//! Load on connections: messages one way as fast as possible, or one at a time there and back.
//! `rddp perf` and the comparison with other stacks share these loops.
//!
//! An active end sends or posts, a passive end receives and answers, over queue pairs ([`rdma`]) or
//! over byte streams ([`stream`]). The program brings its own memory, sockets, ways to wait and
//! errors, as an [`rdma::End`] or as [`stream::Streams`]. Nothing here prints or sleeps.
#![forbid(unsafe_code)]

pub mod rdma;
pub mod stream;

use std::time::Duration;

/// The octet that buffers are filled with. Not zero: untouched memory is one shared page of zeros,
/// which stays in the processor's caches.
pub const FILL: u8 = 0x5a;

/// The limits of a slice: it ends at the first that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The time until no more messages are begun.
    pub time: Duration,
    /// The number of messages, on all connections together. Streams end a slice by a message each,
    /// so it is at least one a stream.
    pub messages: u64,
}

impl From<Duration> for Extent {
    /// A slice with as many messages as fit into the time.
    fn from(time: Duration) -> Self {
        Extent { time, messages: u64::MAX }
    }
}
