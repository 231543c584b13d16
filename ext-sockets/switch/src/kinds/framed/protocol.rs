//! The protocols of framed sockets: plain octets (DDPMODE), and SDP.
//!
//! A framed socket is one of a protocol. The functions here have the bodies of plain octets; SDP
//! alone fills them.

use std::time::Duration;

use rddp_stream::sdp::Messages;
use rddp_stream::{Errno, Framed as Stream, Kind, Leaving, Octets, SdpInfo, Sends, State};

use crate::sdp::SdpSettings;
use crate::socket::KindId;

/// A protocol: the duties of its sockets besides the calls that all streams have.
pub trait Protocol: Kind {
    /// The kind of its sockets.
    const KIND: KindId;
    /// True if the startup frames hold the program's own private data.
    const HAS_PRIVATE_DATA: bool = true;
    /// True if the protocol, and not the kernel, reports urgent octets.
    const TELLS_URGENT: bool = false;
    /// True if the last holder of a connection ends it by a message, where the kernel would end a
    /// plain one with its last descriptor.
    const ENDS_BY_MESSAGE: bool = false;

    /// Acts on the program's settings of SDP.
    fn apply(_: &State, _: SdpSettings) {}

    /// Returns whether a send of so many octets that is under way between calls may lend its
    /// memory.
    fn lends(_: &Stream<'_, Self>, _octets: usize) -> bool {
        false
    }

    /// Lends the memory of such sends. Returns whether the next octets are to go by copies.
    fn lend(_: &Stream<'_, Self>, _: &mut dyn Sends<'_>) -> Result<bool, Errno> {
        Ok(true)
    }

    /// Notes that receives of so many octets wait that are under way between calls.
    fn offer(_: &Stream<'_, Self>, _room: usize) {}

    /// Returns whether the next octets to read follow urgent ones.
    fn is_at_mark(_: &Stream<'_, Self>) -> Result<bool, Errno> {
        Ok(false)
    }

    /// Returns what the connection tells of SDP.
    fn info(_: &Stream<'_, Self>) -> Option<SdpInfo> {
        None
    }

    /// Returns whether the peer is owed what no call of the program may ever give it.
    fn has_obligation(_: &Stream<'_, Self>) -> bool {
        false
    }

    /// Meets as much of that as is possible without waiting.
    fn meet_obligation(_: &Stream<'_, Self>) {}

    /// Does what can be done without waiting for a connection that its last holder has closed.
    /// `None`: the close is the kernel's.
    fn leave(_: &Stream<'_, Self>) -> Option<Leaving> {
        None
    }

    /// Waits until the peer's TCP has all that was sent on such a connection. Returns whether it
    /// has.
    fn leave_within(_: &Stream<'_, Self>, _timeout: Duration) -> bool {
        true
    }

    /// Returns whether the program has closed the receiving direction, and TCP is not told.
    fn is_shut_for_receiving(_: &Stream<'_, Self>) -> bool {
        false
    }
}

impl Protocol for Octets {
    const KIND: KindId = KindId::Framed;
}

impl Protocol for Messages {
    const KIND: KindId = KindId::Sdp;
    // Theirs are Hello and HelloAck.
    const HAS_PRIVATE_DATA: bool = false;
    const TELLS_URGENT: bool = true;
    const ENDS_BY_MESSAGE: bool = true;

    fn apply(state: &State, settings: SdpSettings) {
        settings.set_thresholds(state);
        state.set_mode(settings.mode());
    }

    fn lends(stream: &Stream<'_, Self>, octets: usize) -> bool {
        stream.lends(octets)
    }

    fn lend(stream: &Stream<'_, Self>, sends: &mut dyn Sends<'_>) -> Result<bool, Errno> {
        stream.lend_sends(sends)
    }

    fn offer(stream: &Stream<'_, Self>, room: usize) {
        stream.offer_room(room);
    }

    fn is_at_mark(stream: &Stream<'_, Self>) -> Result<bool, Errno> {
        stream.is_at_mark()
    }

    fn info(stream: &Stream<'_, Self>) -> Option<SdpInfo> {
        stream.sdp_info()
    }

    fn has_obligation(stream: &Stream<'_, Self>) -> bool {
        stream.has_obligation()
    }

    fn meet_obligation(stream: &Stream<'_, Self>) {
        stream.meet_obligation();
    }

    fn leave(stream: &Stream<'_, Self>) -> Option<Leaving> {
        stream.leave()
    }

    fn leave_within(stream: &Stream<'_, Self>, timeout: Duration) -> bool {
        stream.leave_within(timeout)
    }

    fn is_shut_for_receiving(stream: &Stream<'_, Self>) -> bool {
        stream.is_shut_for_receiving()
    }
}
