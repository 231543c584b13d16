//! The program's memory, any access to which may find that it is not mapped.
//!
//! Where the kernel reads or writes such memory it fails with `EFAULT`. Our own copies and sums go
//! through here, guarded by `rddp_fault_guard`.
//!
//! A send takes the octets in front of a page that is not there, a receive leaves in the queue
//! those that it cannot place, and a call fails with `EFAULT` if there are none before. Only a page
//! that vanishes between the sum and the write ends the stream (`ECONNABORTED`).

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rddp_fault_guard::{Faulted, Work, call, copy_in, copy_out, install, mask, unblock_in_handlers};
use rddp_mpa::{crc32c, crc32c_append};

use super::is_confined;
use crate::{Errno, ours};

/// Makes faults of the calling thread's copies here detectable, whatever signals it blocks. Costs
/// one load when that is done already.
#[inline]
pub fn guard() {
    if !mask::is_adopted() {
        begin();
    }
}

/// Calls [`guard`] in a process that has framed sockets. Any other process has no handler of ours.
fn guard_if_any() {
    if ours::any() {
        guard();
    }
}

#[cold]
fn begin() {
    static READY: AtomicBool = AtomicBool::new(false);
    if is_confined() {
        return;
    }
    if !READY.load(Ordering::Acquire) {
        // The library's first call detects the processor's features, and stores them in a cell that
        // a fault must not leave half written.
        black_box([1, 64, 4096].map(|len| crc32c(&[0; 4096][..len])));
        if install().is_err() {
            return;
        }
        unblock_in_handlers();
        READY.store(true, Ordering::Release);
    }
    mask::adopt_thread();
}

/// Reads the value at a pointer of the program.
///
/// # Errors
/// `EFAULT`: no memory is mapped there.
///
/// # Safety
/// All bit patterns are values of `T`, and only a `T` can be at the pointer.
pub unsafe fn get<T: Copy>(from: *const T) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: there is room for the value, which is initialised when it was copied; any octets are
    // a `T`.
    unsafe {
        get_all(from, std::slice::from_mut(&mut value))?;
        Ok(value.assume_init())
    }
}

/// Fills `to` with the values at a pointer of the program.
///
/// # Errors
/// `EFAULT`: not all of the memory is mapped.
///
/// # Safety
/// Those of [`get`].
pub unsafe fn get_all<T: Copy>(from: *const T, to: &mut [MaybeUninit<T>]) -> Result<(), Errno> {
    let octets = ptr::slice_from_raw_parts_mut(to.as_mut_ptr().cast(), size_of_val(to));
    // SAFETY: `octets` are the room of the values, borrowed alone; the memory may be read, as for
    // `get`.
    unsafe { get_octets(from.cast(), &mut *octets) }
}

/// Fills `to` with the octets at a pointer of the program.
///
/// # Errors
/// `EFAULT`: not all of the memory is mapped.
///
/// # Safety
/// Memory that is mapped there is the program's, and may be read.
pub unsafe fn get_octets(from: *const u8, to: &mut [u8]) -> Result<(), Errno> {
    guard_if_any();
    // SAFETY: mapped memory there may be read, and the guard detects other; `to` is borrowed alone.
    unsafe { copy_out(from, to).map_err(|_| Errno::FAULT) }
}

/// Writes a value to a pointer of the program.
///
/// # Errors
/// `EFAULT`: no memory is mapped there.
///
/// # Safety
/// Memory that is mapped there is the program's, and may be written; `T` has no padding.
pub unsafe fn put<T: Copy>(to: *mut T, value: T) -> Result<(), Errno> {
    guard_if_any();
    let octets = ptr::slice_from_raw_parts((&raw const value).cast(), size_of::<T>());
    // SAFETY: mapped memory there may be written, and the guard detects other; `octets` are those
    // of `value`.
    unsafe { copy_in(to.cast(), &*octets).map_err(|_| Errno::FAULT) }
}

/// Checks that `count` values at a pointer of the program can be read.
///
/// # Errors
/// `EFAULT`: not all of the memory is mapped.
pub fn check<T>(at: *const T, count: usize) -> Result<(), Errno> {
    check_by(at, count, touch_pages)
}

/// Checks that `count` values at a pointer of the program can be written.
///
/// # Errors
/// `EFAULT`: not all of the memory is mapped.
///
/// # Safety
/// Memory that is mapped there is the program's, and may be written.
pub unsafe fn check_room<T>(at: *mut T, count: usize) -> Result<(), Errno> {
    check_by(at, count, write_pages)
}

fn check_by<T>(at: *const T, count: usize, work: Work) -> Result<(), Errno> {
    guard_if_any();
    let len = count.checked_mul(size_of::<T>()).ok_or(Errno::FAULT)?;
    let range = at.addr()..at.addr().checked_add(len).ok_or(Errno::FAULT)?;
    // SAFETY: the octets are read, and at most replaced by themselves in one step, which other
    // users of the memory do not notice; the work may be broken off at any of them.
    unsafe { call(range, work, ptr::null_mut(), at.cast(), len) }.map_err(|_| Errno::FAULT)
}

