//! Who may do what with registered memory (draft-hilland-rddp-verbs §7.5).
#![forbid(unsafe_code)]

use std::fmt;

use super::MemError;

bitflags::bitflags! {
    /// Rights to a region or window, and how its Tagged Offsets count. Local read is always implied.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// The owner's receives and Read sinks may be placed here.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may name it as the source of a Read.
        const REMOTE_READ = 1 << 1;
        /// Peers may Write here. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 2;
        /// Peers may do atomic operations here. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to it. Regions whose Tagged Offset is the address only.
        const BIND = 1 << 4;
        /// A peer may invalidate the STag with a Send. Not for STags that several streams share (RFC 5042 §6.4.5).
        const REMOTE_INVALIDATE = 1 << 5;
        /// The Tagged Offset of the first octet is 0 instead of its address.
        const ZERO_BASED = 1 << 6;
    }
}

impl Access {
    /// The rights that let a peer at the octets.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// The rights that change the octets.
    const WRITING: Self = Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// Whether any of these rights lets octets change.
    pub(super) fn writes(self) -> bool {
        self.intersects(Self::WRITING)
    }

    /// Whether a region may have this combination.
    pub(super) fn check_region(self) -> Result<(), MemError> {
        // draft-hilland-rddp-verbs §7.5: remote write is nothing without local write.
        let remote_write = self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC));
        if remote_write && !self.contains(Self::LOCAL_WRITE) {
            return Err(MemError::RemoteWriteNeedsLocalWrite);
        }
        if self.contains(Self::BIND.union(Self::ZERO_BASED)) {
            return Err(MemError::BindNeedsAddresses);
        }
        Ok(())
    }

    /// Whether a window with these rights may be bound to a region with `region`'s.
    pub(super) fn check_window(self, region: Self) -> Result<(), MemError> {
        if self.intersects(Self::LOCAL_WRITE.union(Self::BIND)) {
            return Err(MemError::WindowRights(self));
        }
        // draft-hilland-rddp-verbs §7.10.2: the region's local rights must cover what the window grants.
        if self.writes() && !region.contains(Self::LOCAL_WRITE) {
            return Err(MemError::RemoteWriteNeedsLocalWrite);
        }
        Ok(())
    }
}

/// A protection domain's number: which QPs may use which regions.
/// So wide that none is ever given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u64);

/// A queue pair's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

impl fmt::Display for PdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PD {}", self.0)
    }
}

impl fmt::Display for QpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

/// What else a registration may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionOptions {
    /// Fault every page in now instead of at the first access.
    pub populate: bool,
    /// Keep every page in memory until deregistration (`mlock`; counts against `RLIMIT_MEMLOCK`).
    pub lock: bool,
    /// The only QP whose peer may use the STag (RFC 5041 §8.2); all QPs of the PD when `None`.
    pub qp: Option<QpNum>,
}

/// How much a [`super::MemTable`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemLimits {
    /// Most regions and windows at one time; at most [`MemLimits::MAX_STAGS`].
    pub stags: usize,
}

impl MemLimits {
    /// Half of what 24 bits can index, so that indices stay sparse (RFC 5042 §6.1.1).
    pub const MAX_STAGS: usize = 1 << 23;
}

impl Default for MemLimits {
    fn default() -> Self {
        Self { stags: 1 << 20 }
    }
}
