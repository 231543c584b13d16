//! Protection domains, and the memory that belongs to them.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rddp_ddp::Stag;

use crate::config::QpConfig;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::mem::{Access, MemError, PdId, Region, RegionOptions, Window};
use crate::qp::QueuePair;
use crate::srq::{SharedReceiveQueue, SrqConfig, SrqInner};
use crate::wr::{Remote, Sge};

/// What belongs together: a QP's peer reaches only memory of the QP's own protection domain (RFC 5042 §6.1.1).
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    device: Arc<DeviceInner>,
    id: PdId,
}

impl ProtectionDomain {
    pub(crate) fn new(device: &Arc<DeviceInner>) -> Self {
        ProtectionDomain { device: device.clone(), id: device.next_pd() }
    }

    /// A region of `len` zeroed octets of our own.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.allocate_with(len, access, &RegionOptions::default())
    }

    /// The same, with options.
    pub fn allocate_with(
        &self,
        len: usize,
        access: Access,
        options: &RegionOptions,
    ) -> Result<MemoryRegion, Error> {
        let region = self.device.mem.allocate(self.id, len, access, options)?;
        Ok(MemoryRegion { device: self.device.clone(), region })
    }

    /// Registers memory of the program's own. No page is touched.
    ///
    /// Memory that goes bad while it is registered, as a mapping of a file that is cut short does,
    /// ends the connection that touches it and not the process. For this the first registration of
    /// a process installs a handler of SIGBUS and SIGSEGV, which hands on to the program's whatever
    /// is not a fault of ours. There is no guard
    ///
    /// - if the program installs a handler later that does not call the one it found, or blocks these
    ///   signals in a thread that calls this library: the process is ended, as by any such fault;
    /// - if something else is mapped where the memory was: peers read and write that;
    /// - on other processors than x86-64 and aarch64.
    ///
    /// # Safety
    /// Until the region has been dropped or deregistered, whatever is mapped in `ptr..ptr+len` is
    /// memory that peers and receives may read, and write as far as `access` says; and nothing
    /// relies on its contents staying the same: no Rust reference covers it then.
    #[allow(unsafe_code)] // hands the promise on to `mem`
    pub unsafe fn register(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: our caller's promise.
        unsafe { self.register_with(ptr, len, access, &RegionOptions::default()) }
    }

    /// The same, with options.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    #[allow(unsafe_code)] // as above
    pub unsafe fn register_with(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
        options: &RegionOptions,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller promises what `MemTable::register` asks for.
        let region = unsafe { self.device.mem.register(self.id, ptr, len, access, options)? };
        Ok(MemoryRegion { device: self.device.clone(), region })
    }

    /// A memory window, bound to nothing yet: see [`SendWr::bind`](crate::SendWr::bind).
    pub fn allocate_window(&self) -> Result<MemoryWindow, Error> {
        let window = self.device.mem.allocate_window(self.id)?;
        Ok(MemoryWindow { device: self.device.clone(), window })
    }

    /// A queue pair.
    pub fn create_qp(&self, config: &QpConfig) -> Result<QueuePair, Error> {
        QueuePair::create(&self.device, self.id, config)
    }

    /// A shared receive queue.
    pub fn create_srq(&self, config: SrqConfig) -> SharedReceiveQueue {
        SharedReceiveQueue(Arc::new(SrqInner::new(self.id, config)))
    }
}

/// Registered memory. Dropping it ends the registration, and invalidates windows that are still bound to it.
///
/// A peer may write to it at any time if its rights allow that, so no reference to its octets is ever given out.
///
/// ```
/// use rddp_rnic::{Access, Rnic};
/// let pd = Rnic::open()?.alloc_pd();
/// let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(100, b"hello")?;
/// assert_eq!(region.read(100, 5)?, b"hello");
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
pub struct MemoryRegion {
    device: Arc<DeviceInner>,
    region: Arc<Region>,
}

impl MemoryRegion {
    /// Its STag: what a peer is given, and what an [`Sge`] names.
    pub fn stag(&self) -> Stag {
        self.region.stag()
    }

    /// The Tagged Offset of its first octet.
    pub fn base(&self) -> u64 {
        self.region.base_to()
    }

    /// Its length in octets.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether it has no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its STag may be used: a peer or a request may have invalidated it.
    pub fn is_valid(&self) -> bool {
        self.region.is_valid()
    }

    /// A part of it, for a work request. A part beyond its end makes the request fail, not this call.
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Sge { stag: self.stag(), addr: self.base().wrapping_add(range.start as u64), len }
    }

    /// All of it (the first 4 GiB - 1), for a work request.
    pub fn whole(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// A place in it, for a peer's work request.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { stag: self.stag(), to: self.base().wrapping_add(offset as u64) }
    }

    /// Copies `octets` into it.
    pub fn write(&self, offset: usize, octets: &[u8]) -> Result<(), MemError> {
        self.region.write_at(offset, octets)
    }

    /// Copies `len` octets out of it.
    pub fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>, MemError> {
        let mut octets = vec![0; len];
        self.region.read_at(offset, &mut octets)?;
        Ok(octets)
    }

    /// Copies octets out of it.
    pub fn read_into(&self, offset: usize, out: &mut [u8]) -> Result<(), MemError> {
        self.region.read_at(offset, out)
    }

    /// Makes it valid again after an invalidation, or changes its rights, under an STag with another key.
    pub fn reregister(&self, access: Access) -> Result<Stag, MemError> {
        self.device.mem.reregister(self.stag(), access)
    }

    /// Ends the registration. After `Ok` no thread touches the memory any more. Refused while windows are bound to it.
    pub fn deregister(&self) -> Result<(), MemError> {
        self.device.mem.deregister(self.stag())
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("stag", &self.stag())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // It fails only when the program has deregistered it already.
        let _ = self.device.mem.deregister_with_windows(self.stag());
    }
}

/// A memory window: rights to a part of a region that one QP's peer has until they are revoked.
pub struct MemoryWindow {
    device: Arc<DeviceInner>,
    window: Arc<Window>,
}

impl MemoryWindow {
    /// Its STag. Each bind gives it another key.
    pub fn stag(&self) -> Stag {
        self.window.stag()
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow").field("stag", &self.stag()).finish_non_exhaustive()
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let _ = self.device.mem.deallocate_window(self.window.stag());
    }
}
