//! [`MemTable`]: all STags of one RNIC, and every check of an access.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rddp_ddp::{RangeError, Stag, check_range};
use rddp_rdmap::{AccessError, InvalidateError};

use super::access::{check_file, check_region};
use super::file::{self, ReadAt};
use super::mapped::{FileMapping, check_mapped};
use super::region::{Memory, Region, Revoker};
use super::slot::{Pin, SlotTable};
use super::stag::{StagSource, index};
use super::{Access, BindWindow, Claim, Grant, MemError, MemLimits, PdId, QpNum, RegionOptions, Window};
use crate::kernel::Kernel;

/// The regions and windows of one RNIC.
///
/// The two checks are lock-free and run for every segment; all other methods take locks. Methods
/// that make an STag invalid wait until the grants made from it are dropped. Dropping the table
/// does that for all STags and ends every registration.
pub struct MemTable {
    slots: SlotTable,
    registry: Mutex<Registry>,
    limit: usize,
}

/// The indices in use and their objects. Locked for moments only, and last: no other lock is taken
/// while it is held.
struct Registry {
    objects: HashMap<u32, Object>,
    stags: StagSource,
    /// Number of regions and windows of each PD.
    of_pd: HashMap<PdId, usize>,
    /// Number of windows bound on each QP.
    windows_of_qp: HashMap<QpNum, usize>,
}

#[derive(Clone)]
enum Object {
    Region(Arc<Region>),
    Window(Arc<Window>),
}

impl MemTable {
    /// Makes an empty table.
    pub fn new(limits: MemLimits) -> Self {
        Self::with_kernel(limits, None)
    }

    /// Makes an empty table of a device on which the kernel places.
    pub(crate) fn with_kernel(limits: MemLimits, kernel: Option<Arc<Kernel>>) -> Self {
        let registry = Registry {
            objects: HashMap::new(),
            stags: StagSource::new(),
            of_pd: HashMap::new(),
            windows_of_qp: HashMap::new(),
        };
        let limit = limits.stags.min(MemLimits::MAX_STAGS);
        Self { slots: SlotTable::new(kernel), registry: Mutex::new(registry), limit }
    }

    /// Registers memory of the program's, which must be mapped with the rights that
    /// `access` needs (RFC 5042 §7.3).
    ///
    /// Touches no page unless the options say so, and costs the same for any length. `options.lock`
    /// ends with the registration and does not nest.
    ///
    /// # Safety
    /// From now until [`MemTable::deregister`] of it has returned `Ok`, or
    /// the table has been dropped,
    /// - nothing else is mapped in the range: it stays as it is, with these rights, or goes bad (is
    ///   unmapped, or its file cut short), which ends the connection that touches it; and
    /// - no Rust reference to octets of it is alive while peers or work requests may change
    ///   them, nor an exclusive one at all: use raw pointers, atomics, or [`Region::read_at`]
    ///   and [`Region::write_at`].
    pub unsafe fn register(
        &self,
        pd: PdId,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
        options: &RegionOptions,
    ) -> Result<Arc<Region>, MemError> {
        check_region(access)?;
        options.check_base(len)?;
        if options.kernel {
            return Err(MemError::NotForKernel);
        }
        // SAFETY: `Memory::lent` demands what this function demands of its caller, for the same
        // range.
        let memory = unsafe { Memory::lent(ptr, len, access.writes(), options) }?;
        self.add_region(memory, pd, access, options)
    }

    /// Registers zeroed memory of our own, which stays mapped until the last handle and binding is
    /// gone.
    pub fn allocate(
        &self,
        pd: PdId,
        len: usize,
        access: Access,
        options: &RegionOptions,
    ) -> Result<Arc<Region>, MemError> {
        check_region(access)?;
        options.check_base(len)?;
        let memory = match (options.kernel, &self.slots.kernel) {
            (false, _) => Memory::ours(len, options)?,
            (true, Some(kernel)) => Memory::in_kernel(len, kernel)?,
            (true, None) => return Err(MemError::NotForKernel),
        };
        self.add_region(memory, pd, access, options)
    }

    /// Registers a range of a file, of which all octets can be read now. Nothing is mapped.
    pub fn register_file(
        &self,
        pd: PdId,
        file: File,
        range: Range<u64>,
        access: Access,
    ) -> Result<Arc<Region>, MemError> {
        self.register_octets(pd, file::open(file, &range)?, range, access)
    }

    /// Registers a range of a file that is mapped.
    pub fn register_mapping(
        &self,
        pd: PdId,
        mapping: &FileMapping,
        range: Range<usize>,
        access: Access,
    ) -> Result<Arc<Region>, MemError> {
        check_mapped(access)?;
        check_region(access)?;
        self.add_region(Memory::mapped(mapping, &range)?, pd, access, &RegionOptions::default())
    }

