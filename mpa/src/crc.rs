//! The CRC of the FPDU (RFC 5044 §4.4): CRC-32C as iSCSI's digests use it (RFC 3720 §12.1).
//!
//! The value is what every CRC-32C library gives; on the wire its least significant octet goes first, which is
//! `to_le_bytes()`.

/// CRC-32C of `data`.
///
/// ```
/// assert_eq!(rddp_mpa::crc32c(b"123456789"), 0xe306_9283);
/// assert_eq!(rddp_mpa::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]); // as it is sent
/// ```
#[inline]
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// CRC-32C of what `crc` was computed over, followed by `data`. The CRC of nothing is 0.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, data)
}
