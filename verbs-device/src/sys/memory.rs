//! Memory that a device reads and writes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};
use rddp_rdma::{Access, Remote, Sge, Stag};
use rddp_verbs_layout::{access, device, ibv_mr};

use super::context::{Domain, Lends};
use super::window::{Part, Place, Windows};
use crate::error::DeviceError;

/// Memory, and that it goes with its last registration where it is ours.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    len: usize,
    owned: Option<Layout>,
}

// SAFETY: the memory is reached by copies alone, which the device's own accesses are beside anyway.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: allocated by this layout, and no registration of it is left.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Memory registered with a device, until this is dropped.
#[derive(Debug)]
pub struct Registration {
    raw: NonNull<ibv_mr>,
    /// The rights that were asked for; the device may have been told more.
    rights: Access,
    memory: Arc<Memory>,
    /// Windows that have been bound to it, which end before.
    windows: Windows,
    domain: Arc<Domain>,
}

// SAFETY: a registration may be used and undone in any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// Beginning of registered memory of ours: the devices count in pages.
const PAGE: usize = 4096;

impl Registration {
    /// Registers memory of the program's. All its pages are made present and are kept so.
    ///
    /// # Errors
    /// The device refuses the rights or the memory; the limit of locked memory is reached.
    ///
    /// # Safety
    /// The memory is there until the registration, and every [`read_sink`](Self::read_sink) of it,
    /// has been dropped, and no reference of Rust covers it while a request or a peer may reach it.
    pub unsafe fn new(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Self, DeviceError> {
        if len == 0 {
            return Self::allocate(domain, len, access);
        }
        Self::register(domain, Arc::new(Memory { start, len, owned: None }), access, access)
    }

    /// Registers memory of its own, of zeros.
    ///
    /// # Errors
    /// As those of [`new`](Self::new).
    pub fn allocate(domain: &Arc<Domain>, len: usize, access: Access) -> Result<Self, DeviceError> {
        let layout = Layout::from_size_align(len.max(1), PAGE)
            .map_err(|_| DeviceError::Memory { len, error: io::ErrorKind::OutOfMemory.into() })?;
        // SAFETY: the layout has one octet at least.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        let memory = Memory { start, len, owned: Some(layout) };
        Self::register(domain, Arc::new(memory), access, access)
    }

    /// Registers the memory once more, as a sink of Reads. RNICs want a right of peers for that: so
    /// the key of this registration is shown to nobody.
    ///
    /// # Errors
    /// As those of [`new`](Self::new).
    pub fn read_sink(&self) -> Result<Self, DeviceError> {
        let is_iwarp = self.domain.context.transport() == device::TRANSPORT_IWARP;
        let told = Access::LOCAL_WRITE | if is_iwarp { Access::REMOTE_WRITE } else { Access::empty() };
        Self::register(&self.domain, Arc::clone(&self.memory), Access::LOCAL_WRITE, told)
    }

    /// Registers memory with rights of which the program has asked for some.
    fn register(
        domain: &Arc<Domain>,
        memory: Arc<Memory>,
        rights: Access,
        told: Access,
    ) -> Result<Self, DeviceError> {
        let flags = flags_of(told, domain.lends != Lends::Nothing, || domain.context.name())?;
        let table = &domain.context.library.table;
        // Devices refuse to register nothing: memory of no octets is ours, and has one.
        let len = memory.len.max(1);
        // SAFETY: the memory stays for as long as the registration holds it, or as its owner has
        // promised in `new`.
        let raw =
            unsafe { (table.ibv_reg_mr)(domain.raw.as_ptr(), memory.start.as_ptr().cast(), len, flags) };
        let raw = NonNull::new(raw).ok_or_else(|| refused(memory.len, io::Error::last_os_error()))?;
        Ok(Registration { raw, rights, memory, windows: Windows::default(), domain: Arc::clone(domain) })
    }

    /// Returns a piece of the memory for a request. The device checks that it is within.
    #[must_use]
    pub fn piece(&self, at: usize, len: usize) -> Sge {
        // SAFETY: a field that the library does not change.
        let key = unsafe { (&raw const (*self.raw.as_ptr()).lkey).read() };
        Sge { stag: Stag(key), addr: self.addr() + at as u64, len: len as u64 }
    }

    /// Returns the place of the first octet as peers know it, if they have a right to it.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        // SAFETY: as above.
        let key = unsafe { (&raw const (*self.raw.as_ptr()).rkey).read() };
        self.rights.intersects(Access::REMOTE).then(|| Remote { stag: Stag(key), to: self.addr() })
    }

