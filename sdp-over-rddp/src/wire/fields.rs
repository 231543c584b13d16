//! Numbers in octets: big-endian fields at fixed places.

/// Returns the `N` octets at `at`; those that are not there read as 0, as no caller lets happen.
pub(super) fn octets<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(super) fn get_u16(from: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(octets(from, at))
}

pub(super) fn get_u32(from: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets(from, at))
}

pub(super) fn get_u64(from: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets(from, at))
}

/// Writes `value` at `at`.
pub(super) fn put<const N: usize>(out: &mut [u8], at: usize, value: [u8; N]) {
    out[at..at + N].copy_from_slice(&value);
}
