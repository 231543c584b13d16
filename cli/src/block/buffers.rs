//! Registered memory for payloads, kept for the next ones.

use std::ops::Range;

use rddp_rnic::{Access, MemError, MemoryRegion, ProtectionDomain, Sge};

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
    /// Octets of payload for which there is room in all of them.
    held: usize,
    most: usize,
}

/// Memory for a payload, and in front of that for the header of its reply.
pub(super) struct Buffer {
    region: MemoryRegion,
    class: u32,
}

impl Buffers {
    pub(super) fn new(pd: ProtectionDomain, access: Access, most: usize) -> Self {
        Buffers { pd, access, free: (0..=usize::BITS).map(|_| Vec::new()).collect(), held: 0, most }
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
        let class = len.max(1).next_power_of_two().trailing_zeros().max(LEAST);
        if let Some(buffer) = self.free[class as usize].pop() {
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
        Some(Buffer { region, class })
    }

    pub(super) fn give_back(&mut self, buffer: Buffer) {
        if self.held > self.most {
            self.held -= buffer.len();
            return;
        }
        self.free[buffer.class as usize].push(buffer);
    }
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
