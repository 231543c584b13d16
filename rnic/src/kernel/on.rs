//! Placement in the kernel by [`rddp_kernel_patch`]: the device's program, and memory for it.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rddp_ddp::Stag;
use rddp_kernel_patch::kernel::{Attached, Memory, Opening, Patch, PatchError, Scope};
use rddp_kernel_patch::layout::{BLOCK_LEN, NO_WRITES, PLACE_ALL, TRUST_LINK, Tuple};

use super::guided::Guided;
use super::{KERNEL_BLOCK, KernelPlacement, LeftToUser, Placement};
use crate::conn::socket::DeviceSocket;
use crate::mem::{Access, PdId, QpNum};
use crate::queues::attributes::QpAttributes;

const _: () = assert!(BLOCK_LEN as u64 == KERNEL_BLOCK);

/// The program of a device, on its interfaces.
#[derive(Debug)]
pub(crate) struct Kernel {
    patch: Patch,
    _attached: Vec<Attached>,
    trusted: bool,
    /// The memory that the program reaches: the end of each range and its place in the pieces, by
    /// address.
    ranges: RwLock<BTreeMap<u64, (u64, u64)>>,
    /// The same memory by its place.
    places: RwLock<BTreeMap<u64, Arc<Memory>>>,
    left_connections: AtomicU64,
    left_stags: AtomicU64,
}

/// Memory that the program can place into, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct KernelMemory {
    memory: Arc<Memory>,
    kernel: Arc<Kernel>,
}

impl Kernel {
    /// Loads the program and puts it on the interfaces.
    pub(crate) fn load(settings: &KernelPlacement) -> io::Result<Arc<Self>> {
        let patch = Patch::load().map_err(not_loaded)?;
        let attach = |interface: &String| {
            let attached = patch.attach(interface);
            attached.map_err(|error| io::Error::other(format!("interface {interface}: {error}")))
        };
        let attached = settings.interfaces.iter().map(attach).collect::<io::Result<_>>()?;
        let trusted = settings.trusted;
        Ok(Arc::new(Self {
            patch,
            _attached: attached,
            trusted,
            ranges: RwLock::default(),
            places: RwLock::default(),
            left_connections: AtomicU64::new(0),
            left_stags: AtomicU64::new(0),
        }))
    }

