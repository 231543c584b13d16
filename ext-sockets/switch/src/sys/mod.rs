//! The only unsafe code of the switch: how long a socket stays what it is, memory that processes
//! share, and what a program's pointers promise.
#![allow(unsafe_code)]

pub(crate) mod epoll_pool;
pub(crate) mod held;
pub(crate) mod raw;
