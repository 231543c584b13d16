//! TCP between the two: segments of at most an EMSS, one ended early where a record ends.

use std::collections::VecDeque;

use rddp_test_support::Random;

pub(crate) struct Tcp {
    emss: usize,
    on_the_way: VecDeque<u8>,
    len: usize,
    in_segment: usize,
    boundaries: Vec<usize>,
}

impl Tcp {
    pub(crate) fn new(emss: usize) -> Self {
        Self { emss, on_the_way: VecDeque::new(), len: 0, in_segment: 0, boundaries: Vec::new() }
    }

    /// Takes all of a write, or a part or nothing of it; how many octets. A part ends no record.
    pub(crate) fn write(&mut self, octets: &[u8], ends_record: bool, random: &mut Random) -> usize {
        let taken = if random.below(2) == 0 { octets.len() } else { random.below(octets.len() + 1) };
        for octet in &octets[..taken] {
            if self.in_segment == self.emss {
                self.begin_segment();
            }
            self.on_the_way.push_back(*octet);
            (self.len, self.in_segment) = (self.len + 1, self.in_segment + 1);
        }
        if ends_record && taken == octets.len() && self.in_segment > 0 {
            self.begin_segment();
        }
        taken
    }

    fn begin_segment(&mut self) {
        self.boundaries.push(self.len);
        self.in_segment = 0;
    }

    /// Sends what it has: without Nagle's algorithm, a short write is on its way before the next
    /// one.
    pub(crate) fn push(&mut self) {
        if self.in_segment > 0 {
            self.begin_segment();
        }
    }

    pub(crate) fn deliver(&mut self, random: &mut Random) -> Vec<u8> {
        let count = random.below(2 * self.emss).min(self.on_the_way.len());
        self.on_the_way.drain(..count).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.on_the_way.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the offsets at which segments begin.
    pub(crate) fn boundaries(&self) -> &[usize] {
        &self.boundaries
    }
}
