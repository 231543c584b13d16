//! Places in the file: all numbers of words of eight octets, in the processor's order of octets.
//!
//! ```text
//! header, 512 words          slot, 64 words
//! 0    MAGIC                 0    generation: even, or the slot is being given away
//! 1    version               1    kind, phase, role
//! 2    words of the header   2    number
//! 3    words of a slot       3    cookie of the socket
//! 4    slots                 4    local address, 3 words
//! 5    process               7    peer's address, 3 words
//! 16   counts of all that    10   time of the connection
//!      have ended, 48 words  11   Terminates sent and received
//! 64   Terminates by code,   16   counts, 48 words
//!      3 words each
//! ```
//!
//! A slot whose kind is 0 is nobody's. A reader knows by [`VERSION`] that words have these places;
//! counts may be added behind those that there are, and an unused one is 0.

use crate::Counter;

/// The first word of the file.
pub const MAGIC: u64 = u64::from_be_bytes(*b"rddpstat");

/// Version of the layout.
pub const VERSION: u64 = 1;

/// Octets of a word.
pub const WORD: usize = 8;

/// Words of the header.
pub const HEADER: usize = 512;

/// Words of a slot.
pub const SLOT: usize = 64;

/// Places of the header's words.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: usize = 1;
    /// [`HEADER`](super::HEADER).
    pub const LEN: usize = 2;
    /// [`SLOT`](super::SLOT).
    pub const SLOT_LEN: usize = 3;
    /// Number of slots behind the header.
    pub const SLOTS: usize = 4;
    /// ID of the process, as it sees itself.
    pub const PID: usize = 5;
    /// Sums of the counts of connections that have ended.
    pub const ENDED: usize = 16;
    /// Terminates by code: [`TERMINATES`] entries of three words, [`SET`] and the code, those sent,
    /// those received.
    pub const TERMINATES_AT: usize = 64;
    /// Number of entries.
    pub const TERMINATES: usize = 64;
    /// The bit that an entry in use has beside its code.
    pub const SET: u64 = 1 << 32;
}

/// Places of a slot's words.
pub mod slot {
    /// Count of the changes of the slot's owner; odd while it changes.
    pub const GENERATION: usize = 0;
    /// The first word of an [`Identity`](crate::Identity).
    pub const IDENTITY: usize = 1;
    /// Words of an identity.
    pub const IDENTITY_LEN: usize = 10;
    /// Bit of the [`Phase`](crate::Phase) in the first word of an identity.
    pub const PHASE_AT: u32 = 8;

    /// Returns the first word of an identity with another phase.
    #[must_use]
    pub const fn with_phase(word: u64, phase: crate::Phase) -> u64 {
        word & !(0xff << PHASE_AT) | (phase as u64) << PHASE_AT
    }

    /// Terminate sent (upper half) and received; each [`SET`] and the code, or 0.
    pub const TERMINATE: usize = 11;
    /// The bit that a Terminate has beside its code.
    pub const SET: u32 = 1 << 16;
    /// The first of the counts.
    pub const COUNTS: usize = 16;
}

/// Number of words for counts, in a slot and in the header.
pub const COUNTS: usize = 48;

const _: () = assert!(slot::COUNTS + COUNTS == SLOT && Counter::ALL.len() <= COUNTS);
const _: () = assert!(header::TERMINATES_AT + 3 * header::TERMINATES <= HEADER);
const _: () = assert!(header::ENDED + COUNTS <= header::TERMINATES_AT);
const _: () = assert!(slot::IDENTITY + slot::IDENTITY_LEN == slot::TERMINATE);
