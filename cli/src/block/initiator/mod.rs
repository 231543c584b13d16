//! Disks of NVMe targets by RDMA, as a host has them.
//!
//! | module | what |
//! |---|---|
//! | `queue` | one connection: its Connect, its commands under way |
//! | `remote` | a disk, by one I/O queue or several |
//! | `list` | the subsystems of a target |
//! | `identity` | the name of this host |

mod identity;
mod list;
mod queue;
mod remote;

pub(super) use self::list::list;
pub(super) use self::remote::Remote;
