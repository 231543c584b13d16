//! Choosing STags that a peer cannot guess (RFC 5040 §8.1.1, RFC 5042 §6.1.1).
//!
//! An STag is a 24-bit index and an 8-bit key. Indices are drawn from the system's random numbers
//! over the whole 24 bits, never 0. One that has been used comes back only after at least
//! [`GENERATION`] others have been given out.
#![forbid(unsafe_code)]

use rddp_ddp::Stag;

use super::MemError;

/// Number of different indices.
const INDICES: usize = 1 << 24;
/// Number of indices given out before the oldest may be used again.
const GENERATION: usize = INDICES / 4;

/// Returns the index part of an STag.
pub(super) fn index(stag: Stag) -> u32 {
    stag.0 >> 8
}

/// A source of unguessable STags.
pub(super) struct StagSource {
    random: Random,
    /// Indices given out in this generation and in the one before.
    recent: [IndexSet; 2],
    generation: usize,
}

impl StagSource {
    pub(super) fn new() -> Self {
        Self::with_generation(GENERATION)
    }

    fn with_generation(generation: usize) -> Self {
        Self { random: Random::new(), recent: [IndexSet::new(), IndexSet::new()], generation }
    }

    /// Returns a new STag whose index `usable` accepts. About half of all indices must be usable,
    /// or this takes long.
    pub(super) fn draw(&mut self, mut usable: impl FnMut(u32) -> bool) -> Result<Stag, MemError> {
        loop {
            let stag = Stag(self.random.next()?);
            let index = index(stag);
            if index == 0 || self.recent.iter().any(|set| set.contains(index)) || !usable(index) {
                continue;
            }
            self.note(index);
            return Ok(stag);
        }
    }

    /// Returns an STag of the same index with another key.
    pub(super) fn rekey(&mut self, stag: Stag) -> Result<Stag, MemError> {
        loop {
            let changed = Stag(stag.0 & !0xff | self.random.next()? & 0xff);
            if changed != stag {
                return Ok(changed);
            }
        }
    }

    fn note(&mut self, index: u32) {
        if self.recent[0].len == self.generation {
            self.recent.swap(0, 1);
            self.recent[0] = IndexSet::new();
        }
        self.recent[0].insert(index);
    }
}

/// A set of indices: one bit each, whose pages the system provides as they are written.
struct IndexSet {
    words: Vec<u64>,
    len: usize,
}

impl IndexSet {
    fn new() -> Self {
        Self { words: vec![0; INDICES / 64], len: 0 }
    }

    fn contains(&self, index: u32) -> bool {
        self.words[index as usize / 64] & 1 << (index % 64) != 0
    }

    fn insert(&mut self, index: u32) {
        self.words[index as usize / 64] |= 1 << (index % 64);
        self.len += 1;
    }
}

/// The system's random numbers, fetched some at a time.
struct Random {
    octets: [u8; 256],
    used: usize,
}

impl Random {
    fn new() -> Self {
        Self { octets: [0; 256], used: 256 }
    }

    fn next(&mut self) -> Result<u32, MemError> {
        if self.used == self.octets.len() {
            getrandom::fill(&mut self.octets).map_err(MemError::Random)?;
            self.used = 0;
        }
        let word: [u8; 4] = std::array::from_fn(|i| self.octets[self.used + i]);
        self.used += 4;
        Ok(u32::from_ne_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn draw_many(count: usize) -> Vec<Stag> {
        let mut source = StagSource::new();
        (0..count).map(|_| source.draw(|_| true).unwrap()).collect()
    }

    /// RFC 5042 §6.1.1: STags are sparse and hard to predict.
    #[test]
    fn successive_stags_have_no_simple_relation() {
        let stags = draw_many(10_000);
        let differences: HashSet<u32> = stags.windows(2).map(|w| w[1].0.wrapping_sub(w[0].0)).collect();
        let flips: HashSet<u32> = stags.windows(2).map(|w| w[1].0 ^ w[0].0).collect();
        // Of 9,999 random 32-bit differences about 0.01 pairs are equal.
        assert!(differences.len() > 9_990, "{} different differences", differences.len());
        assert!(flips.len() > 9_990, "{} different exclusive-ors", flips.len());
    }

    #[test]
    fn every_bit_of_an_stag_is_set_half_of_the_time() {
        let stags = draw_many(10_000);
        for bit in 0..32 {
            let set = stags.iter().filter(|stag| stag.0 >> bit & 1 == 1).count();
            // Ten standard deviations of 50 each.
            assert!((4_500..5_500).contains(&set), "bit {bit} set in {set} of 10,000");
        }
    }

    #[test]
    fn consecutive_stags_are_not_correlated_bit_by_bit() {
        let stags = draw_many(10_000);
        for bit in 0..32 {
            let same = stags.windows(2).filter(|w| (w[0].0 ^ w[1].0) >> bit & 1 == 0).count();
            assert!((4_500..5_500).contains(&same), "bit {bit} repeated in {same} of 9,999");
        }
    }

    #[test]
    fn index_zero_is_never_given_out() {
        let mut source = StagSource::new();
        source.random = Random { octets: [0; 256], used: 0 };
        source.random.octets[8..12].copy_from_slice(&0x0000_0100_u32.to_ne_bytes());
        assert_eq!(source.draw(|_| true).unwrap(), Stag(0x100));
    }

    /// RFC 5042 §6.1.1: a freed STag comes back as late as possible.
    #[test]
    fn an_index_is_not_reused_before_a_generation_has_passed() {
        const GENERATION: usize = 1_000;
        let mut source = StagSource::with_generation(GENERATION);
        let first = index(source.draw(|_| true).unwrap());
        let is_kept = |source: &StagSource| source.recent.iter().any(|set| set.contains(first));
        for _ in 0..2 * GENERATION - 1 {
            assert!(is_kept(&source));
            assert_ne!(index(source.draw(|_| true).unwrap()), first);
        }
        source.draw(|_| true).unwrap();
        assert!(!is_kept(&source), "free again after two generations");
    }

    #[test]
    fn an_index_of_this_generation_or_the_last_is_passed_over() {
        let mut source = StagSource::with_generation(1);
        source.random = Random { octets: [0; 256], used: 0 };
        for (at, index) in
            [0x0000_0100_u32, 0x0000_01ff, 0x0000_0200, 0x0000_0155, 0x0000_0300].iter().enumerate()
        {
            source.random.octets[4 * at..4 * at + 4].copy_from_slice(&index.to_ne_bytes());
        }
        assert_eq!(source.draw(|_| true).unwrap(), Stag(0x100));
        assert_eq!(source.draw(|_| true).unwrap(), Stag(0x200));
        assert_eq!(source.draw(|_| true).unwrap(), Stag(0x300));
    }

    #[test]
    fn another_key_keeps_the_index() {
        let mut source = StagSource::new();
        let mut stag = source.draw(|_| true).unwrap();
        for _ in 0..1_000 {
            let changed = source.rekey(stag).unwrap();
            assert_ne!(changed, stag);
            assert_eq!(index(changed), index(stag));
            stag = changed;
        }
    }
}
