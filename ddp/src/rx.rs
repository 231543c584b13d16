//! Receiving over an LLP that delivers every octet once and in order, such as TCP (RFC 5041 §5.2 to
//! §5.4).
//!
//! [`TaggedRx`] is the state of a stream's tagged messages, [`UntaggedRx`] that of one queue of
//! untagged messages. A tagged message and one message on each queue may be open at the same time.
//! Inside a message a segment must continue where the one before it ended. RFC 5041 asks only for
//! range checks; but over TCP only the sender can cause a gap, and a gap would leave octets
//! unwritten in a message that is delivered.
//!
//! The `check` functions change nothing, so that a payload may be placed before its CRC is known;
//! `commit` counts the segment in. Neither knows memory: between the two the caller checks STag,
//! rights and bounds of tagged buffers.

use crate::{DdpError, Msn, Stag, TaggedRepr, UntaggedRepr};

/// The state of a stream's tagged messages: the open message, if there is one.
#[derive(Clone, Debug, Default)]
pub struct TaggedRx {
    open: Option<OpenTagged>,
}

/// A tagged message that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTagged {
    /// `RsvdULP` of each of its segments.
    pub rsvd_ulp: u8,
    /// STag of each of its segments with payload.
    pub stag: Stag,
    /// TO of its next octet. `None`: the message has reached 2^64 and can take no further octet.
    pub next_to: Option<u64>,
}

impl TaggedRx {
    /// The state in which no message is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the receiving side of a stream that is taken over: `open` is the message that was
    /// [`open`](Self::open) in it.
    #[must_use]
    pub fn resume(open: Option<OpenTagged>) -> Self {
        Self { open }
    }

    /// Returns the message that has begun and not ended.
    #[must_use]
    pub fn open(&self) -> Option<OpenTagged> {
        self.open
    }

    /// Returns whether a message has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Checks that a segment begins a message, or continues the open one where it stopped.
    ///
    /// # Errors
    /// The STag, the TO or the `RsvdULP` differs from that of the open message; checked in this
    /// order.
    #[inline]
    pub fn check(&self, header: &TaggedRepr, len: usize) -> Result<(), DdpError> {
        match self.open {
            Some(open) => open.check(header, len),
            None => Ok(()),
        }
    }

    /// Counts a segment in that has passed [`check`](Self::check).
    #[inline]
    pub fn commit(&mut self, header: &TaggedRepr, len: usize) {
        if header.last {
            self.open = None;
        } else if len > 0 {
            // RFC 5041 §5.2: a segment without payload has no STag and no TO to continue from, so
            // it neither opens a message nor moves the open one.
            let TaggedRepr { rsvd_ulp, stag, to, .. } = *header;
            self.open = Some(OpenTagged { rsvd_ulp, stag, next_to: to.checked_add(len as u64) });
        }
    }
}

impl OpenTagged {
    fn check(&self, header: &TaggedRepr, len: usize) -> Result<(), DdpError> {
        // RFC 5041 §5.2: a segment without payload places nothing, so its STag and TO have no
        // meaning; only the control bits and RsvdULP count.
        if len > 0 {
            if header.stag != self.stag {
                return Err(DdpError::StagChanged { got: header.stag, expected: self.stag });
            }
            if Some(header.to) != self.next_to {
                return Err(DdpError::ToNotNext { got: header.to, expected: self.next_to });
            }
        }
        // RFC 5041 §4.2: RsvdULP is the same in every segment of a message. RDMAP has its opcode
        // there, so that another value is another message inside this one.
        if header.rsvd_ulp != self.rsvd_ulp {
            return Err(DdpError::TaggedUlpChanged { got: header.rsvd_ulp, expected: self.rsvd_ulp });
        }
        Ok(())
    }
}

/// The state of one queue of untagged messages: which message is due, and how much of it has
/// arrived.
#[derive(Clone, Debug, Default)]
pub struct UntaggedRx {
    next_msn: Msn,
    /// Octets of message `next_msn` counted in so far; at most 2^32 - 1.
    next_mo: u64,
    /// The first octet of the open message's `RsvdULP`.
    open: Option<u8>,
}

