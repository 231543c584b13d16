//! The headers of outbound messages (RFC 5040 §4.1, Figure 4).

use rddp_ddp::{Header, Msn, Qn, Stag, TaggedRepr, UntaggedRepr};

use crate::Opcode;

/// Returns the header of a segment of a Write or a Read Response.
#[must_use]
#[inline]
pub fn tagged_header(op: Opcode, stag: Stag, to: u64, last: bool) -> Header {
    debug_assert!(op.is_tagged(), "{op} is not a tagged message");
    Header::Tagged(TaggedRepr { last, rsvd_ulp: op.control(), stag, to })
}

/// Returns the header of a segment of any other message; the queue follows from the opcode.
/// `invalidate` is sent only with the two opcodes that use it, else the field is 0.
#[must_use]
#[inline]
pub fn untagged_header(op: Opcode, invalidate: Stag, msn: Msn, mo: u32, last: bool) -> Header {
    debug_assert!(!op.is_tagged(), "{op} is not an untagged message");
    let [a, b, c, d] = if op.invalidates() { invalidate.0.to_be_bytes() } else { [0; 4] };
    let qn = op.queue().unwrap_or_default();
    Header::Untagged(UntaggedRepr { last, rsvd_ulp: [op.control(), a, b, c, d], qn, msn, mo })
}

/// The next MSN of each queue of one direction of a stream (RFC 5041 §4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    next: [Msn; 4],
}

impl SendCounters {
    /// Starts with MSN 1 on every queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the MSN for a message on queue `qn`, and counts on.
    ///
    /// # Panics
    /// When RDMAP has no such queue.
    #[inline]
    pub fn next(&mut self, qn: Qn) -> Msn {
        let next = &mut self.next[qn.0 as usize];
        let msn = *next;
        *next = msn.next();
        msn
    }

    /// Goes on with `msn` on queue `qn`: for tests of the wrap, and for a stream that is taken
    /// over.
    ///
    /// # Panics
    /// When RDMAP has no such queue.
    pub fn set(&mut self, qn: Qn, msn: Msn) {
        self.next[qn.0 as usize] = msn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{REQUEST_QUEUE, SEND_QUEUE};

    #[test]
    fn tagged_messages_name_buffer_and_offset() {
        // RFC 5040 §4.1
        let header = tagged_header(Opcode::ReadResponse, Stag(0x0a0b_0c0d), 0x2000, false);
        assert_eq!(*header.octets(), *b"\x81\x42\x0a\x0b\x0c\x0d\0\0\0\0\0\0\x20\0");
    }

    #[test]
    fn untagged_messages_find_their_queue_by_opcode() {
        // RFC 5040 §4.1
        let header = untagged_header(Opcode::ReadRequest, Stag(0), Msn(1), 0, true);
        assert_eq!(*header.octets(), *b"\x41\x41\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0");
    }

    #[test]
    fn the_invalidate_field_is_sent_only_where_it_means_something() {
        // RFC 5040 §4.1
        for op in Opcode::ALL.into_iter().filter(|op| !op.is_tagged()) {
            let octets = untagged_header(op, Stag(0x1122_3344), Msn(1), 0, true).octets();
            let wanted = if op.invalidates() { [0x11, 0x22, 0x33, 0x44] } else { [0; 4] };
            assert_eq!(octets[2..6], wanted, "{op}");
        }
    }

    #[test]
    fn each_queue_counts_its_own_messages_from_one() {
        // RFC 5041 §4.3
        let mut counters = SendCounters::new();
        assert_eq!((counters.next(SEND_QUEUE), counters.next(SEND_QUEUE)), (Msn(1), Msn(2)));
        assert_eq!((counters.next(REQUEST_QUEUE), counters.next(SEND_QUEUE)), (Msn(1), Msn(3)));
    }
}