    /// Makes memory that the program reaches, zeroed.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize) -> io::Result<KernelMemory> {
        let memory = self.patch.pieces().allocate(len).map_err(|error| match error {
            PatchError::Os { error, .. } => error,
            error => io::Error::other(error),
        })?;
        let addr = memory.ptr().addr().get() as u64;
        self.ranges.write().insert(addr, (addr + len as u64, memory.start()));
        let memory = Arc::new(memory);
        self.places.write().insert(memory.start(), memory.clone());
        Ok(KernelMemory { memory, kernel: self.clone() })
    }

    /// Lets the program place by an STag, if it reaches the memory: what peers write, what this
    /// end receives and reads, or both, by the rights in `access`.
    pub(crate) fn open(
        &self,
        stag: Stag,
        octets: Range<u64>,
        base: u64,
        (pd, qp): (PdId, Option<QpNum>),
        access: Access,
    ) {
        let Some(place) = self.place_of(&octets) else { return };
        let scope = Scope {
            base,
            len: octets.end - octets.start,
            start: place.start,
            pd: pd.0,
            qp: qp.map_or(0, |qp| qp.0),
            writes: access.contains(Access::REMOTE_WRITE),
            own: access.contains(Access::LOCAL_WRITE),
        };
        if !self.patch.stags().open(stag, &scope) {
            self.left_stags.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%stag, "its place in the kernel's table is taken: it stays at user level");
        }
    }

    /// Returns whether the program places by an STag what this end receives and reads.
    pub(super) fn is_open_to_own(&self, stag: Stag) -> bool {
        self.patch.stags().is_open_to_own(stag)
    }

    /// Returns the number of the time that an STag was opened to the program, if it is open.
    pub(super) fn opening(&self, stag: Stag) -> Option<u32> {
        self.patch.stags().opening(stag)
    }

    /// Ends placement by an STag. When this returns the program is done with it.
    pub(crate) fn close(&self, stag: Stag) {
        self.patch.stags().close(stag);
    }

    /// Begins to place the segments of a connection, of which nobody reads meanwhile. `None` where
    /// that cannot be.
    pub(crate) fn guide(
        self: &Arc<Self>,
        socket: &DeviceSocket,
        attrs: &QpAttributes,
        crc: bool,
    ) -> Option<Guided> {
        // A capture shows octets, and those that the kernel has placed are not taken from TCP.
        if rddp_capture::is_on() {
            return None;
        }
        let mut flags = if attrs.placement == Placement::Kernel { PLACE_ALL } else { 0 };
        flags |= if self.trusted { TRUST_LINK } else { 0 };
        flags |= if attrs.inbound.get().contains(Access::REMOTE_WRITE) { 0 } else { NO_WRITES };
        let (qp, pd) = (attrs.num.0, attrs.pd.0);
        let opening = Opening { tuple: tuple(socket)?, pd, qp, flags };
        match self.patch.place(&opening) {
            Ok(placing) => Some(Guided::new(placing, self.clone(), crc)),
            Err(error) => {
                tracing::warn!(qp, %error, "the connection is placed at user level");
                None
            }
        }
    }

    /// Returns `crc` with the CRC of the octets at a place appended, if there still is memory.
    pub(super) fn crc32c_append(&self, place: &Range<u64>, crc: u32) -> Option<u32> {
        let memory = self.places.read().range(..=place.start).next_back()?.1.clone();
        memory.crc32c_append(place, crc)
    }

    /// Counts a connection that stays at user level.
    pub(crate) fn count_left(&self) {
        self.left_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what was to be placed by the kernel, and is not.
    pub(crate) fn left(&self) -> LeftToUser {
        LeftToUser {
            connections: self.left_connections.load(Ordering::Relaxed),
            stags: self.left_stags.load(Ordering::Relaxed),
        }
    }

    /// Returns where octets are in the program's memory; `None` if it does not reach them.
    pub(super) fn place_of(&self, octets: &Range<u64>) -> Option<Range<u64>> {
        let ranges = self.ranges.read();
        let (addr, &(end, start)) = ranges.range(..=octets.start).next_back()?;
        let at = start + (octets.start - addr);
        (octets.end <= end).then(|| at..at + (octets.end - octets.start))
    }
}

impl KernelMemory {
    /// Returns the address of the first octet.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.memory.ptr()
    }
}

impl Drop for KernelMemory {
    fn drop(&mut self) {
        self.kernel.ranges.write().remove(&(self.ptr().addr().get() as u64));
        self.kernel.places.write().remove(&self.memory.start());
    }
}

/// Returns the name of a connection.
fn tuple(socket: &DeviceSocket) -> Option<Tuple> {
    let of = |addr: io::Result<socket2::SockAddr>| addr.ok()?.as_socket();
    Some(Tuple::new(of(socket.peer_addr())?, of(socket.local_addr())?))
}

/// Says why the program is not loaded; if a right is missing, which there have to be.
fn not_loaded(error: PatchError) -> io::Error {
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    let code = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>()?.raw_os_error();
    match causes.find_map(code) {
        Some(libc::EPERM) => io::Error::new(io::ErrorKind::PermissionDenied, NoRight(error)),
        _ => io::Error::other(error),
    }
}

/// A right is missing.
#[derive(Debug, thiserror::Error)]
#[error(
    "no right to load the eBPF program: placement in the kernel takes CAP_BPF, CAP_NET_ADMIN and \
     CAP_PERFMON of the initial user namespace"
)]
struct NoRight(#[source] PatchError);
