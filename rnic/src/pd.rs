//! Protection domains, and the memory that belongs to them.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rddp_ddp::Stag;
use rddp_rdma::{Remote, Sge};

use crate::config::QpConfig;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::home::Home;
use crate::mem::{Access, MemError, PdId, Region, RegionOptions, Window};
use crate::qp::QueuePair;
use crate::srq::{SharedReceiveQueue, SrqConfig, SrqInner};

/// A protection domain: a QP's peer reaches only memory of the QP's own domain (RFC 5042 §6.1.1).
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    device: Home<Arc<DeviceInner>>,
    id: PdId,
    /// The number of QPs and shared receive queues.
    queues: Arc<AtomicUsize>,
}

/// A QP or a shared receive queue, as a protection domain counts it until the program drops it.
#[derive(Debug)]
pub(crate) struct PdUser(Arc<AtomicUsize>);

impl PdUser {
    fn new(pd: &ProtectionDomain) -> Self {
        pd.queues.fetch_add(1, Ordering::Relaxed);
        PdUser(pd.queues.clone())
    }
}

impl Drop for PdUser {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ProtectionDomain {
    pub(crate) fn new(device: &Home<Arc<DeviceInner>>) -> Self {
        ProtectionDomain { device: device.clone(), id: device.anywhere().next_pd(), queues: Arc::default() }
    }

    /// Returns the number of regions, windows, QPs and shared receive queues of the domain. A
    /// domain without any of these may end (draft-hilland-rddp-verbs §5.2.2).
    pub fn users(&self) -> usize {
        let memory = self.device.here().map_or(0, |device| device.mem.objects_of(self.id));
        memory + self.queues.load(Ordering::Relaxed)
    }

    /// Allocates a region of `len` zeroed octets.
    pub fn allocate(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.allocate_with(len, access, &RegionOptions::default())
    }

    /// Allocates a region of `len` zeroed octets, with options.
    pub fn allocate_with(
        &self,
        len: usize,
        access: Access,
        options: &RegionOptions,
    ) -> Result<MemoryRegion, Error> {
        let device = self.device.here()?.clone();
        let region = device.mem.allocate(self.id, len, access, options)?;
        Ok(MemoryRegion(Home::new(Registered { device, region })))
    }

    /// Registers memory of the program's own. No page is touched.
    ///
    /// The range has to be mapped with the rights that `access` needs. Where there is no `/proc`,
    /// the rights cannot be looked up: then memory without them is registered, and goes bad in the
    /// sense of the next paragraph with the first access.
    ///
    /// Memory that goes bad while it is registered, as a mapping of a file that is cut short does,
    /// ends the connection that touches it and not the process. For this the first registration of
    /// a process installs a handler of SIGBUS and SIGSEGV, which passes every other fault on to the
    /// program's handler. There is no such protection
    ///
    /// - if the program installs a handler later that does not call the one it found,
    ///   or blocks these signals in a thread that calls this library: the process is
    ///   ended, as by any such fault;
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
        // SAFETY: `register_with` demands of the same range what this function demands of its
        // caller.
        unsafe { self.register_with(ptr, len, access, &RegionOptions::default()) }
    }

    /// Registers memory of the program's own, with options: see [`register`](Self::register).
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
        let device = self.device.here()?.clone();
        // SAFETY: until the region is gone, its range is memory that peers may use as `access`
        // says, and no reference covers it: our caller sees to both, and `MemTable::register` asks
        // for no more.
        let region = unsafe { device.mem.register(self.id, ptr, len, access, options)? };
        Ok(MemoryRegion(Home::new(Registered { device, region })))
    }

    /// Makes an unbound memory window: see [`SendWr::bind`](crate::SendWr::bind). It is bound only
    /// while it is unbound, and unbound by an invalidation of its STag
    /// (draft-hilland-rddp-verbs §7.10; type 2 of the C verbs).
    pub fn allocate_window(&self) -> Result<MemoryWindow, Error> {
        let device = self.device.here()?.clone();
        let window = device.mem.allocate_window(self.id)?;
        Ok(MemoryWindow(Home::new(Allocated { device, window })))
    }

    /// Makes an unbound memory window for which a bind takes the place of the one before, also on
    /// another QP, and a bind of no octets unbinds it (type 1 of the C verbs). As with any window,
    /// only the peer of the QP on which it was bound can use it.
    pub fn allocate_rebindable_window(&self) -> Result<MemoryWindow, Error> {
        let device = self.device.here()?.clone();
        let window = device.mem.allocate_rebindable_window(self.id)?;
        Ok(MemoryWindow(Home::new(Allocated { device, window })))
    }

    /// Makes a queue pair.
    pub fn create_qp(&self, config: &QpConfig) -> Result<QueuePair, Error> {
        QueuePair::create(self.device.here()?, self.id, config, PdUser::new(self))
    }

    /// Makes a shared receive queue.
    pub fn create_srq(&self, config: SrqConfig) -> SharedReceiveQueue {
        let srq = SrqInner::new(self.device.anywhere().clone(), self.id, config);
        SharedReceiveQueue::new(self.device.beside(Arc::new(srq)), PdUser::new(self))
    }
}

/// Registered memory. Dropping it ends the registration, and invalidates windows that are still
/// bound to it.
///
/// A peer may write to it at any time if its rights allow that, so no reference to its octets is
/// ever given out.
///
/// ```
/// use rddp_rnic::{Access, Rnic};
/// let pd = Rnic::open()?.alloc_pd();
/// let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(100, b"hello")?;
/// assert_eq!(region.read(100, 5)?, b"hello");
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
pub struct MemoryRegion(Home<Registered>);

