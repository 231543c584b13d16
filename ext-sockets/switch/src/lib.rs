//! The socket switch decides what the socket calls of a program that runs with `librddp_sockets.so`
//! do.
//!
//! The library itself, in `preload/`, holds C signatures only. Each of its functions asks this
//! crate whether the call concerns a socket that the library handles ("a socket of ours"). Any
//! other call goes on to the C library with the arguments it came with.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | the descriptors that are ours: an array read without a lock |
//! | [`socket`] | the state of one socket of ours: mode, role, options |
//! | [`process`] | whether the table belongs to this process, after `fork` and `vfork` |
//! | [`switch`] | the policy of this process, and how it is applied |
//! | [`gate`] | the route of a call on a descriptor: C library, refusal, socket of ours |
//! | [`kinds`] | the kinds of sockets of ours, and what they share |
//! | [`kinds::raw`] | RDMA over a program's socket, by the software RNIC |
//! | [`exit`] | calls of other threads while the process exits |
//! | [`wait`] | `poll`, `select` and `epoll` of sockets of ours |
//! | [`startup`] | the time limit of startups that the environment sets |
//! | [`trace`] | events of the switch's decisions, for `RDDP_LOG` |
//! | [`placement`] | the settings of placement in the kernel that hold for the process |
//! | [`sdp`] | the settings of SDP that hold for the process, and its address families |
#![deny(unsafe_code)]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the socket switch knows the calling conventions of Linux on x86_64 and aarch64 only (see preload/src/variadic.rs)"
);

pub mod capture;
pub mod exit;
mod fds;
pub mod gate;
mod journal;
pub mod kinds;
pub mod placement;
mod plain_peers;
pub mod sdp;
pub mod startup;
pub mod switch;
mod sys;
pub mod trace;
pub mod wait;

pub use fds::{process, socket, table};
