//! The urgent octet: announced, sent, and its mark in the stream.

use super::Machine;
use super::conn::flag;
use crate::wire::Flags;

/// Urgent data of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// There is none.
    None,
    /// An urgent octet is announced and has not come.
    Announced,
    /// An urgent octet is in the stream behind so many octets that the program has not taken; 0
    /// means that the stream stands at the mark.
    Mark(u64),
}

impl Machine<'_> {
    /// Tells that an urgent octet waits to be sent: messages announce it from now on, until it is
    /// sent as the last of a Data.
    pub fn announce_urgent(&mut self) {
        self.core.set(flag::ANNOUNCING, true);
    }

    /// Returns what is known of urgent data of the peer.
    #[must_use]
    pub fn urgent(&self) -> Urgent {
        let ahead = self.core.mark.wrapping_sub(self.core.taken_octets);
        if self.core.is(flag::URGENT_HERE) {
            return Urgent::Mark(ahead);
        }
        if self.core.is(flag::URGENT_ANNOUNCED) { Urgent::Announced } else { Urgent::None }
    }

    /// Tells that the program has taken the next `octets` octets of the stream, an urgent one
    /// among them included, by whatever call.
    pub fn octets_taken(&mut self, octets: u64) {
        let core = &mut *self.core;
        core.taken_octets = core.taken_octets.wrapping_add(octets);
        // The mark is passed when its octet is gone.
        if core.taken_octets.wrapping_sub(core.mark).cast_signed() > 0 {
            core.set(flag::URGENT_HERE, false);
        }
    }

    /// Counts the flags of a message whose payload has been counted.
    pub(super) fn count_urgent(&mut self, flags: Flags) {
        let core = &mut *self.core;
        if flags.contains(Flags::OOB_PRES) {
            core.mark = core.in_octets.wrapping_sub(1);
            core.set(flag::URGENT_HERE, true);
            core.set(flag::URGENT_ANNOUNCED, false);
        } else if flags.contains(Flags::OOB_PEND) {
            core.set(flag::URGENT_ANNOUNCED, true);
        }
    }

    pub(super) fn pending_flag(&self) -> Flags {
        if self.core.is(flag::ANNOUNCING) { Flags::OOB_PEND } else { Flags::empty() }
    }
}
