//! A byte stream in FPDUs as plain values: MPA, DDP and RDMAP (RFC 5044, 5041, 5040) below octets
//! that come in order, without a socket or a lock.
//!
//! A [`Handshake`] leads from the octets of a new TCP connection to what both ends have agreed on,
//! or tells that the peer does not speak MPA. A [`Duplex`] is the stream behind it, in both
//! directions and with buffers of its own: octets of TCP and of the program go in and come out.
//! Nothing else here allocates but the [Terminate](Refused::fpdu) of a startup that has failed, and
//! nothing that a peer sends makes it panic.
//!
//! # Without buffers of its own
//! Each Send of the peer carries the next octets, and it does not matter where one ends. Whoever
//! has octets of a TCP connection at the front of some queue gives them to an [`Incoming`], alone
//! or as a [`Batch`] with [`Room`] for what they carry, and is told what to drop, what the peer is
//! owed and why it stops. Between two calls a direction is a [`Position`] and its [`Terms`]: plain
//! data, which may lie in memory that processes share.
//!
//! A program's write becomes Sends and FPDUs by an [`Outgoing`], which is what there is of the
//! sending direction between two writes: it [loads](Load) a train of them for TCP, and goes on
//! behind what TCP took. The octets are a [`Payload`], and gathered where the caller likes.
//!
//! The [`Format`] says what else may stand in the Sends. [`Plain`] octets are nothing but
//! themselves; messages of another protocol (SDP's, say) have headers, and may be things besides
//! octets.
//!
//! # Example
//! A peer's Send in one FPDU, and the beginning of the next:
//!
//! ```
//! use rddp_ddp::{Msn, Stag};
//! use rddp_mpa::Framer;
//! use rddp_octets::{Batch, Incoming, Plain, Position, Stop, Terms};
//! use rddp_rdmap::{Opcode, untagged_header};
//!
//! let terms = Terms { crc: true, ..Terms::default() };
//! let (mut framer, mut arrived) = (Framer::new(terms.framing()), Vec::new());
//! let header = untagged_header(Opcode::Send, Stag(0), Msn::FIRST, 0, true).octets();
//! framer.emit(&header, 5, |at, out| out.copy_from_slice(&b"hello"[at..][..out.len()]), &mut arrived);
//! arrived.extend([0, 20]);
//!
//! let mut memory = [0; 64];
//! let mut incoming = Incoming::new(&terms, &Position::FIRST, u32::MAX, &Plain);
//! let batch = Batch::of(&mut incoming, &mut arrived, &mut &mut memory[..], 0, &mut Plain);
//! assert_eq!(&memory[..5], b"hello");
//! assert_eq!(batch.used, arrived.len() - 2);
//! assert!(matches!(batch.stop, Stop::Need(_)));
//! // From here the next call goes on.
//! assert_eq!(batch.at.map(|at| at.msn), Some(2));
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod batch;
mod duplex;
mod format;
mod handshake;
mod incoming;
mod load;
mod outgoing;
mod position;
mod queue;
mod room;

pub use batch::{Batch, Left, Replies, Stop};
pub use duplex::{Duplex, End};
pub use format::{Format, Meaning, Plain};
pub use handshake::{Afterwards, Agreed, Asked, Handshake, HandshakeOptions, Progress, Refused};
pub use incoming::{Incoming, Step};
pub use load::{After, Limits, Load, Message, Payload};
pub use outgoing::Outgoing;
pub use position::{Position, Terms};
pub use room::Room;

// Types of the layers below in what these say and are given.
pub use rddp_ddp::Header;
pub use rddp_iwarp::{Gather, OwnMessage, Record, Taken, Trouble};
pub use rddp_mpa::{FrameOctets, Framing, StartupConfig, StartupError, StartupMisuse};
pub use rddp_rdmap::{TerminateCode, TerminateRepr};
