//! Handles of queues and of regions: numbers from 1, none used twice. A child of `fork` can tell
//! its parent's handles from its own.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use rddp_real::Errno;

static NEXT: AtomicI32 = AtomicI32::new(1);
/// Lowest handle of this process; lower ones are of the process that it was forked from.
static FIRST_OWN: AtomicI32 = AtomicI32::new(1);

/// Returns a number that was not used before.
pub(super) fn next() -> Result<c_int, Errno> {
    let more = |handle: c_int| handle.checked_add(1);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Errno(libc::ENOMEM))
}

/// Returns the errno for a handle that is not known.
pub(super) fn unknown(handle: c_int) -> Errno {
    let is_parents = (1..FIRST_OWN.load(Ordering::Relaxed)).contains(&handle);
    if is_parents { Errno::ABORTED } else { Errno::INVALID }
}

pub(super) fn after_fork() {
    FIRST_OWN.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
}
