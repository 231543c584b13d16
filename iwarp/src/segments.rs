//! Alignment of FPDUs with TCP segments: each segment shall begin with an FPDU (RFC 5044 §5.1, §6).
//!
//! An FPDU that would reach over the end of a segment is left for the next write, and the present
//! write ends its last segment (`MSG_EOR`), so that TCP begins a new one.

/// EMSS below which FPDUs are aligned: with longer segments, as on loopback, an FPDU that does not
/// begin its segment costs a receiver nothing.
const ALIGNED_EMSS: usize = 16 * 1024;

/// The segments of one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    /// Length of a segment; 0 if FPDUs are not aligned.
    emss: usize,
    /// Number of octets in the last segment so far.
    at: usize,
    /// True if an FPDU had to be left for the next write.
    crossing: bool,
}

impl Segments {
    /// Returns the segments of a write on a connection with this EMSS, which begins `used` octets
    /// behind the start of a segment. [`default`](Self::default) ones are not aligned.
    #[inline]
    #[must_use]
    pub fn new(emss: usize, used: usize) -> Self {
        if emss < ALIGNED_EMSS && emss > 0 {
            Segments { emss, at: used % emss, crossing: false }
        } else {
            Segments::default()
        }
    }

    /// Returns whether FPDUs are aligned.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.emss > 0
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
            self.crossing = true;
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

    /// Returns whether a write of `octets` has to end its last segment. A short message alone does
    /// not: TCP may send it together with what follows.
    #[inline]
    #[must_use]
    pub fn end_record(&self, octets: usize) -> bool {
        self.at > 0 && (self.crossing || octets >= self.emss)
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
    use super::*;

    const EMSS: usize = 1448;

    #[test]
    fn full_fpdus_go_on_and_a_short_one_ends_the_write() {
        let mut segments = Segments::new(EMSS, 0);
        assert!((0..45).all(|_| segments.admit(EMSS)));
        assert!(!segments.end_record(45 * EMSS), "it ends with a segment anyway");
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

    #[test]
    fn fpdus_in_long_segments_are_not_aligned() {
        let mut segments = Segments::new(65_483, 7);
        assert!(segments.admit(65_480) && segments.admit(65_480));
        assert!(!segments.is_set() && !segments.end_record(1 << 20));
    }
}
