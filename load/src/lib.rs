//! Load on connections: messages one way as fast as possible, or one at a time there and back.
//! `rddp perf` and the comparison with other stacks share these loops.
//!
//! An active end sends or posts, a passive end receives and answers, over queue pairs ([`rdma`]) or
//! over byte streams ([`stream`]). The program brings its own memory, sockets, ways to wait and
//! errors, as an [`rdma::End`] or as [`stream::Streams`]. Nothing here prints or sleeps.
#![forbid(unsafe_code)]

pub mod rdma;
pub mod stream;

/// The octet that buffers are filled with. Not zero: untouched memory is one shared page of zeros,
/// which stays in the processor's caches.
pub const FILL: u8 = 0x5a;
