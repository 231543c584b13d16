//! `ddp_segment`: any octets as a DDP segment, and the arithmetic of segments (RFC 5041 chapters 4,
//! 5 and 7).

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::{
    Header, Msn, Qn, RangeError, SegmentError, Stag, TaggedRepr, TaggedRx, UntaggedRepr, UntaggedRx,
    check_range, cut,
};
use rddp_rdmap::parse_header;

use crate::input::inputs;

inputs! {
    /// Numbers to calculate with.
    pub struct Numbers {
        /// Octets of a message.
        total: u32,
        /// Octets of a ULPDU.
        mulpdu: u16,
        /// First TO of a region.
        base: u64,
        /// Octets of the region.
        region_len: u64,
        /// First TO of an access.
        to: u64,
        /// Octets of the access.
        len: u32,
    }
}

/// Runs one input, which is a segment and numbers.
pub fn run(octets: &[u8]) {
    read_header(octets);
    if let Ok(numbers) = Numbers::arbitrary(&mut Unstructured::new(octets)) {
        cut_message(&numbers);
        range(&numbers);
    }
}

fn read_header(octets: &[u8]) {
    let parsed = Header::parse(octets);
    assert_eq!(parsed, naive(octets));
    match parsed {
        Ok(header) => {
            let written = header.octets();
            assert_eq!(written.len(), header.len());
            assert_eq!(Header::parse(&written), Ok(header));
            // RFC 5041 §4.1: the header is unchanged except for the reserved bits.
            assert_eq!(written[0], octets[0] & 0xc3);
            assert_eq!(written[1..], octets[1..header.len()]);
            assert!(!header.to_string().is_empty());
            assert_eq!(parse_header(octets), Ok(header));
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(parse_header(octets).unwrap_err().code().name().is_some());
        }
    }
}

/// Reads a header independently (RFC 5041 §4.2, §4.3).
fn naive(octets: &[u8]) -> Result<Header, SegmentError> {
    let number = |from: usize, len: usize| {
        octets[from..from + len].iter().fold(0u64, |number, octet| number << 8 | u64::from(*octet))
    };
    let tagged = !octets.is_empty() && octets[0] >= 0x80;
    let need = if tagged { 14 } else { 18 };
    if octets.len() < need {
        return Err(SegmentError::TooShort { len: octets.len(), tagged });
    }
    let version = octets[0] % 4;
    if version != 1 {
        return Err(SegmentError::Version { tagged, version });
    }
    let last = octets[0] / 0x40 % 2 == 1;
    if tagged {
        let (rsvd_ulp, stag, to) = (octets[1], Stag(number(2, 4) as u32), number(6, 8));
        return Ok(Header::Tagged(TaggedRepr { last, rsvd_ulp, stag, to }));
    }
    let rsvd_ulp = [octets[1], octets[2], octets[3], octets[4], octets[5]];
    let (qn, msn) = (Qn(number(6, 4) as u32), Msn(number(10, 4) as u32));
    Ok(Header::Untagged(UntaggedRepr { last, rsvd_ulp, qn, msn, mo: number(14, 4) as u32 }))
}

/// Cuts and receives a message: both models accept every segment, and know the message's length at
/// the end.
fn cut_message(numbers: &Numbers) {
    // The message has at most a thousand segments, which is enough.
    let mulpdu = usize::from(numbers.mulpdu).max(19);
    let total = u64::from(numbers.total) % (1000 * (mulpdu as u64 - 18));
    let (mut untagged, mut tagged) = (UntaggedRx::new(), TaggedRx::new());
    let first_to = numbers.to.min(u64::MAX - total);
    let mut offset = 0;
    loop {
        let cut = cut(total, offset, mulpdu, UntaggedRepr::LEN);
        assert_eq!(cut.offset, offset);
        assert!(cut.len + UntaggedRepr::LEN <= mulpdu && (cut.len > 0 || total == 0));
        let header = UntaggedRepr {
            last: cut.last,
            rsvd_ulp: [0x43, 0, 0, 0, 0],
            qn: Qn(0),
            msn: Msn::FIRST,
            mo: cut.offset as u32,
        };
        untagged.check_msn(&header).unwrap();
        untagged.check_offset(&header, cut.len, total).unwrap();
        let length = untagged.commit(&header, cut.len);
        let header =
            TaggedRepr { last: cut.last, rsvd_ulp: 0x40, stag: Stag(numbers.len), to: first_to + offset };
        tagged.check(&header, cut.len).unwrap();
        tagged.commit(&header, cut.len);
        offset += cut.len as u64;
        assert_eq!(length, cut.last.then_some(total as u32));
        if cut.last {
            break;
        }
    }
    assert_eq!(offset, total);
    assert!(!untagged.is_open() && !tagged.is_open());
}

/// Checks that the range check agrees with arithmetic that cannot wrap (RFC 5041 §7.1).
fn range(numbers: &Numbers) {
    let Numbers { base, region_len, to, len, .. } = *numbers;
    let region_len = region_len.min(u64::MAX - base);
    // A TO far from the region tests little: every second one is near it.
    let to = if to % 2 == 0 { to } else { base.wrapping_add(to >> 1) };
    let wide = |number: u64| u128::from(number);
    let wanted = if wide(to) + wide(len.into()) > 1 << 64 {
        Err(RangeError::Wrap)
    } else if to < base || wide(to) + wide(len.into()) > wide(base) + wide(region_len) {
        Err(RangeError::Bounds)
    } else {
        Ok(to - base)
    };
    assert_eq!(check_range(base, region_len, to, len.into()), wanted);
}