    /// Returns a place in the memory for a window, with rights of its peer as C has them. `key` is
    /// the low octet of the window's new key.
    ///
    /// # Errors
    /// The place is to be registered by itself, and the device refuses that.
    pub(crate) fn place(&self, range: Range<usize>, flags: u32, key: u8) -> Result<Place<'_>, DeviceError> {
        let piece = self.piece(range.start, range.len());
        let part = self.part(range)?;
        let region = part.as_ref().map_or(self.raw, |part| part.raw);
        let part = part.map(|part| Box::new(part) as Part);
        Ok(Place { region, part, windows: &self.windows, piece, flags, key })
    }

    /// Registers a part of the memory by itself where a window would lend all of it. A part that
    /// does not fit is the device's to refuse.
    fn part(&self, range: Range<usize>) -> Result<Option<Self>, DeviceError> {
        if self.domain.lends != Lends::Registrations || range.is_empty() || range.end > self.len() {
            return Ok(None);
        }
        // SAFETY: within the memory.
        let start = unsafe { self.memory.start.add(range.start) };
        let memory = Memory { start, len: range.len(), owned: None };
        let rights = self.rights & (Access::LOCAL_WRITE | Access::BIND);
        Self::register(&self.domain, Arc::new(memory), rights, rights).map(Some)
    }

    fn addr(&self) -> u64 {
        self.memory.start.as_ptr().expose_provenance() as u64
    }

    /// Returns the length in octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Returns whether there are no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Copies octets out of the memory.
    ///
    /// # Panics
    /// The range is not within the memory.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.len() && into.len() <= self.len() - at, "outside of the registered memory");
        // SAFETY: within the memory, which no reference covers.
        unsafe {
            into.as_mut_ptr().copy_from_nonoverlapping(self.memory.start.as_ptr().add(at), into.len());
        }
    }

    /// Copies octets into the memory.
    ///
    /// # Panics
    /// The range is not within the memory.
    pub fn write(&self, at: usize, octets: &[u8]) {
        assert!(at <= self.len() && octets.len() <= self.len() - at, "outside of the registered memory");
        // SAFETY: within the memory, which no reference covers.
        unsafe {
            self.memory.start.as_ptr().add(at).copy_from_nonoverlapping(octets.as_ptr(), octets.len());
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Else the device would refuse, and keep the memory.
        self.windows.end();
        // SAFETY: a registration of ours, undone once. The memory goes behind it.
        unsafe { (self.domain.context.library.table.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// Returns rights as C has them.
pub(crate) fn flags_of(
    rights: Access,
    has_windows: bool,
    device: impl Fn() -> String,
) -> Result<c_int, DeviceError> {
    for (right, is_there, what) in [
        (Access::BIND, has_windows, "memory windows"),
        (Access::REMOTE_INVALIDATE, false, "a region that peers invalidate"),
        (Access::ZERO_BASED, false, "a zero-based region"),
    ] {
        if rights.contains(right) && !is_there {
            return Err(DeviceError::Unsupported { what, device: device() });
        }
    }
    // Devices refuse it as an argument that is wrong in some way.
    if rights.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !rights.contains(Access::LOCAL_WRITE)
    {
        return Err(DeviceError::Rights);
    }
    let flags = [
        (Access::LOCAL_WRITE, access::LOCAL_WRITE),
        (Access::REMOTE_WRITE, access::REMOTE_WRITE),
        (Access::REMOTE_READ, access::REMOTE_READ),
        (Access::REMOTE_ATOMIC, access::REMOTE_ATOMIC),
        (Access::BIND, access::MW_BIND),
    ];
    let flags = flags.into_iter().filter(|(right, _)| rights.contains(*right));
    Ok(flags.fold(0, |all, (_, flag)| all | flag as c_int))
}

/// Returns why memory was not registered: a limit that can be raised is named.
fn refused(len: usize, error: io::Error) -> DeviceError {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map(|(soft, _)| soft);
    match (error.raw_os_error(), limit) {
        (Some(libc::ENOMEM), Ok(limit)) if limit != libc::RLIM_INFINITY => {
            DeviceError::LockedMemory { len, limit }
        }
        _ => DeviceError::Memory { len, error },
    }
}
