//! Memory that goes bad, and child processes that may be killed by it.
#![allow(dead_code)] // each test uses a part

use std::ffi::{c_int, c_void};
use std::ptr;

pub(crate) const PAGE: usize = 4096;

/// Two pages, of which the second becomes inaccessible by [`Pages::cut`] or [`Pages::forbid`].
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) start: *mut u8,
    file: c_int,
}

// SAFETY: mapped memory belongs to the process, not to a thread.
unsafe impl Send for Pages {}
// SAFETY: mapped memory belongs to the process, not to a thread.
unsafe impl Sync for Pages {}

impl Pages {
    /// Two pages of a file, in which each octet is `fill`.
    pub(crate) fn new(fill: u8) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new file of no name, and a new mapping of it.
        unsafe {
            let file = libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0);
            assert_eq!(libc::ftruncate(file, 2 * PAGE as libc::off_t), 0);
            let start = libc::mmap(ptr::null_mut(), 2 * PAGE, rights, libc::MAP_SHARED, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            start.cast::<u8>().write_bytes(fill, 2 * PAGE);
            Pages { start: start.cast(), file }
        }
    }

    /// Returns the address of the first octet that goes bad.
    pub(crate) fn bad(&self) -> *mut u8 {
        self.start.wrapping_add(PAGE)
    }

    /// Truncates the file: access to the second page causes SIGBUS.
    pub(crate) fn cut(self) -> Self {
        // SAFETY: the file is the test's.
        assert_eq!(unsafe { libc::ftruncate(self.file, PAGE as libc::off_t) }, 0);
        self
    }

    /// Makes the file whole again; the second page is zeros.
    pub(crate) fn grow(self) {
        // SAFETY: the file is the test's.
        unsafe { libc::ftruncate(self.file, 2 * PAGE as libc::off_t) };
    }

    /// Takes all rights from the second page: access to it causes SIGSEGV.
    pub(crate) fn forbid(self) -> Self {
        // SAFETY: the test's own page, which no reference covers.
        assert_eq!(unsafe { libc::mprotect(self.bad().cast(), PAGE, libc::PROT_NONE) }, 0);
        self
    }
}

/// Returns how a child of `fork` that runs `body` ends: its exit status, or the signal as a
/// negative number.
pub(crate) fn in_child(body: impl FnOnce() -> u8) -> c_int {
    // SAFETY: the C library makes its allocator usable in the child; nothing else that another
    // thread may hold is used there.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = body();
        // SAFETY: `_exit` runs no destructors.
        unsafe { libc::_exit(status.into()) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Guarded work that reads one octet.
pub(crate) extern "C" fn touch(_to: *mut c_void, from: *const c_void, _len: usize) -> *mut c_void {
    // SAFETY: reads the test's own memory, or faults, which is the purpose.
    unsafe { from.cast::<u8>().read_volatile() };
    ptr::null_mut()
}
