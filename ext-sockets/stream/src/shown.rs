//! Streams as other programs see them: what a state says when its octets are read, unlocked and
//! without trust.
//!
//! Little is counted for this: how far the FPDUs of each direction reach, and the number of the
//! next message, stand in the state anyway.

use std::mem::offset_of;

use super::ended::AtomicEnd;
use super::state::{MAGIC, Rx, State, Tx, phase_of};
use super::{Ended, Phase};
use crate::options::Asked;

/// One stream: how much it has done so far, and who has its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shown {
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
    /// IDs of the processes that hold the socket.
    pub holders: Vec<u32>,
    /// True of the end that connected.
    pub active: bool,
    /// True if the stream speaks SDP.
    pub sdp: bool,
    /// Phase of the stream.
    pub phase: Phase,
    /// Reason why it is over.
    pub ended: Option<Ended>,
    /// Octets of FPDUs that were handed to TCP, and those checked of TCP's.
    pub octets: Both,
    /// FPDUs that were handed to TCP, or are owed to it. Those received are not counted: that
    /// would cost each of them some instructions.
    pub fpdus_sent: u64,
    /// Sends: those of SDP are its messages.
    pub sends: Both,
}

/// A count of each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both {
    /// Count of what was sent.
    pub sent: u64,
    /// Count of what was received.
    pub received: u64,
}

impl Shown {
    /// Reads the octets of a slot. `None`: they are no state of this build.
    pub(super) fn of(cookie: u64, holders: Vec<u32>, slot: &[u8]) -> Option<Self> {
        let slot = Octets(slot);
        if slot.long(State::MAGIC_AT)? != MAGIC {
            return None;
        }
        let (rx, tx) = (|at| State::RX + at, |at| State::TX + at);
        let ended = AtomicEnd::unpack(slot.long(State::END)?);
        let phase = if ended.is_some() { Phase::Ended } else { phase_of(slot.word(State::PHASE)?) };
        // What TCP has not taken yet is framed already.
        let owed =
            slot.word(tx(offset_of!(Tx, owed.to)))?.saturating_sub(slot.word(tx(offset_of!(Tx, owed.from)))?);
        let framed = slot.long(tx(offset_of!(Tx, out.octets)))?;
        let next = |at| Some(u64::from(slot.word(at)?.saturating_sub(1)));
        Some(Shown {
            cookie,
            holders,
            active: slot.octet(State::ASKED + Asked::ROLE)? == 0,
            sdp: slot.octet(State::ASKED + Asked::FORMAT)? != 0,
            phase,
            ended,
            octets: Both {
                sent: framed.saturating_sub(owed.into()),
                received: slot.long(rx(offset_of!(Rx, at.octets)))?,
            },
            fpdus_sent: slot.long(tx(offset_of!(Tx, out.fpdus)))?,
            sends: Both {
                sent: next(tx(offset_of!(Tx, out.msn)))?,
                received: next(rx(offset_of!(Rx, at.msn)))?,
            },
        })
    }
}

/// Octets of a slot; a place behind their end has none.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn octet(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
    }

    fn long(&self, at: usize) -> Option<u64> {
        self.0.get(at..)?.first_chunk().map(|octets| u64::from_ne_bytes(*octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rddp_test_support::random_octets;

    #[test]
    fn octets_that_are_no_state_are_none_and_any_others_do_no_harm() {
        let len = size_of::<State>();
        assert_eq!(Shown::of(1, vec![1], &vec![0; len]), None);
        for seed in 0..200 {
            let mut octets = random_octets(seed, len);
            octets[State::MAGIC_AT..][..8].copy_from_slice(&MAGIC.to_ne_bytes());
            assert!(Shown::of(1, vec![1], &octets).is_some());
            assert_eq!(Shown::of(1, vec![1], &octets[..State::TX]), None, "cut short");
        }
    }
}
