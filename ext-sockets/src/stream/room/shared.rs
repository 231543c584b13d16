//! The mapping of a [`State`] that every process which holds the socket has.

use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};

use super::blocks::WITH_BLOCKS;
use crate::stream::{Errno, Options, State};

/// A [`State`] in memory that children of `fork` share, and, if it lies in a file, whoever opens that.
#[derive(Debug)]
pub struct SharedState {
    at: NonNull<State>,
}

// SAFETY: a `State` is made of atomics, locks and settings that never change: it is meant to be used from everywhere.
unsafe impl Send for SharedState {}
// SAFETY: as above.
unsafe impl Sync for SharedState {}

impl SharedState {
    /// A new state in memory without a name: for this process and its children.
    ///
    /// # Errors
    /// There is no memory.
    pub fn anonymous(options: &Options) -> Result<Self, Errno> {
        Self::create(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, options)
    }

    /// A new state in `file` (a `memfd`, say), which is made as long as it has to be.
    ///
    /// # Errors
    /// There is no room for a file of that length, or it cannot be mapped.
    pub fn in_file(file: BorrowedFd<'_>, options: &Options) -> Result<Self, Errno> {
        let len = WITH_BLOCKS as libc::off_t;
        // The kernel would end the process.
        if longest_file() < len as libc::rlim_t {
            return Err(Errno(libc::EFBIG));
        }
        // All of it now: a page that cannot be had when it is first touched would end the process as well.
        // SAFETY: three integers.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) };
        if error != 0 {
            return Err(Errno(error));
        }
        Self::create(libc::MAP_SHARED, file.as_raw_fd(), options)
    }

    /// The state that another process, or this one before `exec`, has put into `file`. Only files that nobody else can
    /// write are to be trusted so far.
    ///
    /// # Errors
    /// `EINVAL`: it holds no state of this build. Or it cannot be mapped.
    pub fn open(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        if length(file.as_raw_fd())? != WITH_BLOCKS as libc::off_t {
            return Err(Errno(libc::EINVAL));
        }
        let state = Self { at: map(libc::MAP_SHARED, file.as_raw_fd())? };
        if state.is_of_this_build() { Ok(state) } else { Err(Errno(libc::EINVAL)) }
    }

    fn create(flags: libc::c_int, fd: RawFd, options: &Options) -> Result<Self, Errno> {
        let at = map(flags, fd)?;
        let shared = Self { at };
        // SAFETY: the options are written before a reference to them exists. All else in a `State` is atomics, plain data
        // and locks, for which zeros are values; and nobody else knows of it before this function returns.
        let state = unsafe {
            (&raw mut (*at.as_ptr()).options).write(*options);
            &mut *at.as_ptr()
        };
        state.rx.init()?;
        state.tx.init()?;
        state.begin();
        Ok(shared)
    }
}

impl Deref for SharedState {
    type Target = State;

    fn deref(&self) -> &State {
        // SAFETY: mapped for as long as `self` lives, initialised, and never borrowed for writing again.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; borrows of it end before `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), WITH_BLOCKS) };
    }
}

fn map(flags: libc::c_int, fd: RawFd) -> Result<NonNull<State>, Errno> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(ptr::null_mut(), WITH_BLOCKS, rights, flags, fd, 0) };
    match NonNull::new(at.cast::<State>()) {
        Some(at) if at.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => {
            at.as_ptr().expose_provenance();
            Ok(at)
        }
        _ => Err(Errno::last()),
    }
}

/// `RLIMIT_FSIZE`.
fn longest_file() -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives until the call returns.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

fn length(fd: RawFd) -> Result<libc::off_t, Errno> {
    // SAFETY: all zero is a valid value, and fstat fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` lives until the call returns.
    if unsafe { libc::fstat(fd, &raw mut status) } < 0 { Err(Errno::last()) } else { Ok(status.st_size) }
}
