//! The messages between the two processes (JSON in small Sends), and the octets that they use.

use rddp_command::failure::Failure;
use rddp_rnic::{MemoryRegion, Remote, Stag};
use serde::{Deserialize, Serialize};

/// Octets of the longest message.
pub(super) const MAX: usize = 1 << 20;

/// Octets of the longest request or answer.
pub(super) const TALK: usize = 1024;

/// Octets of each region: more than the longest message, so that octets beside it can be checked.
pub(super) const REGION: usize = MAX + 64;

/// The value of octets to which nothing was written.
pub(super) const GUARD: u8 = 0xee;

/// The offset of the word for atomics in its region.
pub(super) const WORD_AT: usize = 8;
pub(super) const WORD_REGION: usize = 64;

/// The seed of the octets that the passive process lets the active one read.
pub(super) const READ_SEED: u64 = 77;

/// A region of the passive process that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Which {
    Target,
    /// A region that a Send will invalidate.
    Lent(usize),
}

/// A request of the active process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// A message of this length comes next: compare it.
    Expect { len: usize, seed: u64 },
    /// A Write should have put these octets there, and nothing beside them: compare the whole
    /// region, then wipe it.
    Written { which: Which, at: usize, len: usize, seed: u64 },
    /// Tell the value of the word.
    Word,
    /// Tell whether the region's STag is valid.
    IsValid { which: Which },
}

/// An answer of the passive process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The regions of the passive process; the first message on a connection.
    Memory {
        target: RemoteMemory,
        source: RemoteMemory,
        word: RemoteMemory,
        lent: Vec<RemoteMemory>,
    },
    /// A receive for the expected message is posted.
    Ready,
    /// The expected message has arrived.
    Arrived {
        len: usize,
        solicited: bool,
        invalidated: Option<u32>,
        immediate: Option<[u8; 8]>,
    },
    /// All octets are as they should be.
    Same,
    /// At least one octet is not as it should be.
    Differs {
        how: String,
    },
    Word {
        value: u64,
    },
    Valid {
        valid: bool,
    },
}

/// A region, as named to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RemoteMemory {
    stag: u32,
    to: u64,
}

impl RemoteMemory {
    pub(super) fn of(region: &MemoryRegion) -> Self {
        let Remote { stag, to } = region.remote(0);
        RemoteMemory { stag: stag.0, to }
    }

    pub(super) fn stag(self) -> Stag {
        Stag(self.stag)
    }

    pub(super) fn at(self, offset: usize) -> Remote {
        Remote { stag: self.stag(), to: self.to }.at(offset as u64)
    }
}

/// Returns octets that differ by place and by message (`seed`).
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Compares `len` octets of `region` from `at` on with the pattern, and all others with the guard
/// value.
pub(super) fn compare(
    region: &MemoryRegion,
    at: usize,
    len: usize,
    seed: u64,
) -> Result<Option<String>, Failure> {
    let mut want = vec![GUARD; region.len()];
    let fits = at.checked_add(len).and_then(|end| want.get_mut(at..end));
    let Some(written) = fits else { return Ok(Some("that is beyond the region".into())) };
    written.copy_from_slice(&pattern(seed, len));
    Ok(difference(&want, &region.read(0, region.len())?))
}

/// Describes the first difference of two buffers.
pub(super) fn difference(want: &[u8], got: &[u8]) -> Option<String> {
    if want == got {
        return None;
    }
    let at = want.iter().zip(got).position(|(want, got)| want != got);
    Some(match at {
        Some(at) => format!("octet {at} is {:#04x}, not {:#04x}", got[at], want[at]),
        None => format!("{} octets, not {}", got.len(), want.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_where_it_is() {
        let octets = pattern(1, 100);
        assert_eq!(difference(&octets, &octets), None);
        let mut other = octets.clone();
        other[57] ^= 1;
        assert!(difference(&octets, &other).unwrap().starts_with("octet 57 is "));
        assert_eq!(difference(&octets, &octets[..99]).unwrap(), "99 octets, not 100");
    }

    #[test]
    fn messages_of_different_seeds_are_different_throughout() {
        let (one, other) = (pattern(1, 4096), pattern(2, 4096));
        assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 64);
    }

    /// Every message fits into the receives for it, and is short enough to be sent inline.
    #[test]
    fn every_message_fits_into_its_receive() {
        let memory = RemoteMemory { stag: u32::MAX, to: u64::MAX };
        let answer = Answer::Memory { target: memory, source: memory, word: memory, lent: vec![memory; 2] };
        let max_inline = rddp_rnic::Rnic::open().unwrap().capabilities().max_inline;
        assert!(serde_json::to_vec(&answer).unwrap().len() <= max_inline);
    }
}
