//! A device of the host below an [`Rnic`](crate::Rnic): its protection domains, and regions and
//! windows as it has them beside the table.
//!
//! Requests name memory by the STags of the table, which checks them when they are posted, as ever.
//! The device knows each region by keys of its own, and its octets by their addresses.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use rddp_ddp::Stag;
use rddp_rdma::{Access, Capabilities, ConnectOptions, Remote, Sge};
use rddp_verbs_device::{self as verbs, Device, DeviceError, PostError, Registration};

use super::lent::Windows;
use super::{PdId, Region, RegionOptions, Window};
use crate::capabilities::CAPABILITIES;

/// A device of the host, and what is registered with it.
pub(crate) struct HostDevice {
    device: Device,
    /// The device with a domain of its own for each PD that has regions or connections: peers reach
    /// memory of their own PD alone (RFC 5042 §6.1.1).
    domains: Mutex<HashMap<PdId, Weak<Device>>>,
    /// By the regions' present STags.
    regions: Mutex<BTreeMap<Stag, Registered>>,
    windows: Windows,
    /// Held by who changes a region or a window both here and in the table.
    turn: Mutex<()>,
}

/// A region as the device knows it. The registrations end before the memory does.
struct Registered {
    /// A second registration, where the device wants more rights for sinks of Reads than the
    /// program has given.
    sink: Option<Registration>,
    own: Registration,
    region: Arc<Region>,
    _domain: Arc<Device>,
}

impl HostDevice {
    pub(crate) fn new(device: Device) -> Self {
        HostDevice {
            device,
            domains: Mutex::default(),
            regions: Mutex::default(),
            windows: Windows::default(),
            turn: Mutex::default(),
        }
    }

