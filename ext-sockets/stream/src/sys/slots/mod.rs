//! States of streams in memory that processes share: a file for each user, and, where there is
//! none, memory of one state.
//!
//! The file grows by slabs of 1 MiB, each allocated before anything is written to it: a store to a
//! hole of a full file system would end the process. A slab holds slots, one for each socket, or
//! blocks of 72 KiB, which a stream has as long as it holds octets. The file never shrinks while it
//! is mapped and nothing in it moves, as locks must not. Numbers that are read from it are checked:
//! another process may have died anywhere, and a wrong number must do no more than end a stream.
//!
//! | file | what |
//! |---|---|
//! | `layout.rs` | offsets and sizes |
//! | `file.rs` | the owner of a file, and how long it exists |
//! | `pool.rs` | a file as this process has it mapped; how it grows |
//! | `home.rs` | from an address to the data that belong to it |
//! | `claim.rs` | slots: taken, found by cookie, freed |
//! | `sound.rs` | checks that a slot holds a state |
//! | `left.rs` | slots that wait to be freed |
//! | `holders.rs`, `process.rs` | the processes that hold a socket |
//! | `blocks.rs` | blocks: reserved, given back |
//! | `many.rs` | blocks of which a stream may have any number |
//! | `chain.rs` | queues of octets in such blocks |
//! | `links.rs`, `spans.rs` | the blocks of a queue, and its octets in them |
//! | `shown.rs` | states as other programs read them |
//! | `table.rs` | the block of tables of numbers |

mod blocks;
mod chain;
mod claim;
mod file;
mod holders;
mod home;
mod layout;
mod left;
mod links;
mod many;
mod own;
mod pool;
mod process;
mod shown;
mod sound;
mod spans;
mod table;

pub(crate) use blocks::{Lease, Purpose, block, block_mut, give_back, has_all, reserve};
pub(crate) use chain::{Chain, ChainError, Chains, MOST_BLOCKS, parts};
pub use claim::{Found, Slots, leave_all, map_all, remove_unused};
pub use holders::{expect_children, forget_children, join_children, leave_closed};
pub(crate) use layout::{BLOCK, SLOT, longest_file};
pub use left::forget_left;
pub use own::SharedState;
pub use process::{Known, Process};
pub use shown::shown;

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod tests;
