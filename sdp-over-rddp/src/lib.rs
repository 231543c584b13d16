//! The Sockets Direct Protocol (SDP) over RDDP: a stream of octets between two sockets, in messages
//! and RDMA operations.
//!
//! The crate is pure: messages and values in, messages and values out. Its bindings bring the
//! connection: the byte stream of `ext-sockets` over a program's own socket, and
//! `sdp-over-rddp/rnic` over an RDMA device.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod layout;
pub mod machine;
pub mod socket;
pub mod transport;
pub mod wire;
