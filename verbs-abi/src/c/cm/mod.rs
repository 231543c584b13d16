//! The connection manager, librdmacm, for `RDMA_PS_TCP`: its port space is TCP's own.
//!
//! | module | subject |
//! |---|---|
//! | `id` | ids: state, creation, destruction |
//! | `channel`, `event` | event channels and events |
//! | `address`, `info` | addresses: binding, resolving; `rdma_getaddrinfo` |
//! | `connect`, `listen` | connections, active and passive |
//! | `endpoint` | ids whose steps wait for their end; `rdma_create_ep` |
//! | `queue_pair` | queue pairs of ids |

mod address;
mod channel;
mod connect;
mod endpoint;
mod event;
mod id;
mod info;
mod listen;
mod option;
mod queue_pair;
#[cfg(test)]
mod tests;

pub(super) use self::address::load;
pub(super) use self::id::Id;

/// The functions of librdmacm.
#[cfg_attr(test, allow(unused_imports))] // as of `c`: nothing exports them there
pub(super) mod entries {
    pub(in crate::c) use super::address::*;
    pub(in crate::c) use super::channel::*;
    pub(in crate::c) use super::connect::*;
    pub(in crate::c) use super::endpoint::*;
    pub(in crate::c) use super::id::*;
    pub(in crate::c) use super::info::*;
    pub(in crate::c) use super::listen::*;
    pub(in crate::c) use super::option::*;
    pub(in crate::c) use super::queue_pair::*;
}
