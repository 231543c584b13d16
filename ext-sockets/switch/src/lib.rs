//! Extended sockets: what stands behind the socket calls of a program that runs with `librddp_sockets.so`.
//!
//! The library itself, `preload/`, is C signatures and nothing else. Each asks here whether the call concerns a socket in
//! DDPMODE; for any other it goes on to the C library with the arguments it came with.
//!
//! | module | what |
//! |---|---|
//! | [`next`] | the C library's own functions, found behind ours |
//! | [`table`] | which descriptors are ours: an array read without a lock |
//! | [`socket`] | what is known of one of ours: mode, role, options |
//! | [`process`] | whether the table is this process's own: `fork` and `vfork` |
//! | [`policy`] | libsdp.conf: which connections travel in which way |
//! | [`switch`] | the policy of this process, applied |
//! | [`gate`] | what a call on a descriptor comes to: plain, refused, framed |
//! | [`framed`] | a socket in DDPMODE: its calls, led to its stream |
//! | [`raw_mode`] | RDMA itself over such a socket, by the software RNIC |
//! | [`wait`] | `poll`, `select`, `epoll` of such sockets |
//! | [`stream`] | a byte stream in FPDUs over a TCP socket that stays the program's own |
//! | [`as_program`] | the socket calls as the program finds them, for what acts on its behalf |
//! | [`progress`], [`threads`] | who goes on with what has to wait: the caller, or two threads |
//! | [`hidden`] | descriptors of our own |
//! | [`exs`] | the ES-API: operations, event queues, registered memory |
#![deny(unsafe_code)]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "the socket switch knows the calling conventions of Linux on x86_64 and aarch64 only (see preload/src/variadic.rs)"
);

pub use rddp_es_api::{as_program, exs, progress, threads};
pub mod framed;
pub mod gate;
mod journal;
mod plain_peers;
pub use rddp_policy as policy;
pub mod process;
pub mod raw_mode;
pub mod socket;
pub mod startup;
pub use rddp_real as next;
use rddp_real::deadline;
pub use rddp_real::hidden;
pub use rddp_stream as stream;
pub mod switch;
mod sys;
pub mod table;
pub mod wait;
