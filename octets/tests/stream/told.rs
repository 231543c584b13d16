//! The answers of a byte stream to octets that arrive in pieces. The fuzzer uses this, too.

use std::convert::Infallible;

use rddp_octets::{Batch, Incoming, Plain, Position, Stop, Terms};

/// Everything that a stream has told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    octets: Vec<u8>,
    at: Position,
    replies: usize,
    /// The reason for which it ended.
    pub(crate) end: Option<Stop<Infallible>>,
}

impl Told {
    /// Takes octets from a position on as they arrive, `next()` more at a time, into room for
    /// `next()`.
    pub(crate) fn of(terms: &Terms, at: Position, octets: &[u8], mut next: impl FnMut() -> usize) -> Self {
        let (mut told, mut arrived, mut front) = (Self { at, ..Self::default() }, 0, 0);
        while told.end.is_none() && arrived < octets.len() {
            arrived = octets.len().min(arrived + next());
            told.end = told.look(terms, &octets[..arrived], &mut front, &mut next);
        }
        told
    }

    /// Takes whole FPDUs from `front` on; returns the end, if they have one.
    fn look(
        &mut self,
        terms: &Terms,
        arrived: &[u8],
        front: &mut usize,
        next: &mut impl FnMut() -> usize,
    ) -> Option<Stop<Infallible>> {
        loop {
            // Those with markers are changed where they are taken.
            let (mut seen, mut memory) = (arrived[*front..].to_vec(), vec![0; next().min(1 << 14)]);
            let mut incoming = Incoming::new(terms, &self.at, 2000, &Plain);
            let (all, mut room) = (memory.len(), &mut memory[..]);
            let batch = Batch::of(&mut incoming, &mut seen, &mut room, 0, &mut Plain);
            let filled = all - room.len();
            self.octets.extend_from_slice(&memory[..filled]);
            if let Some(left) = batch.left {
                self.octets.extend_from_slice(&seen[left.from..left.to]);
            }
            *front += batch.used;
            self.at = batch.at.unwrap_or(self.at);
            self.replies += batch.replies.headers().count();
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
}
