//! The face to C: structures, handles, and the functions of libibverbs and librdmacm.
//!
//! | module | subject |
//! |---|---|
//! | `abi` | structures and constants: another name for `rddp-verbs-layout` |
//! | `handle` | objects that a program holds by pointer |
//! | `border` | results as C functions return them, and refusals as events |
//! | `gate`, `demanded`, `trouble` | calls, requests, and ports and devices that fail on demand |
//! | `process` | what a process has, and its child after `fork` has not |
//! | `exports`, `unfinished` | the exported names; what stands behind those that are not done |
//! | `own_calls`, `cancel` | system calls of the library itself; where a thread may be cancelled |
//! | `environment` | the program's name, and its settings |
//! | `device`, `context`, `query`, `text` | devices, their attributes, names of numbers |
//! | `memory`, `window` | protection domains and regions; memory windows |
//! | `completion`, `extended_cq` | completion channels and queues |
//! | `queue_pair`, `modify`, `shared` | queue pairs, their states, shared receive queues |
//! | `drain`, `qp_events` | the state SQD; what queue pairs tell of themselves |
//! | `address_handle`, `unreliable` | datagrams: where they go; their queue pairs |
//! | `post`, `extended_qp` | requests, by structures and by function calls |
//! | `immediate` | values of programs in Immediate Data |
//! | `asynchronous` | asynchronous events |
//! | `signals` | what a signal does to a sleep |
//! | `cm` | the connection manager |
//! | `rsocket` | rsockets |
//!
//! # Safety
//!
//! An exported function has the contract of the C function of its name. The pointers that a program
//! passes are what the manual page says: to a structure of the type named, or to as many as a count
//! says, that nobody changes during the call. Where a manual page lets a function refuse a handle,
//! the handle is looked up and not followed; functions on the path of data follow it.
#![allow(unsafe_code)] // C signatures take pointers
#![cfg_attr(test, allow(dead_code))] // tests are linked without the exported names

pub(crate) use rddp_verbs_layout as abi;

mod address_handle;
mod asynchronous;
mod border;
pub(crate) mod cancel;
mod cm;
mod completion;
mod context;
mod demanded;
mod device;
mod drain;
mod environment;
#[cfg(not(test))]
mod exports;
mod extended_cq;
mod extended_qp;
mod gate;
mod handle;
mod immediate;
mod join;
mod memory;
mod modify;
#[cfg(not(test))]
mod own_calls;
mod post;
mod process;
mod qp_events;
mod query;
mod queue_pair;
mod rsocket;
mod shared;
mod signals;
#[cfg(test)]
mod tests;
mod text;
mod trouble;
mod unfinished;
mod unreliable;
mod window;

/// All functions that are exported under their own names.
#[cfg(not(test))]
mod entries {
    pub(super) use super::address_handle::*;
    pub(super) use super::asynchronous::*;
    pub(super) use super::cm::entries::*;
    pub(super) use super::completion::*;
    pub(super) use super::device::*;
    pub(super) use super::extended_qp::*;
    pub(super) use super::memory::*;
    pub(super) use super::modify::*;
    pub(super) use super::query::*;
    pub(super) use super::queue_pair::*;
    pub(super) use super::rsocket::entries::*;
    pub(super) use super::shared::*;
    pub(super) use super::text::*;
}
