//! The socket switch: what stands behind the socket calls of a program that runs with
//! `librddp_sockets.so`.
//!
//! The library itself, `preload/`, is C signatures and nothing else. Each asks here whether the call
//! concerns a socket of ours; for any other it goes on to the C library with the arguments it came
//! with.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | which descriptors are ours: an array read without a lock |
//! | [`socket`] | what is known of one of ours: mode, role, options |
//! | [`process`] | whether the table is this process's own: `fork` and `vfork` |
//! | [`switch`] | the policy of this process, applied |
//! | [`gate`] | what a call on a descriptor comes to: plain, refused, ours |
//! | [`kinds`] | what stands behind a descriptor of ours: kinds of sockets, and what they share |
//! | [`kinds::raw`] | RDMA itself over a program's socket, by the software RNIC |
//! | [`wait`] | `poll`, `select`, `epoll` of such sockets |
//! | [`startup`] | the time limit of startups, where the environment has one |
#![deny(unsafe_code)]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the socket switch knows the calling conventions of Linux on x86_64 and aarch64 only (see preload/src/variadic.rs)"
);

mod fds;
pub mod gate;
mod journal;
pub mod kinds;
mod plain_peers;
pub mod startup;
pub mod switch;
mod sys;
pub mod wait;

pub use fds::{process, socket, table};
