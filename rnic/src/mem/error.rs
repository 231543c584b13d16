//! Errors of registering and binding memory. Violations by a peer are RDMAP's `AccessError` and
//! `InvalidateError`.
#![forbid(unsafe_code)]

use std::io;

use rddp_ddp::Stag;
use rddp_fault_guard::Faulted;
use rddp_verbs_device::DeviceError;
use thiserror::Error;

use super::Access;
use crate::home::Forked;

/// The reason why a region or window was not registered, bound or taken away.
///
/// ```
/// use rddp_rnic::{Access, MemError, Rnic};
/// let region = Rnic::open()?.alloc_pd().allocate(64, Access::LOCAL_WRITE)?;
/// assert!(matches!(region.read(60, 8), Err(MemError::OutOfBounds { at: 60, len: 8 })));
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemError {
    /// The range's end is past the end of the address space, or of the Tagged Offsets.
    #[error("{len} octets from {addr:#x} on pass the end of the address space")]
    Wrap {
        /// Address, or Tagged Offset, of the first octet.
        addr: u64,
        /// Length of the range in octets.
        len: u64,
    },
    /// Part of the range is not mapped.
    #[error(
        "memory at {at:#x} is not mapped: the whole of {start:#x}..{end:#x} must be before it is registered"
    )]
    NotMapped {
        /// First octet that is not mapped.
        at: u64,
        /// First octet of the range.
        start: u64,
        /// One past its last octet.
        end: u64,
    },
    /// Part of the range is mapped without the rights asked for.
    #[error("memory at {at:#x} is mapped without {} permission, needed for the rights asked for", if *.write { "write" } else { "read" })]
    NotPermitted {
        /// First octet without the right.
        at: u64,
        /// True if write permission is missing, false if read permission is.
        write: bool,
    },
    /// The list of the process's mappings could not be read, and on this processor nothing else
    /// makes up for it.
    #[error("cannot read /proc/self/maps, by which memory is checked before it is registered: {0}")]
    Maps(io::Error),
    /// The kernel refused to map, populate or lock.
    #[error("{call} of {len} octets failed: {error}{}", hint(call, error))]
    Os {
        /// The system call.
        call: &'static str,
        /// Length of the range in octets.
        len: usize,
        /// The error that the system call returned.
        error: io::Error,
    },
    /// The system provided no random numbers for an STag.
    #[error("no random numbers for an STag: {0}")]
    Random(getrandom::Error),
    /// The table already holds as many regions and windows as its limits allow.
    #[error("{limit} regions and windows are registered, which is the limit")]
    TooManyStags {
        /// The limit.
        limit: usize,
    },
    /// `kernel` on a device without placement in the kernel, or for memory of the program's.
    #[error(
        "the kernel places only into memory that the library allocates, on a device opened with `RnicConfig::kernel`"
    )]
    NotForKernel,
    /// Remote write or atomic rights without `LOCAL_WRITE`.
    #[error("remote write and atomic rights need the local write right of the region")]
    RemoteWriteNeedsLocalWrite,
    /// `BIND` together with `ZERO_BASED`.
    #[error("windows bind to regions whose Tagged Offset is the address, not to zero-based ones")]
    BindNeedsAddresses,
    /// `STABLE` together with a right by which octets change, or for a window whose region has not
    /// got it.
    #[error("stable memory has no right by which it may change, and a window's region has to be stable, too")]
    NotStable,
    /// A right that a region over a file cannot have.
    #[error("a region over a file cannot have the rights {0:?}: peers Read it, and nothing else")]
    NotForFile(Access),
    /// The file ends before the range does, or the range before it starts.
    #[error("octets {start} to {end} are not inside the file, which has {len}")]
    NotInFile {
        /// Offset of the first octet.
        start: u64,
        /// Offset of the first octet behind the range.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// The file cannot be read, or is none that has octets of its own.
    #[error("cannot register the file: {0}")]
    File(io::Error),
    /// A window can only have remote rights.
    #[error("a window cannot have the rights {0:?}: windows are for remote access only")]
    WindowRights(Access),
    /// No such region or window, or its key has changed.
    #[error("STag {0} names nothing of the kind asked for")]
    UnknownStag(Stag),
    /// The region or window belongs to another PD.
    #[error("STag {0} belongs to another protection domain")]
    OtherPd(Stag),
    /// The region or window has been invalidated, and the operation needs a valid one.
    #[error("STag {0} is invalid")]
    Invalid(Stag),
    /// The window is bound already, and only an unbound window can be bound.
    #[error("window {0} is already bound")]
    AlreadyBound(Stag),
    /// The region may not have windows bound to it.
    #[error("region {0} was not registered with the bind right")]
    NotBindable(Stag),
    /// A range outside the region.
    #[error("{len} octets at {at:#x} are not inside the region")]
    OutOfBounds {
        /// Tagged Offset at which the range starts.
        at: u64,
        /// Length of the range in octets.
        len: u64,
    },
    /// A number that is reached as a whole is not at a multiple of eight (RFC 7306 §5.1).
    #[error("the number's address {addr:#x} is not a multiple of 8")]
    Misaligned {
        /// The address in memory.
        addr: u64,
    },
    /// The region has windows bound to it.
    #[error("region {stag} has {windows} windows bound to it")]
    WindowsBound {
        /// The region's STag.
        stag: Stag,
        /// Number of windows bound to the region.
        windows: usize,
    },
    /// The region has been deregistered, so its memory may be gone.
    #[error("the region has been deregistered")]
    Deregistered,
    /// A child of `fork` used memory of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The device of the host does not register the memory.
    #[error("{0}")]
    Device(DeviceError),
    /// The memory has gone bad while it was registered.
    #[error(transparent)]
    Faulted(#[from] Faulted),
    /// The region was registered without `LOCAL_WRITE`.
    #[error("the region was registered without the local write right")]
    ReadOnly,
}

/// Returns advice for the user about a failed system call, or nothing.
fn hint(call: &str, error: &io::Error) -> &'static str {
    match (call, error.raw_os_error()) {
        ("mlock", Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)) => {
            " (raise RLIMIT_MEMLOCK, see ulimit -l)"
        }
        ("madvise", Some(libc::EINVAL)) => " (populating needs Linux 5.14 or newer)",
        _ => "",
    }
}
