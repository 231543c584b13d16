//! Wires: how a queue pair's messages travel between it and its peer.
//!
//! There is one wire so far: iWARP over TCP. A [`Link`] is a connection of it. It borrows the
//! queues of its queue pair ([`Context`](crate::queues::context::Context)), moves octets, completes
//! requests, and returns a [`LinkEvent`] for whatever changes the state of the queue pair.
//!
//! | file | what |
//! |---|---|
//! | `opening` | what the two ends say before there is a connection |
//! | `connection` | a wire, and what watches its socket |
//! | `iwarp` | the wire |
//! | `watch`, `silence` | who is woken for the socket; a peer that has vanished |
//! | `tcp_end` | FINs |
//! | `event` | what a wire tells its queue pair |

mod connection;
mod event;
mod iwarp;
pub(crate) mod opening;
mod silence;
mod tcp_end;
mod watch;

pub(crate) use self::connection::{Closes, Connection, Pulled};
pub(crate) use self::event::LinkEvent;
#[cfg(test)]
pub(crate) use self::iwarp::{FEW_RESPONSES, Outgoing, RESPONSES_AHEAD};
pub(crate) use self::iwarp::{Link, Sent};
pub(crate) use self::watch::Watch;
