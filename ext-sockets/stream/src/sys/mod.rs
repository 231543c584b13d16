//! The only unsafe code of the stream: system calls, memory that processes share, and the lock in
//! it.
//!
//! [`Kernel`] is the socket, [`Guarded`] a value under a lock that outlives its owner,
//! [`SharedState`] the mapping of a [`State`](super::State), [`Scratch`] a buffer for the length of
//! one call. Safe code above them cannot misuse them.
#![allow(unsafe_code)]

mod calls;
mod cancel;
mod edges;
mod edges_pool;
#[cfg(test)]
mod edges_tests;
mod errno;
pub(super) mod held;
mod kernel;
pub mod lent;
mod lock;
mod names;
mod pieces;
mod scratch;
mod signals;
#[cfg(test)]
mod signals_tests;
mod slots;
#[cfg(all(test, target_arch = "x86_64"))]
mod steps_tests;
#[cfg(test)]
pub(super) mod tests;

pub use calls::{Calls, ConfinedTable, EpollTable, FileTable, OwnTable, Table};
use cancel::Cancellable;
pub use cancel::Uncancelled;
pub use edges_pool::{EdgeSet, forget_edges_of, forget_inherited_sets};
pub use errno::SameErrno;
pub use kernel::handlers_restart;
pub use kernel::raise_sigpipe;
pub(super) use kernel::{Direction, Kernel, Tcp, now, random, read_at, seek};
pub use kernel::{confine, is_confined};
pub(super) use lock::{Guard, Guarded, Tried};
pub(super) use names::names;
pub use pieces::{sink_pieces, source_pieces};
pub(super) use scratch::Scratch;
pub(super) use signals::HeldBack;
pub(super) use slots::{
    BLOCK, Lease, Purpose, SLOT, block, block_mut, give_back, has_all, longest_file, reserve,
};
pub(super) use slots::{Chain, ChainError, Chains, MOST_BLOCKS, parts};
pub use slots::{
    Found, Known, Process, SharedState, Slots, expect_children, forget_children, forget_left, join_children,
    leave_all, leave_closed, map_all, remove_unused, shown,
};
