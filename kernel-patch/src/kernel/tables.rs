//! Tables of CRC-32C, by which the program sums eight octets at a time (RFC 5044 §4.4).

use std::sync::atomic::Ordering;

use super::sys::Shared;

/// Octets of all tables.
pub(super) const LEN: usize = TABLES * 256 * size_of::<u32>();
const TABLES: usize = 8;

/// The polynomial, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Stores the tables: of each octet the CRC, then that with a zero behind it, and so on.
pub(super) fn fill(tables: &Shared) {
    let of = |table: usize, octet: usize| tables.u32((octet * TABLES + table) * size_of::<u32>());
    for octet in 0..256 {
        let shift = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
        of(0, octet).store((0..8).fold(octet as u32, shift), Ordering::Relaxed);
    }
    for table in 1..TABLES {
        for octet in 0..256 {
            let before = of(table - 1, octet).load(Ordering::Relaxed);
            let zero = of(0, before as usize & 0xff).load(Ordering::Relaxed);
            of(table, octet).store(before >> 8 ^ zero, Ordering::Relaxed);
        }
    }
}
