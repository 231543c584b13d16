//! The vectors of the machine, and its state as any octets.

#![allow(clippy::unwrap_used, reason = "a test")]

mod adverts;
mod any_octets;
mod pair;
mod rules;
mod vectors;

use super::{Config, Core};

/// Two ends with the numbers of the vectors, and room for any of their messages.
pub(super) fn config() -> Config {
    Config {
        bufs: 64,
        buf_size: 32784,
        send_size: 32784,
        max_adverts: 8,
        peer_bufs: 64,
        peer_buf_size: 32784,
        peer_max_adverts: 8,
    }
}

pub(super) fn core() -> Core {
    Core::new(&config()).unwrap()
}
