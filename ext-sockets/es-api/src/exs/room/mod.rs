//! The unsafe part of the ES-API: what C programs pass, as `include/rddp/exs.h` lays it out.
#![allow(unsafe_code)]

mod arguments;
mod places;
mod types;

pub use arguments::{accept, connect, poll, receive, receive_message, send, send_file, send_message};
pub use places::EventPlaces;
pub use types::{Event, FdVec, IoVec, MsgHdr, XferFile, XferPart, parts};

pub(super) use places::is_mapped;
