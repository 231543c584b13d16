//! Octets and numbers that are the same in each run.

/// Returns octets that show where they belong: neighbours differ, and so do the pages of 256.
#[must_use]
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    pattern_from(0, len).into_iter().map(|octet| octet.wrapping_add(seed)).collect()
}

/// Returns octets of an endless [`pattern`] of seed 0, from `from` on.
#[must_use]
pub fn pattern_from(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8)).collect()
}

/// Returns pseudo-random octets from this seed.
#[must_use]
pub fn random_octets(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..count).map(|_| (random.number() >> 32) as u8).collect()
}

/// Pseudo-random numbers from a seed (Marsaglia's xorshift of 64 bits).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((self.number() >> 16) % limit.max(1) as u64) as usize
    }

    /// Returns a number of octets that arrive at once out of `len`: one, a few, some or all; 0 of
    /// 0.
    pub fn chunk(&mut self, len: usize) -> usize {
        let some = self.below(len) + 1;
        [1, some.min(17), some, len][self.below(4)].min(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_never_empty_and_never_too_long() {
        let mut random = Random::new(1);
        assert_eq!(random.chunk(0), 0);
        for len in (1..100).cycle().take(10_000) {
            assert!((1..=len).contains(&random.chunk(len)));
        }
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        assert_eq!(random_octets(1, 100), random_octets(1, 100));
        assert_ne!(random_octets(1, 100), random_octets(2, 100));
    }

    #[test]
    fn neighbours_and_pages_differ() {
        let octets = pattern(1 << 12, 3);
        assert!(octets.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(octets.windows(257).all(|page| page[0] != page[256]));
        assert_eq!(pattern_from(1000, 100), pattern(1100, 0)[1000..]);
    }
}
