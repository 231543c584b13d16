//! Wires: how a queue pair's messages travel between it and its peer.
//!
//! There is one wire so far: iWARP over TCP. A [`Link`] is a connection of it. It borrows the
//! queues of its queue pair ([`Context`](crate::queues::context::Context)), moves octets, completes
//! requests, and returns a [`LinkEvent`] for whatever changes the state of the queue pair.

mod event;
mod iwarp;

pub(crate) use self::event::LinkEvent;
#[cfg(test)]
pub(crate) use self::iwarp::{FEW_RESPONSES, RESPONSES_AHEAD};
pub(crate) use self::iwarp::{Link, Outgoing, Sent, Staging};
