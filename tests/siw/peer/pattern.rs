//! The data: a function of seed, connection, end, item and position.

use crate::options::End;

/// The octet in memory that nobody has written.
pub const FILL: u8 = 0xa5;

/// A word of them.
pub const FILL_WORD: u64 = u64::from_ne_bytes([FILL; 8]);

/// The number of the item that stands for private data.
pub const PRIVATE: u64 = 0x3fff_ffff;

pub fn pattern(seed: u64, end: End, item: u64, len: usize) -> Vec<u8> {
    let first = (end as u64) << 62 | item << 32;
    let words = (0..len.div_ceil(8) as u64).flat_map(|word| scramble(seed, first | word).to_le_bytes());
    words.take(len).collect()
}

fn scramble(seed: u64, place: u64) -> u64 {
    let v = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place);
    let v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ v >> 31
}
