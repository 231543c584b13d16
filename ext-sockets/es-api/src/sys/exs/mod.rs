//! The arguments of C programs to the ES-API, as `include/rddp/exs.h` lays them out.

mod arguments;
mod places;
mod types;

pub use arguments::{accept, connect, poll, receive, receive_message, send, send_file, send_message};
pub use places::EventPlaces;
pub use types::{Event, FdVec, IoVec, MsgHdr, XferFile, XferPart, parts};

pub(crate) use places::is_mapped;
