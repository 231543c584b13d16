//! Copies and sums of registered octets: our own plainly, those that a program lends under the
//! guard.
//!
//! Memory of our own stays mapped and backed by no file: it cannot go bad. Lent memory can, by a
//! file that is cut short or a range that is unmapped, and then the process must live.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rddp_fault_guard::{Faulted, call, copy_in, copy_out, install};
use rddp_mpa::{crc32c, crc32c_append};

/// Gets ready for memory that is lent, once.
pub(super) fn prepare() {
    static READY: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire) {
        return;
    }
    // The library's first call looks at the processor, and keeps what it finds in a cell that no
    // fault may leave half made.
    std::hint::black_box([1, 64, 4096].map(|len| crc32c(&[0; 4096][..len])));
    if let Err(error) = install() {
        tracing::warn!(%error, "no handler for SIGBUS and SIGSEGV: memory that goes bad will end the process");
    }
    READY.store(true, Ordering::Release);
}

/// Copies `data` to `to`.
///
/// # Safety
/// There is room for all of `data` in live memory that may be written, which no reference covers;
/// it is `lent`, or mapped for as long as this takes.
#[inline]
pub(super) unsafe fn write(lent: bool, to: NonNull<u8>, data: &[u8]) -> Result<(), Faulted> {
    if lent {
        // SAFETY: the caller's word; that it is mapped is the guard's business.
        return unsafe { copy_in(to.as_ptr(), data) };
    }
    // SAFETY: the caller's word. Memory of our own is never lent as a slice such as `data`.
    unsafe { to.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
    Ok(())
}

/// Copies octets from `from` on into `out`.
///
/// # Safety
/// As of [`write`], for reading.
#[inline]
pub(super) unsafe fn read(lent: bool, from: NonNull<u8>, out: &mut [u8]) -> Result<(), Faulted> {
    if lent {
        // SAFETY: the caller's word; that it is mapped is the guard's business.
        return unsafe { copy_out(from.as_ptr(), out) };
    }
    // SAFETY: the caller's word. Memory of our own is never lent as a slice such as `out`.
    unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), out.len()) };
    Ok(())
}

/// The CRC of `len` octets from `from` on, appended to `crc`.
///
/// # Safety
/// As of [`read`].
#[inline]
pub(super) unsafe fn sum(lent: bool, from: NonNull<u8>, len: usize, mut crc: u32) -> Result<u32, Faulted> {
    let from = from.as_ptr().cast::<c_void>().cast_const();
    let range = from.addr()..from.addr() + len;
    // SAFETY: the caller's word for the octets; `add_to_sum` may be left at any of them.
    unsafe {
        if lent {
            call(range, add_to_sum, (&raw mut crc).cast(), from, len)?;
        } else {
            add_to_sum((&raw mut crc).cast(), from, len);
        }
    }
    Ok(crc)
}

/// Appends `len` octets to the CRC at `crc`.
///
/// # Safety
/// They are readable, as far as they are not guarded.
#[inline]
unsafe extern "C" fn add_to_sum(crc: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let sum = crc.cast::<u32>();
    // SAFETY: the caller's word. The slice is seen by the CRC library alone, which loads octets of
    // any value, branches on none and owns nothing; should a peer write them meanwhile, the sum is
    // of a mixture and nothing else follows. A copy first, so that nothing changes under the slice,
    // cost 12 % of the bandwidth of Sends of 1 MiB.
    unsafe { *sum = crc32c_append(*sum, std::slice::from_raw_parts(from.cast(), len)) };
    crc
}

/// Replaces the number at `cell` by what `change` makes of it, or leaves it if that is `None`;
/// gives the number before.
///
/// # Safety
/// Eight aligned octets as of [`write`], which other threads touch by copies and atomics only.
/// `change` is pure.
pub(super) unsafe fn modify<F: Fn(u64) -> Option<u64>>(
    lent: bool,
    cell: NonNull<u64>,
    change: F,
) -> Result<u64, Faulted> {
    let range = cell.addr().get()..cell.addr().get() + size_of::<u64>();
    let cell = cell.as_ptr().cast_const().cast();
    let mut work = Modify { change, original: 0 };
    // SAFETY: the caller's word for the octets; the work may be left at any access to them.
    unsafe {
        if lent {
            call(range, Modify::<F>::run, (&raw mut work).cast(), cell, size_of::<u64>())?;
        } else {
            Modify::<F>::run((&raw mut work).cast(), cell, size_of::<u64>());
        }
    }
    Ok(work.original)
}

struct Modify<F> {
    change: F,
    original: u64,
}

impl<F: Fn(u64) -> Option<u64>> Modify<F> {
    /// # Safety
    /// `work` is a `Self`, and `cell` as [`modify`] has it.
    unsafe extern "C" fn run(work: *mut c_void, cell: *const c_void, _len: usize) -> *mut c_void {
        // SAFETY: the caller's word.
        let (this, cell) =
            unsafe { (&mut *work.cast::<Self>(), AtomicU64::from_ptr(cell.cast_mut().cast())) };
        let before = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, &this.change);
        this.original = before.unwrap_or_else(|original| original);
        work
    }
}
