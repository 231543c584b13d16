//! The MPA startup against peers that keep to nothing (RFC 5044 §7.1, RFC 6581): what each gets,
//! what the program learns, and that a listener goes on.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod active;
mod asking;
mod caps;
#[path = "../common/mod.rs"]
mod common;
mod frames;
mod own;
mod passive;
mod refusals;
