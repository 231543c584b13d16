//! Zero copy: adverts of both ends, and the RDMA operations that move their octets.
//!
//! [`state`] is what is shared of it, in the stream's block of tables; [`reads`] reads from the
//! peer's `SrcAvail`s, [`sink`] makes `SinkAvail`s, [`place`] takes what comes for them out of
//! order. [`source`] makes `SrcAvail`s of the program's memory, [`serve`] answers the peer's Reads,
//! [`spill`] has the adverts that a call has left behind, [`writes`] writes into `SinkAvail`s.

mod place;
mod reads;
mod serve;
mod sink;
mod source;
mod spill;
#[allow(dead_code, reason = "the calls that use all of it are still to come")]
mod state;
mod writes;

#[allow(unused_imports, reason = "the calls that use them are still to come")]
pub(crate) use state::{
    Adverts, OpenMessage, OwnSink, READS, Reads, Request, Requests, Zcopy, reserve_zcopy, zcopy,
};
