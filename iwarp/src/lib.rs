//! The decisions of one iWARP connection (RFC 5044, RFC 5041, RFC 5040 together over one TCP stream).
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod ending;
mod inbound;
mod own;
mod segments;
mod train;

pub use ending::{Refusal, Termination};
pub use inbound::{Delivered, Receive, Receiver, Segment, Step, Target, Trouble};
pub use own::OwnMessage;
pub use segments::{Segments, rest_ends_record};
pub use train::{Gather, Record, Taken, push_copied, push_gathered, taken};
