//! The CRC of the FPDU (RFC 5044 §4.4): CRC-32C as iSCSI's digests use it (RFC 3720 §12.1).
//!
//! The value is the one that every CRC-32C library gives. On the wire its least significant octet
//! goes first (`to_le_bytes()`).

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC-32C of `data`.
///
/// ```
/// assert_eq!(rddp_mpa::crc32c(b"123456789"), 0xe306_9283);
/// assert_eq!(rddp_mpa::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]); // as it is sent
/// ```
#[inline]
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// Continues a CRC-32C: `crc` covers some octets, the result covers them and `data` behind them.
/// The CRC of no octets is 0.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    // For no octets, as of a pad, the library would cost as much as for a short message.
    if data.is_empty() {
        return crc;
    }
    // The library continues from the value of its register, which is the CRC before the final
    // inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    digest.finalize() as u32
}
