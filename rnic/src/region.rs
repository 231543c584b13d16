//! A program's handles on registered memory: regions and windows.

use std::fmt;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::os::fd::AsFd;
use std::sync::Arc;

use rddp_ddp::Stag;
use rddp_rdma::{Remote, Sge};

use crate::adapter::Adapter;
use crate::error::Error;
use crate::home::Home;
use crate::mem::{Access, HostDevice, MemError, Region, RegionOptions, Window};

/// Registered memory. Dropping it ends the registration, and invalidates windows that are still
/// bound to it.
///
/// A peer may write to it at any time if its rights allow that, so no reference to its octets is
/// ever given out.
///
/// # Memory that a peer uses at the same time
///
/// A copy ([`read`](Self::read), [`write`](Self::write), and what the device does for a peer's Read
/// or Write) is made octet by octet, in any order, and takes no lock. So:
///
/// - A peer's Read of octets that are written meanwhile returns for each of them what it was before
///   or after, and old beside new even inside of one number. A program whose peers are to see
///   whole values writes something by which they know them: a sum of the value beside it, or a
///   version that they Read before the value and once more behind it, by Reads of their own.
/// - Whoever sees the last eight octets of a peer's Write sees all of it, and of the Writes before
///   it. At an address that is a multiple of eight they change at once, and
///   [`read_u64`](Self::read_u64) waits for them best.
/// - Numbers at such addresses that are reached by [`read_u64`](Self::read_u64),
///   [`write_u64`](Self::write_u64), [`fetch_add_u64`](Self::fetch_add_u64) and
///   [`cmp_swap_u64`](Self::cmp_swap_u64) here, and by `FetchAdd` and `CmpSwap` from peers, are
///   whole, and no addition is lost (RFC 7306 §5.3): a counter or a lock that both ends use. All of
///   them are in this machine's byte order.
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
    device: Arc<Adapter>,
    region: Arc<Region>,
}

impl MemoryRegion {
    pub(crate) fn new(device: Arc<Adapter>, region: Arc<Region>) -> Self {
        MemoryRegion(Home::new(Registered { device, region }))
    }

    /// Registers a region that is in the table with the device of the host, too, if there is one.
    pub(crate) fn registered(
        device: Arc<Adapter>,
        region: Arc<Region>,
        options: &RegionOptions,
    ) -> Result<Self, Error> {
        let registered = device.host.as_ref().map(|host| host.register(&region, options));
        // Dropped, it leaves the table, too.
        let region = Self::new(device, region);
        registered.transpose()?;
        Ok(region)
    }

    fn region(&self) -> &Region {
        &self.0.anywhere().region
    }

    /// Returns the STag, by which an [`Sge`] names the region. Peers name it so, too, unless a
    /// device of the host has another key for them: see [`remote`](Self::remote).
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

    /// Returns the address of the first octet in this process. Behind it are [`len`](Self::len)
    /// octets, which peers and requests may change at any time.
    ///
    /// ```
    /// use rddp_rnic::{Access, Rnic};
    /// let region = Rnic::open()?.alloc_pd().allocate(64, Access::LOCAL_WRITE)?;
    /// assert_eq!(region.as_ptr().addr() as u64, region.base());
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    pub fn as_ptr(&self) -> *mut u8 {
        self.region().as_ptr()
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
    ///
    /// ```
    /// use rddp_rnic::{Access, Rnic};
    /// let region = Rnic::open()?.alloc_pd().allocate(64, Access::LOCAL_WRITE)?;
    /// assert_eq!([region.sge(16..24).len, region.sge(..=7).len, region.sge(48..).len], [8, 8, 16]);
    /// assert_eq!(region.sge(..), region.whole());
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let start = match range.start_bound() {
            Bound::Included(start) => *start as u64,
            Bound::Excluded(before) => (*before as u64).saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => (*last as u64).saturating_add(1),
            Bound::Excluded(end) => *end as u64,
            Bound::Unbounded => self.len() as u64,
        };
        // A range that ends before it starts becomes longer than any region, so that posting
        // refuses it: here is no way to, and an empty part would be taken.
        let len = end.wrapping_sub(start);
        Sge { stag: self.stag(), addr: self.base().wrapping_add(start), len }
    }

    /// Returns the whole region, for a work request.
    pub fn whole(&self) -> Sge {
        self.sge(..)
    }