struct Registered {
    device: Arc<DeviceInner>,
    region: Arc<Region>,
}

impl MemoryRegion {
    fn region(&self) -> &Region {
        &self.0.anywhere().region
    }

    /// Returns the STag, which is told to a peer and named by an [`Sge`].
    pub fn stag(&self) -> Stag {
        self.region().stag()
    }

    /// Returns the Tagged Offset of the first octet.
    pub fn base(&self) -> u64 {
        self.region().base_to()
    }

    /// Returns the length in octets.
    pub fn len(&self) -> usize {
        self.region().len()
    }

    /// Returns whether the region has no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the STag is valid: a peer or a request may have invalidated it.
    pub fn is_valid(&self) -> bool {
        self.region().is_valid()
    }

    /// Returns a part of the region, for a work request. A part beyond its end, or one that ends
    /// before it starts, is refused when it is posted.
    pub fn sge(&self, range: Range<usize>) -> Sge {
        // A range that ends before it starts becomes longer than any region, so that posting
        // refuses it.
        let len = (range.end as u64).wrapping_sub(range.start as u64);
        Sge { stag: self.stag(), addr: self.base().wrapping_add(range.start as u64), len }
    }

    /// Returns the whole region, for a work request.
    pub fn whole(&self) -> Sge {
        self.sge(0..self.len())
    }

    /// Returns a place in the region, for a peer's work request.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { stag: self.stag(), to: self.base().wrapping_add(offset as u64) }
    }

    /// Copies `octets` into the region.
    pub fn write(&self, offset: usize, octets: &[u8]) -> Result<(), MemError> {
        self.0.here()?.region.write_at(offset, octets)
    }

    /// Copies `len` octets out of the region.
    pub fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>, MemError> {
        let mut octets = vec![0; len];
        self.read_into(offset, &mut octets)?;
        Ok(octets)
    }

    /// Copies octets out of the region.
    pub fn read_into(&self, offset: usize, out: &mut [u8]) -> Result<(), MemError> {
        self.0.here()?.region.read_at(offset, out)
    }

    /// Makes the region valid again after an invalidation, or changes its rights, under an STag
    /// with another key, which it returns.
    pub fn reregister(&self, access: Access) -> Result<Stag, MemError> {
        let Registered { device, region } = self.0.here()?;
        device.mem.reregister_region(region, access)
    }

    /// Ends the registration. After `Ok` no thread touches the memory any more. Refused while
    /// windows are bound to it.
    pub fn deregister(&self) -> Result<(), MemError> {
        let Registered { device, region } = self.0.here()?;
        device.mem.deregister_region(region)
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
        let Ok(Registered { device, region }) = self.0.here() else { return };
        // An error only means that the program has deregistered the region already.
        let _ = device.mem.deregister_region_with_windows(region);
    }
}

/// A memory window: rights to a part of a region that one QP's peer has until they are revoked.
pub struct MemoryWindow(Home<Allocated>);

struct Allocated {
    device: Arc<DeviceInner>,
    window: Arc<Window>,
}

impl MemoryWindow {
    /// Returns the STag. Each bind gives it another key.
    pub fn stag(&self) -> Stag {
        self.0.anywhere().window.stag()
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow").field("stag", &self.stag()).finish_non_exhaustive()
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let Ok(Allocated { device, window }) = self.0.here() else { return };
        // Through the handle, not by STag: a bind in another thread may be changing that.
        let _ = device.mem.release_window(window);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::device::Rnic;
    use crate::mem::{BindWindow, QpNum};

    const ROUNDS: usize = 20_000;

    /// RFC 5042 §6.2.2: a bind that comes between two steps of the drop gives
    /// the window another STag.
    #[test]
    fn a_window_that_is_dropped_while_it_is_bound_opens_nothing() {
        let pd = Rnic::open().unwrap().alloc_pd();
        let region = pd.allocate(64, Access::LOCAL_WRITE | Access::BIND).unwrap();
        let (mem, start) = (&pd.device.anywhere().mem, &Barrier::new(2));
        let windows: Vec<_> = (0..ROUNDS).map(|_| pd.allocate_window().unwrap()).collect();
        let binds: Vec<_> = windows.iter().map(|window| bind(window, &region)).collect();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for request in binds {
                    start.wait();
                    let _ = mem.bind(&request);
                }
            });
            for window in windows {
                start.wait();
                drop(window);
            }
        });
        assert_eq!((mem.windows_of(QpNum(1)), mem.len()), (0, 1));
        region.deregister().unwrap();
    }

    /// The handle names the region, whatever STag another thread gives it meanwhile.
    #[test]
    fn a_region_is_deregistered_while_it_is_registered_again() {
        let pd = Rnic::open().unwrap().alloc_pd();
        let regions: Vec<_> = (0..ROUNDS).map(|_| pd.allocate(8, Access::REMOTE_READ).unwrap()).collect();
        let start = &Barrier::new(2);
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                for region in &regions {
                    start.wait();
                    let _ = region.reregister(Access::REMOTE_READ);
                }
            });
            let deregister = |region: &MemoryRegion| {
                start.wait();
                region.deregister()
            };
            regions.iter().map(deregister).filter(Result::is_err).count()
        });
        assert_eq!((refused, pd.device.anywhere().mem.len()), (0, 0));
    }

    fn bind(window: &MemoryWindow, region: &MemoryRegion) -> BindWindow {
        BindWindow {
            window: window.stag(),
            region: region.stag(),
            addr: region.base(),
            len: 64,
            access: Access::REMOTE_WRITE,
            pd: window.0.anywhere().window.pd(),
            qp: QpNum(1),
            key: None,
        }
    }
}
