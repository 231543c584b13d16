//! Private receive buffers, which may grow one after the other.

use rddp_rnic::{Access, Error, MemoryRegion, ProtectionDomain, Sge};

/// The private receive buffers of an endpoint: one region for all. While they grow, there is a
/// second one, to which a buffer moves when it is given back.
#[derive(Debug)]
pub(crate) struct Inbox {
    region: MemoryRegion,
    size: usize,
    larger: Option<Larger>,
    count: u16,
}

#[derive(Debug)]
struct Larger {
    region: MemoryRegion,
    size: usize,
    has_moved: Vec<bool>,
    left: u16,
}

impl Inbox {
    pub(crate) fn new(pd: &ProtectionDomain, count: u16, size: u32) -> Result<Self, Error> {
        let size = size as usize;
        let region = pd.allocate(usize::from(count) * size, Access::LOCAL_WRITE)?;
        Ok(Inbox { region, size, larger: None, count })
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the octets of the smallest buffer.
    pub(crate) fn smallest(&self) -> u32 {
        self.size as u32
    }

    /// Returns a buffer by the region in which it lies, and where it begins there.
    pub(crate) fn place(&self, n: u16) -> (&MemoryRegion, usize) {
        let (region, size) = self.of(n);
        (region, usize::from(n) * size)
    }

    /// Returns a buffer for a receive to fill.
    pub(crate) fn whole(&self, n: u16) -> Sge {
        let (region, size) = self.of(n);
        let start = usize::from(n) * size;
        region.sge(start..start + size)
    }

    fn of(&self, n: u16) -> (&MemoryRegion, usize) {
        match &self.larger {
            Some(larger) if larger.has_moved[usize::from(n)] => (&larger.region, larger.size),
            _ => (&self.region, self.size),
        }
    }

    /// Has the buffers grow to this size, each when it is given back. Returns whether they do.
    pub(crate) fn grow(&mut self, pd: &ProtectionDomain, size: u32) -> bool {
        let (size, count) = (size as usize, usize::from(self.count));
        if self.larger.is_some() || size <= self.size {
            return self.larger.as_ref().is_some_and(|larger| larger.size >= size);
        }
        let Ok(region) = pd.allocate(count * size, Access::LOCAL_WRITE) else { return false };
        self.larger = Some(Larger { region, size, has_moved: vec![false; count], left: self.count });
        true
    }

    /// Takes a buffer back whose octets nobody needs any more.
    pub(crate) fn give_back(&mut self, n: u16) {
        let Some(larger) = &mut self.larger else { return };
        let has_moved = &mut larger.has_moved[usize::from(n)];
        larger.left -= u16::from(!*has_moved);
        *has_moved = true;
        if larger.left == 0
            && let Some(larger) = self.larger.take()
        {
            (self.region, self.size) = (larger.region, larger.size);
        }
    }
}
