//! `octets_incoming`: any octets as what a peer of a byte stream sends (RFC 5044 §6, RFC 5041 §5,
//! RFC 5040 §5).
//!
//! The first two octets are those of `mpa_deframe`, the third is the seed of the cuts. However the
//! octets are cut, and however little room there is, the stream delivers the same octets, owes the
//! same answers, stands at the same position and ends for the same reason.

use std::convert::Infallible;

use rddp_mpa::Framing;
use rddp_octets::{Batch, Incoming, Plain, Position, Stop, Terms};
use rddp_test_support::Random;

use crate::mpa_deframe::{flag, mend};

/// Everything that a stream has told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    octets: Vec<u8>,
    at: Position,
    replies: usize,
    end: Option<Stop<Infallible>>,
}

/// Runs one input; the module says how it is read.
pub fn run(octets: &[u8]) {
    let [flags, at, seed, octets @ ..] = octets else { return };
    let framing = Framing { crc: flags & flag::CRC != 0, markers: flags & flag::MARKERS != 0 };
    let at = Position { octets: u64::from(*at) * 4, rtr_read: flags & RTR_READ != 0, ..Position::FIRST };
    let terms = Terms { crc: framing.crc, markers: framing.markers, ird: 4, ord: 1 };
    let mut octets = octets.to_vec();
    mend(&mut octets, framing, at.octets, *flags);
    let mut random = Random::new((*seed).into());
    let at_once = take(&terms, at, &octets, || 1 << 20);
    assert_eq!(take(&terms, at, &octets, || 1), at_once);
    assert_eq!(take(&terms, at, &octets, || random.below(900)), at_once);
}

/// Takes octets as they arrive, `next()` more at a time, into room for `next()`.
fn take(terms: &Terms, at: Position, octets: &[u8], mut next: impl FnMut() -> usize) -> Told {
    let (mut told, mut arrived, mut front) = (Told { at, ..Told::default() }, 0, 0);
    while told.end.is_none() && arrived < octets.len() {
        arrived = octets.len().min(arrived + next());
        told.end = look(terms, &octets[..arrived], &mut front, &mut told, &mut next);
    }
    told
}

/// Takes whole FPDUs from `front` on; returns the end, if they have one.
fn look(
    terms: &Terms,
    arrived: &[u8],
    front: &mut usize,
    told: &mut Told,
    next: &mut impl FnMut() -> usize,
) -> Option<Stop<Infallible>> {
    loop {
        // Those with markers are changed where they are taken.
        let (mut seen, mut memory) = (arrived[*front..].to_vec(), vec![0; next().min(1 << 14)]);
        let mut incoming = Incoming::new(terms, &told.at, 2000, &Plain);
        let (all, mut room) = (memory.len(), &mut memory[..]);
        let batch = Batch::of(&mut incoming, &mut seen, &mut room, 0, &mut Plain);
        let filled = all - room.len();
        told.octets.extend_from_slice(&memory[..filled]);
        if let Some(left) = batch.left {
            told.octets.extend_from_slice(&seen[left.from..left.to]);
        }
        *front += batch.used;
        told.at = batch.at.unwrap_or(told.at);
        told.replies += batch.replies.headers().count();
        match batch.stop {
            Stop::Full => {}
            Stop::Need(total) => {
                assert!(*front + total > arrived.len(), "it was all there");
                return None;
            }
            stop => return Some(stop),
        }
    }
}

/// Bit of the first octet: this end's RTR was a Read.
const RTR_READ: u8 = 16;
