//! The obligations of a stream besides its octets, when a program calls.

use std::ffi::{c_int, c_short};

use rddp_octets::Plain;

use super::patience::Patience;
use super::rx::Pull;
use super::sink::Sink;
use super::state::{Rx, Tx};
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

    /// Waits for the rest of an FPDU, where that must not disturb others who sleep.
    fn wait_for_rest(&self, _: &Stream<'_>, _: &Patience) -> Option<Result<(), Errno>> {
        None
    }

    /// Takes what stands between the octets that came and the peer's end.
    fn look_for_end(&self, _: &Stream<'_>) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns whether octets that can be read may be too few for a wait, whatever its low-water
    /// mark.
    fn has_starts(&self) -> bool {
        false
    }

    /// Returns the events of `want` that TCP does not tell; `others` are those that it does.
    fn told(&self, _: &Stream<'_>, _want: c_short, _others: c_short) -> c_short {
        0
    }

    /// Returns whether the end of what this end sends may wait for messages of the peer.
    fn ends_by_messages(&self) -> bool {
        false
    }

    /// Gives TCP what is owed to it, for a caller that holds both locks.
    fn pay_locked(&self, stream: &Stream<'_>, _: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<bool, Errno> {
        stream.pay(tx)
    }

    /// Gives TCP what is owed to it, for a caller without locks.
    fn pay_all(&self, stream: &Stream<'_>) -> Result<bool, Errno> {
        stream.pay(&mut *stream.lock_tx()?)
    }

    /// Gives TCP what is owed to it, where that is no matter of octets alone.
    fn pay(&self, _: &Stream<'_>, _: &mut Tx) -> Option<Result<bool, Errno>> {
        None
    }

    /// Returns the octets of the headers in front of a message's payload, besides those of DDP.
    fn headers_len(&self) -> usize {
        0
    }

    /// Reserves memory that a process cannot get once it is confined.
    fn prepare_to_confine(&self, _: &mut Guard<'_, Rx>) {}

    /// Copies octets to the program's buffers without taking them and without waiting.
    fn glimpse(
        &self,
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        sink: &mut Sink<'_, '_>,
    ) -> Result<Pull, Errno> {
        stream.glimpse_as::<Plain>(rx, sink)
    }

    /// Looks at the first `seen` octets in memory of an FPDU, and takes it if it is whole. `Some`:
    /// it has at least so many octets.
    fn absorbed(
        &self,
        stream: &Stream<'_>,
        rx: &mut Guard<'_, Rx>,
        seen: usize,
    ) -> Result<Option<usize>, Errno> {
        stream.absorbed_as::<Plain>(rx, seen)
    }

    /// Handles the peer's FIN between two messages.
    fn fin(&self, _: &Stream<'_>, _: &mut Guard<'_, Rx>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Beside for Plain {}
