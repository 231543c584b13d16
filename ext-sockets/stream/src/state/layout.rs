//! The layout of a state, by which processes of one build tell theirs from others', and check it.

use std::mem::offset_of;

use rddp_octets::{Outgoing, Position, Terms};

use super::{Flow, Guess, Holders, Kept, Peer, Rx, Startup, State, Tx, Waiting, Window};
use crate::AskedFormat;
use crate::fields::{Field, Structure, fields};
use crate::options::{Asked, PrivateData};
use crate::rooms::{Rooms, Runs};
use crate::sdp::LAYOUT;
use crate::sys::{BLOCK, Chain, Guarded, SLOT};

impl State {
    pub(crate) const RX: usize = offset_of!(Self, rx) + Guarded::<Rx>::VALUE;
    pub(crate) const TX: usize = offset_of!(Self, tx) + Guarded::<Tx>::VALUE;

    /// Offset of [`MAGIC`] in a state of this build.
    pub(crate) const MAGIC_AT: usize = offset_of!(Self, magic);
    pub(crate) const ASKED: usize = offset_of!(Self, asked);
    pub(crate) const PHASE: usize = offset_of!(Self, startup.phase);
    pub(crate) const END: usize = offset_of!(Self, end);
    /// Offsets of octets that are 0 or 1: of all fields of one octet, but for one that is part of a
    /// header.
    pub(crate) const TRUTHS: [usize; 29] = truths(&PARTS, Self::RX + offset_of!(Rx, at.open_ulp));
}

/// Changes with the layout of a state and of what lies in its blocks, so that a state of another
/// build is not taken for one of this.
pub(crate) const MAGIC: u64 = magic(&ALL);

const ALL: [&[Structure]; 7] = {
    let [part, connection, zcopy, adverts] = LAYOUT;
    [&PARTS, &VALUES, &Runs::STRUCTURES, part, connection, zcopy, adverts]
};

/// The structures that have octets which are 0 or 1.
const PARTS: [Structure; 15] = [
    (0, fields!(State: magic, holders, startup, flow, end, sleepers, asked, rx, tx, sdp)),
    (offset_of!(State, holders), fields!(Holders: uncounted, more_in, more, left, expected)),
    (offset_of!(State, startup), fields!(Startup: phase, may_send, connected, early_full, began)),
    (
        offset_of!(State, flow),
        fields!(Flow: owing, wants_room, holding, shut_receive, shut_send, nonblocking, corked, pending,
            low_water, receive_timeout, send_timeout, linger),
    ),
    (
        State::RX,
        fields!(Rx: moving, left_is_kept, at, terms, guess, window, left, trailer, shown, absorbed, kept,
            sdp, held, rooms, tables, peer),
    ),
    (State::RX + offset_of!(Rx, guess), fields!(Guess: bulk, alone, last_fpdu, expected_fpdu)),
    (State::RX + offset_of!(Rx, window), fields!(Window: narrow, wake_at)),
    (State::RX + offset_of!(Rx, kept), fields!(Kept: block, at)),
    (State::RX + offset_of!(Rx, peer), fields!(Peer: data_known, data)),
    (
        State::RX + offset_of!(Rx, at),
        fields!(Position: octets, mo, msn, request_msn, is_open, open_ulp, rtr_read),
    ),
    (State::RX + offset_of!(Rx, terms), fields!(Terms: crc, markers, ird, ord)),
    (
        State::TX,
        fields!(Tx: moving, greeted, fin_due, fin_sent, framing, changing, out, emss_asked, emss,
            unaligned, owed, early, little),
    ),
    (State::TX + offset_of!(Tx, owed), fields!(Waiting: from, to, block)),
    (State::TX + offset_of!(Tx, early), fields!(Waiting: from, to, block)),
    (State::TX + offset_of!(Tx, out), fields!(Outgoing: octets, fpdus, msn, crc, markers)),
];

