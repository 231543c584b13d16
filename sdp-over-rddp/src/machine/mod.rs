//! The state machine of a connection that is established: both half-connections, without I/O.
//!
//! [`Core`] and [`Tables`] are all state there is: plain integers without pointers, zeroed while
//! unused, so that they may lie in memory that several processes share. [`Machine`] borrows them for
//! the length of a call. Messages go in by [`Machine::receive`]; what has to go out is taken from
//! [`Machine::next_control`], and the calls for octets and adverts give their message at once. A
//! message counts as sent when its front is made: the binding owes it to the transport whole, in
//! the order in which fronts were made, and the order of RDMA operations is that of the calls that
//! tell of them ([`Machine::written`]).
//!
//! Duties of a binding, each with the call that does it:
//! - a message is told at its front ([`Machine::receive`]); when the last octet of its payload has
//!   been taken out of the private buffer, [`Machine::buffer_freed`]. A message without payload
//!   frees its buffer itself;
//! - after each call, and before it sleeps, it sends what [`Machine::next_control`] gives, until
//!   there is nothing;
//! - it sleeps on missing credits only after [`Machine::wait_for_credits`];
//! - own adverts that are no longer out are released ([`Machine::release_source`],
//!   [`Machine::release_sink`]) by the call that made them.
//!
//! "Out" is the half-connection on which this end sends (it is the *source* there), "in" the other
//! one (it is the *sink*). A refusal of what a peer did is a [`Violation`]: the connection is over,
//! and the peer is told by a transport that goes down. What the caller may not do, or not yet, is a
//! [`Blocked`].
//!
//! [`Core::is_sound`] and [`Tables::is_sound`] tell whether octets that others could write may be
//! worked with. Numbers in here wrap; no octets make a call panic.

mod cancel;
mod close;
mod conn;
mod control;

mod credits;
mod data;
mod error;
mod mode;
mod reading;
mod receive;
mod resize;
mod sink;
mod sound;
mod source;
mod tables;
mod urgent;
mod writing;

pub use close::Abort;
pub use conn::{Config, Core, Unusable};
pub use error::{Blocked, Violation};
pub use mode::Half;
pub use reading::PeerSource;
pub use receive::Received;
pub use sink::{Sink, SinkState};
pub use source::{Source, SourceState};
pub use tables::{ADVERTS, SinkId, SourceId, Tables};
pub use urgent::Urgent;
pub use writing::PeerSink;

/// The machine of a connection, for the length of a call.
#[derive(Debug)]
pub struct Machine<'a> {
    core: &'a mut Core,
    /// None reads as zeroed: nothing is advertised.
    tables: Option<&'a mut Tables>,
}

impl<'a> Machine<'a> {
    /// Works on `core`, and on `tables` where the connection has them: nothing is advertised
    /// without, by either side.
    pub fn new(core: &'a mut Core, tables: Option<&'a mut Tables>) -> Self {
        Self { core, tables }
    }

    /// Returns the state as it is.
    #[must_use]
    pub fn core(&self) -> &Core {
        self.core
    }

    /// Returns whether no advert is in the tables, so that the memory they lie in may be given
    /// back.
    #[must_use]
    pub fn tables_idle(&self) -> bool {
        self.tables.as_deref().is_none_or(|tables| *tables == Tables::default())
    }
}
