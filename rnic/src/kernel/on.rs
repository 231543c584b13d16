//! Placement in the kernel by [`rddp_kernel_patch`]: the device's program, memory for it, and one
//! connection as the reader of its stream sees it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RwLock;
use rddp_ddp::Stag;
use rddp_kernel_patch::kernel::{Attached, Guide, Memory, Opening, Patch, PatchError, Scope};
use rddp_kernel_patch::layout::{PIECE_LEN, PLACE_ALL, TRUST_LINK, Tuple};
use rddp_kernel_patch::segment::TAGGED_FRONT;
use rddp_mpa::{crc32c, crc32c_append, fpdu_len};

use super::{Checked, KERNEL_PIECE, KernelCounts, KernelPlacement, Placement};
use crate::conn::socket::TcpSocket;
use crate::mem::{Access, Grant, PdId, QpNum};

const _: () = assert!(PIECE_LEN as u64 == KERNEL_PIECE);

/// The program of a device, on its interfaces.
#[derive(Debug)]
pub(crate) struct Kernel {
    patch: Patch,
    _attached: Vec<Attached>,
    trusted: bool,
    /// The memory that the program reaches: the end of each range and its place in the pieces, by
    /// address.
    ranges: RwLock<BTreeMap<u64, (u64, u64)>>,
}

/// Memory that the program can place into, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct KernelMemory {
    memory: Memory,
    kernel: Arc<Kernel>,
}

/// A connection whose segments the program places.
#[derive(Debug)]
pub(crate) struct Guided {
    guide: Guide,
    kernel: Arc<Kernel>,
    /// Octets that were taken from TCP since placement began.
    taken: u64,
    /// Position of the FPDU whose turn it is.
    front: u64,
    counts: KernelCounts,
}

impl Kernel {
    /// Loads the program and puts it on the interfaces.
    pub(crate) fn load(settings: &KernelPlacement) -> io::Result<Arc<Self>> {
        let patch = Patch::load().map_err(io::Error::other)?;
        let attach = |interface: &String| {
            let attached = patch.attach(interface);
            attached.map_err(|error| io::Error::other(format!("interface {interface}: {error}")))
        };
        let attached = settings.interfaces.iter().map(attach).collect::<io::Result<_>>()?;
        let trusted = settings.trusted;
        Ok(Arc::new(Self { patch, _attached: attached, trusted, ranges: RwLock::default() }))
    }

    /// Makes memory that the program reaches, zeroed.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize) -> io::Result<KernelMemory> {
        let memory = self.patch.pieces().allocate(len).map_err(|error| match error {
            PatchError::Os { error, .. } => error,
            error => io::Error::other(error),
        })?;
        let addr = memory.ptr().addr().get() as u64;
        self.ranges.write().insert(addr, (addr + len as u64, memory.start()));
        Ok(KernelMemory { memory, kernel: self.clone() })
    }

    /// Lets the program place by an STag, if it reaches the memory.
    pub(crate) fn open(&self, stag: Stag, octets: Range<u64>, base: u64, pd: PdId, qp: Option<QpNum>) {
        let Some(place) = self.place_of(&octets) else { return };
        let len = octets.end - octets.start;
        let qp = qp.map_or(0, |qp| qp.0);
        if !self.patch.stags().open(stag, &Scope { base, len, start: place.start, pd: pd.0, qp }) {
            tracing::debug!(%stag, "its place in the kernel's table is taken: its Writes stay at user level");
        }
    }

    /// Ends placement by an STag. When this returns the program is done with it.
    pub(crate) fn close(&self, stag: Stag) {
        self.patch.stags().close(stag);
    }

    /// Begins to place the segments of a connection, of which nobody reads meanwhile. `None` where
    /// that cannot be.
    pub(crate) fn guide(
        self: &Arc<Self>,
        socket: &TcpSocket,
        placement: Placement,
        pd: PdId,
        qp: QpNum,
        inbound: Access,
    ) -> Option<Guided> {
        // A capture shows octets, and those that the kernel has placed are not taken from TCP.
        if placement == Placement::User || !inbound.contains(Access::REMOTE_WRITE) || rddp_capture::is_on() {
            return None;
        }
        let mut flags = if placement == Placement::Kernel { PLACE_ALL } else { 0 };
        flags |= if self.trusted { TRUST_LINK } else { 0 };
        let opening = Opening { tuple: tuple(socket)?, pd: pd.0, qp: qp.0, flags };
        match self.patch.place(&opening) {
            Ok(placing) => Some(Guided {
                guide: Guide::new(placing, 0),
                kernel: self.clone(),
                taken: 0,
                front: 0,
                counts: KernelCounts::default(),
            }),
            Err(error) => {
                tracing::debug!(qp = qp.0, %error, "the connection is placed at user level");
                None
            }
        }
    }

    /// Returns where octets are in the program's memory; `None` if it does not reach them.
    fn place_of(&self, octets: &Range<u64>) -> Option<Range<u64>> {
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
    }
}

