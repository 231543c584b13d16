//! `octets_duplex`: the two ends of a byte stream over a TCP that takes and delivers what the input
//! says, and whose octets somebody may change (RFC 5044 §6, §7.1.2).
//!
//! What was put is what is taken, and both ends end. Where octets were changed and CRCs are on, a
//! part of what was put is taken. Nothing is owed behind an end that was told.

#[path = "../../octets/tests/stream/ends.rs"]
mod ends;

use arbitrary::{Arbitrary, Unstructured};
use rddp_mpa::Framing;
use rddp_octets::End;
use rddp_test_support::Fpdus;

use crate::input::{Octets, Tail, choice, inputs};
use ends::{Side, agreed, options};

inputs! {
    /// A connection, and the events on it.
    pub struct Input {
        /// CRC and markers that each end asks for.
        framing: u8,
        /// EMSS of each end, from 100 on.
        emss: u16,
        /// The events.
        steps: Tail<Step, 200>,
    }
}

choice! {
    /// An event at an end.
    pub enum Step {
        /// The program puts octets.
        Put { end: bool, octets: u16 },
        /// TCP takes octets.
        Pay { end: bool, octets: u16 },
        /// TCP delivers octets.
        Deliver { end: bool, octets: u16 },
        /// The program takes octets.
        Take { end: bool, room: u16 },
        /// The program sends nothing more.
        Finish { end: bool },
        /// Somebody changes what is on the way to the end.
        Change { end: bool, change: Change },
    }
}

choice! {
    /// A change of octets on the way.
    pub enum Change {
        /// A bit is another.
        Damage { at: u16, bit: u8 },
        /// There are more octets.
        Insert { at: u16, octets: Octets },
        /// There is another FPDU behind all, whose CRC is good.
        Frame { ulpdu: Octets },
        /// TCP ends behind so many octets.
        Cut { at: u16 },
    }
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let bit = |at: u8| input.framing >> at & 1 == 1;
    let agreed = agreed([options(bit(0), bit(1)), options(bit(2), bit(3))]);
    let mut sides = agreed.map(|agreed| Side::new(&agreed));
    for side in &mut sides {
        side.duplex.set_emss(100 + usize::from(input.emss));
    }
    let mut changed = false;
    for step in &input.steps.0 {
        match *step {
            Step::Put { end, octets } => sides[usize::from(end)].put(octets.into()),
            Step::Pay { end, octets } => pay(&mut sides, end, octets.into()),
            Step::Deliver { end, octets } => sides[usize::from(end)].deliver(octets.into()),
            Step::Take { end, room } => sides[usize::from(end)].take(room.into()),
            Step::Finish { end } => sides[usize::from(end)].duplex.finish(),
            Step::Change { end, ref change } => {
                let (end, framing) = (usize::from(end), agreed[usize::from(end)].terms.framing());
                changed |= change.happen(&mut sides[end], framing);
            }
        }
    }
    finish(&mut sides);
    let [a, b] = &sides;
    for (here, there) in [(a, b), (b, a)] {
        if changed {
            assert!(here.lenient || here.taken <= there.put);
        } else {
            assert_eq!((here.taken, here.duplex.end()), (there.put, Some(End::Finished)));
        }
    }
}

impl Change {
    /// Changes what is on the way to an end; returns whether there was something to change.
    fn happen(&self, side: &mut Side, framing: Framing) -> bool {
        let (wire, mut is_found) = (&mut side.wire, framing.crc);
        match self {
            _ if side.closed => return false,
            Self::Damage { at, .. } if usize::from(*at) >= wire.len() => return false,
            Self::Damage { at, bit } => wire[(*at).into()] ^= 1 << (bit % 8),
            Self::Insert { at, octets } => {
                let rest = wire.split_off(wire.len().min((*at).into()));
                wire.extend(octets.0.iter().chain(&rest));
            }
            Self::Frame { ulpdu } => {
                wire.extend(Fpdus::new(framing, framing).frame(&ulpdu.0));
                is_found = false;
            }
            Self::Cut { at } => {
                wire.truncate((*at).into());
                (side.closed, is_found) = (true, true);
            }
        }
        side.lenient |= !is_found;
        true
    }
}

/// Moves all octets, until both ends have ended.
fn finish(sides: &mut [Side; 2]) {
    for _ in 0..10_000 {
        for end in [false, true] {
            sides[usize::from(end)].duplex.finish();
            pay(sides, end, usize::MAX);
            sides[usize::from(end)].deliver(usize::MAX);
            sides[usize::from(end)].take(1 << 17);
        }
        if sides.iter().all(|side| side.duplex.is_finished() && side.duplex.end().is_some()) {
            return;
        }
    }
    panic!("the two never come to an end");
}

fn pay([a, b]: &mut [Side; 2], end: bool, octets: usize) {
    let (here, there) = if end { (b, a) } else { (a, b) };
    here.pay(there, octets);
}
