//! The program's descriptors: which of them are sockets of ours, and the state of each.

pub mod process;
pub mod socket;
pub mod table;