impl UntaggedRx {
    /// The state of a queue on which nothing was received: MSN 1 is due (RFC 5041 §4.3).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of a queue on which `msn` is due. Used to take over a queue, and by tests of the
    /// wrap.
    #[inline]
    #[must_use]
    pub fn starting_at(msn: Msn) -> Self {
        Self { next_msn: msn, ..Self::default() }
    }

    /// The state of a queue that is taken over in the middle of a message: `mo` octets of message
    /// `msn` have arrived, and `open` is the first octet of its `RsvdULP`
    /// ([`open_ulp`](Self::open_ulp) of the state that is taken over).
    #[must_use]
    pub fn resume(msn: Msn, mo: u64, open: Option<u8>) -> Self {
        Self { next_msn: msn, next_mo: mo, open }
    }

    /// Returns the first octet of the open message's `RsvdULP`; `None` between messages.
    #[must_use]
    pub fn open_ulp(&self) -> Option<u8> {
        self.open
    }

    /// Returns the number of the message that is due or open.
    #[must_use]
    pub fn next_msn(&self) -> Msn {
        self.next_msn
    }

    /// Returns how many octets of the open message have arrived.
    #[must_use]
    pub fn next_mo(&self) -> u64 {
        self.next_mo
    }

    /// Returns whether a message has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Checks that the segment belongs to the message that is due. This is the first of two checks:
    /// the caller then finds the buffer (without one it reports 0x2/0x02), and calls
    /// [`check_offset`](Self::check_offset).
    ///
    /// # Errors
    /// [`DdpError::MsnOutOfRange`].
    #[inline]
    pub fn check_msn(&self, header: &UntaggedRepr) -> Result<(), DdpError> {
        // RFC 5041 §7.1: the MSN is one for which there may be a buffer; here, the next one.
        let UntaggedRepr { qn, msn: got, .. } = *header;
        match self.next_msn {
            expected if got == expected => Ok(()),
            expected => Err(DdpError::MsnOutOfRange { qn, got, expected }),
        }
    }

    /// Checks that the segment continues the message where it stopped, and fits into a buffer of
    /// `buffer` octets. A message is shorter than 2^32 octets (RFC 5041 §5.2), however large the
    /// buffer.
    ///
    /// # Errors
    /// The MO, the length or the `RsvdULP` is wrong; checked in this order. A segment without
    /// payload must have the right MO too, since the message's length is computed from the MO of
    /// its last segment.
    #[inline]
    pub fn check_offset(&self, header: &UntaggedRepr, len: usize, buffer: u64) -> Result<(), DdpError> {
        // RFC 5041 §7.1: the MO, and the MO with the length, lie in the buffer.
        let mo = header.mo;
        if u64::from(mo) != self.next_mo {
            return Err(DdpError::InvalidMo { got: mo, expected: self.next_mo });
        }
        let buffer = buffer.min(u64::from(u32::MAX));
        if self.next_mo + len as u64 > buffer {
            return Err(DdpError::TooLong { mo, len, buffer });
        }
        match self.open {
            // RFC 5041 §4.3: RsvdULP is the same in every segment of a message.
            Some(expected) if expected != header.rsvd_ulp[0] => {
                Err(DdpError::UntaggedUlpChanged { got: header.rsvd_ulp[0], expected })
            }
            _ => Ok(()),
        }
    }

