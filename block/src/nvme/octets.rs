//! Numbers in octets, little-endian. All places are within what the caller has by its type.

pub(super) fn le16(octets: &[u8], at: usize) -> u16 {
    le(octets, at, 2) as u16
}

pub(super) fn le32(octets: &[u8], at: usize) -> u32 {
    le(octets, at, 4) as u32
}

pub(super) fn le64(octets: &[u8], at: usize) -> u64 {
    le(octets, at, 8)
}

fn le(octets: &[u8], at: usize, len: usize) -> u64 {
    octets[at..at + len].iter().rev().fold(0, |value, octet| value << 8 | u64::from(*octet))
}

/// Writes octets at their place.
pub(super) fn put<const N: usize>(octets: &mut [u8], at: usize, value: [u8; N]) {
    octets[at..at + N].copy_from_slice(&value);
}

/// Writes a text at the front of a field, and `filler` behind it. What is too long is cut.
pub(super) fn put_text(field: &mut [u8], text: &str, filler: u8) {
    field.fill(filler);
    for (octet, from) in field.iter_mut().zip(text.bytes()) {
        *octet = from;
    }
}

/// Returns the text of a field, without the zeroes and spaces behind it.
pub(super) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|octet| *octet == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
}
