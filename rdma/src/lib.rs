//! Vocabulary of the RDMA verbs (draft-hilland-rddp-verbs) as plain values, for any device.
//!
//! A program describes its requests in these types, and a device (`rddp-rnic` in software) returns
//! its answers in them: a [`SendWr`] or [`RecvWr`] names memory by [`Sge`]s and ends in a
//! [`Completion`]; [`Access`] is a set of rights to memory, [`ConnectOptions`] says how a
//! connection is made, [`AsyncEvent`] what happened to one, and [`Capabilities`] what the device
//! can do. Nothing here has a descriptor, a thread or a clock, and there is no trait to implement.
//!
//! Types of fields on the wire are re-exported from the protocol crates below: [`Stag`] is DDP's,
//! [`Fault`] RDMAP's, [`Revision`] MPA's.
//!
//! # Example
//!
//! A Write of two pieces of memory, and the completion when the peer refuses it:
//!
//! ```
//! use rddp_rdma::{Completed, Completion, QpNum, Remote, SendWr, Sge, Stag, Status};
//!
//! let piece = |addr, len| Sge { stag: Stag(0x0001_2300), addr, len };
//! let there = Remote { stag: Stag(0x00ab_cd00), to: 0x1000 };
//! let request = SendWr::write(7, vec![piece(0, 16), piece(64, 48)], there);
//! assert!(request.signaled && !request.solicited);
//!
//! let completion = Completion {
//!     wr_id: request.wr_id,
//!     status: Status::RemoteAccess,
//!     completed: Completed::Write,
//!     byte_len: 0,
//!     qp: QpNum(1),
//!     invalidated: None,
//!     immediate: None,
//!     source: None,
//!     solicited: false,
//! };
//! assert!(completion.is_urgent(), "an error wakes also who waits for solicited completions only");
//! assert_eq!(completion.status.to_string(), "the peer refused access to its memory");
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod access;
mod capabilities;
mod completion;
mod connect;
mod datagram;
mod event;
mod wr;

pub use access::{Access, QpNum};
pub use capabilities::{Atomics, Capabilities, Protocol};
pub use completion::{Completed, Completion, CompletionError, Status};
pub use connect::{ConnectOptions, Keepalive, PortMapper};
pub use datagram::Datagram;
pub use event::{AsyncEvent, AsyncEventKind, CqNum, Element, SrqNum};
pub use rddp_ddp::Stag;
pub use rddp_mpa::{Revision, Rtr, RtrSet};
pub use rddp_rdmap::{Fault, TerminateCode};
pub use wr::{Gather, Operation, RecvWr, Remote, SendWr, Sge, SgeList, UdPeer};