    /// Registers what this file has, or is going to have, in the range.
    pub(crate) fn register_octets(
        &self,
        pd: PdId,
        file: Box<dyn ReadAt>,
        range: Range<u64>,
        access: Access,
    ) -> Result<Arc<Region>, MemError> {
        check_file(access)?;
        check_region(access)?;
        let memory = Memory::of_file(file, range)?;
        self.add_region(memory, pd, access, &RegionOptions::default())
    }

    /// Ends a registration. Waits for placements in flight; after `Ok` this library does not touch
    /// the memory (but for `read_at` and `write_at` of memory that is our own). Refused while
    /// windows are bound.
    pub fn deregister(&self, stag: Stag) -> Result<(), MemError> {
        self.retire_region(&*self.region(stag)?, Some(stag))
    }

    /// Ends the registration of a region under its present STag, as
    /// [`deregister`](Self::deregister) does.
    pub fn deregister_region(&self, region: &Region) -> Result<(), MemError> {
        self.retire_region(region, None)
    }

    /// Ends a registration with all windows that are bound to it, for an owner that is being
    /// dropped and cannot be refused.
    pub fn deregister_with_windows(&self, stag: Stag) -> Result<(), MemError> {
        self.retire_with_windows(&self.region(stag)?, Some(stag))
    }

    /// Ends the registration of a region under its present STag, with its windows, as
    /// [`deregister_with_windows`](Self::deregister_with_windows) does.
    pub fn deregister_region_with_windows(&self, region: &Arc<Region>) -> Result<(), MemError> {
        self.retire_with_windows(region, None)
    }

    fn retire_region(&self, region: &Region, stag: Option<Stag>) -> Result<(), MemError> {
        region.retire(stag, &self.slots)?;
        self.remove(region.stag(), region.pd());
        Ok(())
    }

    fn retire_with_windows(&self, region: &Arc<Region>, stag: Option<Stag>) -> Result<(), MemError> {
        loop {
            match self.retire_region(region, stag) {
                // Another thread may bind one more meanwhile.
                Err(MemError::WindowsBound { .. }) => self.unbind_all(region),
                result => return result,
            }
        }
    }

    fn unbind_all(&self, region: &Arc<Region>) {
        let windows: Vec<_> = self.registry.lock().objects.values().filter_map(Object::window).collect();
        for window in windows {
            let bound_on = window.unbind_from(region, &self.slots);
            self.unbound(bound_on);
        }
    }

    /// Makes a region valid again, or changes its rights, under a new key, which is returned.
    pub fn reregister(&self, stag: Stag, access: Access) -> Result<Stag, MemError> {
        self.reopen(&*self.region(stag)?, Some(stag), access)
    }

    /// Makes a region valid again under its present STag, as [`reregister`](Self::reregister) does.
    pub fn reregister_region(&self, region: &Region, access: Access) -> Result<Stag, MemError> {
        self.reopen(region, None, access)
    }

    fn reopen(&self, region: &Region, stag: Option<Stag>, access: Access) -> Result<Stag, MemError> {
        region.reopen(stag, access, |old| self.registry.lock().stags.rekey(old), &self.slots)
    }

    /// Makes an unbound window of this PD, to be bound only while it is unbound.
    pub fn allocate_window(&self, pd: PdId) -> Result<Arc<Window>, MemError> {
        self.add_window(pd, false)
    }

    /// Makes an unbound window of this PD that may be bound again while it is bound.
    pub fn allocate_rebindable_window(&self, pd: PdId) -> Result<Arc<Window>, MemError> {
        self.add_window(pd, true)
    }

    fn add_window(&self, pd: PdId, rebindable: bool) -> Result<Arc<Window>, MemError> {
        self.add(pd, |stag| {
            let window = Arc::new(Window::new(pd, stag, rebindable));
            (Object::Window(window.clone()), window)
        })
    }

    /// Binds a window and returns its new STag (draft-hilland-rddp-verbs §7.10.2).
    pub fn bind(&self, request: &BindWindow) -> Result<Stag, MemError> {
        let stag = request.window;
        let window = self.window(stag)?;
        let unbinds = request.len == 0 && window.is_rebindable();
        let region = if unbinds { None } else { Some(self.region(request.region)?) };
        let rekey = || match request.key {
            Some(key) => Ok(Stag(stag.0 & !0xff | u32::from(key))),
            None => self.registry.lock().stags.rekey(stag),
        };
        // Counted first, so that whoever unbinds it at once finds it counted.
        *self.registry.lock().windows_of_qp.entry(request.qp).or_default() += 1;
        let bound = window.bind(request, region, rekey, &self.slots);
        if bound.is_err() || unbinds {
            self.unbound(Some(request.qp));
        }
        let (stag, before) = bound?;
        self.unbound(before);
        Ok(stag)
    }

