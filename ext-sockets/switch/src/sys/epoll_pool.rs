//! The memory of the epoll entries, which this process shares with the children of `fork`.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::wait::Pool;

static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// Returns the pool, if there is one.
#[inline]
pub(crate) fn pool() -> Option<&'static Pool> {
    // SAFETY: the pool was mapped and initialised before its address was stored, and is never
    // unmapped. All its fields are atomic.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }
}

/// Returns the pool, which is made if there is none; `None` if there is no memory.
pub(crate) fn make_pool() -> Option<&'static Pool> {
    pool().or_else(make)
}

#[cold]
fn make() -> Option<&'static Pool> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let len = size_of::<Pool>();
    // SAFETY: this makes a new mapping at an address that the kernel chooses, and touches no other.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags | libc::MAP_NORESERVE, -1, 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    let new: *mut Pool = at.cast();
    // SAFETY: the mapping is as large as a pool and aligned to pages; all zeros are a valid value
    // of its atomics; no other thread has the address yet.
    unsafe { (*new).begin() };
    if POOL.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: this unmaps the mapping made above, whose address no other thread has.
        unsafe { libc::munmap(at, len) };
    }
    pool()
}
