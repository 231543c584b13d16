//! Numbers of queues and of regions: from 1, none twice, and known for a parent's in a child of `fork`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use rddp_real::Errno;

static NEXT: AtomicI32 = AtomicI32::new(1);
/// Those below are of the process that this one was forked from.
static FIRST_OWN: AtomicI32 = AtomicI32::new(1);

/// A number for something new.
pub(super) fn next() -> Result<c_int, Errno> {
    let more = |handle: c_int| handle.checked_add(1);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Errno(libc::ENOMEM))
}

/// The errno for a number that nothing is known by.
pub(super) fn unknown(handle: c_int) -> Errno {
    let is_parents = (1..FIRST_OWN.load(Ordering::Relaxed)).contains(&handle);
    if is_parents { Errno::ABORTED } else { Errno::INVALID }
}

pub(super) fn after_fork() {
    FIRST_OWN.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
}
