//! Reports of the kernel on changes of this process's mappings (`userfaultfd(2)`, Linux 5.11).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that reports what becomes of the ranges that were armed: it is readable while the
/// thread that changes one waits for the report to be read. No page fault is reported.
#[derive(Debug)]
pub(crate) struct UserFault(OwnedFd);

impl UserFault {
    /// Opens a descriptor. No privilege is needed, as faults within the kernel are not asked for.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call has this one argument, and makes a descriptor or fails.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened above, and nobody else has it.
        let this = UserFault(unsafe { OwnedFd::from_raw_fd(fd) });
        let features = EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP;
        this.control(UFFDIO_API, &mut Api { api: UFFD_API, features, ioctls: 0 })?;
        Ok(this)
    }

    /// Has changes of a range of pages reported, all of which are mapped.
    pub(crate) fn arm(&self, pages: &Range<usize>) -> io::Result<()> {
        // The mode for write faults, none of which comes as no page gets write-protected: the one
        // for missing pages would stop the program at each.
        let mode = MODE_WRITE_PROTECT;
        self.control(UFFDIO_REGISTER, &mut Register { pages: Pages::new(pages), mode, ioctls: 0 })
    }

    /// Ends reports on a range of pages, as far as it is mapped.
    pub(crate) fn disarm(&self, pages: &Range<usize>) {
        // Refused where the mappings have gone, and their reports with them.
        let _ = self.control(UFFDIO_UNREGISTER, &mut Pages::new(pages));
    }

    /// Returns the next range that has changed; `None` if there is no report. This lets the thread
    /// go on that has changed it.
    pub(crate) fn next(&self) -> Option<Range<usize>> {
        let mut message = UffdMsg::default();
        let len = size_of::<UffdMsg>();
        // SAFETY: the kernel writes at most `len` octets, which the message has; any are valid.
        let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut message).cast(), len) };
        let [first, second, third] = message.numbers.map(|number| number as usize);
        match u32::from(message.event[0]) {
            _ if got != len as isize => None,
            EVENT_NUMBER_REMAP => Some(first..first.saturating_add(third)),
            EVENT_NUMBER_REMOVE | EVENT_NUMBER_UNMAP => Some(first..second),
            _ => Some(0..usize::MAX),
        }
    }

    fn control<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
        // SAFETY: each request of this module is called with the structure that Linux defines for
        // it, by the functions above; the kernel follows no pointer in it.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut *argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for UserFault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Has `begins` called before each `fork`, and `ends` behind it in the parent. They must do nothing
/// but what a signal handler may.
pub(crate) fn at_fork(begins: extern "C" fn(), ends: extern "C" fn()) -> io::Result<()> {
    // SAFETY: functions without arguments, which stay there.
    match unsafe { libc::pthread_atfork(Some(begins), Some(ends), None) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Pages {
    start: u64,
    len: u64,
}

impl Pages {
    fn new(pages: &Range<usize>) -> Self {
        Pages { start: pages.start as u64, len: pages.len() as u64 }
    }
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    pages: Pages,
    mode: u64,
    ioctls: u64,
}

/// `struct uffd_msg`: the event is the first of eight octets.
#[repr(C)]
#[derive(Default)]
struct UffdMsg {
    event: [u8; 8],
    numbers: [u64; 3],
}

// Of `linux/userfaultfd.h`.
const USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::Ioctl = libc::_IOWR::<Api>(0xaa, 0x3f);
const UFFDIO_REGISTER: libc::Ioctl = libc::_IOWR::<Register>(0xaa, 0);
const UFFDIO_UNREGISTER: libc::Ioctl = libc::_IOR::<Pages>(0xaa, 1);
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const EVENT_NUMBER_REMAP: u32 = 0x14;
const EVENT_NUMBER_REMOVE: u32 = 0x15;
const EVENT_NUMBER_UNMAP: u32 = 0x16;