    /// Returns whether an STag is that of a window that is bound.
    #[inline]
    pub(crate) fn is_bound(&self, stag: Stag) -> bool {
        self.window(stag).is_ok_and(|window| window.is_valid())
    }

    /// Returns whether an STag is that of a region, which need not be valid.
    #[inline]
    pub(crate) fn has_region(&self, stag: Stag) -> bool {
        self.region(stag).is_ok()
    }

    /// Ends a window, bound or not. Waits for placements in flight.
    pub fn deallocate_window(&self, stag: Stag) -> Result<(), MemError> {
        self.retire_window(&*self.window(stag)?, Some(stag))
    }

    /// Ends a window under its present STag, which each bind changes, as
    /// [`deallocate_window`](Self::deallocate_window) does.
    pub fn release_window(&self, window: &Window) -> Result<(), MemError> {
        self.retire_window(window, None)
    }

    fn retire_window(&self, window: &Window, stag: Option<Stag>) -> Result<(), MemError> {
        let bound_on = window.retire(stag, &self.slots)?;
        self.unbound(bound_on);
        self.remove(window.stag(), window.pd());
        Ok(())
    }

    /// Checks whether the peer of `qp` may do `want` (one of [`Access::REMOTE`]) to `len` octets at
    /// `to`, and returns a grant of them. For accesses of at least one octet; empty ones need no
    /// check (RFC 5041 §5.2, RFC 5042 §6.3.5).
    #[inline]
    pub fn check_remote(
        &self,
        stag: Stag,
        to: u64,
        len: u64,
        want: Access,
        pd: PdId,
        qp: QpNum,
    ) -> Result<Grant, AccessError> {
        // RFC 5041 §7.1: all of this before an octet is placed. The order decides which error is
        // reported to the peer.
        let pin = self.slots.pin(stag).ok_or(AccessError::Stag)?;
        let scope = pin.scope();
        // RFC 5041 §8.2: by PD for regions, by QP for windows and for regions that were given to
        // one.
        if (!scope.window && scope.pd != pd) || scope.qp.is_some_and(|only| only != qp) {
            return Err(AccessError::Pd);
        }
        if want.is_empty() || !scope.access.intersection(Access::REMOTE).contains(want) {
            return Err(AccessError::Rights);
        }
        grant(pin, to, len, want.writes())
    }