    /// Returns a place in the region, for a peer's work request. On a device of the host, that is
    /// its key and an address, and nothing but zeros where peers have no right.
    pub fn remote(&self, offset: usize) -> Remote {
        match &self.0.anywhere().device.host {
            Some(host) => host.remote(self.stag(), offset).unwrap_or(NOTHING),
            None => Remote { stag: self.stag(), to: self.base().wrapping_add(offset as u64) },
        }
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

    /// Reads octets of a file, from `at` on, into a range of the region, without a copy in between
    /// (`pread`). Returns how many there were: fewer than the range has where the file ends.
    ///
    /// The file may change meanwhile: the octets are those that the kernel found there. Until the
    /// call returns, deregistering memory of the program's own waits for it.
    ///
    /// ```
    /// use rddp_rnic::{Access, Rnic};
    /// let region = Rnic::open()?.alloc_pd().allocate(4096, Access::REMOTE_READ)?;
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let count = region.read_from(&file, 1, 100..110)?;
    /// assert_eq!((count, region.read(100, 7)?), (10, b"package".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file's; EFAULT for memory of the program's own that has gone bad, where octets before it
    /// may have been read; and a [`MemError`] inside for a range that is not in the region, or that
    /// may not be written.
    pub fn read_from(&self, file: impl AsFd, at: u64, range: Range<usize>) -> io::Result<usize> {
        self.0.here()?.region.read_file(file.as_fd(), at, range)
    }

    /// Reads as [`read_from`](Self::read_from) does, but only octets that the kernel has in memory,
    /// and waits for no disk: for a thread that has others to serve.
    ///
    /// # Errors
    /// `WouldBlock` if a disk may have to be waited for; octets before that may have been read.
    /// Else as for `read_from`.
    pub fn read_now(&self, file: impl AsFd, at: u64, range: Range<usize>) -> io::Result<usize> {
        self.0.here()?.region.read_file_now(file.as_fd(), at, range)
    }

    /// Writes a range of the region to a file, from `at` on, without a copy in between (`pwrite`).
    /// What a peer writes there meanwhile may be written, too.
    ///
    /// # Errors
    /// As for [`read_from`](Self::read_from); a part may have been written.
    pub fn write_to(&self, file: impl AsFd, at: u64, range: Range<usize>) -> io::Result<()> {
        self.0.here()?.region.write_file(file.as_fd(), at, range)
    }

    /// Returns the CRC-32C of a range of the region. If a peer writes there meanwhile, it is that
    /// of a mixture.
    pub fn crc32c(&self, range: Range<usize>) -> Result<u32, MemError> {
        self.0.here()?.region.crc(range)
    }

    /// Returns the number at `offset`, whole. What was written before it, here by
    /// [`write_u64`](Self::write_u64) or by a peer, is seen from then on.
    ///
    /// # Errors
    /// As for all four of these: the octets are not inside the region, their address is no multiple
    /// of eight, or the region's memory is gone.
    pub fn read_u64(&self, offset: usize) -> Result<u64, MemError> {
        self.0.here()?.region.fetch_modify_u64(offset, false, |_| None)
    }

    /// Stores a number at `offset`, whole and behind all that this thread has written before.
    ///
    /// # Errors
    /// As for [`read_u64`](Self::read_u64), or the region has no local write right.
    pub fn write_u64(&self, offset: usize, value: u64) -> Result<(), MemError> {
        self.0.here()?.region.fetch_modify_u64(offset, true, |_| Some(value)).map(drop)
    }

    /// Adds to the number at `offset`, modulo 2^64, and returns it as it was before: what a peer's
    /// [`fetch_add`](crate::SendWr::fetch_add) does.
    ///
    /// # Errors
    /// As for [`write_u64`](Self::write_u64).
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> Result<u64, MemError> {
        self.0.here()?.region.fetch_modify_u64(offset, true, |value| Some(value.wrapping_add(add)))
    }

    /// Stores `swap` at `offset` if the number there is `compare`, and returns it as it was before:
    /// what a peer's [`cmp_swap`](crate::SendWr::cmp_swap) does.
    ///
    /// # Errors
    /// As for [`write_u64`](Self::write_u64).
    pub fn cmp_swap_u64(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, MemError> {
        let change = |value| (value == compare).then_some(swap);
        self.0.here()?.region.fetch_modify_u64(offset, true, change)
    }

    /// Makes the region valid again after an invalidation, or changes its rights, under an STag
    /// with another key, which it returns.
    pub fn reregister(&self, access: Access) -> Result<Stag, MemError> {
        let Registered { device, region } = self.0.here()?;
        let Some(host) = &device.host else { return device.mem.reregister_region(region, access) };
        // A region that another thread deregisters meanwhile is registered with nobody behind that.
        let _turn = host.turn();
        host.may_have(access).map_err(MemError::Device)?;
        let before = region.stag();
        let stag = device.mem.reregister_region(region, access)?;
        host.forget(before);
        host.register(region, &RegionOptions::default()).map_err(MemError::Device)?;
        Ok(stag)
    }

    /// Ends the registration. After `Ok` no thread touches the memory any more. Refused while
    /// windows are bound to it.
    pub fn deregister(&self) -> Result<(), MemError> {
        let Registered { device, region } = self.0.here()?;
        let _turn = device.host.as_ref().map(HostDevice::turn);
        if device.host.is_some() {
            region.refuse_lent()?;
        }
        forget(device, region);
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
        forget(device, region);
        // An error only means that the program has deregistered the region already.
        let _ = device.mem.deregister_region_with_windows(region);
    }
}

/// A place for peers in memory to which they have no right.
const NOTHING: Remote = Remote { stag: Stag(0), to: 0 };

/// Ends the registration with the device of the host, if there is one.
fn forget(device: &Adapter, region: &Region) {
    if let Some(host) = &device.host {
        host.forget(region.stag());
    }
}

/// A memory window: rights to a part of a region that one QP's peer has until they are revoked.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # let (active, passive) = doc::pair()?;
/// use rddp_rnic::{Access, SendWr};
/// let region = passive.pd.allocate(4096, Access::LOCAL_WRITE | Access::BIND)?;
/// let window = passive.pd.allocate_window()?;
/// # passive.qp.post_recv(rddp_rnic::RecvWr::new(9, []))?;
/// # active.qp.post_send(&SendWr::send_inline(9, b""))?;
/// # while passive.cq.poll_one().is_none() {}
/// # active.cq.poll_one();
/// let bind = SendWr::bind(1, window.stag(), region.sge(1024..2048), Access::REMOTE_WRITE);
/// passive.qp.post_send(&bind)?;
/// passive.cq.poll_one().ok_or("no completion")?.ok()?;
///
/// // The peer that has been told of the window Writes into this part of the region, and no other.
/// active.qp.post_send(&SendWr::write_inline(2, b"hello", window.remote(0)))?;
/// # while region.read(1024, 5)? != b"hello" {}
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryWindow(Home<Allocated>);

struct Allocated {
    device: Arc<Adapter>,
    window: Arc<Window>,
}

impl MemoryWindow {
    pub(crate) fn new(device: Arc<Adapter>, window: Arc<Window>) -> Self {
        MemoryWindow(Home::new(Allocated { device, window }))
    }

    /// Makes the window with the device of the host, too, if there is one.
    pub(crate) fn allocated(device: Arc<Adapter>, window: Arc<Window>) -> Result<Self, Error> {
        let made = device.host.as_ref().map(|host| host.allocate_window(&window));
        // Dropped, it leaves the table, too.
        let window = Self::new(device, window);
        made.transpose()?;
        Ok(window)
    }

    /// Returns the STag, by which requests name the window. Each bind gives it another key. The
    /// peer names it so, too, unless a device of the host has another key for it: see
    /// [`remote`](Self::remote).
    pub fn stag(&self) -> Stag {
        self.0.anywhere().window.stag()
    }

    /// Returns a place in the window, counted from its first octet, for a request of its peer's.
    /// On a device of the host, that is its key and an address. Nothing but zeros while the window
    /// is not bound.
    pub fn remote(&self, offset: usize) -> Remote {
        let Allocated { device, window } = self.0.anywhere();
        let (stag, offset) = (window.stag(), offset as u64);
        let bound = window.base().and_then(|base| match &device.host {
            Some(host) => host.window_remote(stag, offset),
            None => Some(Remote { stag, to: base.wrapping_add(offset) }),
        });
        bound.unwrap_or(NOTHING)
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
        let turn = device.host.as_ref().map(|host| (host, host.turn()));
        if let Some((host, _)) = &turn {
            host.forget_window(window.stag());
        }
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
