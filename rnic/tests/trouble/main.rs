//! Peers that stop, stall, break off, lie and flood, and programs that ask for what cannot be: each
//! gets the Terminate or close that is due, the program a completion or event that says why, and
//! others go on.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;
mod dropping;
mod ends;
mod events;
mod isolation;
mod large;
mod limits;
mod local;
mod order;
mod resets;
mod revoke;
mod segments;
mod shared;
mod shared_memory;
mod slow;
mod terminates;
mod turns;
mod waiting;
