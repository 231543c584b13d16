//! NVMe over RDMA.
//!
//! | module | what |
//! |---|---|
//! | `names` | the names of the subsystems of a server, and the numbers of its disks |
//! | `queue` | a queue of a host: one connection of the server |
//! | `command` | one command of it, under way |

mod command;
pub(super) mod names;
pub(super) mod queue;
