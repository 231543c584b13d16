//! Load on connections, one way as fast as it goes or one message at a time there and back: the
//! loops that `rddp perf` and the comparison with other stacks have in common.
//!
//! An active end sends or posts, a passive end receives and answers, over queue pairs
//! ([`rdma`]) or over byte streams ([`stream`]). Memory, sockets, ways to wait and failures
//! are the program's own: it brings them as an [`rdma::End`] or as [`stream::Streams`].
//! Nothing here prints or sleeps.
#![forbid(unsafe_code)]

pub mod rdma;
pub mod stream;

/// Octet that buffers hold. Not zero: untouched memory is one page of zeros for the processor's
/// caches.
pub const FILL: u8 = 0x5a;
