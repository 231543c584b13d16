//! Alignment of FPDUs with TCP segments: each segment shall begin with an FPDU (RFC 5044 §5.1, §6).
//!
//! An FPDU that would reach over the end of a segment is left for the next write, and this one ends
//! its last segment (`MSG_EOR`), so that TCP begins a new one.

/// EMSS below which segments are looked after: with longer ones, as on loopback, an FPDU that does
/// not begin its segment costs a receiver nothing.
const ALIGNED_EMSS: usize = 16 * 1024;

/// The segments of one write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    /// Octets of a segment; 0 if they are not looked after.
    emss: usize,
    /// Octets of the last segment that are used.
    at: usize,
    /// Set when an FPDU had to be left for the next write.
    crossing: bool,
}

impl Segments {
    /// The segments of a write on a connection with this EMSS, which goes on `used` octets after a
    /// segment began. [`default`](Self::default) ones are not looked after.
    #[inline]
    #[must_use]
    pub fn new(emss: usize, used: usize) -> Self {
        if emss < ALIGNED_EMSS && emss > 0 {
            Segments { emss, at: used % emss, crossing: false }
        } else {
            Segments::default()
        }
    }

    /// Returns whether the segments are looked after.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.emss > 0
    }

    /// Returns whether the next FPDU, of so many octets on the wire, belongs to this write; if so,
    /// it is counted in.
    #[inline]
    pub fn admit(&mut self, octets: usize) -> bool {
        if self.emss == 0 {
            return true;
        }
        // One longer than a segment (the EMSS has shrunk) begins one, at least.
        if self.at > 0 && self.at + octets > self.emss {
            self.crossing = true;
            return false;
        }
        self.add(octets);
        true
    }

    /// Counts in octets that could not wait for another write.
    #[inline]
    pub fn add(&mut self, octets: usize) {
        self.at = (self.at + octets).checked_rem(self.emss).unwrap_or(0);
    }

    /// Returns whether a write of `octets` ends its last segment. A short message alone does not:
    /// TCP may send what follows along with it.
    #[inline]
    #[must_use]
    pub fn end_record(&self, octets: usize) -> bool {
        self.at > 0 && (self.crossing || octets >= self.emss)
    }
}

/// Returns whether the rest of an FPDU that TCP has begun to take ends its segment, when it is sent
/// by a write of its own: what follows it, by a later write, begins one. `used` octets lie between
/// the beginning of a segment and the end of the rest.
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
    fn short_ones_share_a_segment_and_none_reaches_over_its_end() {
        let mut segments = Segments::new(EMSS, 0);
        assert!((0..16).all(|_| segments.admit(88)));
        assert!(!segments.end_record(16 * 88), "more may come");
        assert!(!segments.admit(88));
        assert!(segments.end_record(16 * 88));
    }

    #[test]
    fn what_waits_to_be_sent_counts() {
        let mut segments = Segments::new(EMSS, EMSS + 100);
        assert!(!segments.admit(EMSS));
        assert!(Segments::new(EMSS, EMSS).admit(EMSS));
    }

    #[test]
    fn one_that_just_fits_is_admitted_and_one_longer_than_a_segment_begins_one() {
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
    fn long_segments_are_not_looked_after() {
        let mut segments = Segments::new(65_483, 7);
        assert!(segments.admit(65_480) && segments.admit(65_480));
        assert!(!segments.is_set() && !segments.end_record(1 << 20));
    }
}
