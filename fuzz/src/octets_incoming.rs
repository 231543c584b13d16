//! `octets_incoming`: any octets as what a peer of a byte stream sends (RFC 5044 §6, RFC 5041 §5,
//! RFC 5040 §5).
//!
//! The first two octets are those of `mpa_deframe`, the third is the seed of the cuts. However the
//! octets are cut, and however little room there is, the stream delivers the same octets, owes the
//! same answers, stands at the same position and ends for the same reason.

#[path = "../../octets/tests/stream/told.rs"]
mod told;

use rddp_mpa::Framing;
use rddp_octets::{Position, Terms};
use rddp_test_support::Random;

use crate::mpa_deframe::{flag, mend};
use told::Told;

/// Runs one input; the module says how it is read.
pub fn run(octets: &[u8]) {
    let [flags, at, seed, octets @ ..] = octets else { return };
    let framing = Framing { crc: flags & flag::CRC != 0, markers: flags & flag::MARKERS != 0 };
    let at = Position { octets: u64::from(*at) * 4, rtr_read: flags & RTR_READ != 0, ..Position::FIRST };
    let terms = Terms { crc: framing.crc, markers: framing.markers, ird: 4, ord: 1 };
    let mut octets = octets.to_vec();
    mend(&mut octets, framing, at.octets, *flags);
    let mut random = Random::new((*seed).into());
    let at_once = Told::of(&terms, at, &octets, || 1 << 20);
    assert_eq!(Told::of(&terms, at, &octets, || 1), at_once);
    assert_eq!(Told::of(&terms, at, &octets, || random.below(900)), at_once);
}

/// Bit of the first octet: this end's RTR was a Read.
const RTR_READ: u8 = 16;
