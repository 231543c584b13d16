//! Registered memory for payloads, kept for the next ones.

use std::ops::Range;

use rddp_rnic::{Access, MemError, MemoryRegion, ProtectionDomain, Sge};

use super::shares::Shares;

/// Octets in front of a payload: room for the header of its reply.
const FRONT: usize = 64;

/// The shortest payload for which a buffer is made, as a power of two.
const LEAST: u32 = 12;

/// The buffers of a server.
pub(super) struct Buffers {
    pd: ProtectionDomain,
    access: Access,
    /// Buffers that nobody has, by the logarithm of their payloads' length.
    free: Vec<Vec<Buffer>>,
    /// The fewest of those that there were since the last [`trim`](Self::trim).
    unneeded: Vec<usize>,
    /// Octets of payload for which there is room in all of them.
    held: usize,
    most: usize,
    shares: Shares,
}

/// Memory for a payload, and in front of that for the header of its reply.
pub(super) struct Buffer {
    region: MemoryRegion,
    class: u32,
    /// The disk for which it was taken.
    disk: Option<usize>,
}

impl Buffers {
    pub(super) fn new(pd: ProtectionDomain, access: Access, most: usize) -> Self {
        let free: Vec<_> = (0..=usize::BITS).map(|_| Vec::new()).collect();
        let unneeded = vec![0; free.len()];
        Buffers { pd, access, free, unneeded, held: 0, most, shares: Shares::new(most, 0) }
    }

    /// Has disks share the buffers.
    pub(super) fn shared_by(mut self, disks: usize) -> Self {
        self.shares = Shares::new(self.most, disks);
        self
    }

    /// Takes a buffer for a payload of that disk. Returns `None` while there is no memory for it or
    /// another client of the disk has waited longer; then the client waits, until it asks again and
    /// gets one, or [leaves](Self::leave).
    pub(super) fn take_for(&mut self, disk: usize, client: u32, len: usize) -> Option<Buffer> {
        let is_first = self.shares.first(disk).is_none_or(|first| first == client);
        let taken = (is_first && self.shares.allow(disk, 1 << class(len))).then(|| self.take(len));
        let Some(mut buffer) = taken.flatten() else {
            self.shares.wait(disk, client);
            return None;
        };
        self.shares.leave(client);
        self.shares.add(disk, buffer.len());
        buffer.disk = Some(disk);
        Some(buffer)
    }

    /// Returns the client of a disk that has waited longest.
    pub(super) fn first(&self, disk: usize) -> Option<u32> {
        self.shares.first(disk)
    }

    /// Forgets a client that has gone.
    pub(super) fn leave(&mut self, client: u32) {
        self.shares.leave(client);
    }

    /// Takes a buffer for a payload of `len` octets; `None` while there is no memory for it.
    pub(super) fn take(&mut self, len: usize) -> Option<Buffer> {
        self.take_within(self.most, len)
    }

    /// Takes a buffer though others may have all memory: for octets of which each client has few.
    pub(super) fn take_always(&mut self, len: usize) -> Option<Buffer> {
        self.take_within(usize::MAX, len)
    }

    fn take_within(&mut self, most: usize, len: usize) -> Option<Buffer> {
        let class = class(len);
        let (free, unneeded) = (&mut self.free[class as usize], &mut self.unneeded[class as usize]);
        if let Some(buffer) = free.pop() {
            *unneeded = free.len().min(*unneeded);
            return Some(buffer);
        }
        let octets = 1 << class;
        while self.held + octets > most {
            // Those of other lengths go, the longest first.
            let unused = self.free.iter_mut().rev().find_map(Vec::pop)?;
            self.held -= unused.len();
        }
        let allocated = self.pd.allocate(FRONT + octets, self.access);
        let region =
            allocated.inspect_err(|error| tracing::warn!(%error, "a payload waits for memory")).ok()?;
        self.held += octets;
        Some(Buffer { region, class, disk: None })
    }

    pub(super) fn give_back(&mut self, mut buffer: Buffer) {
        if let Some(disk) = buffer.disk.take() {
            self.shares.give_back(disk, buffer.len());
        }
        if self.held > self.most {
            self.held -= buffer.len();
            return;
        }
        self.free[buffer.class as usize].push(buffer);
    }

    /// Gives the system half of the memory that was not needed since the last call, so that little
    /// is left of a burst, and what comes again and again finds its buffers.
    pub(super) fn trim(&mut self) {
        for (free, unneeded) in self.free.iter_mut().zip(&mut self.unneeded) {
            let gone = free.drain(..unneeded.div_ceil(2).min(free.len()));
            self.held -= gone.map(|buffer| buffer.len()).sum::<usize>();
            *unneeded = free.len();
        }
    }
}

