//! Placeholder
#![forbid(unsafe_code)]

mod access;
mod atomic;
mod fault;
mod fields;
mod opcode;
mod read;
mod stream;
mod terminate;
mod tx;

pub use access::{AccessError, InvalidateError};
pub use atomic::{AtomicOp, AtomicRequestRepr, AtomicResponseRepr};
pub use fault::{Fault, TerminateFlaw, parse_header};
pub use opcode::{ATOMIC_RESPONSE_QUEUE, Opcode, REQUEST_QUEUE, SEND_QUEUE, TERMINATE_QUEUE};
pub use read::ReadRequestRepr;
pub use stream::{
    AtomicResponse, CONTROL_MAX, Event, IMMEDIATE_LEN, Place, ReadResponse, ReadSegment, Response, Stream,
    StreamConfig,
};
pub use terminate::{Offending, TerminateCode, TerminateOctets, TerminateRepr, terminate_for};
pub use tx::{SendCounters, tagged_header, untagged_header};
