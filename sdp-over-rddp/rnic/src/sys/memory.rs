//! Memory of the program that an operation of a socket uses.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rddp_rnic::{Access, Error, MemoryRegion, ProtectionDomain};
use rddp_sdp::transport::{Fault, Memory};

/// A run of octets that a socket may use until its operation has ended: memory that the program
/// lent, or private memory of the binding.
#[derive(Clone, Debug)]
pub struct ProgramMemory(Backing);

#[derive(Clone, Debug)]
enum Backing {
    Lent(Arc<Lent>),
    Private(Arc<MemoryRegion>),
}

#[derive(Debug)]
struct Lent {
    ptr: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the pointer is used for copies and registrations alone, which `ProgramMemory::lent`'s
// caller has allowed to whoever holds the value; no state hangs on a thread.
unsafe impl Send for Lent {}
// SAFETY: as above; copies through it go to octets that nobody holds a reference to.
unsafe impl Sync for Lent {}

impl ProgramMemory {
    /// Lends `len` octets for the length of an operation.
    ///
    /// # Safety
    /// Until the operation has ended that takes this value and its clones, the range is mapped, and
    /// it may be read, and when `writable` written, by this process and by peers; no reference to
    /// it is used meanwhile, except for reading when it is not `writable`.
    #[must_use]
    pub unsafe fn lent(ptr: NonNull<u8>, len: usize, writable: bool) -> Self {
        ProgramMemory(Backing::Lent(Arc::new(Lent { ptr, len, writable })))
    }

    /// Lends octets for reading while `call` runs, which has to let go of them.
    pub(crate) fn while_reading<T>(octets: &[u8], call: impl FnOnce(Self) -> T) -> T {
        // SAFETY: the slice is borrowed for the length of this call, behind which `lent_for` lets
        // nothing of the value survive; what is not writable is only read.
        unsafe { Self::lent_for(NonNull::from(octets).cast(), octets.len(), false, call) }
    }

    /// Lends octets for writing while `call` runs, which has to let go of them.
    pub(crate) fn while_writing<T>(octets: &mut [u8], call: impl FnOnce(Self) -> T) -> T {
        let len = octets.len();
        // SAFETY: as above; the slice is borrowed alone, and not used meanwhile.
        unsafe { Self::lent_for(NonNull::from(octets).cast(), len, true, call) }
    }

    /// # Safety
    /// As for [`lent`](Self::lent), for the length of this call.
    unsafe fn lent_for<T>(ptr: NonNull<u8>, len: usize, writable: bool, call: impl FnOnce(Self) -> T) -> T {
        // SAFETY: the caller answers for the length of this call, and no clone outlives it: the
        // guard ends the process first. A use of a registration holds a clone.
        let memory = unsafe { Self::lent(ptr, len, writable) };
        let Backing::Lent(lent) = &memory.0 else { unreachable!("it was lent above") };
        let _guard = LastUse(lent.clone());
        call(memory)
    }

    /// Wraps private memory.
    pub(crate) fn private(region: MemoryRegion) -> Self {
        ProgramMemory(Backing::Private(Arc::new(region)))
    }

    /// Returns where the octets are, and whether they may be written; `None` for private memory.
    pub(crate) fn range(&self) -> Option<(usize, usize, bool)> {
        match &self.0 {
            Backing::Lent(lent) => Some((lent.ptr.as_ptr().addr(), lent.len, lent.writable)),
            Backing::Private(_) => None,
        }
    }

    /// Returns the registration that private memory has from the start.
    pub(crate) fn own_region(&self) -> Option<&Arc<MemoryRegion>> {
        match &self.0 {
            Backing::Lent(_) => None,
            Backing::Private(region) => Some(region),
        }
    }

    /// Copies a part to a place in a region.
    pub(crate) fn copy_to(&self, part: Range<usize>, to: &MemoryRegion, at: usize) -> Result<(), Fault> {
        match &self.0 {
            Backing::Lent(lent) => {
                let from = lent.part(&part)?;
                // SAFETY: `part` checked that the range lies in what was lent, which is mapped and
                // may be read until the operation has ended, and that is after this copy; nobody
                // writes to it but Reads and Writes into other parts.
                let octets = unsafe { std::slice::from_raw_parts(from.as_ptr(), part.len()) };
                to.write(at, octets).map_err(|_| Fault::Address)
            }
            Backing::Private(region) => {
                let octets = region.read(part.start, part.len()).map_err(|_| Fault::Address)?;
                to.write(at, &octets).map_err(|_| Fault::Address)
            }
        }
    }

    /// Fills the octets from `at` on with a part of a region.
    pub(crate) fn fill(&self, at: usize, from: &MemoryRegion, part: Range<usize>) -> Result<(), Fault> {
        match &self.0 {
            Backing::Lent(lent) if !lent.writable => Err(Fault::Address),
            Backing::Lent(lent) => {
                let to = lent.part(&(at..at + part.len()))?;
                // SAFETY: `part` checked that the range lies in what was lent; it is mapped and
                // writable until the operation has ended, and no reference to it is used meanwhile.
                let out = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), part.len()) };
                from.read_into(part.start, out).map_err(|_| Fault::Address)
            }
            Backing::Private(region) => {
                let octets = from.read(part.start, part.len()).map_err(|_| Fault::Address)?;
                region.write(at, &octets).map_err(|_| Fault::Address)
            }
        }
    }

    /// Registers a part of lent memory.
    pub(crate) fn register(
        &self,
        pd: &ProtectionDomain,
        part: Range<usize>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let Backing::Lent(lent) = &self.0 else { return pd.allocate(0, access) };
        let from = lent.part(&part).unwrap_or(lent.ptr);
        let len = part.len().min(lent.len);
        // SAFETY: the range is lent until the operation has ended. The socket releases the
        // registration before it says that an operation has ended, and `Registry` leaves peers no
        // rights to a released one.
        unsafe { pd.register(from, len, access) }
    }
}

/// Sees to it that lent memory is let go of, also when a call panics.
struct LastUse(Arc<Lent>);

impl Drop for LastUse {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            // Somebody may still touch memory that is about to be its owner's again.
            std::process::abort();
        }
    }
}

impl Lent {
    fn part(&self, part: &Range<usize>) -> Result<NonNull<u8>, Fault> {
        if part.start > part.end || part.end > self.len {
            return Err(Fault::Address);
        }
        // SAFETY: the offset is at most the length of the range, which is one allocation.
        Ok(unsafe { self.ptr.add(part.start) })
    }
}

impl Memory for ProgramMemory {
    fn len(&self) -> usize {
        match &self.0 {
            Backing::Lent(lent) => lent.len,
            Backing::Private(region) => region.len(),
        }
    }
}
