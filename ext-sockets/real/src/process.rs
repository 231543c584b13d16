//! What the C library knows of the process.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

// GNU's own; musl has both too.
unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Has these called around every `fork`: before it and after it in the parent, and in the child.
pub fn around_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: they take nothing and return nothing.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Has this called in the child of every `fork`.
pub fn after_fork(child: extern "C" fn()) {
    // SAFETY: it takes nothing and returns nothing.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Has this called when the process exits.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: it takes nothing and returns nothing.
    unsafe { libc::atexit(last) };
}

/// The program's name without its folder.
pub fn program_name() -> OsString {
    // SAFETY: the C library set it, to text that ends with a nul, before it ran any constructor; nobody has changed it yet.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

/// A variable of the environment, unless the program has privileges that its user has not.
pub fn secure_variable(name: &str) -> Option<OsString> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` ends with a nul. This runs when the library is loaded, before any thread can change the environment.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so text that ends with a nul; copied at once.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(value) }.to_bytes()).to_owned())
}

/// The user whose rights the process has.
pub fn user_id() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// A line for the system's log.
pub fn to_syslog(line: &str) {
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: both end with a nul, and the format takes one string.
    unsafe { libc::syslog(libc::LOG_NOTICE, c"%s".as_ptr(), line.as_ptr()) };
}

/// A page that the kernel clears in the copy that `fork` makes, by whatever call; what shares this memory, as after `vfork`, sees it as it is.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Notes that this memory is the calling process's.
pub fn note_memory() {
    if let Some(page) = page().or_else(make_page) {
        page.store(1, Ordering::Relaxed);
    }
}

/// Whether this memory is a copy of that in which [`note_memory`] was called.
pub fn is_copied_memory() -> bool {
    page().is_some_and(|page| page.load(Ordering::Relaxed) == 0)
}

fn page() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that was mapped before it was stored and is never unmapped.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn make_page() -> Option<&'static AtomicU32> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of one page, which touches no memory there is; the advice concerns it alone.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), PAGE_LEN, rights, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        let wiped = libc::madvise(at, PAGE_LEN, libc::MADV_WIPEONFORK) == 0;
        let new = at.cast();
        // Where another thread came first, or the kernel cannot do that (before 4.14), this page is nobody's.
        if !wiped || PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            libc::munmap(at, PAGE_LEN);
        }
    }
    page()
}

const PAGE_LEN: usize = 4096;
