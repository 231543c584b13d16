//! rsockets: sockets over RDMA.
//!
//! | module | subject |
//! |---|---|
//! | `socket` | sockets, from their making to their end |
//! | `connection` | queue pair, memory and protocol of a connection |
//! | `map` | memory that the peer's program writes to |
//! | `calls` | the functions for one socket |
//! | `options` | `rsetsockopt`, `rgetsockopt`, `rfcntl` |
//! | `poll` | `rpoll` and `rselect` |

mod calls;
mod connection;
mod map;
mod options;
mod poll;
mod socket;

pub(in crate::c) use socket::Sockets;

/// The functions of rsockets.
#[cfg_attr(test, allow(unused_imports))] // as of `c`: nothing exports them there
pub(in crate::c) mod entries {
    pub(in crate::c) use super::calls::*;
    pub(in crate::c) use super::map::{riomap, riounmap, riowrite};
    pub(in crate::c) use super::options::{rfcntl, rgetsockopt, rsetsockopt};
    pub(in crate::c) use super::poll::{rpoll, rselect};
}
