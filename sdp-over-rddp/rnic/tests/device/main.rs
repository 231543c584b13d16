//! Sockets on devices of the host, which a fake library plays: both ends are on one.
#![allow(clippy::unwrap_used)]

mod ending;
mod moving;
mod opening;
mod support;
