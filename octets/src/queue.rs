//! A buffer of fixed length, filled at the end and emptied from the front.

/// Octets in a buffer.
#[derive(Debug)]
pub(crate) struct Queue {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Queue {
    pub(crate) fn new(len: usize) -> Self {
        Self { buffer: vec![0; len].into(), from: 0, to: 0 }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    pub(crate) fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.from..self.to]
    }

    pub(crate) fn len(&self) -> usize {
        self.to - self.from
    }

    /// Returns the room behind the octets, all that there is. They are moved to the front where
    /// more than half of the buffer is used or passed.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.from > 0 && self.to > self.buffer.len() / 2 {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.len());
        }
        &mut self.buffer[self.to..]
    }

    /// Counts octets with which the front of the room was filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.to = self.buffer.len().min(self.to + count);
    }

    /// Drops octets from the front.
    pub(crate) fn drop(&mut self, count: usize) {
        self.from = self.to.min(self.from + count);
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use rddp_test_support::{Random, pattern_from};

    use super::*;

    #[test]
    fn octets_leave_as_they_came_and_a_buffer_has_room_for_all_of_its_length() {
        let (mut queue, mut random, mut came, mut left) = (Queue::new(100), Random::new(1), 0, 0);
        for _ in 0..10_000 {
            let room = queue.room();
            let count = random.below(room.len() + 1);
            room[..count].copy_from_slice(&pattern_from(came, count));
            queue.filled(count);
            came += count;
            assert_eq!((queue.octets(), queue.len()), (&pattern_from(left, came - left)[..], came - left));
            let count = random.below(queue.len() + 1);
            queue.drop(count);
            left += count;
        }
        queue.drop(100);
        assert_eq!((queue.room().len(), queue.len()), (100, 0));
        queue.filled(70);
        queue.drop(60);
        assert_eq!(queue.room().len(), 90);
    }
}
