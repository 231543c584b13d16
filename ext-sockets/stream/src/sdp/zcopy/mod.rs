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

use std::ops::Deref;

use super::Stream;

pub(super) use behind::note_joining;
pub use operations::{Recall, Sends};
pub(crate) use place::{put_aside, put_aside_of_kept, splice};
pub(crate) use state::{Adverts, OpenMessage, OwnSink, READS, Request, Zcopy, zcopy};

/// Zero copy on a stream.
#[derive(Clone, Copy)]
pub(super) struct ZeroCopy<'s, 'a> {
    stream: &'s Stream<'a>,
}

impl<'a> Stream<'a> {
    /// Returns what moves the stream's octets by RDMA.
    #[inline(always)]
    pub(super) fn zero_copy(&self) -> ZeroCopy<'_, 'a> {
        ZeroCopy { stream: self }
    }
}

impl<'a> Deref for ZeroCopy<'_, 'a> {
    type Target = Stream<'a>;

    #[inline(always)]
    fn deref(&self) -> &Stream<'a> {
        self.stream
    }
}
