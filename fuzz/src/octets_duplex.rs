//! `octets_duplex`: the two ends of a byte stream over a TCP that takes and delivers what the input
//! says, and may damage it (RFC 5044 §6, §7.1.2).
//!
//! What was put is what is taken, and both ends end; behind damage, what is taken is a part of it.
//! Nothing is owed behind an end that was told.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use rddp_octets::{Agreed, Duplex, End, Handshake, HandshakeOptions, Progress};
use rddp_test_support::pattern_from;

use crate::input::{Tail, choice, inputs};

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

/// An end, and the octets on the way to it.
struct Side {
    duplex: Duplex,
    put: usize,
    taken: usize,
    wire: VecDeque<u8>,
    damaged: bool,
    shut: bool,
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let bit = |at: u8| input.framing >> at & 1 == 1;
    let agreed = agreed([options(bit(0), bit(1)), options(bit(2), bit(3))]);
    let crc = agreed[0].terms.crc;
    let mut sides = agreed.map(|agreed| {
        let mut duplex = Duplex::new(&agreed);
        duplex.set_emss(100 + usize::from(input.emss));
        Side { duplex, put: 0, taken: 0, wire: VecDeque::new(), damaged: false, shut: false }
    });
    for step in &input.steps.0 {
        match *step {
            Step::Put { end, octets } => sides[usize::from(end)].put(octets.into()),
            Step::Pay { end, octets } => pay(&mut sides, end.into(), octets.into()),
            Step::Deliver { end, octets } => deliver(&mut sides, end.into(), octets.into()),
            Step::Take { end, room } => sides[usize::from(end)].take(room.into()),
            Step::Finish { end } => sides[usize::from(end)].duplex.finish(),
            Step::Damage { end, at, bit } if crc => sides[usize::from(end)].damage(at.into(), bit),
            Step::Damage { .. } => {}
        }
        sides.iter_mut().for_each(Side::check_end);
    }
    finish(&mut sides);
    let [a, b] = &sides;
    for (here, there) in [(a, b), (b, a)] {
        if a.damaged || b.damaged {
            assert!(here.taken <= there.put);
        } else {
            assert_eq!((here.taken, here.duplex.end()), (there.put, Some(End::Finished)));
        }
    }
}

/// Moves all octets, until both ends have ended.
fn finish(sides: &mut [Side; 2]) {
    for _ in 0..10_000 {
        for end in 0..2 {
            sides[end].duplex.finish();
            pay(sides, end, usize::MAX);
            deliver(sides, end, usize::MAX);
            sides[end].take(1 << 17);
            sides[end].check_end();
        }
        if sides.iter().all(|side| side.duplex.is_finished() && side.duplex.end().is_some()) {
            return;
        }
    }
    panic!("the two never come to an end");
}

fn pay(sides: &mut [Side; 2], end: usize, octets: usize) {
    let count = octets.min(sides[end].duplex.owed().len());
    let octets = sides[end].duplex.owed()[..count].to_vec();
    sides[1 - end].wire.extend(octets);
    sides[end].duplex.paid(count);
}

fn deliver(sides: &mut [Side; 2], end: usize, octets: usize) {
    let is_over = sides[1 - end].duplex.is_finished();
    let side = &mut sides[end];
    let space = side.duplex.space();
    let count = octets.min(space.len()).min(side.wire.len());
    for (octet, arrived) in space.iter_mut().zip(side.wire.drain(..count)) {
        *octet = arrived;
    }
    if count > 0 || is_over && side.wire.is_empty() {
        side.duplex.filled(count);
    }
}

impl Side {
    fn put(&mut self, octets: usize) {
        self.put += self.duplex.put(&pattern_from(self.put, octets));
    }

    fn take(&mut self, room: usize) {
        let mut octets = vec![0; room];
        let count = self.duplex.take(&mut octets);
        assert!(octets[..count] == pattern_from(self.taken, count), "octets are not those that were put");
        self.taken += count;
    }

    /// Closes TCP's direction where that is told; it stays so.
    fn check_end(&mut self) {
        self.shut |= self.duplex.is_finished();
        assert!(!self.shut || self.duplex.is_finished() && self.duplex.owed().is_empty());
    }

    fn damage(&mut self, at: usize, bit: u8) {
        if let Some(octet) = self.wire.get_mut(at) {
            *octet ^= 1 << (bit % 8);
            self.damaged = true;
        }
    }
}

fn options(crc: bool, markers: bool) -> HandshakeOptions {
    let mut options = HandshakeOptions::default();
    (options.startup.crc, options.startup.markers) = (crc, markers);
    options
}

/// Returns what both ends agree on.
fn agreed([active, passive]: [HandshakeOptions; 2]) -> [Agreed; 2] {
    let mut initiator = Handshake::initiator(active, b"").unwrap();
    let Progress::Asked(asked) = Handshake::responder(passive).step(initiator.request()) else {
        panic!("a Request")
    };
    let (reply, passive) = asked.accept(b"").unwrap();
    let Progress::Accepted { agreed: active, .. } = initiator.step(&reply) else { panic!("a Reply") };
    [active, passive]
}
