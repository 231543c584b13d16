//! Wires: how a queue pair's messages travel between it and its peer.
//!
//! A [`Connection`] borrows the queues of its queue pair
//! ([`Context`](crate::queues::context::Context)), moves octets, completes requests, and returns a
//! [`WireEvent`] for whatever changes the state of the queue pair.
//!
//! | file | what |
//! |---|---|
//! | `opening` | what the two ends say before there is a connection |
//! | `connection` | a wire, and beside it what watches its socket |
//! | `iwarp` | RDMAP over DDP over MPA over TCP |
//! | `datagrams` | UDP |
//! | `device` | an RDMA device of the host |
//! | `plain` | the octets of TCP as they are |
//! | `itself` | a queue pair connected to itself: no socket, and so no connection |
//! | `staging` | what lies between TCP and its place |
//! | `watch`, `silence` | who is woken for the socket; a peer that has vanished |
//! | `tcp_end` | FINs |
//! | `event` | what a wire tells its queue pair |

mod connection;
mod datagrams;
mod device;
mod event;
mod itself;
mod iwarp;
pub(crate) mod opening;
mod plain;
mod silence;
mod staging;
mod tcp_end;
mod watch;

pub(crate) use self::connection::{Closes, Connection, Ends, Pulled};
pub(crate) use self::event::WireEvent;
pub(crate) use self::itself::Itself;
#[cfg(test)]
pub(crate) use self::iwarp::{FEW_RESPONSES, Outgoing, RESPONSES_AHEAD};
pub(crate) use self::watch::Watch;
