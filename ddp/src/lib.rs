//! Placeholder
#![forbid(unsafe_code)]

mod bounds;
mod error;
mod ids;
mod rx;
mod tx;
mod wire;

pub use bounds::{RangeError, check_range};
pub use error::DdpError;
pub use ids::{Msn, Qn, Stag};
pub use rx::{TaggedRx, UntaggedRx};
pub use tx::{Cut, cut};
pub use wire::{DDP_VERSION, Header, HeaderOctets, SegmentError, TaggedRepr, UntaggedRepr};
