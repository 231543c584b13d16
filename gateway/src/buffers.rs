//! Octets between a connection's socket and its bridge.

use std::io::{self, Read};

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

    /// Takes octets from TCP, which are dropped where none count any more. Returns 0 at TCP's end.
    pub(crate) fn read(&mut self, mut tcp: impl Read, counts: bool) -> io::Result<usize> {
        if !counts {
            // Without room, it would look as if TCP had ended.
            self.clear();
        }
        let count = tcp.read(self.room())?;
        self.to += if counts { count } else { 0 };
        Ok(count)
    }

    fn clear(&mut self) {
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
    fn room(&mut self) -> &mut [u8] {
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
            arrived.read(&vec![0; dropped][..], true).unwrap();
            arrived.drop(dropped);
            while arrived.has_space() {
                assert!(arrived.room().len() >= LONGEST - arrived.front().len());
                arrived.read(&[0; 1 << 10][..], true).unwrap();
            }
            assert_eq!(arrived.front().len(), LONGEST);
            arrived.drop(1);
            assert!(arrived.has_space() && !arrived.room().is_empty());
            arrived.clear();
        }
    }

    /// One read of TCP may bring as many octets as there are places, and the fault is in the first.
    #[test]
    fn octets_that_do_not_count_are_read_though_there_is_no_room() {
        let mut arrived = Arrived::new();
        arrived.read(std::io::repeat(0), true).unwrap();
        assert!(arrived.room().is_empty());
        for _ in 0..2 {
            assert_eq!(arrived.read(&b"dropped"[..], false).unwrap(), 7);
            assert!(arrived.front().is_empty());
        }
    }
}
