//! The range check of tagged placement (RFC 5041 §7.1).
//!
//! One predicate, used for every access that a peer's TO asks for: in a region of `region_len` octets whose first octet
//! has TO `base`, may `len` octets at `to` be touched? Unsigned, without wrapping, and with the end of the space legal: the
//! last octet of a region may have TO 2^64 - 1.

/// Why a range may not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// TO + length passes 2^64.
    #[error("the range passes 2^64")]
    Wrap,
    /// Some octet lies outside the region.
    #[error("the range leaves the region")]
    Bounds,
}

/// The offset in the region of `len` octets at `to`. `len = 0` fits anywhere from the base to the end.
///
/// # Errors
/// [`RangeError::Wrap`] before [`RangeError::Bounds`]: a range that wraps may look as if it were inside.
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