    /// Counts a segment in that has passed both checks. Returns the message's length, MO plus
    /// octets of payload (RFC 5041 §5.4), when the segment ends its message; the next MSN is then
    /// due.
    #[inline]
    pub fn commit(&mut self, header: &UntaggedRepr, len: usize) -> Option<u32> {
        let end = self.next_mo + len as u64;
        if header.last {
            *self = Self { next_msn: self.next_msn.next(), next_mo: 0, open: None };
            // `check_offset` has kept the end below 2^32.
            return Some(u32::try_from(end).unwrap_or(u32::MAX));
        }
        self.next_mo = end;
        self.open = Some(header.rsvd_ulp[0]);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Qn;

    fn tagged(rsvd_ulp: u8, stag: u32, to: u64, last: bool) -> TaggedRepr {
        TaggedRepr { last, rsvd_ulp, stag: Stag(stag), to }
    }

    fn untagged(msn: u32, mo: u32, last: bool) -> UntaggedRepr {
        UntaggedRepr { last, rsvd_ulp: [0x43, 0, 0, 0, 0], qn: Qn(0), msn: Msn(msn), mo }
    }

    fn open_at(to: u64, len: usize) -> TaggedRx {
        let mut rx = TaggedRx::new();
        rx.commit(&tagged(0x40, 1, to, false), len);
        rx
    }

    #[test]
    fn a_tagged_message_goes_on_where_it_stopped() {
        // RFC 5041 §5.2
        let mut rx = open_at(1000, 500);
        assert!(rx.is_open());
        let next = tagged(0x40, 1, 1500, true);
        assert_eq!(rx.check(&next, 10), Ok(()));
        rx.commit(&next, 10);
        assert!(!rx.is_open());
        assert_eq!(rx.check(&tagged(0x42, 7, 3, false), 1), Ok(()), "a new message begins anywhere");
    }

    #[test]
    fn a_tagged_message_taken_over_goes_on_where_it_stopped() {
        // RFC 5041 §5.2
        let rx = TaggedRx::resume(open_at(1000, 500).open());
        assert_eq!(rx.check(&tagged(0x40, 1, 1500, true), 10), Ok(()));
        assert!(rx.check(&tagged(0x40, 1, 1000, true), 10).is_err());
        assert!(!TaggedRx::resume(None).is_open());
    }

    #[test]
    fn a_tagged_message_with_a_gap_or_another_stag_is_refused() {
        let rx = open_at(1000, 500);
        for to in [0, 1000, 1499, 1501] {
            let error = rx.check(&tagged(0x40, 1, to, true), 10).unwrap_err();
            assert_eq!(error, DdpError::ToNotNext { got: to, expected: Some(1500) });
            assert_eq!(error.code(), (1, 1));
        }
        let error = rx.check(&tagged(0x40, 2, 1500, true), 10).unwrap_err();
        assert_eq!(error, DdpError::StagChanged { got: Stag(2), expected: Stag(1) });
        assert_eq!(error.code(), (1, 0));
        let error = rx.check(&tagged(0x42, 1, 1500, true), 10).unwrap_err();
        assert_eq!(error, DdpError::TaggedUlpChanged { got: 0x42, expected: 0x40 });
        assert_eq!(error.code(), (1, 1));
    }

    #[test]
    fn a_tagged_message_may_reach_the_end_of_the_space_and_no_further() {
        // RFC 5041 §7.1
        let rx = open_at(u64::MAX - 3, 4);
        assert_eq!(
            rx.check(&tagged(0x40, 1, 0, true), 1),
            Err(DdpError::ToNotNext { got: 0, expected: None })
        );
        assert_eq!(rx.check(&tagged(0x40, 1, 0, true), 0), Ok(()));
    }

    #[test]
    fn a_tagged_segment_without_payload_has_no_stag_and_no_to() {
        // RFC 5041 §5.2
        let mut rx = open_at(1000, 500);
        assert_eq!(rx.check(&tagged(0x40, 99, 7, false), 0), Ok(()));
        rx.commit(&tagged(0x40, 99, 7, false), 0);
        assert_eq!(rx.check(&tagged(0x40, 1, 1500, true), 1), Ok(()), "and moves nothing");
        assert_eq!(rx.check(&tagged(0x40, 99, 7, true), 0), Ok(()));
        rx.commit(&tagged(0x40, 99, 7, true), 0);
        assert!(!rx.is_open(), "but it may end the message");
        rx.commit(&tagged(0x40, 99, 7, false), 0);
        assert!(!rx.is_open(), "and begins none");
    }

    #[test]
    fn checking_changes_nothing() {
        let rx = open_at(1000, 500);
        let next = tagged(0x40, 1, 1500, true);
        assert_eq!(rx.check(&next, 10), Ok(()));
        assert_eq!(rx.check(&next, 10), Ok(()));
    }

    #[test]
    fn an_untagged_message_reports_its_length_and_frees_its_number() {
        // RFC 5041 §5.4, §4.3
        let mut rx = UntaggedRx::new();
        rx.check_msn(&untagged(1, 0, false)).unwrap();
        rx.check_offset(&untagged(1, 0, false), 1482, 4096).unwrap();
        assert_eq!(rx.commit(&untagged(1, 0, false), 1482), None);
        assert_eq!((rx.next_mo(), rx.is_open()), (1482, true));
        rx.check_offset(&untagged(1, 1482, true), 566, 4096).unwrap();
        assert_eq!(rx.commit(&untagged(1, 1482, true), 566), Some(2048));
        assert_eq!((rx.next_msn(), rx.next_mo(), rx.is_open()), (Msn(2), 0, false));
    }

    #[test]
    fn only_the_next_msn_is_due() {
        // RFC 5041 §7.1
        let rx = UntaggedRx::starting_at(Msn(5));
        for got in [0, 1, 4, 6, u32::MAX] {
            let error = rx.check_msn(&untagged(got, 0, true)).unwrap_err();
            assert_eq!(error, DdpError::MsnOutOfRange { qn: Qn(0), got: Msn(got), expected: Msn(5) });
            assert_eq!(error.code(), (2, 3));
        }
    }

    #[test]
    fn a_queue_taken_over_inside_a_message_goes_on_there() {
        // RFC 5041 §5.2
        let mut before = UntaggedRx::starting_at(Msn(9));
        before.commit(&untagged(9, 0, false), 100);
        let rx = UntaggedRx::resume(before.next_msn(), before.next_mo(), before.open_ulp());
        assert_eq!(rx.check_msn(&untagged(9, 100, true)), Ok(()));
        assert_eq!(rx.check_offset(&untagged(9, 100, true), 8, 4096), Ok(()));
        assert!(rx.check_offset(&untagged(9, 0, true), 8, 4096).is_err());
        assert!(rx.is_open());
    }

    #[test]
    fn messages_go_on_across_the_wrap_of_msn() {
        // RFC 5041 §4.3
        let mut rx = UntaggedRx::starting_at(Msn(0xffff_fffe));
        for msn in [0xffff_fffe, 0xffff_ffff, 0, 1] {
            rx.check_msn(&untagged(msn, 0, true)).unwrap();
            assert_eq!(rx.commit(&untagged(msn, 0, true), 3), Some(3));
        }
    }

    #[test]
    fn a_gap_in_mo_is_refused() {
        let mut rx = UntaggedRx::new();
        rx.commit(&untagged(1, 0, false), 100);
        for got in [0, 99, 101, u32::MAX] {
            let error = rx.check_offset(&untagged(1, got, true), 8, 4096).unwrap_err();
            assert_eq!(error, DdpError::InvalidMo { got, expected: 100 });
            assert_eq!(error.code(), (2, 4));
        }
        assert!(rx.check_offset(&untagged(1, 99, true), 0, 4096).is_err(), "without payload too");
    }

    #[test]
    fn a_message_longer_than_its_buffer_is_refused() {
        // RFC 5041 §7.1
        let mut rx = UntaggedRx::new();
        assert_eq!(rx.check_offset(&untagged(1, 0, true), 32, 32), Ok(()));
        let error = rx.check_offset(&untagged(1, 0, true), 33, 32).unwrap_err();
        assert_eq!(error, DdpError::TooLong { mo: 0, len: 33, buffer: 32 });
        assert_eq!(error.code(), (2, 5));
        rx.commit(&untagged(1, 0, false), 32);
        assert_eq!(rx.check_offset(&untagged(1, 32, true), 0, 32), Ok(()));
        assert!(rx.check_offset(&untagged(1, 32, true), 1, 32).is_err());
    }

    #[test]
    fn no_message_reaches_two_to_the_32_however_large_the_buffer() {
        // RFC 5041 §5.2
        let mut rx = UntaggedRx::new();
        rx.commit(&untagged(1, 0, false), 0xffff_fff0);
        assert_eq!(rx.check_offset(&untagged(1, 0xffff_fff0, true), 15, 1 << 40), Ok(()));
        assert!(rx.check_offset(&untagged(1, 0xffff_fff0, true), 16, 1 << 40).is_err());
    }

    #[test]
    fn another_message_under_the_same_number_is_refused() {
        // RFC 5041 §4.3
        let mut rx = UntaggedRx::new();
        rx.commit(&untagged(1, 0, false), 10);
        let other = UntaggedRepr { rsvd_ulp: [0x45, 0, 0, 0, 0], ..untagged(1, 10, true) };
        let error = rx.check_offset(&other, 1, 100).unwrap_err();
        assert_eq!(error, DdpError::UntaggedUlpChanged { got: 0x45, expected: 0x43 });
        assert_eq!(error.code(), (2, 3));
    }
}