/// Copies `from` to the beginning of `to`, up to a page that is not mapped. Returns the number of
/// octets.
pub fn fill(to: &mut [u8], from: &[u8]) -> usize {
    let (to, from) = (&mut to[..from.len()], from);
    // SAFETY: `to` is borrowed alone, and stands for memory of the program that may not be mapped.
    if unsafe { copy_in(to.as_mut_ptr(), from) }.is_ok() {
        return from.len();
    }
    page_by_page(to.as_ptr().addr(), to.len(), |at, len| {
        // SAFETY: the range lies within both slices, of which `to` is borrowed alone.
        unsafe { copy_in(to[at..].as_mut_ptr(), &from[at..at + len]) }
    })
}

/// Copies the beginning of `from`, up to a page that is not mapped, to `to`. Returns the number of
/// octets.
pub fn read(from: &[u8], to: &mut [u8]) -> usize {
    // SAFETY: `from` is borrowed, and stands for memory of the program that may not be mapped.
    if unsafe { copy_out(from.as_ptr(), &mut to[..from.len()]) }.is_ok() {
        return from.len();
    }
    page_by_page(from.as_ptr().addr(), from.len(), |at, len| {
        // SAFETY: the range lies within both slices, of which `to` is borrowed alone.
        unsafe { copy_out(from[at..].as_ptr(), &mut to[at..at + len]) }
    })
}

/// Returns how many of `octets` can be read, up to a page that is not mapped.
pub(crate) fn readable(octets: &[u8]) -> usize {
    if touch(octets).is_ok() {
        return octets.len();
    }
    page_by_page(octets.as_ptr().addr(), octets.len(), |at, len| touch(&octets[at..at + len]))
}

/// Returns whether memory can be written. An octet of each page gets its own value.
#[inline]
pub fn is_writable(room: &mut [u8]) -> bool {
    let (at, len) = (room.as_mut_ptr(), room.len());
    // SAFETY: `write_pages` writes inside the slice, which is borrowed alone, and may be broken off
    // at any octet.
    unsafe { call(range(room), write_pages, std::ptr::null_mut(), at.cast_const().cast(), len) }.is_ok()
}

/// Reads an octet of each page.
pub(crate) fn touch(octets: &[u8]) -> Result<(), Faulted> {
    let at = octets.as_ptr();
    // SAFETY: `touch_pages` reads inside the slice, and may be broken off at any octet.
    unsafe { call(range(octets), touch_pages, std::ptr::null_mut(), at.cast(), octets.len()) }
}

/// Returns the CRC of `octets` appended to `crc`.
#[inline]
pub(crate) fn sum(mut crc: u32, octets: &[u8]) -> Result<u32, Faulted> {
    // SAFETY: `add_to_sum` reads the slice, and may be broken off at any octet.
    unsafe {
        call(range(octets), add_to_sum, (&raw mut crc).cast(), octets.as_ptr().cast(), octets.len())?;
    }
    Ok(crc)
}

fn range(octets: &[u8]) -> std::ops::Range<usize> {
    let at = octets.as_ptr().addr();
    at..at.wrapping_add(octets.len())
}

/// Reads an octet of each page.
///
/// # Safety
/// `len` octets are readable at `from`, as far as they are not guarded.
unsafe extern "C" fn touch_pages(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let mut at = 0;
    while at < len {
        // SAFETY: the address lies within the `len` octets at `from`; a fault is detected by the
        // guard.
        unsafe { AtomicU8::from_ptr(from.cast_mut().cast::<u8>().add(at)).load(Ordering::Relaxed) };
        at += next_page(from.addr() + at);
    }
    to
}

/// Writes an octet of each page with its own value.
///
/// # Safety
/// As of [`touch_pages`], for writing.
unsafe extern "C" fn write_pages(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let mut at = 0;
    while at < len {
        // SAFETY: the address lies within the `len` octets at `from`, which may be written; a fault
        // is detected by the guard. The compiler makes a read of an addition of 0, and not of this.
        let octet = unsafe { AtomicU8::from_ptr(from.cast_mut().cast::<u8>().add(at)) };
        let _ = octet.fetch_update(Ordering::AcqRel, Ordering::Acquire, Some);
        at += next_page(from.addr() + at);
    }
    to
}

/// Appends octets to a CRC.
///
/// # Safety
/// As of [`touch_pages`]; `crc` is a number.
unsafe extern "C" fn add_to_sum(crc: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let sum = crc.cast::<u32>();
    // SAFETY: there are `len` octets at `from`, and a fault is detected by the guard. The slice is
    // used by the CRC library alone, which loads octets of any value, branches on none and owns
    // nothing.
    unsafe { *sum = crc32c_append(*sum, std::slice::from_raw_parts(from.cast(), len)) };
    crc
}

/// Returns the number of octets up to the end of the page that `address` is in. Real pages may be
/// larger than assumed here.
fn next_page(address: usize) -> usize {
    PAGE - address % PAGE
}

/// Does `work` on the pages of memory at `address`, until one is not mapped. Returns the number of
/// octets before that.
#[cold]
fn page_by_page(
    address: usize,
    len: usize,
    mut work: impl FnMut(usize, usize) -> Result<(), Faulted>,
) -> usize {
    let mut at = 0;
    while at < len {
        let count = next_page(address + at).min(len - at);
        if work(at, count).is_err() {
            break;
        }
        at += count;
    }
    at
}

/// Smallest page that any processor has.
const PAGE: usize = 4096;
