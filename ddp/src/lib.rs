//! DDP, Direct Data Placement (RFC 5041): each segment says where in the receiver's memory its
//! octets belong.
//!
//! A DDP segment is what MPA calls a ULPDU: a [`Header`], then payload up to the segment's end. A
//! *tagged* segment names a buffer of the receiver ([`Stag`]) and a place in it (TO). An *untagged*
//! segment goes into the next buffer of a queue at the receiver ([`Qn`], [`Msn`], MO). This crate
//! turns headers into values and back ([`Header::parse`], [`Header::emit`]), cuts messages into
//! segments ([`cut`]), keeps the state that says which segment may come next ([`TaggedRx`] and
//! [`UntaggedRx`]), and maps each fault to its number in a Terminate ([`DdpError::code`]).
//!
//! The crate knows nothing of memory: the caller decides what may be touched, and uses
//! [`check_range`] for the arithmetic. There is no I/O and no clock; octets and values go in,
//! octets and values come out. RDMAP (`rddp-rdmap`) drives this crate.
//!
//! # Example
//!
//! A message of 2048 octets is sent in two segments of at most 1500 (the example of RFC 5041 §5.2),
//! and received:
//!
//! ```
//! use rddp_ddp::{Header, Msn, Qn, UntaggedRepr, UntaggedRx, cut};
//!
//! let message = vec![7; 2048];
//! let mut segments = Vec::new();
//! let mut offset = 0;
//! loop {
//!     let cut = cut(2048, offset, 1500, UntaggedRepr::LEN);
//!     let mo = cut.offset as u32;
//!     let header = UntaggedRepr { last: cut.last, rsvd_ulp: [0x43, 0, 0, 0, 0], qn: Qn(0), msn: Msn::FIRST, mo };
//!     let mut segment = Header::from(header).octets().to_vec();
//!     segment.extend_from_slice(&message[mo as usize..][..cut.len]);
//!     segments.push(segment);
//!     offset += cut.len as u64;
//!     if cut.last {
//!         break;
//!     }
//! }
//! assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1500, 584]);
//!
//! let mut buffer = vec![0; 4096];
//! let mut queue = UntaggedRx::new();
//! let mut length = None;
//! for segment in &segments {
//!     let Header::Untagged(header) = Header::parse(segment)? else { unreachable!() };
//!     let payload = &segment[UntaggedRepr::LEN..];
//!     queue.check_msn(&header)?;
//!     queue.check_offset(&header, payload.len(), buffer.len() as u64)?;
//!     buffer[header.mo as usize..][..payload.len()].copy_from_slice(payload);
//!     length = queue.commit(&header, payload.len());
//! }
//! assert_eq!(length, Some(2048));
//! assert_eq!(buffer[..2048], message);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod bounds;
mod error;
mod ids;
mod rx;
mod tx;
mod wire;

pub use bounds::{RangeError, check_range};
pub use error::DdpError;
pub use ids::{Msn, Qn, Stag};
pub use rx::{OpenTagged, TaggedRx, UntaggedRx};
pub use tx::{Cut, cut};
pub use wire::{DDP_VERSION, Header, HeaderOctets, SegmentError, TaggedRepr, UntaggedRepr};
