//! Protection domains, which make what belongs to them.

use std::fs::File;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::QpConfig;
use crate::device::DeviceInner;
use crate::error::Error;
use crate::home::Home;
use crate::mem::{Access, FileMapping, PdId, RegionOptions};
use crate::qp::QueuePair;
use crate::queues::srq::{SrqConfig, SrqInner};
use crate::region::{MemoryRegion, MemoryWindow};
use crate::srq::SharedReceiveQueue;

/// A protection domain: a QP's peer reaches only memory of the QP's own domain (RFC 5042 §6.1.1).
///
/// ```
/// use rddp_rnic::{Access, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// assert_eq!(pd.users(), 2);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) device: Home<Arc<DeviceInner>>,
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
        let device = self.device.here()?.adapter.clone();
        let region = device.mem.allocate(self.id, len, access, options)?;
        MemoryRegion::registered(device, region, options)
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
        let device = self.device.here()?.adapter.clone();
        // SAFETY: until the region is gone, its range is memory that peers may use as `access`
        // says, and no reference covers it: our caller sees to both, and `MemTable::register` asks
        // for no more.
        let region = unsafe { device.mem.register(self.id, ptr, len, access, options)? };
        MemoryRegion::registered(device, region, options)
    }

    /// Registers a range of a file, which peers Read. Nothing is mapped, and nothing is read before
    /// it is asked for. The file is the region's until that is deregistered; `file.try_clone()`
    /// keeps another descriptor.
    ///
    /// The rights may be [`Access::REMOTE_READ`], [`Access::REMOTE_INVALIDATE`], [`Access::BIND`]
    /// and [`Access::ZERO_BASED`]. Sends and Writes of the program may name the region as their
    /// source, too, but not over [`Transport::Tcp`](crate::Transport::Tcp).
    /// [`MemoryRegion::as_ptr`] is an address at which nothing is mapped.
    ///
    /// # Octets that change
    ///
    /// A Read returns octets that the file had at some time between the arrival of its request and
    /// the end of its Response, and a message octets that it had between its post and its
    /// completion. Where the file is written meanwhile, old and new ones may stand side by side;
    /// they arrive all the same, since the CRC is taken of what has been read (RFC 5044 §4.4). So a
    /// program that needs one version compares the file's times and size before and after, or
    /// serves files that are replaced (`rename`) and not written to: a region stays with the file
    /// that it was made of, also once that has another name or none.
    ///
    /// Where the file has been cut short within the range, or its disk fails, the Read ends its
    /// connection: the peer gets a Terminate (0x0101, base or bounds violation), and its request
    /// completes with [`Status::RemoteAccess`](crate::Status::RemoteAccess). A message completes
    /// with [`Status::LocalProtection`](crate::Status::LocalProtection), and its connection ends.
    /// Other connections, and the process, go on. A file that becomes longer is registered anew.
    ///
    /// Octets that are not in the page cache are read by two threads of the device. Meanwhile the
    /// Response or message waits, and nothing else does but deregistration.
    ///
    /// # Errors
    /// A right that is none of these; no regular file, or one that is not open for reading; a range
    /// that is not inside the file now.
    ///
    /// ```
    /// use rddp_rnic::{Access, Rnic};
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let len = file.metadata()?.len();
    /// let region = Rnic::open()?.alloc_pd().register_file(file, 0..len, Access::REMOTE_READ)?;
    /// assert_eq!(region.read(0, 9)?, b"[package]");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_file(
        &self,
        file: impl Into<File>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let device = self.device.here()?.adapter.clone();
        device.only_software("regions over files")?;
        let region = device.mem.register_file(self.id, file.into(), range, access)?;
        Ok(MemoryRegion::new(device, region))
    }

    /// Registers a range of a file that is mapped, which peers Read. It costs the device less than
    /// [`register_file`](Self::register_file) while the file is in memory, and never reads ahead:
    /// where it is not, the thread that serves all connections waits for the disk.
    ///
    /// The rights may be those of `register_file`, and [`Access::STABLE`]: by it the owner promises
    /// that nobody changes the file, and its octets are sent without a copy. Without it, and with
    /// CRC, they are copied first.
    ///
    /// A file that is cut short is as for `register_file`: what reaches there ends its connection,
    /// and no signal reaches the program (as far as [`register`](Self::register) says).
    ///
    /// # Errors
    /// A right that is none of these; a range that is not inside the file as it was mapped.
    pub fn register_mapping(
        &self,
        mapping: &FileMapping,
        range: Range<usize>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let device = self.device.here()?.adapter.clone();
        device.only_software("regions over files")?;
        let region = device.mem.register_mapping(self.id, mapping, range, access)?;
        Ok(MemoryRegion::new(device, region))
    }

    /// Makes an unbound memory window: see [`SendWr::bind`](crate::SendWr::bind). It is bound only
    /// while it is unbound, and unbound by an invalidation of its STag
    /// (draft-hilland-rddp-verbs §7.10; type 2 of the C verbs).
    pub fn allocate_window(&self) -> Result<MemoryWindow, Error> {
        let device = self.device.here()?.adapter.clone();
        let window = device.mem.allocate_window(self.id)?;
        MemoryWindow::allocated(device, window)
    }

    /// Makes an unbound memory window for which a bind takes the place of the one before, also on
    /// another QP, and a bind of no octets unbinds it (type 1 of the C verbs). As with any window,
    /// only the peer of the QP on which it was bound can use it.
    pub fn allocate_rebindable_window(&self) -> Result<MemoryWindow, Error> {
        let device = self.device.here()?.adapter.clone();
        device.only_software("memory windows that are bound again while they are bound")?;
        let window = device.mem.allocate_rebindable_window(self.id)?;
        Ok(MemoryWindow::new(device, window))
    }

    /// Makes a queue pair.
    ///
    /// # Errors
    /// A setting is out of range or excludes another, an object belongs to another device, or a
    /// completion queue has overflowed.
    pub fn create_qp(&self, config: &QpConfig) -> Result<QueuePair, Error> {
        QueuePair::create(self.device.here()?, self.id, config, PdUser::new(self))
    }

    /// Makes a shared receive queue.
    pub fn create_srq(&self, config: SrqConfig) -> SharedReceiveQueue {
        let device = self.device.anywhere();
        let srq = SrqInner::new(device.next_srq(), device.adapter.clone(), self.id, config);
        SharedReceiveQueue::new(self.device.beside(Arc::new(srq)), PdUser::new(self))
    }
}
