//! Raw mode: RDMA operations over a program's own socket, by the software RNIC.
//!
//! A socket that was put into DDPMODE with `DDPMODE_RAW` carries no byte stream. [`attach`] makes
//! it one end of an RDMA connection. From then on the program posts [works](Works) to it and takes
//! [events](Event) from a queue that is a descriptor. `include/rddp/raw.h` says what each call does
//! and what each errno means.
//!
//! | file | what |
//! |---|---|
//! | `socket.rs` | the socket: the answers to the program's ordinary calls |
//! | `adapter.rs` | the process's own RNIC, and where its objects are found |
//! | `memory.rs` | domains, regions, windows, and the check that a work may name them |
//! | `queue.rs` | event queues |
//! | `event.rs` | events in the form that C programs see |
//! | `names.rs` | names of kinds, statuses and Terminates, for programs to print |
//! | `endpoint.rs` | one end of a connection, and how it ends |
//! | `begin.rs` | `attach`, `begin` and `connect`, which make a connection |
//! | `answer.rs` | the program's answer to a peer's Request |
//! | `shared.rs` | receives that several endpoints take from |
//! | `reserved.rs` | room in event queues, which never overflow |
//! | `work.rs` | works: from C structures to the RNIC's work requests |
//! | `info.rs` | the state of an endpoint, for the program |
//!
//! After `fork` a child has none of these objects: calls on inherited ones answer ECONNABORTED or
//! EBADF, and those that the child makes are its own.

mod adapter;
mod answer;
mod begin;
mod endpoint;
mod event;
mod info;
mod memory;
pub mod names;
mod queue;
mod reserved;
mod shared;
mod socket;
mod work;

pub use crate::sys::raw::{Area, Reply, Works};
pub(super) use adapter::after_fork;
pub use answer::answer;
pub use begin::{How, attach, begin};
pub use endpoint::disconnect;
pub use event::Event;
pub(crate) use info::MAX_PRIVATE_DATA;
pub use info::{Info, info};
pub use memory::{
    allocate, close_domain, deregister, open_domain, open_window, register, register_file, reregister,
    stag_now,
};
pub(super) use queue::closing as queue_closing;
pub use queue::{events, open as open_queue};
pub use shared::{arm_receives, close_receives, open_receives, post_shared};
pub use socket::Raw;
pub use work::{Sge, Work, post};
