//! Tools shared by the tests of several crates: an iWARP peer made by hand, a generator of
//! pseudo-random numbers, and octets that show where they belong.
//!
//! [`Peer`] is a plain TCP socket with the frames of `rddp_mpa`: it sends whatever a test asks for,
//! right or wrong, and reads the answers of the end under test. [`Fpdus`] does so without a socket,
//! for tests that move octets themselves. [`segment`] makes ULPDUs, and [`streams`] are two RDMAP
//! streams with memory, for `rdmap`'s tests and the fuzzer. [`Sleeper`] waits for threads to fall
//! asleep. Everything is built on the wire
//! forms of `mpa`, `ddp` and `rdmap` alone, never on the code that sends and receives in `rnic` and
//! the byte stream, so that no test checks that code by itself.
//!
//! All of it panics where the end under test does not do what the test expects.
#![forbid(unsafe_code)]

mod fpdus;
mod octets;
mod peer;
pub mod sdp;
pub mod segment;
mod sleeper;
mod startup;
pub mod streams;

pub use self::fpdus::Fpdus;
pub use self::octets::{Random, pattern, pattern_from, random_octets};
pub use self::peer::{Peer, read_to_end};
pub use self::sleeper::Sleeper;
pub use self::startup::{accept_request, connect, plain, read_request};

use std::time::Duration;

/// Time after which a test counts as hung. Nothing is expected to take anywhere near as long.
pub const PATIENCE: Duration = Duration::from_secs(30);
