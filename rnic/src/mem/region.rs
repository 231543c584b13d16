//! Memory regions: registered octets and their lifecycle (draft-hilland-rddp-verbs §7.2 to §7.4,
//! §7.8).

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use rddp_ddp::{Stag, check_range};
use rddp_rdmap::InvalidateError;

use super::access::{check_file, check_region, check_window};
use super::alloc::{self, Mapping};
use super::file::{FileRange, ReadAt};
use super::mapped::FileMapping;
use super::slot::{Scope, SlotTable};
use super::status::Status;
use super::{Access, Faulted, MemError, PdId, QpNum, RegionOptions, map, octets};
use crate::kernel::{Kernel, KernelMemory};

/// A registered range of memory.
///
/// The handle of the program that owns the memory. It lives until the last holder drops it; what
/// peers may do ends with [`super::MemTable::deregister`]. Octets are read and written by copying,
/// because a peer may change them at any time: no reference to them is given out.
pub struct Region {
    memory: Memory,
    pd: PdId,
    /// The only QP whose peer may use the STag.
    qp: Option<QpNum>,
    /// The first Tagged Offset, unless the region is zero-based.
    base: u64,
    status: Status,
    life: Mutex<Life>,
}

/// The part of a region's lifecycle that its lock protects.
struct Life {
    registered: bool,
    /// Number of windows bound to the region.
    windows: usize,
}

/// The party that asks for an STag to be invalidated.
#[derive(Clone, Copy)]
pub(super) struct Revoker {
    pub(super) pd: PdId,
    pub(super) qp: QpNum,
    /// True if the peer asks, by a Send with Invalidate; false for a local work request.
    pub(super) remote: bool,
}

impl Region {
    pub(super) fn new(memory: Memory, pd: PdId, stag: Stag, access: Access, options: &RegionOptions) -> Self {
        let life = Mutex::new(Life { registered: true, windows: 0 });
        let base = options.base.unwrap_or(memory.ptr.addr().get() as u64);
        Self { memory, pd, qp: options.qp, base, status: Status::new(stag, access), life }
    }

    /// Returns the STag by which peers and work requests name the region. Registering again changes
    /// it.
    pub fn stag(&self) -> Stag {
        self.status.stag()
    }

    /// Returns the Tagged Offset of the first octet.
    pub fn base_to(&self) -> u64 {
        match self.access().contains(Access::ZERO_BASED) {
            true => 0,
            false => self.base,
        }
    }

    /// Returns the length in octets.
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Returns whether the region has no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the protection domain whose QPs may use the region.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns the only QP whose peer may use the STag, if there is such a limit.
    pub(super) fn qp(&self) -> Option<QpNum> {
        self.qp
    }

    /// Returns the rights to the region.
    pub fn access(&self) -> Access {
        self.status.access()
    }

    /// Returns whether the STag is valid: neither invalidated nor deregistered.
    pub fn is_valid(&self) -> bool {
        self.status.is_valid()
    }

