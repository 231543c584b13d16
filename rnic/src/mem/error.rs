//! What can be wrong with a registration. What a peer does wrong is `AccessError` and
//! `InvalidateError`.
#![forbid(unsafe_code)]

use std::io;

use rddp_ddp::Stag;
use rddp_fault_guard::Faulted;
use thiserror::Error;

use super::Access;
use crate::home::Forked;

/// Why a region or window was not registered, bound or taken away.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemError {
    /// The range's end is past the end of the address space.
    #[error("{len} octets from {addr:#x} on pass the end of the address space")]
    Wrap {
        /// First octet.
        addr: u64,
        /// How many.
        len: u64,
    },
    /// Part of the range is not mapped.
    #[error(
        "memory at {at:#x} is not mapped: the whole of {start:#x}..{end:#x} must be before it is registered"
    )]
    NotMapped {
        /// First octet that is not.
        at: u64,
        /// First octet of the range.
        start: u64,
        /// One past its last octet.
        end: u64,
    },
    /// Part of the range is mapped without the rights asked for.
    #[error("memory at {at:#x} is mapped without {} permission, needed for the rights asked for", if *.write { "write" } else { "read" })]
    NotPermitted {
        /// First octet that is.
        at: u64,
        /// Write was what is missing, else read.
        write: bool,
    },
    /// The process's mappings could not be looked at.
    #[error("cannot read /proc/self/maps, by which memory is checked before it is registered: {0}")]
    Maps(#[source] io::Error),
    /// The kernel refused to map, populate or lock.
    #[error("{call} of {len} octets failed: {source}{}", hint(call, source))]
    Os {
        /// The system call.
        call: &'static str,
        /// Of how many octets.
        len: usize,
        /// What it said.
        source: io::Error,
    },
    /// No random numbers were to be had.
    #[error("no random numbers for an STag: {0}")]
    Random(getrandom::Error),
    /// As many regions and windows as the limits allow.
    #[error("{limit} regions and windows are registered, which is the limit")]
    TooManyStags {
        /// The limit.
        limit: usize,
    },
    /// Remote write or atomic rights without `LOCAL_WRITE`.
    #[error("remote write and atomic rights need the local write right of the region")]
    RemoteWriteNeedsLocalWrite,
    /// `BIND` together with `ZERO_BASED`.
    #[error("windows bind to regions whose Tagged Offset is the address, not to zero-based ones")]
    BindNeedsAddresses,
    /// A window can only have remote rights.
    #[error("a window cannot have the rights {0:?}: windows are for remote access only")]
    WindowRights(Access),
    /// No such region or window, or its key has changed.
    #[error("STag {0} names nothing of the kind asked for")]
    UnknownStag(Stag),
    /// It belongs to another PD.
    #[error("STag {0} belongs to another protection domain")]
    OtherPd(Stag),
    /// It has to be valid for this.
    #[error("STag {0} is invalid")]
    Invalid(Stag),
    /// It has to be invalid for this: a window that is already bound.
    #[error("window {0} is already bound")]
    AlreadyBound(Stag),
    /// The region may not have windows bound to it.
    #[error("region {0} was not registered with the bind right")]
    NotBindable(Stag),
    /// A range outside the region.
    #[error("{len} octets at {at:#x} are not inside the region")]
    OutOfBounds {
        /// Where it starts.
        at: u64,
        /// How many octets.
        len: u64,
    },
    /// The region has windows bound to it.
    #[error("region {stag} has {windows} windows bound to it")]
    WindowsBound {
        /// The region.
        stag: Stag,
        /// How many.
        windows: usize,
    },
    /// The region has been deregistered, so its memory may be gone.
    #[error("the region has been deregistered")]
    Deregistered,
    /// A child of `fork` asks for memory of its parent's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The memory has gone bad while it was registered.
    #[error(transparent)]
    Faulted(#[from] Faulted),
    /// The region was registered without `LOCAL_WRITE`.
    #[error("the region was registered without the local write right")]
    ReadOnly,
}

/// What to do about it.
fn hint(call: &str, source: &io::Error) -> &'static str {
    match (call, source.raw_os_error()) {
        ("mlock", Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)) => {
            " (raise RLIMIT_MEMLOCK, see ulimit -l)"
        }
        ("madvise", Some(libc::EINVAL)) => " (populating needs Linux 5.14 or newer)",
        _ => "",
    }
}
