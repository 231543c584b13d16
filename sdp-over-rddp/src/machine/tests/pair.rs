//! Two ends whose messages a test hands over.

use crate::machine::{Core, Half, Machine, Received, Tables, Violation};
use crate::wire::{Advert, Body, Flags, Front, Message, Mode};

pub(super) struct Pair {
    pub(super) cores: [Core; 2],
    pub(super) tables: [Tables; 2],
}

impl Pair {
    pub(super) fn new() -> Self {
        Self { cores: [super::core(); 2], tables: Default::default() }
    }

    /// A pair in Pipelined both ways.
    pub(super) fn pipelined() -> Self {
        let mut pair = Self::new();
        for at in [0, 1] {
            let front = pair.at(at).change_mode(Half::Out, Mode::Pipelined).unwrap();
            pair.take(1 - at, &front).unwrap();
        }
        pair
    }

    pub(super) fn at(&mut self, at: usize) -> Machine<'_> {
        Machine::new(&mut self.cores[at], Some(&mut self.tables[at]))
    }

    pub(super) fn take(&mut self, at: usize, front: &Front) -> Result<Received, Violation> {
        self.at(at).receive(&Message::parse(front).unwrap())
    }

    /// Hands over the next control message of `from`, and returns what it was and what it did.
    pub(super) fn control(&mut self, from: usize) -> (Message, Received) {
        let front = self.at(from).next_control().expect("nothing is due");
        (Message::parse(&front).unwrap(), self.take(1 - from, &front).unwrap())
    }

    /// A message of any kind from a peer that keeps numbers and credits, and no other rule.
    pub(super) fn forge(
        &mut self,
        to: usize,
        body: Body,
        payload: usize,
        flags: Flags,
    ) -> Result<Received, Violation> {
        let from = 1 - to;
        let front = self.at(from).front(body, payload, flags);
        self.take(to, &front)
    }

    pub(super) fn refused(&mut self, body: Body, payload: usize) -> Violation {
        self.forge(1, body, payload, Flags::empty()).unwrap_err()
    }
}

pub(super) fn advert(len: u32, to: u64) -> Advert {
    Advert { len, stag: 7, to }
}
