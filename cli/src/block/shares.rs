//! Shares of disks in a server's memory: of several each has no more than is left to the others.
//! The clients of a disk get of its share in the order in which they have asked.

use std::collections::VecDeque;

/// The disks' shares.
#[derive(Debug)]
pub(super) struct Shares {
    most: usize,
    of_disks: Vec<Share>,
}

/// The octets that a disk has, and the clients that wait for more.
#[derive(Clone, Debug, Default)]
struct Share {
    octets: usize,
    waiting: VecDeque<u32>,
}

impl Shares {
    /// Has that many disks share that many octets.
    pub(super) fn new(most: usize, disks: usize) -> Self {
        Shares { most, of_disks: vec![Share::default(); disks] }
    }

    fn octets(&self) -> usize {
        self.of_disks.iter().map(|share| share.octets).sum()
    }

    /// Returns whether a disk may have more octets. One that has none may have whatever there is,
    /// so that others which hang keep no disk from its longest request as long as there is room.
    pub(super) fn allow(&self, disk: usize, octets: usize) -> bool {
        let has = self.of_disks[disk].octets;
        let left = self.most.saturating_sub(self.octets() + octets);
        self.of_disks.len() == 1 || has == 0 || has + octets <= left
    }

    /// Notes that a disk has more octets.
    pub(super) fn add(&mut self, disk: usize, octets: usize) {
        self.of_disks[disk].octets += octets;
    }

    /// Notes that a disk has given octets back.
    pub(super) fn give_back(&mut self, disk: usize, octets: usize) {
        self.of_disks[disk].octets -= octets;
    }

    /// Returns the client of a disk that has waited longest.
    pub(super) fn first(&self, disk: usize) -> Option<u32> {
        self.of_disks[disk].waiting.front().copied()
    }

    /// Has a client wait behind others, if it does not wait yet.
    pub(super) fn wait(&mut self, disk: usize, client: u32) {
        let waiting = &mut self.of_disks[disk].waiting;
        if !waiting.contains(&client) {
            waiting.push_back(client);
        }
    }

    /// Has a client wait no more: it has been served, or has gone.
    pub(super) fn leave(&mut self, client: u32) {
        self.of_disks.iter_mut().for_each(|share| share.waiting.retain(|other| *other != client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a disk take as much as it gets.
    fn fill(shares: &mut Shares, disk: usize) -> usize {
        while shares.allow(disk, 1) && shares.octets() < shares.most {
            shares.add(disk, 1);
        }
        shares.of_disks[disk].octets
    }

    #[test]
    fn disks_that_hang_leave_memory_to_the_others_however_many_they_are() {
        let mut shares = Shares::new(60, 4);
        assert_eq!([0, 1, 2].map(|disk| fill(&mut shares, disk)), [30, 15, 7]);
        // The last one has what is left for one request, and gives it back.
        assert!(shares.allow(3, 8) && !shares.allow(2, 1));
        shares.add(3, 8);
        assert!(!shares.allow(3, 1));
        shares.give_back(3, 8);
        assert_eq!(fill(&mut shares, 3), 4);
        // One that goes on has more again.
        shares.give_back(0, 30);
        assert_eq!(fill(&mut shares, 3), 19);
    }

    #[test]
    fn a_disk_alone_has_all_memory() {
        assert_eq!(fill(&mut Shares::new(60, 1), 0), 60);
    }
}