/// Returns the logarithm of the payload for which a buffer is made that holds `len` octets.
fn class(len: usize) -> u32 {
    len.max(1).next_power_of_two().trailing_zeros().max(LEAST)
}

impl Buffer {
    /// Returns the memory, of which the payload begins at [`FRONT`].
    pub(super) fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Returns the place of the payload's first `len` octets in the region.
    pub(super) fn payload(len: u32) -> Range<usize> {
        FRONT..FRONT + len as usize
    }

    /// Returns how many octets of payload there is room for.
    pub(super) fn len(&self) -> usize {
        1 << self.class
    }

    /// Returns whether the payload's first `len` octets are all zero.
    pub(super) fn is_zero(&self, len: u32) -> Result<bool, MemError> {
        let (mut piece, mut at) = ([0; 4096], 0);
        while at < len as usize {
            let piece = &mut piece[..4096.min(len as usize - at)];
            self.region.read_into(FRONT + at, piece)?;
            if *piece != [0; 4096][..piece.len()] {
                return Ok(false);
            }
            at += piece.len();
        }
        Ok(true)
    }

    /// Writes octets into the payload.
    pub(super) fn write(&self, at: usize, octets: &[u8]) -> Result<(), MemError> {
        self.region.write(FRONT + at, octets)
    }

    /// Writes octets as the payload. Returns their place.
    pub(super) fn filled(&self, octets: &[u8]) -> Result<Sge, MemError> {
        self.write(0, octets)?;
        Ok(self.region.sge(FRONT..FRONT + octets.len()))
    }

    /// Writes a header right in front of the payload's first `len` octets. Returns the place of
    /// both.
    pub(super) fn with_header(&self, header: &[u8], len: u32) -> Result<Sge, MemError> {
        let from = FRONT - header.len();
        self.region.write(from, header)?;
        Ok(self.region.sge(from..FRONT + len as usize))
    }
}

#[cfg(test)]
mod tests {
    use rddp_rnic::Rnic;

    use super::*;

    fn buffers(most: usize) -> Buffers {
        Buffers::new(Rnic::open().unwrap().alloc_pd(), Access::LOCAL_WRITE, most)
    }

    /// Short requests do not overtake a long one, and whoever got some is last again.
    #[test]
    fn clients_of_a_disk_get_memory_in_the_order_in_which_they_have_asked() {
        let mut buffers = buffers(64 << 10).shared_by(2);
        let one = buffers.take_for(0, 1, 32 << 10).unwrap();
        assert!(buffers.take_for(0, 2, 32 << 10).is_none());
        assert!(buffers.take_for(0, 3, 4096).is_none() && buffers.take_for(0, 1, 4096).is_none());
        // The clients of another disk do not wait for these.
        let other = buffers.take_for(1, 4, 4096).unwrap();
        [one, other].into_iter().for_each(|buffer| buffers.give_back(buffer));
        assert!(buffers.take_for(0, 3, 4096).is_none());
        assert_eq!(buffers.first(0), Some(2));
        let two = buffers.take_for(0, 2, 16 << 10).unwrap();
        assert!(buffers.take_for(0, 2, 4096).is_none() && buffers.first(0) == Some(3));
        buffers.leave(3);
        assert!(buffers.take_for(0, 2, 4096).is_none() && buffers.take_for(0, 1, 4096).is_some());
        assert!(buffers.take_for(0, 2, 4096).is_some() && buffers.first(0).is_none());
        buffers.give_back(two);
    }

    #[test]
    fn memory_that_is_not_needed_any_more_is_given_back_step_by_step() {
        let mut buffers = buffers(1 << 20);
        let taken: Vec<Buffer> = (0..8).map(|_| buffers.take(10_000).unwrap()).collect();
        taken.into_iter().for_each(|buffer| buffers.give_back(buffer));
        let mut held = || {
            // Two are needed at a time.
            let both = [(); 2].map(|()| buffers.take(10_000).unwrap());
            both.into_iter().for_each(|buffer| buffers.give_back(buffer));
            buffers.trim();
            buffers.held >> 14
        };
        // What was free in front of the first call may have been needed.
        assert_eq!([(); 6].map(|()| held()), [8, 5, 3, 2, 2, 2]);
        (0..3).for_each(|_| buffers.trim());
        assert_eq!((buffers.held, buffers.free.iter().flatten().count()), (0, 0));
    }
}
