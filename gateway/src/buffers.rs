//! Octets between a connection's socket and its bridge.

/// Octets of the longest FPDU with its markers, and more.
const LONGEST: usize = 80 * 1024;

/// Octets that TCP has delivered.
#[derive(Debug)]
pub(crate) struct Arrived {
    octets: Box<[u8]>,
    from: usize,
    to: usize,
}

/// Octets that TCP is to take.
#[derive(Debug, Default)]
pub(crate) struct Train {
    pub(crate) octets: Vec<u8>,
    pub(crate) sent: usize,
    /// TCP's last segment of it ends with it.
    pub(crate) ends: bool,
}

impl Arrived {
    pub(crate) fn new() -> Self {
        Arrived { octets: vec![0; 2 * LONGEST].into(), from: 0, to: 0 }
    }

    /// Returns whether an FPDU may be missing octets for which there is room.
    pub(crate) fn has_space(&self) -> bool {
        self.to - self.from < LONGEST
    }

    /// Notes octets that were read into the room.
    pub(crate) fn add(&mut self, count: usize) {
        self.to += count;
    }

    pub(crate) fn clear(&mut self) {
        (self.from, self.to) = (0, 0);
    }

    pub(crate) fn front(&mut self) -> &mut [u8] {
        &mut self.octets[self.from..self.to]
    }

    pub(crate) fn drop(&mut self, count: usize) {
        self.from += count;
        if self.from == self.to {
            self.clear();
        }
    }

    /// Returns the room behind the octets, to whose front they are moved where it is short.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.from > 0 && self.octets.len() - self.to < LONGEST {
            self.octets.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.octets[self.to..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_space_until_an_fpdu_of_any_length_is_there_and_room_while_there_is_space() {
        let mut arrived = Arrived::new();
        for dropped in [0, LONGEST - 1] {
            arrived.add(dropped);
            arrived.drop(dropped);
            while arrived.has_space() {
                assert!(arrived.room().len() >= LONGEST - arrived.front().len());
                arrived.add(1 << 10);
            }
            assert_eq!(arrived.front().len(), LONGEST);
            arrived.drop(1);
            assert!(arrived.has_space() && !arrived.room().is_empty());
            arrived.clear();
        }
    }
}
