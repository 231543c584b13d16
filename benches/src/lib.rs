//! Common parts of the benches of all layers: streams of FPDUs, a QP whose peer is a plain socket,
//! two QPs and two byte streams that are each other's peer.
//!
//! Nothing here is measured. Benches reach the layers by their public API alone, as programs do; so
//! what they measure is what a program pays.
#![forbid(unsafe_code)]

mod end;
mod frozen;
mod octets;
mod pair;
mod streams;

pub use end::{End, Wire};
pub use frozen::stop_background_by;
pub use octets::{fpdus, pattern, send_segment, write_segment};
pub use pair::Pair;
pub use streams::Streams;
