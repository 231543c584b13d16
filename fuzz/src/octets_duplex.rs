//! `octets_duplex`: the two ends of a byte stream over a TCP that takes and delivers what the input
//! says, and may damage it (RFC 5044 §6, §7.1.2).
//!
//! What was put is what is taken, and both ends end; behind damage, what is taken is a part of it.
//! Nothing is owed behind an end that was told.

#[path = "../../octets/tests/stream/ends.rs"]
mod ends;

use arbitrary::{Arbitrary, Unstructured};
use rddp_octets::End;

use crate::input::{Tail, choice, inputs};
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
        /// A bit changes on the way to the end, where CRCs are on.
        Damage { end: bool, at: u16, bit: u8 },
    }
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let bit = |at: u8| input.framing >> at & 1 == 1;
    let agreed = agreed([options(bit(0), bit(1)), options(bit(2), bit(3))]);
    let (crc, mut damaged) = (agreed[0].terms.crc, false);
    let mut sides = agreed.map(|agreed| Side::new(&agreed));
    for side in &mut sides {
        side.duplex.set_emss(100 + usize::from(input.emss));
    }
    for step in &input.steps.0 {
        match *step {
            Step::Put { end, octets } => sides[usize::from(end)].put(octets.into()),
            Step::Pay { end, octets } => pay(&mut sides, end, octets.into()),
            Step::Deliver { end, octets } => sides[usize::from(end)].deliver(octets.into()),
            Step::Take { end, room } => sides[usize::from(end)].take(room.into()),
            Step::Finish { end } => sides[usize::from(end)].duplex.finish(),
            Step::Damage { end, at, bit } if crc => {
                damaged |= damage(&mut sides[usize::from(end)], at.into(), bit);
            }
            Step::Damage { .. } => {}
        }
    }
    finish(&mut sides);
    let [a, b] = &sides;
    for (here, there) in [(a, b), (b, a)] {
        if damaged {
            assert!(here.taken <= there.put);
        } else {
            assert_eq!((here.taken, here.duplex.end()), (there.put, Some(End::Finished)));
        }
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

fn damage(side: &mut Side, at: usize, bit: u8) -> bool {
    let octet = side.wire.get_mut(at);
    let is_there = octet.is_some();
    octet.into_iter().for_each(|octet| *octet ^= 1 << (bit % 8));
    is_there
}
