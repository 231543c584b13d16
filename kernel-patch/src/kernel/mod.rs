//! The program in the kernel, the memory that it places into, and the maps that it shares with
//! user space.
//!
//! Needs root, or `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON` of the initial user namespace.
//!
//! [`Patch`] loads the program. [`Memory`] is what it can place into; an STag opens it through
//! [`Stags`], and [`Awaited`] is memory for messages that this end has asked for. [`Placing`] is
//! one connection whose segments are placed, and [`Guide`] what the reader of its stream asks.
//! Nothing outlives the process on kernels with tcx (6.6). On older ones a crash leaves a
//! [`Classifier`] on its interface, with maps that nobody else has, until the next process attaches
//! there.

mod awaited;
mod classifier;
mod connection;
mod error;
mod guide;
mod memory;
mod netlink;
mod patch;
mod stags;
mod sys;
mod waits;

pub use awaited::Awaited;
pub use classifier::Classifier;
pub use connection::{Counts, Opening, Placing, Told, Untold};
pub use error::PatchError;
pub use guide::{Guide, Most, Run};
pub use memory::{Memory, Pieces};
pub use patch::{Attached, Patch};
pub use stags::{Scope, Stags};
