//! Registered memory of a file of its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{NonNull, null_mut};

use rddp_rnic::{Access, MemoryRegion, ProtectionDomain};

pub const LEN: usize = 512 << 10;

pub struct Lent {
    pub region: MemoryRegion,
    pub file: File,
    pub start: NonNull<u8>,
}

impl Lent {
    /// Maps `LEN` zeros of a file, shared.
    pub fn new(pd: &ProtectionDomain, access: Access) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new file without a name, which nobody else has, and a mapping at an address of
        // the kernel's choice.
        let (start, file) = unsafe {
            let file = File::from_raw_fd(libc::memfd_create(c"lent".as_ptr(), libc::MFD_CLOEXEC));
            file.set_len(LEN as u64).unwrap();
            (libc::mmap(null_mut(), LEN, rights, libc::MAP_SHARED, file.as_raw_fd(), 0), file)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast()).unwrap();
        // SAFETY: mapped until this is dropped, and only touched by copying.
        let region = unsafe { pd.register(start, LEN, access) }.unwrap();
        Lent { region, file, start }
    }

    /// Cuts the file short: the memory behind `len` is gone (SIGBUS).
    pub fn cut(&self, len: u64) {
        self.file.set_len(len).unwrap();
    }

    /// Takes all rights to the mapping away, as if it were unmapped (SIGSEGV), but so that nothing
    /// else can be mapped there.
    pub fn forbid(&self) {
        // SAFETY: the test's own mapping, of which no reference exists.
        assert_eq!(unsafe { libc::mprotect(self.start.as_ptr().cast(), LEN, libc::PROT_NONE) }, 0);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = self.region.deregister();
        // SAFETY: as mapped above; nobody uses it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), LEN) };
    }
}
