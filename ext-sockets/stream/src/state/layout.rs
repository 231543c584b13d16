//! The layout of a state, by which processes of one build tell theirs from others', and check it.

use std::mem::{offset_of, size_of};

use rddp_octets::{Outgoing, Position, Terms};

use super::{Flow, Holders, Rx, Startup, State, Tx};
use crate::options::Asked;
use crate::sdp::Part;
use crate::sys::Guarded;

impl State {
    pub(crate) const RX: usize = offset_of!(Self, rx) + Guarded::<Rx>::VALUE;
    pub(crate) const TX: usize = offset_of!(Self, tx) + Guarded::<Tx>::VALUE;

    /// Offset of [`MAGIC`] in a state of this build.
    pub(crate) const MAGIC_AT: usize = offset_of!(Self, magic);
    pub(crate) const ASKED: usize = offset_of!(Self, asked);
    pub(crate) const PHASE: usize = offset_of!(Self, startup.phase);
    pub(crate) const END: usize = offset_of!(Self, end);
    /// Offsets of octets that are 0 or 1.
    pub(crate) const TRUTHS: [usize; 27] = [
        offset_of!(Self, startup.may_send),
        offset_of!(Self, flow.owing),
        offset_of!(Self, flow.wants_room),
        offset_of!(Self, flow.nonblocking),
        offset_of!(Self, flow.holding),
        offset_of!(Self, flow.shut_receive),
        offset_of!(Self, flow.shut_send),
        offset_of!(Self, startup.early_full),
        offset_of!(Self, startup.connected),
        offset_of!(Self, flow.corked),
        offset_of!(Self, holders.uncounted),
        Self::RX + offset_of!(Rx, moving),
        Self::RX + offset_of!(Rx, terms.crc),
        Self::RX + offset_of!(Rx, terms.markers),
        Self::RX + offset_of!(Rx, bulk),
        Self::RX + offset_of!(Rx, at.rtr_read),
        Self::RX + offset_of!(Rx, peer_data_known),
        Self::RX + offset_of!(Rx, narrow),
        Self::RX + offset_of!(Rx, left_is_kept),
        Self::RX + offset_of!(Rx, at.is_open),
        Self::TX + offset_of!(Tx, moving),
        Self::TX + offset_of!(Tx, out.crc),
        Self::TX + offset_of!(Tx, out.markers),
        Self::TX + offset_of!(Tx, greeted),
        Self::TX + offset_of!(Tx, fin_due),
        Self::TX + offset_of!(Tx, fin_sent),
        Self::TX + offset_of!(Tx, framing),
    ];
}

/// Changes with the layout of a state, so that a state of another build is not taken for one of
/// this.
pub(crate) const MAGIC: u64 = 0x7264_6470_0000_0005 ^ layout();

/// Returns a number of all offsets that the types of other crates decide.
const fn layout() -> u64 {
    sum(&[
        size_of::<State>(),
        size_of::<Rx>(),
        size_of::<Tx>(),
        offset_of!(State, startup),
        size_of::<Startup>(),
        offset_of!(State, flow),
        size_of::<Flow>(),
        offset_of!(State, holders),
        size_of::<Holders>(),
        offset_of!(State, sleepers),
        offset_of!(State, asked),
        size_of::<Asked>(),
        offset_of!(State, rx),
        offset_of!(State, tx),
        offset_of!(State, sdp),
        size_of::<Part>(),
        offset_of!(Rx, at.octets),
        offset_of!(Rx, at.mo),
        offset_of!(Rx, at.msn),
        offset_of!(Rx, at.request_msn),
        offset_of!(Rx, at.is_open),
        offset_of!(Rx, at.open_ulp),
        offset_of!(Rx, at.rtr_read),
        offset_of!(Rx, terms.crc),
        offset_of!(Rx, terms.markers),
        offset_of!(Rx, terms.ird),
        offset_of!(Rx, terms.ord),
        offset_of!(Tx, out.octets),
        offset_of!(Tx, out.fpdus),
        offset_of!(Tx, out.msn),
        offset_of!(Tx, out.crc),
        offset_of!(Tx, out.markers),
        size_of::<Position>(),
        size_of::<Terms>(),
        size_of::<Outgoing>(),
    ])
}

/// Returns a number that changes with each of these, and with their order.
const fn sum(places: &[usize]) -> u64 {
    let (mut sum, mut at) = (0, 0);
    while at < places.len() {
        sum = u64::rotate_left(sum, 7) ^ places[at] as u64;
        at += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_change_their_places_change_the_number() {
        assert_ne!(sum(&[8, 16, 24]), sum(&[16, 8, 24]));
        assert_ne!(sum(&[8, 16, 24]), sum(&[8, 16, 28]));
    }

    /// The list of truths names each `bool` of another crate's types in a state.
    #[test]
    fn truths_of_positions_and_terms_are_checked() {
        let (at, terms) = (State::RX + offset_of!(Rx, at), State::RX + offset_of!(Rx, terms));
        let out = State::TX + offset_of!(Tx, out);
        let are_in =
            |from, len| State::TRUTHS.iter().filter(|truth| (from..from + len).contains(*truth)).count();
        assert_eq!(are_in(at, size_of::<Position>()), 2);
        assert_eq!(are_in(terms, size_of::<Terms>()), 2);
        assert_eq!(are_in(out, size_of::<Outgoing>()), 2);
    }
}