    /// Returns what programs may ask of the device: what it lacks and can be made up for exactly is
    /// none of it.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let of_device = self.device.capabilities();
        Capabilities {
            max_cqes: CAPABILITIES.max_cqes,
            max_stags: of_device.max_stags.min(CAPABILITIES.max_stags),
            max_inline: CAPABILITIES.max_inline,
            read_sink: Access::LOCAL_WRITE,
            zero_based: true,
            ..*of_device
        }
    }

    /// Returns the error for a thing that the device does not have.
    pub(crate) fn lacks(&self, what: &'static str) -> DeviceError {
        DeviceError::Unsupported { what, device: self.device.name().to_owned() }
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Refuses options of TCP and MPA, which devices do not have, and probes without a pause, which
    /// TCP refuses, too.
    pub(crate) fn check_options(&self, options: &ConnectOptions) -> Result<(), DeviceError> {
        for (is_asked, what) in [
            (options.markers, "markers"),
            (options.mss.is_some(), "a limit of TCP's segments"),
            (options.congestion.is_some(), "a choice of TCP's congestion control"),
            (options.large_fpdus, "FPDUs longer than TCP's segments"),
            (options.keepalive.is_some_and(|it| it.idle.is_zero()), "a keepalive without a pause"),
        ] {
            if is_asked {
                return Err(self.lacks(what));
            }
        }
        Ok(())
    }

    /// Returns the device with the domain of a PD.
    pub(crate) fn domain(&self, pd: PdId) -> Result<Arc<Device>, DeviceError> {
        let mut domains = self.domains.lock();
        if let Some(domain) = domains.get(&pd).and_then(Weak::upgrade) {
            return Ok(domain);
        }
        domains.retain(|_, domain| domain.strong_count() > 0);
        let domain = Arc::new(self.device.with_own_domain()?);
        domains.insert(pd, Arc::downgrade(&domain));
        Ok(domain)
    }

    /// Refuses rights that the device gives to no region.
    pub(crate) fn may_have(&self, rights: Access) -> Result<(), DeviceError> {
        self.device.may_register(told(rights))
    }

    /// Registers a region, in addition to its entry in the table.
    pub(crate) fn register(&self, region: &Arc<Region>, options: &RegionOptions) -> Result<(), DeviceError> {
        if options.qp.is_some() {
            return Err(self.lacks("regions for the peer of one queue pair"));
        }
        let domain = self.domain(region.pd())?;
        let rights = told(region.access());
        let start = NonNull::new(region.as_ptr()).unwrap_or(NonNull::dangling());
        // SAFETY: memory of a region is there as long as the region, or until the program ends its
        // registration, which `forget` comes before; and no reference covers it (`MemTable`).
        let own = unsafe { Registration::new(domain.domain(), start, region.len(), rights) }?;
        let registered = Registered { sink: None, own, region: region.clone(), _domain: domain };
        self.regions.lock().insert(region.stag(), registered);
        Ok(())
    }

    /// Keeps other threads from changing regions that are there both here and in the table.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Ends the registration with the device, of which nothing is left behind this.
    pub(crate) fn forget(&self, stag: Stag) {
        let forgotten = self.regions.lock().remove(&stag);
        drop(forgotten);
    }

    /// Returns a place in a region as peers name it, if they have any right to it.
    pub(crate) fn remote(&self, stag: Stag, offset: usize) -> Option<Remote> {
        Some(self.regions.lock().get(&stag)?.own.remote()?.at(offset as u64))
    }

    /// Makes the device's window for one that is new in the table.
    pub(crate) fn allocate_window(&self, window: &Window) -> Result<(), DeviceError> {
        self.windows.allocate(window.stag(), self.domain(window.pd())?)
    }

    /// Ends the device's window.
    pub(crate) fn forget_window(&self, stag: Stag) {
        self.windows.forget(stag);
    }

    /// Returns a place in a window as its peer names it, while it is bound.
    pub(crate) fn window_remote(&self, stag: Stag, offset: u64) -> Option<Remote> {
        Some(self.windows.remote(stag)?.at(offset))
    }

    /// Binds a window whose STag has changed from one to the other in the table, by the request
    /// that `post` hands over.
    pub(crate) fn bind(
        &self,
        (from, to): (Stag, Stag),
        range: Sge,
        post: impl FnOnce(&verbs::Window, (&Registration, Range<usize>)) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let renewed = self.windows.renew(from, to).map_err(|error| {
            tracing::warn!(%error, "no memory window");
            PostError::Device(std::io::ErrorKind::OutOfMemory.into())
        })?;
        let regions = self.regions.lock();
        let (Some(lent), Some(known)) = (renewed, regions.get(&range.stag)) else {
            return Err(PostError::Unregistered);
        };
        let start = range.addr.wrapping_sub(known.region.base_to()) as usize;
        post(&lent.window, (&known.own, start..start + range.len as usize))
    }

    /// Returns the STag of the region or window that peers know by this key.
    pub(crate) fn stag_of(&self, key: Stag) -> Option<Stag> {
        let regions = self.regions.lock();
        let mut named =
            regions.iter().filter(|(_, known)| known.own.remote().is_some_and(|it| it.stag == key));
        named.next().map(|(stag, _)| *stag).or_else(|| self.windows.stag_of(key))
    }

    /// Returns a piece of a region as the device names it, for octets that are sent or received.
    #[inline]
    pub(crate) fn piece(&self, of: Sge) -> Option<Sge> {
        let regions = self.regions.lock();
        let known = regions.get(&of.stag)?;
        Some(known.piece(&known.own, of))
    }

    /// Returns a copy of the octets of these pieces, if they are all in regions.
    pub(crate) fn copied(&self, list: &[Sge]) -> Option<Vec<u8>> {
        let regions = self.regions.lock();
        let mut octets = Vec::new();
        for sge in list.iter().filter(|sge| sge.len > 0) {
            let region = &regions.get(&sge.stag)?.region;
            let end = octets.len();
            octets.resize(end + sge.len as usize, 0);
            let offset = sge.addr.wrapping_sub(region.base_to()) as usize;
            region.read_at(offset, &mut octets[end..]).ok()?;
        }
        Some(octets)
    }

    /// Returns a piece of a region as the device names it, as the sink of a Read. RNICs want a
    /// right of peers for that: where the program has not given it, the region is registered once
    /// more, and that key is told to nobody.
    pub(crate) fn sink(&self, of: Sge) -> Result<Option<Sge>, DeviceError> {
        let mut regions = self.regions.lock();
        let Some(known) = regions.get_mut(&of.stag) else { return Ok(None) };
        let wanted = self.device.capabilities().read_sink;
        if !known.region.access().contains(wanted) && known.sink.is_none() {
            known.sink = Some(known.own.read_sink()?);
        }
        Ok(Some(known.piece(known.sink.as_ref().unwrap_or(&known.own), of)))
    }
}

/// Returns the rights of a region of which the device is told: offsets of zero-based regions are
/// made addresses of here, and what is stable is sent without a copy anyway.
fn told(rights: Access) -> Access {
    rights.difference(Access::ZERO_BASED | Access::STABLE)
}

impl Registered {
    fn piece(&self, by: &Registration, of: Sge) -> Sge {
        by.piece(of.addr.wrapping_sub(self.region.base_to()) as usize, of.len as usize)
    }
}

impl fmt::Debug for HostDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostDevice").field(&self.device).finish()
    }
}
