//! Alignment of FPDUs with TCP segments: each segment shall begin with an FPDU (RFC 5044 §5.1, §6).
//!
//! An FPDU that would reach over the end of a segment is cut to what is left of it
//! ([`Segments::longest`]). One that cannot be cut, or not so short, is left for the next write:
//! the present one ends its last segment (`MSG_EOR`), so that TCP begins a new one.
//!
//! The length of an FPDU is a multiple of 4. Where that of a segment is not (a path of 1450 octets,
//! as overlay networks have), none would end with its segment, and each write after one FPDU:
//! there FPDUs are not aligned.

use rddp_ddp::UntaggedRepr;
use rddp_mpa::{CRC_LEN, LENGTH_LEN, fpdu_len};

/// EMSS below which FPDUs are aligned: with longer segments, as on loopback, an FPDU that does not
/// begin its segment costs a receiver nothing.
const ALIGNED_EMSS: usize = 16 * 1024;

/// Least room for a part of a message: headers, 4 octets and a CRC. A MULPDU is never so small
/// (RFC 5044 §4.5), but DDP may cut a message anywhere (RFC 5041 §5.2).
const SHORTEST: usize = LENGTH_LEN + UntaggedRepr::LEN + 4 + CRC_LEN;

/// The segments of one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    /// Length of a segment; 0 if FPDUs are not aligned.
    emss: usize,
    /// Number of octets in the last segment so far.
    at: usize,
    /// True if the write ends its last segment however short it is: an FPDU had to be left for the
    /// next one, or it has the end of something longer.
    ends: bool,
}

impl Segments {
    /// Returns the segments of a write on a connection with this EMSS, which begins `used` octets
    /// behind the start of a segment. [`default`](Self::default) ones are not aligned.
    #[inline]
    #[must_use]
    pub fn new(emss: usize, used: usize) -> Self {
        if emss < ALIGNED_EMSS && emss > 0 && emss.is_multiple_of(4) {
            Segments { emss, at: used % emss, ends: false }
        } else {
            Segments::default()
        }
    }

    /// Returns the segments of a write that has the rest of another one, and nothing else: it ends
    /// its last segment.
    #[inline]
    #[must_use]
    pub fn of_rest(emss: usize, used: usize) -> Self {
        Segments { ends: true, ..Self::new(emss, used) }
    }

    /// Has the write end its last segment: what it sends is the end of a message that others have
    /// begun, and what follows is no short message that could share the segment.
    #[inline]
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// Returns whether FPDUs are aligned.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.emss > 0
    }

    /// Returns the longest ULPDU of the next FPDU, if that is a part of a message that can be cut
    /// anywhere: `mulpdu`, or less, so that the segment ends with it, or that there is room for
    /// another part. `rest` is what is left of the message, as one ULPDU. Without markers only.
    #[inline]
    #[must_use]
    pub fn longest(&self, mulpdu: usize, rest: usize) -> usize {
        let left = self.emss - self.at;
        if self.emss == 0 || left < SHORTEST {
            return mulpdu;
        }
        let filling = mulpdu.min(left - LENGTH_LEN - CRC_LEN);
        let behind = left - fpdu_len(filling.min(rest));
        if (1..SHORTEST).contains(&behind) && left >= 2 * SHORTEST {
            return filling.min(left - SHORTEST - LENGTH_LEN - CRC_LEN);
        }
        filling
    }

    /// Returns whether the next FPDU, of `octets` octets on the wire, belongs to this write; if so,
    /// counts it in.
    #[inline]
    pub fn admit(&mut self, octets: usize) -> bool {
        if self.emss == 0 {
            return true;
        }
        // An FPDU longer than a segment (the EMSS has shrunk) at least begins one.
        if self.at > 0 && self.at + octets > self.emss {
            self.ends = true;
            return false;
        }
        self.add(octets);
        true
    }

    /// Counts in octets that cannot wait for another write.
    #[inline]
    pub fn add(&mut self, octets: usize) {
        self.at = (self.at + octets).checked_rem(self.emss).unwrap_or(0);
    }

    /// Returns whether a write of `octets` has to end its last segment, even where it should be
    /// full: TCP ends segments earlier at the edge of the peer's window, and so the next write
    /// begins one all the same. A short message alone does not end it: TCP may send it together
    /// with what follows.
    #[inline]
    #[must_use]
    pub fn end_record(&self, octets: usize) -> bool {
        self.is_set() && (self.ends || octets >= self.emss)
    }
}

