//! The memory of the entries, which the children of `fork` share.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::wait::Pool;

static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// The pool, if there is one.
#[inline]
pub(crate) fn pool() -> Option<&'static Pool> {
    // SAFETY: mapped and begun before it was stored, and never unmapped. All in it is atomic.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }
}

/// The pool, which is made if there is none; `None` without memory.
pub(crate) fn make_pool() -> Option<&'static Pool> {
    pool().or_else(make)
}

#[cold]
fn make() -> Option<&'static Pool> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let len = size_of::<Pool>();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags | libc::MAP_NORESERVE, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    let new: *mut Pool = at.cast();
    // SAFETY: it is as large as a pool and aligned to pages; zeros are a value of atomics; nobody else knows of it.
    unsafe { (*new).begin() };
    if POOL.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: the mapping made above, of which nobody knows.
        unsafe { libc::munmap(at, len) };
    }
    pool()
}
