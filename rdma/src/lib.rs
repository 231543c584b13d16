//! The words of the RDMA verbs as plain values (draft-hilland-rddp-verbs), for whatever device carries
//! them out.
//!
//! A program describes what it wants in these types, and a device (`rddp-rnic` in software) takes them
//! and hands them back: a [`SendWr`] or [`RecvWr`] names memory by [`Sge`]s and becomes a
//! [`Completion`]; [`Access`] says who may do what with memory. They own no memory, no socket and no
//! thread, and do nothing.
//!
//! The words of the wire stay in the crates of their protocols, which are below: [`Stag`] is DDP's.
//!
//! # Example
//!
//! A Write of two pieces that wakes nobody, and what its completion may say:
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
//!     solicited: false,
//! };
//! assert!(completion.is_urgent(), "errors wake those who wait for solicited completions only");
//! assert_eq!(completion.status.to_string(), "the peer refused access to its memory");
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod access;
mod capabilities;
mod completion;
mod connect;
mod event;
mod wr;

pub use access::{Access, QpNum};
pub use capabilities::{Atomics, Capabilities};
pub use completion::{Completed, Completion, Status};
pub use connect::{ConnectOptions, Keepalive, PortMapper};
pub use event::{AsyncEvent, AsyncEventKind};
pub use rddp_ddp::Stag;
pub use rddp_mpa::{Revision, Rtr, RtrSet};
pub use rddp_rdmap::{Fault, TerminateCode};
pub use wr::{Gather, Operation, RecvWr, Remote, SendWr, Sge, SgeList};
