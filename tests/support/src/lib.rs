//! What tests of several crates share: an iWARP peer made by hand, a generator of pseudo-random
//! numbers and octets that show where they belong.
//!
//! [`Peer`] is a plain TCP socket and the frames of `rddp_mpa`: it sends whatever a test wants it
//! to send, right or wrong, and reads what the end under test answers. [`Fpdus`] is the same
//! without a socket, for tests that move octets themselves. [`segment`] makes ULPDUs. Everything
//! stands on the wire forms of `mpa`, `ddp` and `rdmap` alone, never on what sends and receives in
//! `rnic` and the byte stream, so that no test proves that code by itself.
//!
//! All of it panics where the end under test does not do what the test wants of it.
#![forbid(unsafe_code)]

mod fpdus;
mod octets;
mod peer;
pub mod segment;
mod startup;

pub use self::fpdus::Fpdus;
pub use self::octets::{Random, pattern, pattern_from, random_octets};
pub use self::peer::{Peer, read_to_end};
pub use self::startup::{accept_request, connect, plain, read_request};

use std::time::Duration;

/// Time after which a test counts as hung. Nothing is expected to take anywhere near as long.
pub const PATIENCE: Duration = Duration::from_secs(30);
