//! Numbers of queues and of regions: from 1, none twice, and known for a parent's in a child of `fork`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

static NEXT: AtomicI32 = AtomicI32::new(1);
/// Those below are of the process that this one was forked from.
static FIRST_OWN: AtomicI32 = AtomicI32::new(1);

/// A number for something new.
pub(super) fn next() -> Result<c_int, c_int> {
    let more = |handle: c_int| handle.checked_add(1);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| libc::ENOMEM)
}

/// The errno for a number that nothing is known by.
pub(super) fn unknown(handle: c_int) -> c_int {
    let is_parents = (1..FIRST_OWN.load(Ordering::Relaxed)).contains(&handle);
    if is_parents { libc::ECONNABORTED } else { libc::EINVAL }
}

pub(super) fn after_fork() {
    FIRST_OWN.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
}