impl Guided {
    /// Notes that so many octets were taken from TCP.
    pub(crate) fn note_read(&mut self, count: usize) {
        self.taken += count as u64;
    }

    /// Returns how many octets the next read may take, at most `room`, where `have` octets of the
    /// stream have been read and not handled: no payload that has been placed is to be copied.
    pub(crate) fn room(&mut self, have: usize, room: usize) -> usize {
        let front = self.taken - have as u64;
        // The one at the front is not confirmed, or it would not be read.
        let from = self.taken.max(front + 1);
        match self.guide.free(from) {
            None => room,
            Some(free) => room.min(usize::try_from(from - self.taken + free).unwrap_or(room)),
        }
    }

    /// Begins the turn of the FPDU at the front of `octets`, all that has been read and not
    /// handled: if it is whole, the program places it no more.
    pub(crate) fn enter(&mut self, octets: &[u8]) {
        self.front = self.taken - octets.len() as u64;
        if let Some(len) = len_of(octets).filter(|len| *len <= octets.len()) {
            self.guide.enter(self.front, self.front + len as u64);
        }
    }

    /// Returns the front of the FPDU that begins `ahead` octets behind what was taken from TCP, if
    /// the program has placed it.
    pub(crate) fn front(&mut self, ahead: usize) -> Option<[u8; TAGGED_FRONT]> {
        self.guide.front(self.taken + ahead as u64)
    }

    /// Checks the payload of that FPDU, which has this `front`, in the granted place.
    pub(crate) fn confirm(
        &mut self,
        ahead: usize,
        front: &[u8; TAGGED_FRONT],
        grant: &Grant,
        crc: bool,
    ) -> Option<Checked> {
        let (position, fpdu_len) = (self.taken + ahead as u64, len_of(front)?);
        // From here on the program leaves these octets alone.
        self.guide.enter(position, position + fpdu_len as u64);
        let claim = self.guide.claim(position, front)?;
        let place = self.kernel.place_of(&grant.octets())?;
        // Octets of a later FPDU over all of them make no CRC of this one's.
        if place.start != claim.at || self.guide.is_superseded(position, &place) {
            return None;
        }
        let field = claim.crc_field();
        let sum = match crc {
            true => crc32c_append(grant.crc32c_append(0, grant.len(), crc32c(front)).ok()?, claim.pad()),
            false => 0,
        };
        if crc && sum.to_le_bytes() != field {
            self.counts.wrong += 1;
            return None;
        }
        self.counts.confirmed += 1;
        self.counts.octets += grant.len() as u64;
        Some(Checked { fpdu_len, crc: sum, field })
    }

    /// Stores the payload of the FPDU whose turn it is, or a part of it, by `store`, which returns
    /// whether it could; unless octets that follow it in the stream are there already.
    pub(crate) fn store(&mut self, grant: &Grant, store: impl FnOnce() -> bool) -> bool {
        let Some(place) = self.kernel.place_of(&grant.octets()) else { return store() };
        if self.guide.is_superseded(self.front, &place) {
            return true;
        }
        let stored = store();
        self.guide.placed_by_user(self.front, &place);
        stored
    }

    /// Returns what has been counted.
    pub(crate) fn counts(&self) -> KernelCounts {
        let program = self.guide.placing().counts();
        let (segments, placed, octets_behind) = (program.segments, program.fpdus, program.octets_behind);
        KernelCounts { segments, placed, octets_behind, ..self.counts }
    }
}

/// Returns the octets of the FPDU whose first ones these are.
fn len_of(octets: &[u8]) -> Option<usize> {
    octets.first_chunk().map(|len| fpdu_len(usize::from(u16::from_be_bytes(*len))))
}

/// Returns the name of a connection.
fn tuple(socket: &TcpSocket) -> Option<Tuple> {
    let of = |addr: io::Result<socket2::SockAddr>| addr.ok()?.as_socket();
    Some(Tuple::new(of(socket.peer_addr())?, of(socket.local_addr())?))
}
