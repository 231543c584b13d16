//! A software RNIC.
#![deny(unsafe_code)]

pub mod mem;
