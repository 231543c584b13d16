//! Sending: a message is cut into segments (RFC 5041 §5.2).
//!
//! The caller asks for one segment at a time, with the MULPDU of that moment, so that a change of
//! MULPDU affects only the segments not yet handed to the LLP (RFC 5041 chapter 3). Segments come
//! in ascending order without gaps and never carry octets of two messages; exactly one, the last,
//! has L set.

/// One segment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Offset of the payload in the message: the MO, or what is added to the first TO.
    pub offset: u64,
    /// Octets of payload.
    pub len: usize,
    /// L: this is the last segment of the message.
    pub last: bool,
}

/// Returns the segment that begins at `offset` in a message of `total` octets and is, with its
/// header of `header_len` octets, no longer than `mulpdu`. A message of zero octets is one empty
/// segment (RFC 5041 §5.2).
///
/// # Panics
/// When no payload fits behind the header (`mulpdu <= header_len`), or `offset` lies behind the
/// message. Both are mistakes of the caller; nothing that a peer does leads to them.
#[must_use]
#[inline]
pub fn cut(total: u64, offset: u64, mulpdu: usize, header_len: usize) -> Cut {
    assert!(mulpdu > header_len, "a MULPDU of {mulpdu} leaves no room behind a header of {header_len}");
    assert!(offset <= total, "offset {offset} is behind a message of {total}");
    let room = mulpdu - header_len;
    let rest = total - offset;
    // On a 32-bit system the rest of a message may not fit into `usize`; it then does not fit into
    // a segment either.
    match usize::try_from(rest) {
        Ok(rest) if rest <= room => Cut { offset, len: rest, last: true },
        _ => Cut { offset, len: room, last: false },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{TaggedRepr, UntaggedRepr};

    fn cuts(total: u64, mulpdu: usize, header_len: usize) -> Vec<Cut> {
        let mut cuts = vec![cut(total, 0, mulpdu, header_len)];
        while let Some(&Cut { offset, len, last: false }) = cuts.last() {
            cuts.push(cut(total, offset + len as u64, mulpdu, header_len));
        }
        cuts
    }

    #[test]
    fn the_example_of_the_rfc_comes_out() {
        // RFC 5041 §5.2, untagged and tagged
        let [first, second] = cuts(2048, 1500, UntaggedRepr::LEN)[..] else { panic!("two segments") };
        assert_eq!((first.len, second.offset, second.len), (1482, 1482, 566));
        let [first, second] = cuts(2048, 1500, TaggedRepr::LEN)[..] else { panic!("two segments") };
        assert_eq!((first.len, second.offset, second.len), (1486, 1486, 562));
    }

    #[test]
    fn a_message_without_octets_is_one_empty_segment() {
        // RFC 5041 §5.2
        assert_eq!(cut(0, 0, 128, 18), Cut { offset: 0, len: 0, last: true });
    }

    #[test]
    fn payload_is_cut_at_the_mulpdu_to_the_octet() {
        // RFC 5041 §5.2
        let room = 1500 - 18;
        let lens = |total| cuts(total, 1500, 18).iter().map(|cut| cut.len).collect::<Vec<_>>();
        assert_eq!(lens(1), [1]);
        assert_eq!(lens(room - 1), [1481]);
        assert_eq!(lens(room), [1482]);
        assert_eq!(lens(room + 1), [1482, 1]);
        assert_eq!(lens(3 * room), [1482, 1482, 1482]);
    }

    #[test]
    fn the_longest_message_ends_at_its_last_octet() {
        let total = u64::from(u32::MAX);
        let cut = cut(total, total - 1, 128, 14);
        assert_eq!(cut, Cut { offset: total - 1, len: 1, last: true });
    }

    #[test]
    fn a_new_mulpdu_counts_from_the_next_segment_on() {
        // RFC 5041 chapter 3
        let first = cut(3000, 0, 1500, 14);
        let second = cut(3000, first.len as u64, 600, 14);
        assert_eq!((first.len, second.len), (1486, 586));
    }

    #[test]
    #[should_panic(expected = "no room")]
    fn a_mulpdu_without_room_for_payload_is_a_callers_mistake() {
        let _ = cut(1, 0, 18, 18);
    }

    proptest! {
        #[test]
        fn cuts_cover_the_message_once_and_in_order(
            total in 0u64..70_000,
            mulpdu in 128usize..64_769,
            header_len in prop_oneof![Just(14usize), Just(18usize)],
        ) {
            // RFC 5041 §4.1, §5.2
            let cuts = cuts(total, mulpdu, header_len);
            let mut next = 0;
            for cut in &cuts {
                prop_assert_eq!(cut.offset, next);
                prop_assert!(header_len + cut.len <= mulpdu);
                prop_assert!(cut.len > 0 || total == 0);
                next += cut.len as u64;
            }
            prop_assert_eq!(next, total);
            prop_assert_eq!(cuts.iter().filter(|cut| cut.last).count(), 1);
            prop_assert_eq!(cuts.len() as u64, total.div_ceil((mulpdu - header_len) as u64).max(1));
        }
    }
}
