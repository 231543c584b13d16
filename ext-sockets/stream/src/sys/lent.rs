//! The program's memory: each touch of it may find that it is not there.
//!
//! The kernel says `EFAULT` of memory that it reads or writes itself. Whatever we copy or sum goes
//! through here, under the guard of `rddp_fault_guard`.

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rddp_fault_guard::{Faulted, Work, call, copy_in, copy_out, install, mask, unblock_in_handlers};
use rddp_mpa::{crc32c, crc32c_append};

use super::is_confined;
use crate::{Errno, ours};

/// Has faults of the calling thread in here found out, whatever it blocks. Costs one load once that
/// is so.
#[inline]
pub fn guard() {
    if !mask::is_adopted() {
        begin();
    }
}

/// [`guard`], in a process that has sockets of ours. Any other has no handler of ours.
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
        // The library's first call looks at the processor, and keeps what it finds in a cell that
        // no fault may leave half made.
        black_box([1, 64, 4096].map(|len| crc32c(&[0; 4096][..len])));
        if install().is_err() {
            return;
        }
        unblock_in_handlers();
        READY.store(true, Ordering::Release);
    }
    mask::adopt_thread();
}

/// Returns what a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: nothing is there.
///
/// # Safety
/// All octets are a value of `T`, which is all that can be there.
pub unsafe fn get<T: Copy>(from: *const T) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: room for the value, which is one when it was copied.
    unsafe {
        get_all(from, std::slice::from_mut(&mut value))?;
        Ok(value.assume_init())
    }
}

/// Fills `to` with what a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: not all of it is there.
///
/// # Safety
/// As of [`get`].
pub unsafe fn get_all<T: Copy>(from: *const T, to: &mut [MaybeUninit<T>]) -> Result<(), Errno> {
    let octets = ptr::slice_from_raw_parts_mut(to.as_mut_ptr().cast(), size_of_val(to));
    // SAFETY: room for the values, borrowed alone; the caller's promise.
    unsafe { get_octets(from.cast(), &mut *octets) }
}

/// Fills `to` with the octets that a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: not all of them are there.
///
/// # Safety
/// What is there is the program's to be read.
pub unsafe fn get_octets(from: *const u8, to: &mut [u8]) -> Result<(), Errno> {
    guard_if_any();
    // SAFETY: the caller's promise; `to` is borrowed alone.
    unsafe { copy_out(from, to).map_err(|_| Errno::FAULT) }
}

