//! The byte stream's tests, with peers made by hand and with two ends that talk.

mod any_cut;
mod duplex;
mod ends;
mod handshake;
mod incoming;
mod outgoing;
mod told;
