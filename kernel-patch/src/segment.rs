//! The octets of a TCP segment, and what they say: `bpf/segment.h` in Rust.
//!
//! A segment that arrives behind a hole does not show where its FPDUs begin. It is taken for
//! aligned if FPDUs, by their length fields, reach exactly from its first octet to its last:
//! nothing else is known of the octets in front of it.

use std::ops::Range;

use rddp_ddp::Stag;
use rddp_mpa::{LENGTH_LEN, fpdu_len};

/// Most FPDUs that are looked for in a segment.
pub const MOST_FPDUS: usize = 64;

/// Octets of length field, control octets, STag and Tagged Offset (RFC 5044 §4.1, RFC 5041 §4.2).
pub const TAGGED_FRONT: usize = 16;

const TAGGED_HEADER: usize = TAGGED_FRONT - LENGTH_LEN;

/// Returns whether sequence number `a` is before `b` (RFC 9293 §3.4).
#[must_use]
pub const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Returns where the FPDUs of a segment's payload are; `None` if it is not a whole number of FPDUs,
/// or too many.
///
/// ```
/// use rddp_kernel_patch::segment::fpdus;
///
/// // Two FPDUs of the smallest size, and an octet more.
/// let segment = [0; 17];
/// assert_eq!(fpdus(&segment[..16]), Some(vec![0..8, 8..16]));
/// assert_eq!(fpdus(&segment), None);
/// ```
#[must_use]
pub fn fpdus(payload: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < payload.len() && found.len() < MOST_FPDUS {
        let len = fpdu_len(usize::from(u16::from_be_bytes(*payload[at..].first_chunk()?)));
        payload.get(at..at + len)?;
        found.push(at..at + len);
        at += len;
    }
    (at == payload.len()).then_some(found)
}

/// The front of an FPDU that carries a segment of an RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFront {
    /// STag.
    pub stag: Stag,
    /// Tagged Offset.
    pub to: u64,
    /// Octets of payload, at least one.
    pub len: usize,
    /// The segment is the last of its Write.
    pub last: bool,
}

impl WriteFront {
    /// Returns the octets, reserved bits 0.
    ///
    /// ```
    /// use rddp_ddp::Stag;
    /// use rddp_kernel_patch::segment::WriteFront;
    /// let front = WriteFront { stag: Stag(0x0102_0304), to: 5, len: 100, last: true };
    /// assert_eq!(WriteFront::parse(&front.octets()), Some(front));
    /// ```
    #[must_use]
    pub fn octets(&self) -> [u8; TAGGED_FRONT] {
        let mut octets = [0; TAGGED_FRONT];
        octets[..2].copy_from_slice(&((TAGGED_HEADER + self.len) as u16).to_be_bytes());
        octets[2] = if self.last { 0xc1 } else { 0x81 };
        octets[3] = 0x40;
        octets[4..8].copy_from_slice(&self.stag.0.to_be_bytes());
        octets[8..].copy_from_slice(&self.to.to_be_bytes());
        octets
    }

    /// Reads the front of an FPDU. `None` if it is no segment of an RDMA Write (RFC 5041 §4.1,
    /// RFC 5040 §4.1), or has no payload.
    #[must_use]
    pub fn parse(fpdu: &[u8]) -> Option<Self> {
        let [l0, l1, ddp, rdmap, stag @ .., _, _, _, _, _, _, _, _] = fpdu.first_chunk::<TAGGED_FRONT>()?;
        let to = fpdu[8..].first_chunk()?;
        let len = usize::from(u16::from_be_bytes([*l0, *l1])).checked_sub(TAGGED_HEADER)?;
        let is_write = ddp & 0x83 == 0x81 && rdmap & 0xcf == 0x40 && len > 0;
        let last = ddp & 0x40 != 0;
        is_write.then(|| Self {
            stag: Stag(u32::from_be_bytes(*stag)),
            to: u64::from_be_bytes(*to),
            len,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::segment::write;

    use super::*;

    const STAG: Stag = Stag(0x1122_3344);

    fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
        let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
        octets.extend(ulpdu);
        octets.resize(octets.len().next_multiple_of(4) + 4, 0);
        octets
    }

    #[test]
    fn a_write_is_read_as_it_was_framed() {
        for len in [1, 2, 3, 1_000] {
            let octets = fpdu(&write(STAG, 0x1_0000_0005, true, &vec![7; len]));
            let front = WriteFront { stag: STAG, to: 0x1_0000_0005, len, last: true };
            assert_eq!(WriteFront::parse(&octets), Some(front));
            assert!(fpdus(&octets).is_some_and(|found| found.len() == 1 && found[0] == (0..octets.len())));
        }
    }

    /// RFC 5041 §4.1, RFC 5040 §4.1: other versions, an untagged segment and other opcodes are no
    /// Writes. Reserved bits are not looked at.
    #[test]
    fn each_bit_of_the_control_octets_counts_as_it_should() {
        let octets = fpdu(&write(STAG, 0, false, b"payload"));
        for bit in 0..16 {
            let mut changed = octets.clone();
            changed[2 + bit / 8] ^= 0x80 >> (bit % 8);
            let is_ignored = matches!(bit, 1..6 | 10 | 11);
            assert_eq!(WriteFront::parse(&changed).is_some(), is_ignored, "bit {bit}");
        }
    }

    #[test]
    fn a_length_below_the_header_is_no_write() {
        for len in 0..=14_u16 {
            let mut octets = fpdu(&write(STAG, 0, true, b"p"));
            octets[..2].copy_from_slice(&len.to_be_bytes());
            assert_eq!(WriteFront::parse(&octets), None, "{len}");
        }
        assert_eq!(WriteFront::parse(&[0x81; TAGGED_FRONT - 1]), None);
    }

    #[test]
    fn a_chain_must_end_with_the_segment() {
        let mut octets = fpdu(b"first");
        octets.extend(fpdu(b""));
        assert_eq!(fpdus(&octets), Some(vec![0..12, 12..20]));
        for cut in 1..octets.len() {
            let is_whole = cut == 12;
            assert_eq!(fpdus(&octets[..cut]).is_some(), is_whole, "{cut}");
        }
        assert_eq!(fpdus(&[0; 8 * MOST_FPDUS]).map(|found| found.len()), Some(MOST_FPDUS));
        assert_eq!(fpdus(&[0; 8 * MOST_FPDUS + 8]), None);
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_before(u32::MAX, 0) && is_before(0x8000_0001, 1) && !is_before(5, 5));
        assert!(!is_before(0, u32::MAX) && is_before(7, 8));
    }
}
