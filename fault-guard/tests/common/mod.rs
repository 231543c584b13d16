//! Memory that goes bad, and children to die of it.
#![allow(dead_code)] // each test uses a part

use std::ffi::{c_int, c_void};
use std::ptr;

pub(crate) const PAGE: usize = 4096;

/// Two pages, of which the second is gone from [`Pages::cut`] or [`Pages::forbid`] on.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) start: *mut u8,
    file: c_int,
}

// SAFETY: mapped memory belongs to the process.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Of a file, each octet `fill`.
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

    /// The address of the first octet that goes bad.
    pub(crate) fn bad(&self) -> *mut u8 {
        self.start.wrapping_add(PAGE)
    }

    /// Cuts the file short: SIGBUS.
    pub(crate) fn cut(self) -> Self {
        // SAFETY: the file is the test's.
        assert_eq!(unsafe { libc::ftruncate(self.file, PAGE as libc::off_t) }, 0);
        self
    }

    /// Makes the file whole again, the second page zeros.
    pub(crate) fn grow(self) {
        // SAFETY: the file is the test's.
        unsafe { libc::ftruncate(self.file, 2 * PAGE as libc::off_t) };
    }

    /// Takes all rights to the second page: SIGSEGV.
    pub(crate) fn forbid(self) -> Self {
        // SAFETY: the test's own page, which no reference covers.
        assert_eq!(unsafe { libc::mprotect(self.bad().cast(), PAGE, libc::PROT_NONE) }, 0);
        self
    }
}

/// How a child of `fork` that runs `body` ends: its exit status, or minus the signal.
pub(crate) fn in_child(body: impl FnOnce() -> u8) -> c_int {
    // SAFETY: the C library makes its allocator good in the child; nothing else that a thread may
    // hold is used there.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = body();
        // SAFETY: ends without destructors.
        unsafe { libc::_exit(status.into()) };
    }
    assert!(pid > 0);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Reads one octet as it is.
pub(crate) extern "C" fn touch(_to: *mut c_void, from: *const c_void, _len: usize) -> *mut c_void {
    // SAFETY: the tests' point.
    unsafe { from.cast::<u8>().read_volatile() };
    ptr::null_mut()
}
