//! RDMAP, the RDMA Protocol (RFC 5040), with the extensions of RFC 7306 (atomic
//! operations, Immediate Data).
//!
//! RDMAP gives DDP's messages a meaning: Write, Read Request and Read Response, four kinds of Send,
//! and the Terminate that ends a stream with a reason. The owner of socket and memory (`rddp-rnic`)
//! drives this crate, which knows neither:
//!
//! - **Receiving** is a [`Stream`]: for each segment [`Stream::accept`] returns the place of the
//!   payload ([`Place`]) and [`Stream::commit`] the effect ([`Event`]). The stream also counts
//!   Reads and atomics, this end's (ORD) and the peer's (IRD).
//! - **Taking over**: a stream whose state is kept in shared memory between calls is rebuilt from
//!   exported values ([`Stream::queue`], [`Stream::requests`], [`Stream::responses`]), which are
//!   checked when they are taken over.
//! - **Sending** is building headers: [`tagged_header`], [`untagged_header`],
//!   [`SendCounters`], [`ReadRequestRepr`], [`AtomicRequestRepr`]; [`rddp_ddp::cut`] says
//!   which octets a segment carries.
//! - **Failing**: each violation is a [`Fault`]; [`terminate_for`] makes the Terminate for it.
//!
//! # Example
//!
//! A Write of 5 octets and then a Send arrive, each in one segment:
//!
//! ```
//! use rddp_ddp::{Header, Msn, Stag, check_range};
//! use rddp_rdmap::{Event, Opcode, Place, Stream, StreamConfig, parse_header, tagged_header, untagged_header};
//!
//! let mut write = tagged_header(Opcode::Write, Stag(0x1122_3344), 0x10010, true).octets().to_vec();
//! write.extend(b"hello");
//! let mut send = untagged_header(Opcode::Send, Stag(0), Msn::FIRST, 0, true).octets().to_vec();
//! send.extend(b"done");
//!
//! let mut region = [0; 64]; // registered: STag 0x11223344, first TO 0x10000
//! let mut buffer = [0; 16]; // posted as a receive
//! let mut stream = Stream::new(StreamConfig { ird: 8, ord: 8, extensions: true });
//! let mut events = Vec::new();
//! for segment in [write, send] {
//!     let header = parse_header(&segment)?;
//!     let payload = &segment[header.len()..];
//!     match stream.accept(&header, payload.len(), &mut || Some(buffer.len() as u64))? {
//!         Place::Write { stag, to } => {
//!             assert_eq!(stag, Stag(0x1122_3344));
//!             let offset = check_range(0x10000, region.len() as u64, to, payload.len() as u64)?;
//!             region[offset as usize..][..payload.len()].copy_from_slice(payload);
//!         }
//!         Place::Receive { mo } => buffer[mo as usize..][..payload.len()].copy_from_slice(payload),
//!         place => unreachable!("{place:?}"),
//!     }
//!     events.push(stream.commit(&header, payload.len(), &[])?);
//! }
//! assert_eq!(events, [Event::WriteDone, Event::Received { length: 4, invalidate: None, solicited: false }]);
//! assert_eq!((&region[0x10..0x15], &buffer[..4]), (&b"hello"[..], &b"done"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A peer sends its third message first. The fault becomes the Terminate that names it:
//!
//! ```
//! use rddp_ddp::{Msn, Stag};
//! use rddp_rdmap::{Offending, Opcode, Stream, StreamConfig, TerminateCode, terminate_for, untagged_header};
//!
//! let mut stream = Stream::new(StreamConfig { ird: 8, ord: 8, extensions: true });
//! let header = untagged_header(Opcode::Send, Stag(0), Msn(3), 0, true);
//! let fault = stream.accept(&header, 4, &mut || Some(4096)).unwrap_err();
//! // The CRC was good, so the fault is the peer's and not the wire's.
//! stream.fail();
//! assert_eq!(fault.to_string(), "MSN 3 on queue 0 where 1 is due");
//! assert_eq!(fault.code(), TerminateCode::UNTAGGED_MSN_RANGE);
//! assert!(fault.is_answerable());
//! let terminate = terminate_for(&fault, Some(&Offending::new(header, 4)));
//! assert_eq!(terminate.octets()[..6], [0x12, 0x03, 0xc0, 0x00, 0, 22]);
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

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
    AtomicResponse, CONTROL_MAX, Event, IMMEDIATE_LEN, OutstandingAtomic, OutstandingRead,
    OutstandingRequest, Place, Plain, ReadResponse, ReadSegment, Response, Stream, StreamConfig,
    TakeOverError,
};
pub use terminate::{Offending, TerminateCode, TerminateOctets, TerminateRepr, terminate_for};
pub use tx::{SendCounters, tagged_header, untagged_header};
