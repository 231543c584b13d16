//! The MPA startup against peers that break its rules (RFC 5044 §7.1, RFC 6581): the answer to
//! each, the report to the program, and a listener that goes on.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod active;
mod asking;
mod by_address;
mod caps;
#[path = "../common/mod.rs"]
mod common;
mod frames;
mod listening;
mod mss;
mod own;
mod passive;
mod refusals;
