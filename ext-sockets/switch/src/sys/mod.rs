//! The only unsafe code of the switch: the lifetime of sockets, memory that processes share, and
//! pointers of C programs.
#![allow(unsafe_code)]

pub(crate) mod epoll_pool;
pub(crate) mod held;
pub(crate) mod raw;
#[cfg(test)]
pub(crate) mod test_calls;
