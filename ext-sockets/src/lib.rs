//! Extended sockets: sockets programs over iWARP, unchanged or with one socket option.
//!
//! [`stream`] is a byte stream in FPDUs over a TCP socket that stays the program's own.
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

pub mod stream;
