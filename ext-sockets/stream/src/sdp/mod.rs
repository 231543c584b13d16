//! The Sockets Direct Protocol over the program's own socket (docs/sdp.md).
//!
//! A message of SDP is one Send. Its octets go between the program's memory and the kernel as those
//! of a plain byte stream do; [`Shared`], which lies in [`Rx`](super::state::Rx) under its lock,
//! has the state of both directions. So a sender takes the receiving lock first.
//!
//! [`outbound`] sends messages, [`inbound`] takes them, [`absorb`] takes those behind octets that
//! the program has not read, [`startup`] exchanges Hello and `HelloAck`, [`close`] ends directions.

mod absorb;
mod close;
mod inbound;
mod info;
mod look;
mod options;
mod outbound;
mod shared;
mod startup;
mod wrong;
mod zcopy;

pub use info::SdpInfo;
pub(super) use look::{Ahead, Look, Part};
pub use options::{Copies, Format, SdpOptions};
pub(super) use outbound::count_taken;
pub(super) use shared::{Live, Shared, live};
pub(super) use wrong::Wrong;
pub(super) use zcopy::{Adverts, OwnSink, READS, Request, Zcopy};
