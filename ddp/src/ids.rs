//! The three numbers by which a DDP header names things, each a type of its own (RFC 5041 §4.2,
//! §4.3).

use core::fmt;

/// Steering Tag: names a tagged buffer. Consists of 24 bits of index and 8 bits of key; always
/// compared as a whole.
///
/// ```
/// use rddp_ddp::Stag;
/// let stag = Stag(0x00ab_cd01);
/// assert_eq!(stag.to_string(), "0x00abcd01");
/// assert_ne!(stag, Stag(0x00ab_cd02), "another key");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stag(pub u32);

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Queue Number: which queue of untagged buffers a message goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qn(pub u32);

impl fmt::Display for Qn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Message Sequence Number: counts the messages of one queue in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// The number of the first message on every queue (RFC 5041 §4.3).
    pub const FIRST: Msn = Msn(1);

    /// Returns the number of the next message. RFC 5041 §4.3: 0xFFFFFFFF is followed by 0, not by
    /// 1.
    #[must_use]
    pub const fn next(self) -> Msn {
        Msn(self.0.wrapping_add(1))
    }

    /// Returns how many messages this one is ahead of `first`, modulo 2^32.
    #[must_use]
    pub const fn ahead_of(self, first: Msn) -> u32 {
        self.0.wrapping_sub(first.0)
    }
}

impl Default for Msn {
    fn default() -> Self {
        Msn::FIRST
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msn_after_the_highest_is_zero() {
        // RFC 5041 §4.3
        assert_eq!(Msn(0xffff_fffe).next(), Msn(0xffff_ffff));
        assert_eq!(Msn(0xffff_ffff).next(), Msn(0));
        assert_eq!(Msn(0).next(), Msn(1));
    }

    #[test]
    fn distance_counts_across_the_wrap() {
        assert_eq!(Msn(1).ahead_of(Msn(0xffff_ffff)), 2);
        assert_eq!(Msn(7).ahead_of(Msn(7)), 0);
        assert_eq!(Msn(6).ahead_of(Msn(7)), u32::MAX);
    }

    #[test]
    fn a_stag_shows_all_its_digits() {
        assert_eq!(Stag(0x00ab_cdef).to_string(), "0x00abcdef");
    }
}
