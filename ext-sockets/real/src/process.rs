//! Facts about the process that the C library keeps, and its hooks at fork and exit.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

// Extensions of GNU; musl has both too.
unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Registers functions for every `fork`: before it, after it in the parent, and after it in the
/// child.
pub fn around_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions take nothing and return nothing, and are never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Registers a function that runs in the child of every `fork`.
pub fn after_fork(child: extern "C" fn()) {
    // SAFETY: the function takes nothing and returns nothing, and is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Registers a function that runs when the process exits.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: the function takes nothing and returns nothing, and is never unloaded.
    unsafe { libc::atexit(last) };
}

/// Returns the program's name without its folder.
pub fn program_name() -> OsString {
    // SAFETY: the C library set the pointer, to text that ends with a nul, before it ran any
    // constructor; nothing has changed it yet.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

/// Returns a variable of the environment; `None` in a program with privileges that its user does
/// not have.
pub fn secure_variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a nul. This runs when the library is loaded, before any thread can
    // change the environment.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so it points to text that ends with a nul, which is copied at once.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(value) }.to_bytes()).to_owned())
}

/// Returns the effective user ID of the process.
pub fn user_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Writes a line to the system's log.
pub fn to_syslog(line: &str) {
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: both texts end with a nul, and the format takes one string.
    unsafe { libc::syslog(libc::LOG_NOTICE, c"%s".as_ptr(), line.as_ptr()) };
}

/// A page that the kernel clears in the copy of memory that a fork makes, by whatever call. A
/// process that shares this memory, as after `vfork`, sees the page unchanged.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Marks that this memory belongs to the calling process.
pub fn claim_memory() {
    if let Some(page) = page().or_else(make_page) {
        page.store(1, Ordering::Relaxed);
    }
}

/// Returns whether this memory is a copy of that in which [`claim_memory`] was called.
pub fn is_copied_memory() -> bool {
    page().is_some_and(|page| page.load(Ordering::Relaxed) == 0)
}

fn page() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that was mapped before its address was stored and is never unmapped.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn make_page() -> Option<&'static AtomicU32> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of one page, which replaces no mapping that exists; the advice concerns
    // it alone, and it is unmapped only where nobody got its address.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), PAGE_LEN, rights, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        let wiped = libc::madvise(at, PAGE_LEN, libc::MADV_WIPEONFORK) == 0;
        let new = at.cast();
        // Where another thread came first, or the kernel knows no such advice (before 4.14), this
        // page is not used.
        if !wiped || PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            libc::munmap(at, PAGE_LEN);
        }
    }
    page()
}

const PAGE_LEN: usize = 4096;
