//! The program in the kernel, the memory that it places into, and the maps that it shares with
//! user space.
//!
//! Needs root, or `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON` of the initial user namespace.
//!
//! [`Patch`] loads the program. [`Memory`] is what it can place into; an STag opens it through
//! [`Stags`]; [`Placing`] is one connection whose segments are placed, and [`Guide`] what the
//! reader of its stream asks. Nothing outlives the process
//! in the file system. On kernels with tcx (6.6) nothing outlives it at all; on older ones the
//! classifier stays on its interface, but finds no connection of a process that is gone.

mod connection;
mod error;
mod guide;
mod memory;
mod patch;
mod stags;
mod sys;
mod waits;

pub use connection::{Counts, Opening, Placing};
pub use error::PatchError;
pub use guide::{Claim, Guide};
pub use memory::{Memory, Pieces};
pub use patch::{Attached, Patch};
pub use stags::{Scope, Stags};
