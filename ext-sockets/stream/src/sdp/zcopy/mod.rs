//! Zero copy: adverts of both ends, and the RDMA operations that move their octets.
//!
//! [`state`] is what is shared of it, in the stream's block of tables.

#[allow(dead_code, reason = "the calls that use all of it are still to come")]
mod state;

#[allow(unused_imports, reason = "the calls that use them are still to come")]
pub(crate) use state::{Adverts, OpenMessage, Reads, Request, Requests, Zcopy, reserve_zcopy, zcopy};
