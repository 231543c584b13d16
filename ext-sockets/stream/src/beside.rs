//! The obligations of a stream besides its octets, when a program calls.

use std::ffi::c_int;

use super::patience::Patience;
use super::state::Rx;
use super::sys::Guard;
use super::{Errno, Stream};

/// The obligations of a kind of stream besides its octets. The bodies here are those of plain
/// octets, for which there are none: SDP alone fills them (`sdp/beside.rs`).
pub(super) trait Beside {
    /// Closes directions, where that is not TCP's business.
    fn shutdown(&self, _: &Stream<'_>, _how: c_int) -> Option<Result<(), Errno>> {
        None
    }

    /// Returns whether TCP receives after the program has closed that direction.
    fn receives_when_shut(&self) -> bool {
        false
    }

    /// Returns whether closing the socket now would lose something, where that does not depend on
    /// octets alone.
    fn is_unfinished(&self, _: &Stream<'_>) -> Option<bool> {
        None
    }

    /// Does what can be done without waiting for a stream that is unfinished, where that is more
    /// than to give TCP what is owed. `true`: that was all, or no more can be done.
    fn finishes(&self, _: &Stream<'_>) -> Option<bool> {
        None
    }

    /// Returns whether all is paid that can be, where more may become due.
    fn is_paid(&self, _: &Stream<'_>) -> Option<bool> {
        None
    }

    /// Returns whether the last octet of a send may be urgent.
    fn has_urgent(&self) -> bool {
        false
    }

    /// Returns whether a read stops in front of the next octet.
    fn stops_in_front(&self, _: &Stream<'_>) -> bool {
        false
    }

    /// Called before a receive without octets waits that has `room`.
    fn before_wait(&self, _: &Stream<'_>, _room: usize, _: &Patience) {}

    /// Called when a send returns with octets left.
    fn after_part(&self, _: &Stream<'_>) {}

    /// Returns the error of a send that has met this one.
    fn error_of_send(&self, _: &Stream<'_>, error: Errno) -> Errno {
        error
    }

    /// Handles the peer's FIN between two messages.
    fn fin(&self, _: &Stream<'_>, _: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Beside for rddp_octets::Plain {}
