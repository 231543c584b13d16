//! `InOrder`: receiving over an LLP that gives every octet once and in order, which is TCP (RFC 5041 §5.2 to §5.4).
//!
//! [`TaggedRx`] is a stream's tagged half, [`UntaggedRx`] one queue of its untagged half. A tagged message and one message
//! on each queue may be open at the same time; inside a message a segment must go on where the one before it ended. The RFC
//! asks only for range checks; on TCP a gap can only be the sender's fault and would leave octets unwritten.
//!
//! `check*` looks and changes nothing, so a payload may be placed before its CRC is known; `commit` counts the segment in.
//! Neither knows memory: STag, rights and bounds of tagged buffers are the caller's to check between the two.

use crate::{DdpError, Msn, Stag, TaggedRepr, UntaggedRepr};

/// The open tagged message of a stream, if there is one.
#[derive(Clone, Debug, Default)]
pub struct TaggedRx {
    open: Option<OpenTagged>,
}

#[derive(Clone, Copy, Debug)]
struct OpenTagged {
    rsvd_ulp: u8,
    stag: Stag,
    /// `None`: the message has reached 2^64 and can take no further octet.
    next_to: Option<u64>,
}

impl TaggedRx {
    /// No message is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether this segment begins a message, or goes on where the open one stopped.
    ///
    /// # Errors
    /// The STag, the TO or the `RsvdULP` is not the open message's, in this order.
    #[inline]
    pub fn check(&self, header: &TaggedRepr, len: usize) -> Result<(), DdpError> {
        match self.open {
            Some(open) => open.check(header, len),
            None => Ok(()),
        }
    }

    /// Counts the segment in. It has passed [`check`](Self::check).
    #[inline]
    pub fn commit(&mut self, header: &TaggedRepr, len: usize) {
        if header.last {
            self.open = None;
        } else if len > 0 {
            let TaggedRepr { rsvd_ulp, stag, to, .. } = *header;
            self.open = Some(OpenTagged { rsvd_ulp, stag, next_to: to.checked_add(len as u64) });
        }
    }
}

impl OpenTagged {
    fn check(&self, header: &TaggedRepr, len: usize) -> Result<(), DdpError> {
        // RFC 5041 §5.2: of a segment without payload only control and RsvdULP count.
        if len > 0 {
            if header.stag != self.stag {
                return Err(DdpError::StagChanged { got: header.stag, expected: self.stag });
            }
            if Some(header.to) != self.next_to {
                return Err(DdpError::ToNotNext { got: header.to, expected: self.next_to });
            }
        }
        // RFC 5041 §4.2: RsvdULP is the same in every segment of a message.
        if header.rsvd_ulp != self.rsvd_ulp {
            return Err(DdpError::TaggedUlpChanged { got: header.rsvd_ulp, expected: self.rsvd_ulp });
        }
        Ok(())
    }
}

/// One queue of untagged buffers: which message is due, and how much of it is there.
#[derive(Clone, Debug, Default)]
pub struct UntaggedRx {
    next_msn: Msn,
    /// Octets of message `next_msn` counted in so far; at most 2^32 - 1.
    next_mo: u64,
    /// First octet of the open message's `RsvdULP`.
    open: Option<u8>,
}

impl UntaggedRx {
    /// Nothing received yet: MSN 1 is due (RFC 5041 §4.3).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A queue on which `msn` is due: one that is taken over, or brought near the wrap by a test.
    #[must_use]
    pub fn starting_at(msn: Msn) -> Self {
        Self { next_msn: msn, ..Self::default() }
    }

    /// The message that is due, or open.
    #[must_use]
    pub fn next_msn(&self) -> Msn {
        self.next_msn
    }

    /// Octets of the open message that are there.
    #[must_use]
    pub fn next_mo(&self) -> u64 {
        self.next_mo
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The first check: it is this message's turn. The caller then finds the buffer (0x2/0x02 when there is none) and
    /// goes on with [`check_offset`](Self::check_offset).
    ///
    /// # Errors
    /// [`DdpError::MsnOutOfRange`].
    #[inline]
    pub fn check_msn(&self, header: &UntaggedRepr) -> Result<(), DdpError> {
        let UntaggedRepr { qn, msn: got, .. } = *header;
        match self.next_msn {
            expected if got == expected => Ok(()),
            expected => Err(DdpError::MsnOutOfRange { qn, got, expected }),
        }
    }

    /// The second: the segment goes on where the message stopped, and fits into a buffer of `buffer` octets. A message
    /// is shorter than 2^32 octets (RFC 5041 §5.2), however large the buffer.
    ///
    /// # Errors
    /// The MO, the length or the `RsvdULP`, in this order. A segment without payload is held to its MO as well, since the
    /// message's length comes from it.
    #[inline]
    pub fn check_offset(&self, header: &UntaggedRepr, len: usize, buffer: u64) -> Result<(), DdpError> {
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

    /// Counts the segment in, which has passed both checks. `Some(length)`: that was the whole message, of MO + payload
    /// octets (RFC 5041 §5.4), and the next MSN is due.
    #[inline]
    pub fn commit(&mut self, header: &UntaggedRepr, len: usize) -> Option<u32> {
        let end = self.next_mo + len as u64;
        if header.last {
            *self = Self { next_msn: self.next_msn.next(), next_mo: 0, open: None };
            return Some(u32::try_from(end).unwrap_or(u32::MAX));
        }
        self.next_mo = end;
        self.open = Some(header.rsvd_ulp[0]);
        None
    }
}
