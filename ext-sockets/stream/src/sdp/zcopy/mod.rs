//! Zero copy: adverts of both ends, and the RDMA operations that move their octets.
//!
//! [`state`] is what is shared of it, in the stream's block of tables; [`reads`] reads from the
//! peer's `SrcAvail`s, [`sink`] makes `SinkAvail`s, [`place`] takes what comes for them out of
//! order. [`source`] makes `SrcAvail`s of the program's memory, which is [`lent`] by a call or by
//! [`operations`]; [`serve`] answers the peer's Reads, [`spill`] has the adverts that a call has
//! left behind, and [`behind`] what is sent after them; [`writes`] writes into `SinkAvail`s.

mod behind;
mod lent;
mod operations;
mod place;
mod reads;
mod serve;
mod sink;
mod source;
mod spill;
mod state;
mod writes;

pub use operations::{Recall, Sends};
pub(crate) use place::{put_aside, put_aside_of_kept, splice};
pub(crate) use state::{Adverts, OpenMessage, OwnSink, READS, Request, Zcopy, zcopy};
