//! Counters of connections, as a process shows them to other processes.
//!
//! A process that has connections keeps their counts in a file in memory (a memfd named
//! [`NAME`]), which others read under `/proc/PID/fd`: the same user, and root. The file is a
//! header, and then one slot for each connection, all of it words of the processor ([`layout`]).
//! This crate has the layout, and nothing that maps, opens or reads: [`Identity::words`] is what
//! the owner writes into a slot, [`Page::parse`] what a reader makes of the whole.
//!
//! A reader cannot trust the octets, which are another process's. `parse` bounds what it takes,
//! passes over slots that make no sense, and fails only where the header does not. Words change
//! while they are read: each count is right by itself, and [`Page::keep_unchanged`] drops slots
//! that have become another connection's meanwhile.
//!
//! ```
//! use rddp_stat::{Counter, Counts, Connection, Identity, ConnectionKind, Page, Phase};
//!
//! let identity = Identity { kind: ConnectionKind::Qp, number: 7, cookie: 99, ..Identity::default() };
//! let mut connection = Connection { identity, phase: Phase::ReadyToSend, ..Connection::default() };
//! connection.counts.set(Counter::FpdusSent, 3);
//! let page = Page { pid: 42, connections: vec![connection], ..Page::default() };
//! assert_eq!(Page::parse(&page.emit())?, page);
//! # Ok::<(), rddp_stat::PageError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod counter;
mod identity;
pub mod layout;
mod page;
mod phase;

pub use counter::{Counter, Counts};
pub use identity::{ConnectionKind, Identity};
pub use page::{Connection, Page, PageError, TerminateCount, terminates_word};
pub use phase::Phase;

/// Name of the file in memory, as `memfd_create` is given it.
pub const NAME: &str = "rddp-stat";
