//! `poll`, `select` and `epoll` of framed sockets.

use std::ffi::c_int;

use crate::socket::Held;

/// The mood of a socket that an epoll set has is another: what the kernel is asked to watch for may have to change.
pub fn changed(_held: &Held, _fd: c_int) {}