    /// Returns the address of the first octet. Whoever reads or writes through it shares the octets
    /// with peers and this library.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.ptr.as_ptr()
    }

    /// Copies octets from `offset` on into `out`, also while the STag is invalid.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), MemError> {
        let _alive = self.memory.hold()?;
        let from = self.memory.at(offset, out.len())?;
        if let Some(file) = self.file() {
            let (_, stop) = file.read(file.offset_of(from), out, true);
            return stop.map_or(Ok(()), |_| Err(Faulted.into()));
        }
        // SAFETY: `at` found that many octets inside the range, `hold` keeps it registered, and no
        // reference such as `out` covers octets of a region.
        unsafe { octets::read(self.is_lent(), from, out)? };
        Ok(())
    }

    /// Copies `data` to `offset`, also while the STag is invalid.
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), MemError> {
        let _alive = self.memory.hold()?;
        let to = self.memory.at(offset, data.len())?;
        if !self.memory.writable {
            return Err(MemError::ReadOnly);
        }
        // SAFETY: `at` found that many octets inside the range; `hold` keeps it registered, with
        // write permission; and no reference such as `data` covers octets of a region.
        unsafe { octets::write(self.is_lent(), to, data)? };
        Ok(())
    }

    /// Returns the CRC-32C of the octets in `range`, also while the STag is invalid.
    pub fn crc(&self, range: Range<usize>) -> Result<u32, MemError> {
        let (from, _alive) = self.reach(&range, false)?;
        // SAFETY: `reach` found the range inside the region, and `_alive` keeps it registered.
        Ok(unsafe { octets::sum(self.is_lent(), from, range.len(), 0)? })
    }

    /// Returns the address of a range, and what keeps it registered. With `write` the octets may be
    /// written there.
    pub(super) fn reach(
        &self,
        range: &Range<usize>,
        write: bool,
    ) -> Result<(NonNull<u8>, impl Sized + use<'_>), MemError> {
        let alive = self.memory.hold()?;
        let first = self.memory.at(range.start, range.len())?;
        if write && !self.memory.writable { Err(MemError::ReadOnly) } else { Ok((first, alive)) }
    }

    /// Does what [`Grant::fetch_modify_u64`](super::Grant::fetch_modify_u64) does to the number at
    /// `offset`, also while the STag is invalid. A region that is not writable is only read, and
    /// refused where `writes` is set.
    pub fn fetch_modify_u64(
        &self,
        offset: usize,
        writes: bool,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, MemError> {
        let _alive = self.memory.hold()?;
        let cell = self.memory.at(offset, size_of::<u64>())?.cast::<u64>();
        if !cell.is_aligned() {
            return Err(MemError::Misaligned { addr: cell.addr().get() as u64 });
        }
        if writes && !self.memory.writable {
            return Err(MemError::ReadOnly);
        }
        let change = |value| change(value).filter(|_| writes);
        // SAFETY: `at` found eight octets inside the range, and they are aligned; `hold` keeps it
        // registered, with write permission if they are written; what else touches them are copies
        // and atomics by raw pointers.
        Ok(unsafe { octets::modify(self.is_lent(), cell, change) }?)
    }

    /// Returns whether a program lent the memory or the file. What is lent may go bad while it is
    /// registered.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.memory.backing, Backing::Lent { .. } | Backing::File { .. } | Backing::Mapped { .. })
    }

    /// Returns the file that has the octets, if they are not in memory.
    pub(super) fn file(&self) -> Option<&Arc<FileRange>> {
        match &self.memory.backing {
            Backing::File { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Opens the region for the first time.
    pub(super) fn start(&self, slots: &SlotTable) {
        let _life = self.life.lock();
        self.open(self.stag(), self.access(), slots);
    }

    /// Opens the region's slot, which must be closed. Called only with `life` locked.
    fn open(&self, stag: Stag, access: Access, slots: &SlotTable) {
        self.status.set_valid(stag, access);
        let scope = Scope {
            base: self.base_to(),
            len: self.memory.len as u64,
            ptr: self.memory.ptr,
            pd: self.pd,
            qp: self.qp,
            access,
            window: false,
            is_file: self.memory.is_file,
            lent: self.is_lent(),
            file: self.file().cloned(),
        };
        slots.open(stag, &scope);
    }

    /// Makes the STag invalid (draft-hilland-rddp-verbs §7.8). Then no peer touches the octets any
    /// more.
    pub(super) fn invalidate(
        &self,
        stag: Stag,
        by: Revoker,
        slots: &SlotTable,
    ) -> Result<(), InvalidateError> {
        let life = self.life.lock();
        if !life.registered {
            return Err(InvalidateError::Unknown);
        }
        if self.stag() != stag {
            return Err(InvalidateError::Key);
        }
        if self.pd != by.pd || self.qp.is_some_and(|qp| qp != by.qp) {
            return Err(InvalidateError::Pd);
        }
        if life.windows > 0 {
            return Err(InvalidateError::WindowsBound);
        }
        // RFC 5042 §6.4.5: a peer may take away only what it alone was given.
        if by.remote && !self.access().contains(Access::REMOTE_INVALIDATE) {
            return Err(InvalidateError::Rights);
        }
        self.close(slots);
        Ok(())
    }

    /// Refuses what cannot be done while windows are bound to the region.
    pub(crate) fn refuse_lent(&self) -> Result<(), MemError> {
        match self.life.lock().windows {
            0 => Ok(()),
            windows => Err(MemError::WindowsBound { stag: self.stag(), windows }),
        }
    }

    /// Ends the registration: this library never touches the octets again.
    pub(super) fn retire(&self, stag: Option<Stag>, slots: &SlotTable) -> Result<(), MemError> {
        let mut life = self.alive(stag)?;
        match life.windows {
            0 => self.end(&mut life, slots),
            windows => return Err(MemError::WindowsBound { stag: self.stag(), windows }),
        }
        Ok(())
    }

    /// Ends the registration whatever is bound to the region. Called when the table is dropped,
    /// after its windows have ended.
    pub(super) fn abandon(&self, slots: &SlotTable) {
        self.end(&mut self.life.lock(), slots);
    }

    /// Makes the region valid again, with these rights and the STag that `rekey` makes of the old
    /// one.
    pub(super) fn reopen(
        &self,
        stag: Option<Stag>,
        access: Access,
        rekey: impl FnOnce(Stag) -> Result<Stag, MemError>,
        slots: &SlotTable,
    ) -> Result<Stag, MemError> {
        check_region(access)?;
        if self.file().is_some() {
            check_file(access)?;
        }
        let life = self.alive(stag)?;
        if life.windows > 0 {
            return Err(MemError::WindowsBound { stag: self.stag(), windows: life.windows });
        }
        // A program that lent memory for reading has vouched for no more than that.
        if access.writes() && !self.memory.writable {
            return Err(MemError::ReadOnly);
        }
        let changed = rekey(self.stag())?;
        self.close(slots);
        self.open(changed, access, slots);
        Ok(changed)
    }

    /// Counts one window more, if a window may have these rights to this range
    /// (draft-hilland-rddp-verbs §7.10.2); gives the range's first octet.
    pub(super) fn bind(
        &self,
        stag: Stag,
        pd: PdId,
        range: (u64, u64),
        access: Access,
    ) -> Result<NonNull<u8>, MemError> {
        let mut life = self.alive(Some(stag))?;
        if self.pd != pd {
            return Err(MemError::OtherPd(stag));
        }
        if !self.is_valid() {
            return Err(MemError::Invalid(stag));
        }
        if !self.access().contains(Access::BIND) {
            return Err(MemError::NotBindable(stag));
        }
        check_window(access, self.access())?;
        let (at, len) = range;
        let offset = check_range(self.base_to(), self.memory.len as u64, at, len)
            .map_err(|_| MemError::OutOfBounds { at, len })?;
        let ptr = self.memory.at(offset as usize, len as usize)?;
        life.windows += 1;
        Ok(ptr)
    }

    /// Takes back what [`Region::bind`] counted.
    pub(super) fn unbind(&self) {
        self.life.lock().windows -= 1;
    }

    /// Returns the lifecycle, locked, if the region is registered: under this STag, or under any
    /// when `None`.
    fn alive(&self, stag: Option<Stag>) -> Result<MutexGuard<'_, Life>, MemError> {
        let life = self.life.lock();
        let wanted = stag.unwrap_or(self.stag());
        if life.registered && self.stag() == wanted { Ok(life) } else { Err(MemError::UnknownStag(wanted)) }
    }

    /// Closes the slot if it is open. Called only with `life` locked.
    fn close(&self, slots: &SlotTable) {
        if self.is_valid() {
            slots.close(self.stag());
            self.status.set_invalid();
        }
    }

    fn end(&self, life: &mut Life, slots: &SlotTable) {
        self.close(slots);
        life.registered = false;
        self.memory.give_back();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("stag", &self.stag())
            .field("base_to", &self.base_to())
            .field("len", &self.len())
            .field("pd", &self.pd)
            .field("access", &self.access())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// The octets of a region, and the owner of their mapping.
pub(super) struct Memory {
    ptr: NonNull<u8>,
    len: usize,
    /// True if the memory is mapped writable.
    writable: bool,
    /// True if a part of the memory is a mapping of a file, which others may write.
    is_file: bool,
    backing: Backing,
}

enum Backing {
    /// A mapping of our own, kept as long as this value lives.
    Ours { _mapping: Mapping },
    /// A mapping of our own that the kernel can place into.
    Kernel { _memory: KernelMemory },
    /// A range of a file, and the addresses reserved for it.
    File { file: Arc<FileRange>, _reserved: Mapping },
    /// A mapping of a file, which regions share.
    Mapped { _mapping: Arc<Mapping> },
    /// A mapping of the program's, which keeps it until deregistration.
    Lent { live: RwLock<bool>, locked: bool },
}

// SAFETY: the octets belong to the process and not to a thread; they are reached only by copies
// through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: as above; the rest is locks and values that do not change.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` octets of our own.
    pub(super) fn ours(len: usize, options: &RegionOptions) -> Result<Self, MemError> {
        let mapping = Mapping::new(len, options)?;
        let ptr = mapping.ptr();
        if options.lock {
            alloc::lock(ptr, len)?;
        }
        Ok(Self { ptr, len, writable: true, is_file: false, backing: Backing::Ours { _mapping: mapping } })
    }

    /// Takes `len` octets of our own that the kernel can place into. It does so at any time, also
    /// while this end sends from there, as others may write to a file.
    pub(super) fn in_kernel(len: usize, kernel: &Arc<Kernel>) -> Result<Self, MemError> {
        let made = kernel.allocate(len);
        let memory = made.map_err(|error| MemError::Os { call: "allocation in the kernel", len, error })?;
        let (ptr, backing) = (memory.ptr(), Backing::Kernel { _memory: memory });
        Ok(Self { ptr, len, writable: true, is_file: true, backing })
    }

    /// Takes a range of a file.
    pub(super) fn of_file(file: Box<dyn ReadAt>, range: Range<u64>) -> Result<Self, MemError> {
        let Range { start, end } = range;
        let len =
            usize::try_from(end - start).map_err(|_| MemError::Wrap { addr: start, len: end - start })?;
        let reserved = Mapping::reserved(len)?;
        // Whatever takes the addresses for memory, a program among them, finds that it is gone.
        octets::prepare();
        let ptr = reserved.ptr();
        let file = Arc::new(FileRange::new(file, start, ptr));
        let backing = Backing::File { file, _reserved: reserved };
        Ok(Self { ptr, len, writable: false, is_file: true, backing })
    }

    /// Takes a range of a file that we have mapped.
    pub(super) fn mapped(mapping: &FileMapping, range: &Range<usize>) -> Result<Self, MemError> {
        let (mapping, ptr) = mapping.at(range)?;
        octets::prepare();
        let backing = Backing::Mapped { _mapping: mapping };
        Ok(Self { ptr, len: range.len(), writable: false, is_file: true, backing })
    }

    /// Takes a range that the program has mapped.
    ///
    /// # Safety
    /// As for [`super::MemTable::register`].
    pub(super) unsafe fn lent(
        ptr: NonNull<u8>,
        len: usize,
        write: bool,
        options: &RegionOptions,
    ) -> Result<Self, MemError> {
        let is_file = map::require(ptr, len, write)?;
        octets::prepare();
        if options.populate {
            alloc::populate(ptr, len, write)?;
        }
        if options.lock {
            alloc::lock(ptr, len)?;
        }
        let backing = Backing::Lent { live: RwLock::new(true), locked: options.lock };
        Ok(Self { ptr, len, writable: write, is_file, backing })
    }

    /// Returns the address of `len` octets from `offset` on, if the range is inside the region.
    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, MemError> {
        if offset > self.len || len > self.len - offset {
            return Err(MemError::OutOfBounds { at: offset as u64, len: len as u64 });
        }
        // SAFETY: `offset` is at most the length of one mapped range.
        Ok(unsafe { self.ptr.add(offset) })
    }

    /// Keeps the octets registered until the returned guard is dropped, if a program lent them.
    /// Fails if they have been given back.
    fn hold(&self) -> Result<Option<RwLockReadGuard<'_, bool>>, MemError> {
        match &self.backing {
            Backing::File { file, .. } if file.is_closed() => Err(MemError::Deregistered),
            Backing::Ours { .. } | Backing::Kernel { .. } | Backing::File { .. } | Backing::Mapped { .. } => {
                Ok(None)
            }
            Backing::Lent { live, .. } => {
                let live = live.read();
                if *live { Ok(Some(live)) } else { Err(MemError::Deregistered) }
            }
        }
    }

    /// Notes that the program has its memory back. Waits for copies that [`Memory::hold`] guards.
    fn give_back(&self) {
        match &self.backing {
            Backing::Ours { .. } | Backing::Kernel { .. } | Backing::Mapped { .. } => {}
            Backing::File { file, .. } => file.close(),
            Backing::Lent { live, locked } => {
                let was_live = std::mem::replace(&mut *live.write(), false);
                if was_live && *locked {
                    alloc::unlock(self.ptr, self.len);
                }
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.give_back();
    }
}
