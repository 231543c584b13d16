//! A gateway between plain hosts, which speak iWARP over TCP, and hosts with RDMA devices.
//!
//! A plain host connects to the gateway by TCP, and the gateway to a program behind a device, or
//! the other way round: one TCP connection is one queue pair. Sends go both ways; Writes, Reads,
//! atomics, Immediate Data and Sends with Invalidate come from the plain host, and STags and Tagged
//! Offsets go on unchanged as keys and addresses. It is the device of the other host that checks
//! them. What the device's host begins on plain memory is not possible: `docs/gateway.md` says why.
//!
//! | module | subject |
//! |---|---|
//! | `bridge` | one connection as values: FPDUs become requests, completions become messages |
//! | `ring` | places in registered memory |
//! | `opening` | both legs of a connection, and what they agree on |
//! | `buffers` | octets between the socket and the bridge |
//! | `pair` | one connection: a socket and an endpoint |
//! | `watch` | a connection's numbers, while it goes on |
//! | `gateway` | listeners, and a thread for each connection |
//! | `options` | limits |
//! | `reason` | why a connection was refused, or ended |
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod bridge;
mod buffers;
mod gateway;
mod opening;
mod options;
mod pair;
mod reason;
mod ring;
mod watch;

pub use bridge::Counts;
pub use gateway::{Event, Route, run};
pub use opening::Ends;
pub use options::Options;
pub use reason::{Reason, RunError};
