//! Queue pairs on a device of the host, which a fake library plays: its peer is another program by
//! `rddp-verbs-device`.
#![allow(clippy::unwrap_used)]

mod beside;
mod ending;
mod forks;
mod listening;
mod memory;
mod opening;
mod outstanding;
mod shared;
mod support;
mod windows;
mod working;
