//! What stands behind a descriptor that is ours.
//!
//! | file | what |
//! |---|---|
//! | `framed/` | a byte stream in FPDUs |
//! | `raw/` | RDMA itself, by the software RNIC |
//! | `inherit.rs` | sockets that came through `fork` and `exec` |
//! | `linger.rs` | what a closed socket still owes |
//! | `unsettled.rs` | sockets that have something to do that no call is at |
//! | `store.rs` | where the states of streams lie |

pub mod framed;
mod inherit;
mod linger;
pub mod raw;
mod store;
mod unsettled;

pub use inherit::{adopt_open, after_fork, after_system_call, before_fork, fork_is_over, received};
pub use linger::makes_room;
pub(crate) use unsettled::{any as any_unsettled, progress_other_sockets, sleep_beside};