/// Returns whether the rest of an FPDU that TCP has begun to take has to end its segment when it is
/// sent by a write of its own, so that the next FPDU, in a later write, begins one. `used` octets
/// lie between the beginning of a segment and the end of the rest.
#[inline]
#[must_use]
pub fn rest_ends_record(emss: usize, used: usize) -> bool {
    Segments::new(emss, used).at > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rddp_ddp::{TaggedRepr, cut};
    use rddp_mpa::mulpdu;

    use super::*;

    const EMSS: usize = 1448;

    #[test]
    fn full_fpdus_go_on_and_a_short_one_ends_the_write() {
        let mut segments = Segments::new(EMSS, 0);
        assert!((0..45).all(|_| segments.admit(EMSS)));
        assert!(segments.end_record(45 * EMSS), "what follows begins one");
        assert!(segments.admit(1296));
        assert!(segments.end_record(45 * EMSS + 1296));
        assert!(!segments.admit(EMSS), "it would begin in the middle of a segment and end in the next");
    }

    #[test]
    fn short_fpdus_share_a_segment_and_none_reaches_over_its_end() {
        let mut segments = Segments::new(EMSS, 0);
        assert!((0..16).all(|_| segments.admit(88)));
        assert!(!segments.end_record(16 * 88), "more may come");
        assert!(!segments.admit(88));
        assert!(segments.end_record(16 * 88));
    }

    #[test]
    fn octets_that_wait_to_be_sent_count() {
        let mut segments = Segments::new(EMSS, EMSS + 100);
        assert!(!segments.admit(EMSS));
        assert!(Segments::new(EMSS, EMSS).admit(EMSS));
    }

    #[test]
    fn an_fpdu_that_just_fits_is_admitted_and_one_longer_than_a_segment_begins_one() {
        let mut segments = Segments::new(EMSS, 100);
        assert!(segments.is_set() && segments.admit(EMSS - 100) && segments.admit(EMSS + 8));
        assert!(!segments.admit(EMSS - 7), "behind the eight octets of it that reach into the next");
    }

    #[test]
    fn the_rest_of_an_fpdu_ends_its_segment_unless_it_fills_it() {
        assert!(rest_ends_record(EMSS, 3 * EMSS + 5));
        assert!(rest_ends_record(EMSS, 88), "short ones, too: TCP had no room, and may join what follows");
        assert!(!rest_ends_record(EMSS, 3 * EMSS));
        assert!(!rest_ends_record(EMSS, 0));
        assert!(!rest_ends_record(0, 88) && !rest_ends_record(65_483, 88));
    }

    /// RFC 5044 §5.1, RFC 5041 §5.2
    #[test]
    fn a_message_is_cut_to_what_is_left_of_a_segment() {
        let mut segments = Segments::new(EMSS, 0);
        let most = mulpdu(EMSS, false);
        assert_eq!(segments.longest(most, 5000), most);
        assert!(segments.admit(1044));
        assert_eq!(segments.longest(most, 5000), EMSS - 1044 - 6);
        assert!(segments.admit(fpdu_len(segments.longest(most, 5000))));
        // Too little for a header and some octets: the write ends.
        assert!(segments.admit(EMSS - 24));
        assert_eq!(segments.longest(most, 5000), most);
        assert!(!segments.admit(fpdu_len(most)) && segments.end_record(2 * EMSS - 24));
    }

    /// Writes of 4 KiB on a path of MTU 1450 left 32 octets of their third segment, each.
    #[test]
    fn a_part_of_a_message_leaves_room_for_another_or_none() {
        let segments = Segments::new(EMSS, 0);
        let most = mulpdu(EMSS, false);
        for behind in (4..SHORTEST).step_by(4) {
            let rest = EMSS - 6 - behind;
            assert_eq!(segments.longest(most, rest), EMSS - 6 - SHORTEST, "{behind} octets");
        }
        let rest = EMSS - 6 - SHORTEST;
        assert!(segments.longest(most, rest) >= rest);
    }

    /// An EMSS of an overlay network's path, of MTU 1450, would end each write after one FPDU.
    #[test]
    fn fpdus_are_not_aligned_where_none_can_fill_a_segment() {
        for emss in [1398, 1390, 8949, 1459] {
            let mut segments = Segments::new(emss, 0);
            let most = mulpdu(emss, false);
            assert!((0..100).all(|_| segments.longest(most, 5000) == most && segments.admit(fpdu_len(most))));
            assert!(!segments.is_set() && !segments.end_record(100 * emss));
        }
    }

    #[test]
    fn the_end_of_a_long_message_ends_its_segment() {
        let mut segments = Segments::new(EMSS, 0);
        assert!(segments.admit(56) && !segments.end_record(56));
        segments.end();
        assert!(segments.end_record(56));
    }

    #[test]
    fn the_rest_of_a_write_that_tcp_took_in_part_ends_its_segment() {
        assert!(Segments::of_rest(EMSS, 100).end_record(4));
        assert!(!Segments::new(EMSS, 100).end_record(4), "a message alone does not");
        assert!(!Segments::of_rest(1398, 100).is_set());
    }

    proptest! {
        /// Messages of any length, one behind the other: FPDUs never reach over the end of a
        /// segment, and a write goes on as long as there is room for one more octet or so.
        #[test]
        fn cut_messages_fill_segments(
            totals in prop::collection::vec(1..20_000_u64, 1..50),
            emss in (134_usize..2500).prop_map(|emss| emss * 4),
        ) {
            let most = mulpdu(emss, false);
            let (mut segments, mut at, mut in_write, mut last) = (Segments::new(emss, 0), 0, 0, 0);
            for total in totals {
                let mut offset = 0;
                while offset < total {
                    let rest = (total - offset) as usize + TaggedRepr::LEN;
                    let part = cut(total, offset, segments.longest(most, rest), TaggedRepr::LEN);
                    let octets = fpdu_len(part.len + TaggedRepr::LEN);
                    if !segments.admit(octets) {
                        prop_assert!(emss - at < SHORTEST, "{} octets were left", emss - at);
                        prop_assert!(last < 2 * SHORTEST, "a message that could have been cut");
                        prop_assert!(segments.end_record(in_write));
                        (segments, at, in_write) = (Segments::new(emss, 0), 0, 0);
                        continue;
                    }
                    prop_assert!(part.len > 0 && at + octets <= emss);
                    (at, in_write, last) = ((at + octets) % emss, in_write + octets, octets);
                    offset += part.len as u64;
                }
            }
        }
    }

    #[test]
    fn fpdus_in_long_segments_are_not_aligned() {
        let mut segments = Segments::new(65_483, 7);
        assert!(segments.admit(65_480) && segments.admit(65_480));
        assert!(!segments.is_set() && !segments.end_record(1 << 20));
    }
}
