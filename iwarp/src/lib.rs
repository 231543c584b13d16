//! The decisions of one iWARP connection: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP
//! (RFC 5040, RFC 7306) over one TCP stream.
//!
//! The three protocol crates know one layer each. The decisions that need all of them are
//! the same for every user that drives them over TCP, be it a queue pair or the byte stream
//! of a program's own socket:
//!
//! | decision | rule | here |
//! |---|---|---|
//! | which FPDU an initiator sends first | RFC 5044 §7.1.2, RFC 6581 §9.2 | [`OwnMessage::ready_to_receive`] |
//! | what a failed startup becomes: a Terminate, FIN or reset, a plain peer | RFC 5044 §7.1.2, RFC 6581 §8, §9 | [`Refusal`] |
//! | what a fault becomes: a Terminate and FIN, or FIN alone | RFC 5040 §5.4, §7.1, RFC 5044 §7.1.2 | [`Termination`], [`OwnMessage::terminate`] |
//! | which FPDUs go into one write, and whether it ends its TCP segment | RFC 5044 §5.1, §6 | [`Segments`], [`rest_ends_record`] |
//! | one FPDU in: good, accepted, placed, delivered, in this order | RFC 5044 §4.4, §6, RFC 5041 §5, §7.1, RFC 5040 §5 | [`Receiver`] |
//! | one FPDU into a train, copied or gathered | RFC 5044 §4 | [`push_copied`], [`push_gathered`] |
//! | what TCP took of a train, and what it is owed | RFC 5044 §5.1 | [`taken`] |
//! | which of the peer's messages were executed | (no RFC) | [`Acknowledgement`], [`Unacknowledged`] |
//! | a value beside the octets of a Send | (no RFC) | [`Value`] |
//! | the TCP port at which a service really listens | (no RFC) | [`port_mapper`] |
//!
//! # What stays with the user
//! Storage, sockets, memory and time stay with the user. A train is gathered in a [`Gather`], whose
//! own octets are written by a closure; receives and memory are those of a [`Target`]. The user
//! also has the loops that read and write, the Responses, the limits on copies, and the place where
//! owed octets are kept. State is plain values ([`Framer`](rddp_mpa::Framer),
//! [`Deframer`](rddp_mpa::Deframer), [`Stream`](rddp_rdmap::Stream), and the contents of a
//! [`Record`]), so that a user whose state lies in shared memory can rebuild it for each call.
//!
//! Nothing here allocates but the [port mapper's server](port_mapper::Server) and a train in a
//! vector, and nothing that a peer sends makes it panic.
//!
//! # Example
//! A Send leaves in one FPDU and arrives in a posted receive:
//!
//! ```
//! use rddp_ddp::{Msn, Stag};
//! use rddp_iwarp::{Receive, Receiver, Segment, Step, Target, push_copied};
//! use rddp_mpa::{Deframer, Framer, Framing};
//! use rddp_rdmap::{Event, Fault, Opcode, Place, Stream, StreamConfig, untagged_header};
//!
//! struct Buffer([u8; 16]);
//!
//! impl Target for Buffer {
//!     fn receive(&mut self) -> Receive {
//!         Receive::Posted(16)
//!     }
//!
//!     fn place(&mut self, segment: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault> {
//!         let Place::Receive { mo } = segment.place else { return Err(Fault::local_catastrophic()) };
//!         self.0[mo as usize + skip..][..payload.len()].copy_from_slice(payload);
//!         Ok(())
//!     }
//! }
//!
//! let framing = Framing { crc: true, markers: false };
//! let (mut train, mut framer) = (Vec::new(), Framer::new(framing));
//! let header = untagged_header(Opcode::Send, Stag(0), Msn::FIRST, 0, true);
//! let there_is_room = push_copied(&mut train, &mut framer, &header, 5, |at, dst| {
//!     dst.copy_from_slice(&b"hello"[at..][..dst.len()]);
//!     Ok::<(), ()>(())
//! });
//! assert_eq!(there_is_room, Ok(true));
//!
//! let mut stream = Stream::new(StreamConfig { ird: 0, ord: 0, extensions: false });
//! let mut receiver = Receiver { deframer: &mut Deframer::new(framing), stream: &mut stream };
//! let mut buffer = Buffer([0; 16]);
//! let Step::Taken { delivered, .. } = receiver.step(&mut train, &mut buffer)? else {
//!     panic!("all of it is here");
//! };
//! assert_eq!(delivered.event, Event::Received { length: 5, invalidate: None, solicited: false });
//! assert_eq!(&buffer.0[..5], b"hello");
//! # Ok::<(), rddp_iwarp::Trouble>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod acknowledged;
mod ending;
mod inbound;
mod own;
pub mod port_mapper;
mod segments;
mod train;

pub use acknowledged::{Acknowledgement, Unacknowledged, Value};
pub use ending::{Refusal, Termination};
pub use inbound::{Delivered, Receive, Receiver, Segment, Step, Target, Trouble};
pub use own::OwnMessage;
pub use segments::{Segments, rest_ends_record};
pub use train::{Gather, Record, Taken, push_copied, push_gathered, taken};
