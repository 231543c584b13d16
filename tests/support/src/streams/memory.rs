//! Memory for tests: regions with guard octets around them, and the checks of a real table.

use rddp_ddp::{RangeError, Stag, check_range};
use rddp_rdmap::{AccessError, AtomicOp, InvalidateError};

const GUARD: usize = 64;
const GUARD_OCTET: u8 = 0xa5;

/// Octets with guards around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded(Vec<u8>);

impl Guarded {
    /// Makes so many octets of 0.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let mut octets = vec![GUARD_OCTET; len + 2 * GUARD];
        octets[GUARD..GUARD + len].fill(0);
        Guarded(octets)
    }

    /// Returns the octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.0[GUARD..self.0.len() - GUARD]
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        let end = self.0.len() - GUARD;
        &mut self.0[GUARD..end]
    }

    /// Stores octets.
    pub fn place(&mut self, at: usize, data: &[u8]) {
        self.octets_mut()[at..at + data.len()].copy_from_slice(data);
    }

    /// Checks that nothing was stored outside.
    pub fn assert_guards(&self) {
        let (front, back) = (&self.0[..GUARD], &self.0[self.0.len() - GUARD..]);
        assert!(front.iter().chain(back).all(|octet| *octet == GUARD_OCTET), "a guard octet was overwritten");
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Write,
    Atomic,
}

/// Registered octets, with the rights of peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    stag: Stag,
    /// The Tagged Offset of the first octet.
    pub base: u64,
    /// The protection domain.
    pub pd: u32,
    /// False once the STag is invalid.
    pub valid: bool,
    /// Peers may read.
    pub read: bool,
    /// Peers may write.
    pub write: bool,
    /// The octets.
    pub memory: Guarded,
}

/// The regions of one end, and the domain of its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The protection domain of the stream.
    pub pd: u32,
    /// All regions.
    pub regions: Vec<Region>,
}

impl Memory {
    /// Adds a region with all rights, at this Tagged Offset.
    pub fn add(&mut self, stag: Stag, base: u64, len: usize) -> &mut Region {
        let memory = Guarded::new(len);
        let region = Region { stag, pd: self.pd, valid: true, base, read: true, write: true, memory };
        self.regions.push(region);
        self.regions.last_mut().unwrap()
    }

    /// Returns the region with this STag.
    pub fn region(&mut self, stag: Stag) -> &mut Region {
        self.regions.iter_mut().find(|region| region.stag == stag).unwrap()
    }

    /// Checks an access by RFC 5041 §7.1 and RFC 5040 §7.2, in their order; returns region and
    /// offset.
    fn check(
        &mut self,
        stag: Stag,
        to: u64,
        len: usize,
        right: Right,
    ) -> Result<(&mut Region, usize), AccessError> {
        let pd = self.pd;
        let region = self
            .regions
            .iter_mut()
            .find(|region| region.stag == stag && region.valid)
            .ok_or(AccessError::Stag)?;
        if region.pd != pd {
            return Err(AccessError::Pd);
        }
        let allowed = match right {
            Right::Read => region.read,
            Right::Write => region.write,
            Right::Atomic => region.read && region.write,
        };
        if !allowed {
            return Err(AccessError::Rights);
        }
        let offset = check_range(region.base, region.memory.octets().len() as u64, to, len as u64);
        match offset {
            Ok(offset) => Ok((region, offset as usize)),
            Err(RangeError::Wrap) => Err(AccessError::Wrap),
            Err(RangeError::Bounds) => Err(AccessError::Bounds),
        }
    }

    /// Places octets of a Write.
    pub fn write(&mut self, stag: Stag, to: u64, data: &[u8]) -> Result<(), AccessError> {
        let (region, offset) = self.check(stag, to, data.len(), Right::Write)?;
        region.memory.place(offset, data);
        Ok(())
    }

    /// Returns octets of a region for a Read Response.
    pub fn read(&mut self, stag: Stag, to: u64, len: usize) -> Result<Vec<u8>, AccessError> {
        let (region, offset) = self.check(stag, to, len, Right::Read)?;
        Ok(region.memory.octets()[offset..offset + len].to_vec())
    }

    /// Does an atomic operation on a little-endian word; returns the value before, or
    /// `None` for a misaligned one.
    pub fn atomic(&mut self, stag: Stag, to: u64, op: AtomicOp) -> Result<Option<u64>, AccessError> {
        let (region, offset) = self.check(stag, to, 8, Right::Atomic)?;
        if !to.is_multiple_of(8) {
            return Ok(None);
        }
        let word = &mut region.memory.octets_mut()[offset..offset + 8];
        let original = u64::from_le_bytes(word.try_into().unwrap());
        if let Some(value) = op.apply(original) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        Ok(Some(original))
    }

    /// Invalidates an STag, as a Send with Invalidate asks for.
    pub fn invalidate(&mut self, stag: Stag) -> Result<(), InvalidateError> {
        let pd = self.pd;
        match self.regions.iter_mut().find(|region| region.stag.0 >> 8 == stag.0 >> 8) {
            None => Err(InvalidateError::Unknown),
            Some(region) if region.stag != stag => Err(InvalidateError::Key),
            Some(region) if region.pd != pd => Err(InvalidateError::Pd),
            Some(region) if !region.read && !region.write => Err(InvalidateError::Rights),
            Some(region) => {
                region.valid = false;
                Ok(())
            }
        }
    }

    /// Checks that nothing was stored outside of regions.
    pub fn assert_guards(&self) {
        self.regions.iter().for_each(|region| region.memory.assert_guards());
    }
}
