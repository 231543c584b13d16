//! Rights that a region or window may have, numbers of PDs, options and limits of registrations.
#![forbid(unsafe_code)]

use std::fmt;

use rddp_rdma::{Access, QpNum};

use super::MemError;
use crate::capabilities::CAPABILITIES;

/// Refuses rights that no region may have together.
pub(super) fn check_region(access: Access) -> Result<(), MemError> {
    // draft-hilland-rddp-verbs §7.5: remote write is nothing without local write.
    let remote_write = access.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC));
    if remote_write && !access.contains(Access::LOCAL_WRITE) {
        return Err(MemError::RemoteWriteNeedsLocalWrite);
    }
    if access.contains(Access::BIND.union(Access::ZERO_BASED)) {
        return Err(MemError::BindNeedsAddresses);
    }
    if access.contains(Access::STABLE) && access.writes() {
        return Err(MemError::NotStable);
    }
    Ok(())
}

/// Refuses rights that no region over a file may have: by which octets change, or are sent without
/// a copy.
pub(super) fn check_file(access: Access) -> Result<(), MemError> {
    let rights = Access::REMOTE_READ | Access::REMOTE_INVALIDATE | Access::BIND | Access::ZERO_BASED;
    let others = access.difference(rights);
    if others.is_empty() { Ok(()) } else { Err(MemError::NotForFile(others)) }
}

/// Refuses rights that a window to a region with `region`'s rights may not have.
pub(super) fn check_window(window: Access, region: Access) -> Result<(), MemError> {
    if window.intersects(Access::LOCAL_WRITE.union(Access::BIND)) {
        return Err(MemError::WindowRights(window));
    }
    // draft-hilland-rddp-verbs §7.10.2: the region's local rights must cover what the window
    // grants.
    if window.writes() && !region.contains(Access::LOCAL_WRITE) {
        return Err(MemError::RemoteWriteNeedsLocalWrite);
    }
    // A region that is stable has no right to write, so its windows have none either.
    if window.contains(Access::STABLE) && !region.contains(Access::STABLE) {
        return Err(MemError::NotStable);
    }
    Ok(())
}

/// The number of a protection domain: a QP may use the regions with its own PD's number. Its 64
/// bits are enough that none is ever given out twice.
///
/// ```
/// assert_eq!(rddp_rnic::PdId(3).to_string(), "PD 3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u64);

impl fmt::Display for PdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PD {}", self.0)
    }
}

/// Options of a registration. They concern memory of this process and its pages, so they are the
/// software device's own and not among the words of `rddp-rdma`.
///
/// ```
/// use rddp_rnic::{Access, RegionOptions, Rnic};
/// let options = RegionOptions { populate: true, base: Some(0x1000), ..Default::default() };
/// let region = Rnic::open()?.alloc_pd().allocate_with(64, Access::REMOTE_READ, &options)?;
/// assert_eq!(region.base(), 0x1000);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionOptions {
    /// Fault every page in now instead of at the first access.
    pub populate: bool,
    /// Keep every page in memory until deregistration (`mlock`; counts against `RLIMIT_MEMLOCK`).
    pub lock: bool,
    /// The only QP whose peer may use the STag (RFC 5041 §8.2); all QPs of the PD when `None`.
    pub qp: Option<QpNum>,
    /// The Tagged Offset of the first octet, in place of its address. Not used while the region has
    /// the right [`Access::ZERO_BASED`].
    pub base: Option<u64>,
    /// Memory that the kernel can place into: for regions that the library allocates, on a device
    /// with [`RnicConfig::kernel`](crate::RnicConfig::kernel). It takes pages, or
    /// from a [`KERNEL_BLOCK`](crate::KERNEL_BLOCK) on whole blocks, which are resident from the
    /// start and never swapped; a child of `fork` has nothing there.
    pub kernel: bool,
}

impl RegionOptions {
    /// Refuses Tagged Offsets beyond 2^64 (RFC 5041 §7.1: a range that wraps is in no region).
    pub(super) fn check_base(&self, len: usize) -> Result<(), MemError> {
        let (addr, len) = (self.base.unwrap_or(0), len as u64);
        addr.checked_add(len).map(drop).ok_or(MemError::Wrap { addr, len })
    }
}

/// Limits of a [`super::MemTable`].
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
        Self { stags: CAPABILITIES.max_stags }
    }
}
