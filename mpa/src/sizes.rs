//! Lengths and limits of FPDUs (RFC 5044 §3, §4.1, §4.5).

/// The largest ULPDU a sender may form (RFC 5044 §3). A receiver takes whatever fits the length
/// field.
pub const MAX_ULPDU: usize = 64768;
/// Octets of the longest FPDU that ends send each other whatever the EMSS, if the startup frames of
/// both ask for it: the length for which siw's bit stands in a proposal of RNICs' vendors.
pub const LARGE_FPDU: usize = 32 * 1024;
/// The lower bound of MULPDU, however small the EMSS is (RFC 5044 §4.5).
pub const MIN_MULPDU: usize = 128;
/// Stream octets from the start of one marker to the start of the next (RFC 5044 §4.3).
pub const MARKER_SPACING: usize = 512;
/// Octets of a marker (RFC 5044 §4.2).
pub const MARKER_LEN: usize = 4;
/// Octets of the `ULPDU_Length` field.
pub const LENGTH_LEN: usize = 2;
/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;

/// Returns the largest ULPDU whose FPDU fits into one TCP segment of `emss` octets, within the
/// limits of RFC 5044 §3 and §4.5.
///
/// With markers, space is kept for the largest number of them that can fall into the segment.
///
/// ```
/// assert_eq!(rddp_mpa::mulpdu(1460, false), 1454);
/// assert_eq!(rddp_mpa::mulpdu(1460, true), 1442);
/// ```
#[must_use]
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    // RFC 5044 §4.5: what remains of the EMSS beside length, CRC, markers and the worst pad.
    let markers_len = if markers { MARKER_LEN * emss.div_ceil(MARKER_SPACING) } else { 0 };
    let fits = emss.saturating_sub(LENGTH_LEN + CRC_LEN + markers_len + emss % 4);
    if fits < MIN_MULPDU {
        MIN_MULPDU
    } else if fits > MAX_ULPDU {
        MAX_ULPDU
    } else {
        fits
    }
}

/// Returns the number of pad octets (0 to 3) that bring an FPDU with this ULPDU to a multiple of
/// four (RFC 5044 §4.1).
///
/// Markers do not change the pad: each is four octets long itself.
#[inline]
#[must_use]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Returns the octets of an FPDU with this ULPDU: length, ULPDU, pad and CRC, without markers.
#[inline]
#[must_use]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5044 §4.1: an FPDU is an integral multiple of four octets, with at most three octets of
    // pad.
    #[test]
    fn every_fpdu_is_a_multiple_of_four_octets() {
        for ulpdu_len in 0..=usize::from(u16::MAX) {
            assert_eq!(fpdu_len(ulpdu_len) % 4, 0);
            assert!(pad_len(ulpdu_len) < 4);
            assert_eq!(fpdu_len(ulpdu_len), 6 + ulpdu_len + pad_len(ulpdu_len));
        }
    }

    // RFC 5044 §4.5: without markers a full FPDU is as long as the EMSS rounded down to four
    // octets.
    #[test]
    fn a_full_fpdu_fills_the_segment() {
        for emss in 136..=64_777 {
            let full = fpdu_len(mulpdu(emss, false));
            assert!(full <= emss && emss - full < 4, "EMSS {emss}: FPDU of {full}");
        }
    }

    // RFC 5044 §3, §4.5: 128 to 64768, whatever the EMSS.
    #[test]
    fn mulpdu_stays_within_its_range() {
        for markers in [false, true] {
            for emss in (0..=70_000).chain([usize::MAX - 1, usize::MAX]) {
                assert!((MIN_MULPDU..=MAX_ULPDU).contains(&mulpdu(emss, markers)), "EMSS {emss}");
            }
        }
    }
}