/// Stores a value where a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: nothing is there.
///
/// # Safety
/// What is there is the program's to be written, and `T` has no padding.
pub unsafe fn put<T: Copy>(to: *mut T, value: T) -> Result<(), Errno> {
    guard_if_any();
    let octets = ptr::slice_from_raw_parts((&raw const value).cast(), size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { copy_in(to.cast(), &*octets).map_err(|_| Errno::FAULT) }
}

/// Looks whether `count` values are where a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: not all of them.
pub fn check<T>(at: *const T, count: usize) -> Result<(), Errno> {
    check_by(at, count, touch_pages)
}

/// Looks whether `count` values may be written where a pointer of the program's leads to.
///
/// # Errors
/// `EFAULT`: not all of them.
///
/// # Safety
/// What is there is the program's to be written.
pub unsafe fn check_room<T>(at: *mut T, count: usize) -> Result<(), Errno> {
    check_by(at, count, write_pages)
}

fn check_by<T>(at: *const T, count: usize, work: Work) -> Result<(), Errno> {
    guard_if_any();
    let len = count.checked_mul(size_of::<T>()).ok_or(Errno::FAULT)?;
    let range = at.addr()..at.addr().checked_add(len).ok_or(Errno::FAULT)?;
    // SAFETY: the octets are looked at, and at most replaced by themselves in one step; whatever is
    // there bears that, and the work may be left at any of them.
    unsafe { call(range, work, ptr::null_mut(), at.cast(), len) }.map_err(|_| Errno::FAULT)
}

/// Copies `from` to the beginning of `to`, up to a page that is not there. How many octets that
/// were.
pub(crate) fn fill(to: &mut [u8], from: &[u8]) -> usize {
    let (to, from) = (&mut to[..from.len()], from);
    // SAFETY: `to` is borrowed alone, and stands for memory of the program's that may not be there.
    if unsafe { copy_in(to.as_mut_ptr(), from) }.is_ok() {
        return from.len();
    }
    page_by_page(to.as_ptr().addr(), to.len(), |at, len| {
        // SAFETY: as above.
        unsafe { copy_in(to[at..].as_mut_ptr(), &from[at..at + len]) }
    })
}

/// Copies the beginning of `from`, up to a page that is not there, to `to`. How many octets that
/// were.
pub(crate) fn read(from: &[u8], to: &mut [u8]) -> usize {
    // SAFETY: `from` is borrowed, and stands for memory of the program's that may not be there.
    if unsafe { copy_out(from.as_ptr(), &mut to[..from.len()]) }.is_ok() {
        return from.len();
    }
    page_by_page(from.as_ptr().addr(), from.len(), |at, len| {
        // SAFETY: as above.
        unsafe { copy_out(from[at..].as_ptr(), &mut to[at..at + len]) }
    })
}

/// Returns how many octets of `octets` are there to be read, up to a page that is not.
pub(crate) fn readable(octets: &[u8]) -> usize {
    page_by_page(octets.as_ptr().addr(), octets.len(), |at, len| touch(&octets[at..at + len]))
}

/// Reads an octet of each page.
pub(crate) fn touch(octets: &[u8]) -> Result<(), Faulted> {
    let at = octets.as_ptr();
    // SAFETY: `touch_pages` reads inside the slice, and may be left at any of them.
    unsafe { call(range(octets), touch_pages, std::ptr::null_mut(), at.cast(), octets.len()) }
}

/// The CRC of `octets` appended to `crc`.
#[inline]
pub(crate) fn sum(mut crc: u32, octets: &[u8]) -> Result<u32, Faulted> {
    // SAFETY: `add_to_sum` reads the slice, and may be left at any octet of it.
    unsafe {
        call(range(octets), add_to_sum, (&raw mut crc).cast(), octets.as_ptr().cast(), octets.len())?;
    }
    Ok(crc)
}

fn range(octets: &[u8]) -> std::ops::Range<usize> {
    let at = octets.as_ptr().addr();
    at..at.wrapping_add(octets.len())
}

/// # Safety
/// `len` octets are readable at `from`, as far as they are not guarded.
unsafe extern "C" fn touch_pages(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let mut at = 0;
    while at < len {
        // SAFETY: the caller's word.
        unsafe { AtomicU8::from_ptr(from.cast_mut().cast::<u8>().add(at)).load(Ordering::Relaxed) };
        at += next_page(from.addr() + at);
    }
    to
}

/// # Safety
/// As of [`touch_pages`], for writing.
unsafe extern "C" fn write_pages(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let mut at = 0;
    while at < len {
        // SAFETY: the caller's word. A read-modify-write, which the compiler leaves as it is.
        unsafe { AtomicU8::from_ptr(from.cast_mut().cast::<u8>().add(at)).fetch_add(0, Ordering::AcqRel) };
        at += next_page(from.addr() + at);
    }
    to
}

/// # Safety
/// As of [`touch_pages`]; `crc` is a number.
unsafe extern "C" fn add_to_sum(crc: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    let sum = crc.cast::<u32>();
    // SAFETY: the caller's word. The slice is seen by the CRC library alone, which loads octets of
    // any value, branches on none and owns nothing.
    unsafe { *sum = crc32c_append(*sum, std::slice::from_raw_parts(from.cast(), len)) };
    crc
}

/// Octets up to the end of the page that `address` is in. Pages may be larger than this takes them
/// for.
fn next_page(address: usize) -> usize {
    PAGE - address % PAGE
}

/// Does `work` on the pages of memory at `address`, until one is not there. How many octets came
/// before it.
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

/// The smallest that there is.
const PAGE: usize = 4096;
