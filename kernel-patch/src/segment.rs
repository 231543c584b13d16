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

/// Octets of length field, control octets, a word of the ULP, QN, MSN and MO (RFC 5041 §4.3).
pub const UNTAGGED_FRONT: usize = 20;

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

/// The segment that an FPDU carries, as far as it has payload for registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Segment of an RDMA Write.
    Write,
    /// Segment of an RDMA Read Response.
    Response,
    /// Segment of a Send of any type.
    Send,
}

/// The front of an FPDU that has such payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// The segment.
    pub kind: Kind,
    /// STag of what is tagged; the word of the ULP of a Send.
    pub stag: Stag,
    /// Tagged Offset of what is tagged; MSN in the high half and MO of a Send.
    pub to: u64,
    /// Octets of payload, at least one.
    pub len: usize,
    /// The segment is the last of its message.
    pub last: bool,
}

impl Front {
    /// Octets of such a front.
    #[must_use]
    pub const fn octets(&self) -> usize {
        match self.kind {
            Kind::Write | Kind::Response => TAGGED_FRONT,
            Kind::Send => UNTAGGED_FRONT,
        }
    }

    /// Reads the first octets of an FPDU. `None` if there is no payload, no segment that has any
    /// for registered memory (RFC 5041 §4.1, RFC 5040 §4.1), or too few octets to tell. Reserved
    /// bits are not looked at.
    ///
    /// ```
    /// use rddp_kernel_patch::segment::{Front, Kind};
    /// // 100 octets for Tagged Offset 5 of STag 0x01020304.
    /// let octets = [0, 114, 0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5];
    /// let front = Front::parse(&octets).unwrap();
    /// assert_eq!((front.kind, front.to, front.len, front.last), (Kind::Write, 5, 100, true));
    /// ```
    #[must_use]
    pub fn parse(fpdu: &[u8]) -> Option<Self> {
        let [l0, l1, ddp, rdmap, stag @ .., _, _, _, _, _, _, _, _] = fpdu.first_chunk::<TAGGED_FRONT>()?;
        let is_tagged = ddp & 0x80 != 0;
        let (kind, to) = match (rdmap & 0xcf, is_tagged) {
            (0x40, true) => (Kind::Write, fpdu[8..].first_chunk()?),
            (0x42, true) => (Kind::Response, fpdu[8..].first_chunk()?),
            (0x43..=0x46, false) if fpdu[8..12] == [0; 4] => (Kind::Send, fpdu[12..].first_chunk()?),
            _ => return None,
        };
        let mut front = Self {
            kind,
            stag: Stag(u32::from_be_bytes(*stag)),
            to: u64::from_be_bytes(*to),
            len: 0,
            last: ddp & 0x40 != 0,
        };
        let ulpdu_len = usize::from(u16::from_be_bytes([*l0, *l1]));
        front.len = (LENGTH_LEN + ulpdu_len).checked_sub(front.octets())?;
        (ddp & 3 == 1 && front.len > 0).then_some(front)
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::segment::{response, send, write};

    use super::*;

    const STAG: Stag = Stag(0x1122_3344);

    fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
        let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
        octets.extend(ulpdu);
        octets.resize(octets.len().next_multiple_of(4) + 4, 0);
        octets
    }

    #[test]
    fn segments_are_read_as_they_were_framed() {
        for len in [1, 2, 3, 1_000] {
            let payload = vec![7; len];
            let tagged = 0x1_0000_0005;
            for (ulpdu, kind, stag, to) in [
                (write(STAG, tagged, true, &payload), Kind::Write, STAG, tagged),
                (response(STAG, tagged, true, &payload), Kind::Response, STAG, tagged),
                (send(9, 16, true, &payload), Kind::Send, Stag(0), 9 << 32 | 16),
            ] {
                let octets = fpdu(&ulpdu);
                assert_eq!(Front::parse(&octets), Some(Front { kind, stag, to, len, last: true }));
                assert!(
                    fpdus(&octets).is_some_and(|found| found.len() == 1 && found[0] == (0..octets.len()))
                );
            }
        }
    }

    /// RFC 5041 §4.1, RFC 5040 §4.1: other versions and other opcodes have nothing for registered
    /// memory. Reserved bits are not looked at.
    #[test]
    fn each_bit_of_the_control_octets_counts_as_it_should() {
        let read = |ulpdu: &[u8], bit: usize| {
            let mut octets = fpdu(ulpdu);
            octets[2 + bit / 8] ^= 0x80 >> (bit % 8);
            Front::parse(&octets).map(|front| front.kind)
        };
        for bit in 0..16 {
            let ignored = matches!(bit, 1..6 | 10 | 11);
            let write_as = if bit == 14 { Some(Kind::Response) } else { ignored.then_some(Kind::Write) };
            assert_eq!(read(&write(STAG, 0, false, &[7; 40]), bit), write_as, "bit {bit}");
            let response_as = if bit == 14 { Some(Kind::Write) } else { ignored.then_some(Kind::Response) };
            assert_eq!(read(&response(STAG, 0, false, &[7; 40]), bit), response_as, "bit {bit}");
            // Opcode 3 is 2, 1 and 7 with one bit changed, and none of these is a Send.
            let send_as = ignored.then_some(Kind::Send);
            assert_eq!(read(&send(1, 0, false, &[7; 40]), bit), send_as, "bit {bit}");
        }
    }

    #[test]
    fn sends_are_of_four_types_and_of_queue_0() {
        for opcode in 0..16 {
            let mut octets = fpdu(&send(1, 0, true, b"payload"));
            octets[3] = 0x40 | opcode;
            assert_eq!(Front::parse(&octets).is_some(), (3..=6).contains(&opcode), "{opcode}");
        }
        for at in 8..12 {
            let mut octets = fpdu(&send(1, 0, true, b"payload"));
            octets[at] = 1;
            assert_eq!(Front::parse(&octets), None, "octet {at}");
        }
    }

    #[test]
    fn a_length_below_the_header_has_no_payload() {
        for (ulpdu, header) in [(write(STAG, 0, true, b"p"), 14_u16), (send(1, 0, true, b"p"), 18)] {
            for len in 0..=header + 1 {
                let mut octets = fpdu(&ulpdu);
                octets[..2].copy_from_slice(&len.to_be_bytes());
                assert_eq!(Front::parse(&octets).is_some(), len == header + 1, "{len}");
            }
        }
        assert_eq!(Front::parse(&[0x81; TAGGED_FRONT - 1]), None);
        assert_eq!(Front::parse(&fpdu(&send(1, 0, true, b"p"))[..UNTAGGED_FRONT - 1]), None);
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
