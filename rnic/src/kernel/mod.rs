//! Placement in the kernel: what a program may ask for, and the crate that does it.
//!
//! [`rddp-kernel-patch`](../../../kernel-patch) has the eBPF program; it needs clang to build and
//! rights to run, so it is there with the feature `kernel` only. Without the feature the types of
//! `off` stand in, which no value can be made of: a device that is asked for placement in the
//! kernel is refused, and the receive path is as if this module were not there.

use rddp_mpa::CRC_LEN;

#[cfg(feature = "kernel")]
mod guided;
#[cfg(not(feature = "kernel"))]
mod off;
#[cfg(feature = "kernel")]
mod on;

#[cfg(feature = "kernel")]
pub(crate) use guided::Guided;
#[cfg(not(feature = "kernel"))]
pub(crate) use off::{Guided, Kernel, KernelMemory};
#[cfg(feature = "kernel")]
pub(crate) use on::{Kernel, KernelMemory};

/// An FPDU whose payload is in its place: its octets, its CRC as it was summed (0 with CRCs off),
/// and the CRC field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) fpdu_len: usize,
    pub(crate) crc: u32,
    pub(crate) field: [u8; CRC_LEN],
}

/// Octets of a block of the memory that the kernel can place into. A region that is shorter has
/// pages of one, a longer one whole blocks; a payload that lies in two blocks is placed at user
/// level.
pub const KERNEL_BLOCK: u64 = 1 << 20;

/// FPDUs that the kernel has placed, which follow each other at the front of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Octets of all of them.
    pub(crate) octets: usize,
    /// TCP has what was placed. If not, a look is to tell.
    pub(crate) is_sure: bool,
}

/// First octets of an FPDU that has been placed: its front, and some more.
pub(crate) type Front = [u8; 20];

/// A device's settings of placement in the kernel: `docs/kernel-placement.md`.
///
/// ```
/// use rddp_rnic::{KernelPlacement, Rnic, RnicConfig};
/// let kernel = KernelPlacement { interfaces: vec!["nosuch0".into()], ..Default::default() };
/// // No such interface; and neither without the feature `kernel` nor without rights.
/// assert!(Rnic::with_config(&RnicConfig { kernel: Some(kernel), ..Default::default() }).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPlacement {
    /// Names of the interfaces on whose ingress the program is put, in the network namespace of
    /// the thread that opens the device.
    pub interfaces: Vec<String>,
    /// The peers on these interfaces are on this machine, and what they send is taken for sound
    /// where nobody has summed it (partial checksums).
    pub trusted: bool,
}

/// The level at which the payload of Writes, Sends and Read Responses is put into its place.
///
/// Only memory that was made for it ([`RegionOptions::kernel`](crate::RegionOptions::kernel)) is
/// reached by the kernel, and of receives those of a queue pair's own queue that have one piece.
///
/// ```
/// use rddp_rnic::{Placement, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let cq = rnic.create_cq(16)?;
/// assert_eq!(QpConfig::new(&cq).placement, Placement::User);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By this process, when TCP hands the octets over.
    #[default]
    User,
    /// By the kernel where TCP would have to wait for a segment that is missing, else by this
    /// process.
    Auto,
    /// By the kernel, when segments arrive.
    Kernel,
}

/// Counts of what was to be placed by the kernel, and is placed at user level.
///
/// ```
/// use rddp_rnic::{LeftToUser, Rnic};
/// assert_eq!(Rnic::open()?.left_to_user(), LeftToUser::default());
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftToUser {
    /// Connections: the program knows 64 at a time, and none of those that it cannot place (see
    /// [`QpConfig::placement`](crate::QpConfig::placement)).
    pub connections: u64,
    /// Openings of STags, of regions and windows, whose place among the 4,096 that the program
    /// knows was taken. As long as there are no more than 2,048 regions and windows there is none.
    pub stags: u64,
}

/// Counts of a connection whose segments the kernel places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Segments that the program has seen.
    pub segments: u64,
    /// FPDUs whose payload the program has placed. Some count in neither of the next two: the
    /// reader came first, or a later Write is over them.
    pub placed: u64,
    /// Placed FPDUs whose payload the reader found right, and did not place again.
    pub confirmed: u64,
    /// Confirmed FPDUs for which the reader had to look at the stream: octets of theirs have come
    /// more than once.
    pub looked_at: u64,
    /// Placed FPDUs whose CRC was summed before their turn, while something in front was missing.
    pub summed_ahead: u64,
    /// Placed FPDUs whose octets did not make the CRC, so that the reader placed them again.
    pub wrong: u64,
    /// Octets of payload in confirmed FPDUs.
    pub octets: u64,
    /// Octets of these that the program placed behind a missing segment.
    pub octets_behind: u64,
    /// Segments whose FPDUs do not begin and end with them, so that they were left to user level.
    pub unaligned: u64,
    /// Octets of the stream that have come past no interface with the program, or before the
    /// program knew the connection.
    pub octets_unseen: u64,
    /// The interface on which the last segment came that the program has seen, by its index; 0 if
    /// there was none.
    pub interface: u32,
}