/// Structures any octets of which are values; as another, the slot and its blocks.
const VALUES: [Structure; 7] = [
    (State::ASKED, Asked::FIELDS),
    (State::ASKED + offset_of!(Asked, format), AskedFormat::FIELDS),
    (State::ASKED + offset_of!(Asked, private_data), PrivateData::FIELDS),
    (State::RX + offset_of!(Rx, held), Chain::FIELDS),
    (State::RX + offset_of!(Rx, rooms), Rooms::FIELDS),
    (State::RX + offset_of!(Rx, peer.data), PrivateData::FIELDS),
    (0, &[(SLOT, BLOCK)]),
];

/// Returns a number that changes with the place and the octets of each field.
const fn magic(lists: &[&[Structure]]) -> u64 {
    let (mut sum, mut list, mut index) = (0xcbf2_9ce4_8422_2325, 0, 0);
    while list < lists.len() {
        if let Some((at, octets)) = field(lists[list], index) {
            // Fowler, Noll and Vo's hash, with numbers in place of octets.
            sum = (sum ^ (at as u64) << 32 ^ octets as u64).wrapping_mul(0x0100_0000_01b3);
            index += 1;
        } else {
            (list, index) = (list + 1, 0);
        }
    }
    sum ^ 0x7264_6470_0000_0006
}

/// Returns the offsets of the fields of one octet, without `other`.
const fn truths<const N: usize>(parts: &[Structure], other: usize) -> [usize; N] {
    let (mut truths, mut count, mut index) = ([0; N], 0, 0);
    while let Some((at, octets)) = field(parts, index) {
        if octets == 1 && at != other {
            truths[count] = at;
            count += 1;
        }
        index += 1;
    }
    assert!(count == N);
    truths
}

/// Returns a field of these structures, with its offset in the state.
const fn field(parts: &[Structure], mut index: usize) -> Option<Field> {
    let mut part = 0;
    while part < parts.len() {
        let (offset, fields) = parts[part];
        if index < fields.len() {
            return Some((offset + fields[index].0, fields[index].1));
        }
        index -= fields.len();
        part += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Before {
        front: u32,
        back: u32,
    }

    #[repr(C)]
    struct After {
        back: u32,
        front: u32,
    }

    #[test]
    fn two_fields_that_change_places_change_the_number() {
        let (before, after) = (fields!(Before: front, back), fields!(After: front, back));
        assert_ne!(magic(&[&[(0, before)]]), magic(&[&[(0, after)]]));
    }

    /// Any two fields of any structure, those of another crate and those in blocks included.
    #[test]
    fn each_field_has_a_part_in_the_number() {
        for (list, structures) in ALL.into_iter().enumerate() {
            for (number, (offset, fields)) in structures.iter().enumerate() {
                for (one, other) in (0..fields.len()).flat_map(|one| (0..one).map(move |other| (one, other)))
                {
                    let mut swapped = fields.to_vec();
                    (swapped[one].0, swapped[other].0) = (fields[other].0, fields[one].0);
                    let mut structures = structures.to_vec();
                    structures[number] = (*offset, swapped.leak());
                    let mut all = ALL;
                    all[list] = &structures;
                    assert_ne!(magic(&all), MAGIC, "{list}, {number}: {one} and {other}");
                }
            }
        }
    }

    #[test]
    fn truths_of_directions_positions_and_terms_are_checked() {
        let mut all = [offset_of!(Rx, guess.alone), offset_of!(Rx, at.is_open), offset_of!(Rx, at.rtr_read)]
            .map(|at| State::RX + at)
            .to_vec();
        all.extend([offset_of!(Rx, terms.crc), offset_of!(Rx, terms.markers)].map(|at| State::RX + at));
        all.push(State::TX + offset_of!(Tx, changing));
        assert!(all.iter().all(|at| State::TRUTHS.contains(at)));
        assert!(!State::TRUTHS.contains(&(State::RX + offset_of!(Rx, at.open_ulp))));
    }
}
