//! The Sockets Direct Protocol over the program's own socket (README.md here; docs/sdp.md).
//!
//! A message of SDP is one Send. Its octets go between the program's memory and the kernel as those
//! of a plain byte stream do; `Shared`, which lies in `Rx` under its lock, has the state of both
//! directions. So a sender takes the receiving lock first.
//!
//! `kind` is what calls do for a connection besides moving octets, and `part` its part of the state
//! that needs no lock. `outbound` sends messages, `format` is what the loops of a stream ask about
//! them, and `inbound` what these do for them; `absorb` takes messages behind octets that the
//! program has not read, `startup` exchanges Hello and `HelloAck`, `close` ends directions, `end`
//! keeps the peer's end readable; `modes` changes modes, `nudge` wakes a peer, `waits` is what
//! waits look for, `urgent` the urgent octet, `counters` what is counted.

mod absorb;
mod close;
mod counters;
mod end;
mod format;
mod inbound;
mod info;
mod kind;
mod live;
mod look;
mod modes;
mod nudge;
mod options;
mod outbound;
mod part;
mod shared;
mod startup;
mod urgent;
mod waits;
mod wrong;
mod zcopy;

use rddp_sdp::machine::Tables;

pub(super) use rddp_sdp::layout as fields;

pub use close::Leaving;
pub use format::Messages;
use inbound::is_start;
pub use info::SdpInfo;
use live::{Live, live};
pub(super) use options::AskedFormat;
pub use options::{Copies, Format, SdpOptions};
pub(super) use part::Part;
pub(super) use shared::Shared;
pub(super) use wrong::Wrong;
use zcopy::Adverts;
pub(super) use zcopy::Zcopy;
pub use zcopy::{Recall, Sends};

/// A stream of SDP, for the length of a call.
pub type Stream<'a> = crate::Framed<'a, Messages>;

/// Structures of SDP that processes share, by their offsets in the part of a state, in the
/// connection, and in the block of tables with the adverts there.
pub(super) const LAYOUT: [&[fields::Structure]; 4] =
    [&[(0, Part::FIELDS)], &Shared::STRUCTURES, &Zcopy::STRUCTURES, &Tables::STRUCTURES];