    /// Checks whether a work request of a QP in `pd` may read, or `write`, `len` octets at `addr`,
    /// and returns a grant of them. For regions only: a window is for the peer
    /// (draft-hilland-rddp-verbs §7.10). Empty ranges need no check.
    #[inline]
    pub fn check_local(
        &self,
        stag: Stag,
        addr: u64,
        len: u64,
        write: bool,
        pd: PdId,
    ) -> Result<Grant, AccessError> {
        let pin = self.slots.pin(stag).ok_or(AccessError::Stag)?;
        let scope = pin.scope();
        if scope.window {
            return Err(AccessError::Stag);
        }
        if scope.pd != pd {
            return Err(AccessError::Pd);
        }
        if write && !scope.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Rights);
        }
        grant(pin, addr, len, write)
    }

    /// Makes an STag invalid for a work request of `qp`. Waits for placements in flight. Does
    /// nothing to an STag that is invalid already.
    pub fn invalidate_local(&self, stag: Stag, pd: PdId, qp: QpNum) -> Result<(), InvalidateError> {
        self.invalidate(stag, Revoker { pd, qp, remote: false })
    }

    /// Makes an STag invalid for a Send with Invalidate from the peer of `qp`, which needs
    /// [`Access::REMOTE_INVALIDATE`]. Else as [`invalidate_local`](Self::invalidate_local).
    pub fn invalidate_remote(&self, stag: Stag, pd: PdId, qp: QpNum) -> Result<(), InvalidateError> {
        self.invalidate(stag, Revoker { pd, qp, remote: true })
    }

    /// Notes that the peer of `qp` may use its rights among these to change memory from now on.
    /// Waits for trains in flight.
    pub(crate) fn connect(&self, qp: QpNum, pd: PdId, rights: Access) {
        self.slots.writers.connect(qp, pd, rights);
    }

    /// Notes that the peer of `qp` may change no memory any more.
    pub(crate) fn disconnect(&self, qp: QpNum) {
        self.slots.writers.disconnect(qp);
    }

    /// Returns a claim for one train whose octets are summed where they lie. Its holder calls
    /// nothing that waits for trains.
    pub(crate) fn claim(&self) -> Claim {
        self.slots.writers.claim()
    }

    /// Returns the number of regions and windows.
    pub fn len(&self) -> usize {
        self.registry.lock().objects.len()
    }

    /// Returns whether there are no regions and windows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of regions and windows of a PD, which cannot end before they have.
    pub fn objects_of(&self, pd: PdId) -> usize {
        self.registry.lock().of_pd.get(&pd).copied().unwrap_or(0)
    }

    /// Returns whether a region or a window is bound to a QP of this number,
    /// which there need not be any more.
    pub(crate) fn names(&self, qp: QpNum) -> bool {
        let registry = self.registry.lock();
        let bound_to = |object: &Object| matches!(object, Object::Region(region) if region.qp() == Some(qp));
        registry.windows_of_qp.contains_key(&qp) || registry.objects.values().any(bound_to)
    }

    /// Returns the number of windows bound on a QP, which cannot end before they have.
    pub fn windows_of(&self, qp: QpNum) -> usize {
        self.registry.lock().windows_of_qp.get(&qp).copied().unwrap_or(0)
    }

    fn invalidate(&self, stag: Stag, by: Revoker) -> Result<(), InvalidateError> {
        match self.object(stag).ok_or(InvalidateError::Unknown)? {
            Object::Region(region) => region.invalidate(stag, by, &self.slots),
            Object::Window(window) => {
                let bound_on = window.invalidate(stag, by, &self.slots)?;
                self.unbound(bound_on);
                Ok(())
            }
        }
    }

    fn add_region(
        &self,
        memory: Memory,
        pd: PdId,
        access: Access,
        options: &RegionOptions,
    ) -> Result<Arc<Region>, MemError> {
        let region = self.add(pd, |stag| {
            let region = Arc::new(Region::new(memory, pd, stag, access, options));
            (Object::Region(region.clone()), region)
        })?;
        region.start(&self.slots);
        Ok(region)
    }

    /// Stores the object that `make` returns for a new STag, with a closed slot.
    fn add<T>(&self, pd: PdId, make: impl FnOnce(Stag) -> (Object, T)) -> Result<T, MemError> {
        let mut registry = self.registry.lock();
        if registry.objects.len() >= self.limit {
            return Err(MemError::TooManyStags { limit: self.limit });
        }
        self.slots.reserve();
        let stag = registry.stags.draw(|index| self.slots.is_vacant(index))?;
        self.slots.insert(stag);
        let (object, handle) = make(stag);
        registry.objects.insert(index(stag), object);
        *registry.of_pd.entry(pd).or_default() += 1;
        Ok(handle)
    }

    /// Takes back the STag of an object that has ended.
    fn remove(&self, stag: Stag, pd: PdId) {
        let mut registry = self.registry.lock();
        registry.objects.remove(&index(stag));
        self.slots.remove(stag);
        decrement(&mut registry.of_pd, pd);
    }

    /// Counts one window less on a QP.
    fn unbound(&self, qp: Option<QpNum>) {
        if let Some(qp) = qp {
            decrement(&mut self.registry.lock().windows_of_qp, qp);
        }
    }

    fn object(&self, stag: Stag) -> Option<Object> {
        self.registry.lock().objects.get(&index(stag)).cloned()
    }

    fn region(&self, stag: Stag) -> Result<Arc<Region>, MemError> {
        match self.object(stag) {
            Some(Object::Region(region)) => Ok(region),
            _ => Err(MemError::UnknownStag(stag)),
        }
    }

    fn window(&self, stag: Stag) -> Result<Arc<Window>, MemError> {
        match self.object(stag) {
            Some(Object::Window(window)) => Ok(window),
            _ => Err(MemError::UnknownStag(stag)),
        }
    }
}

impl Drop for MemTable {
    fn drop(&mut self) {
        let (regions, windows): (Vec<_>, Vec<_>) =
            self.registry.get_mut().objects.drain().map(|(_, object)| object).partition(Object::is_region);
        for object in windows.into_iter().chain(regions) {
            match object {
                Object::Window(window) => window.abandon(&self.slots),
                Object::Region(region) => region.abandon(&self.slots),
            }
        }
    }
}

impl Object {
    fn is_region(&self) -> bool {
        matches!(self, Object::Region(_))
    }

    fn window(&self) -> Option<Arc<Window>> {
        match self {
            Object::Window(window) => Some(window.clone()),
            Object::Region(_) => None,
        }
    }
}

/// Checks the bounds, as the last step of both checks, and makes the grant.
#[inline]
fn grant(pin: Pin, to: u64, len: u64, writable: bool) -> Result<Grant, AccessError> {
    let scope = pin.scope();
    let offset = check_range(scope.base, scope.len, to, len).map_err(|fault| match fault {
        RangeError::Wrap => AccessError::Wrap,
        RangeError::Bounds => AccessError::Bounds,
    })?;
    // SAFETY: the range is inside the scope, whose length is a region's and so a usize; and a scope
    // with a right that writes is of memory mapped so.
    Ok(unsafe { Grant::new(pin, offset as usize, len as usize, writable) })
}

/// Takes one from a count, and removes the entry at zero.
pub(super) fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let std::collections::hash_map::Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}
