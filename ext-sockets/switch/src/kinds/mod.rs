//! The kinds of sockets of ours.
//!
//! A kind is a type that implements [`SocketKind`]: its calls, its readiness, its beginning and its
//! end. The gate, the waits and the C functions know the trait alone; [`Ours`] names the kinds.
//!
//! | file | what |
//! |---|---|
//! | `kind.rs` | the trait, and the enum of all kinds |
//! | `plain.rs` | TCP, with an option of ours |
//! | `framed/` | a byte stream in FPDUs |
//! | `device/` | a byte stream of SDP over an RDMA device |
//! | `raw/` | RDMA operations, by the software RNIC |
//! | `close.rs` | `close`, the exit, and numbers to come |
//! | `linger.rs` | closed sockets that are not finished |
//! | `unsettled.rs` | sockets with something to do that no call does |
//! | `inherit.rs` | sockets that came through `fork`, `exec` and messages |
//! | `store.rs` | where the states of streams are kept |

mod close;
pub(crate) mod device;
#[cfg(test)]
pub(crate) mod fake;
mod framed;
mod inherit;
mod kind;
mod linger;
mod plain;
pub mod raw;
mod store;
mod unsettled;

pub use close::{Expected, closing, exiting, expect_number};
pub use framed::{passing, program_begins, program_runs};
pub use inherit::{adopt_open, after_fork, after_system_call, before_fork, confine, fork_is_over, received};
pub use kind::{Begin, Close, Farewell, Obligation, Ours, Readiness, SocketKind, of};
pub use linger::makes_room;
pub(crate) use unsettled::{any as any_unsettled, progress_other_sockets, sleep_beside};
