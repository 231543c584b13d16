//! The range check for tagged placement (RFC 5041 §7.1).
//!
//! One check serves every access that a peer's TO asks for: in a region of `region_len` octets
//! whose first octet has the TO `base`, may `len` octets at `to` be touched? The arithmetic is
//! unsigned and does not wrap, and a region may end with the address space: its last octet may have
//! the TO 2^64 - 1.

/// A reason why a range may not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// TO + length passes 2^64.
    #[error("the range passes 2^64")]
    Wrap,
    /// At least one octet lies outside the region.
    #[error("the range leaves the region")]
    Bounds,
}

/// Returns the offset of `to` in the region if all `len` octets at `to` lie inside. A length of 0
/// fits anywhere from the base to the end.
///
/// # Errors
/// [`RangeError::Wrap`] is checked before [`RangeError::Bounds`]: a range that wraps may otherwise
/// look as if it were inside.
#[inline]
pub fn check_range(base: u64, region_len: u64, to: u64, len: u64) -> Result<u64, RangeError> {
    // RFC 5041 §7.1: the sum of TO and length must not wrap; 2^64 exactly is still legal.
    if len > 0 && to.checked_add(len - 1).is_none() {
        return Err(RangeError::Wrap);
    }
    let offset = to.checked_sub(base).ok_or(RangeError::Bounds)?;
    match region_len.checked_sub(offset) {
        Some(room) if len <= room => Ok(offset),
        _ => Err(RangeError::Bounds),
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::Random;

    use super::*;

    /// The check in arithmetic that cannot wrap.
    fn naive(base: u64, region_len: u64, to: u64, len: u64) -> Result<u64, RangeError> {
        let [base, region_len, to, len] = [base, region_len, to, len].map(u128::from);
        if to + len > 1 << 64 {
            return Err(RangeError::Wrap);
        }
        if to < base || to + len > base + region_len {
            return Err(RangeError::Bounds);
        }
        Ok(u64::try_from(to - base).unwrap())
    }

    #[test]
    fn a_range_that_ends_with_the_space_is_legal() {
        // RFC 5041 §7.1
        let base = 0xffff_ffff_ffff_ff00;
        assert_eq!(check_range(base, 256, u64::MAX, 1), Ok(255));
        assert_eq!(check_range(base, 256, base, 256), Ok(0));
        assert_eq!(check_range(base, 256, u64::MAX, 2), Err(RangeError::Wrap));
    }

    #[test]
    fn a_wrap_into_the_region_is_a_wrap() {
        // RFC 5041 §7.1: only in arithmetic that wraps is 2^64 - 2 + 4 equal to 2.
        assert_eq!(check_range(0x10000, 0x2000, u64::MAX - 1, 4), Err(RangeError::Wrap));
    }

    #[test]
    fn one_octet_outside_is_outside() {
        // RFC 5041 §7.1
        assert_eq!(check_range(0x10000, 0x2000, 0xffff, 4), Err(RangeError::Bounds));
        assert_eq!(check_range(0x10000, 0x2000, 0x11ffd, 4), Err(RangeError::Bounds));
        assert_eq!(check_range(0x10000, 0x2000, 0x12000, 1), Err(RangeError::Bounds));
        assert_eq!(check_range(0x10000, 0x2000, 0x11ffc, 4), Ok(0x1ffc));
    }

    #[test]
    fn the_predicate_agrees_with_arithmetic_that_cannot_wrap() {
        // RFC 5041 §7.1
        let mut random = Random::new(1);
        let mut inside = 0u32;
        for _ in 0..1_000_000 {
            let base = edgy(&mut random);
            // No region passes the end of the space.
            let region_len = edgy(&mut random).min(u64::MAX - base);
            let to = if random.number() & 1 == 0 {
                edgy(&mut random)
            } else {
                base.wrapping_add(edgy(&mut random))
            };
            let len = edgy(&mut random);
            let got = check_range(base, region_len, to, len);
            assert_eq!(got, naive(base, region_len, to, len), "{base:#x} {region_len:#x} {to:#x} {len:#x}");
            inside += u32::from(got.is_ok());
        }
        assert!((1_000..900_000).contains(&inside), "{inside} ranges inside make a poor test");
    }

    /// A number near 0, near 2^64, or anywhere.
    fn edgy(random: &mut Random) -> u64 {
        let near = random.number() % 5;
        match random.number() % 4 {
            0 => near,
            1 => u64::MAX - near,
            2 => random.number() % 4096,
            _ => random.number() >> (random.number() % 64),
        }
    }
}
