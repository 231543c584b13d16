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

    /// Returns the room behind the octets, which are moved to the front now and then: all that
    /// there is, but for [`LEAST`].
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.from > 0 {
            self.move_to_front();
        }
        &mut self.buffer[self.to..]
    }

    /// Moves the octets where that is due. A buffer that empties each time never comes here.
    #[inline(never)]
    fn move_to_front(&mut self) {
        if self.is_to_move() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.len());
        }
    }

    /// Returns whether the octets are moved: when as many have left as stay, or when room is short
    /// and some have left. With each octet that leaves a full buffer all would move.
    fn is_to_move(&self) -> bool {
        let room = self.buffer.len() - self.to;
        room < self.buffer.len() / 2 && self.from >= self.len() || room < LEAST && self.from >= LEAST
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

/// Octets that leave before those behind them are moved, and room that is short.
pub(crate) const LEAST: usize = 4096;

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

    #[test]
    fn octets_stay_where_half_of_the_buffer_is_free_or_few_have_left() {
        for (len, filled, left, room) in [
            (100, 50, 25, 50),
            (100, 51, 26, 75),
            (100, 51, 25, 49),
            (4 * LEAST, 3 * LEAST, LEAST, LEAST),
            (4 * LEAST, 3 * LEAST + 1, LEAST, 2 * LEAST - 1),
            (4 * LEAST, 3 * LEAST + 1, LEAST - 1, LEAST - 1),
        ] {
            let mut queue = Queue::new(len);
            queue.filled(filled);
            queue.drop(left);
            assert_eq!(queue.room().len(), room, "{len} {filled} {left}");
        }
    }

    #[test]
    fn octets_that_leave_one_by_one_rarely_move_the_others() {
        let (mut queue, mut moves) = (Queue::new(16 * LEAST), 0);
        queue.filled(16 * LEAST);
        for _ in 0..4 * LEAST {
            queue.drop(1);
            let (from, room) = (queue.from, queue.room().len());
            moves += usize::from(queue.from < from);
            queue.filled(room);
        }
        assert_eq!(moves, 4);
    }
}
