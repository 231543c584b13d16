//! Buffers for the length of one call.
//!
//! A socket call may come from a signal handler or from a thread with a small stack, so neither the
//! heap nor the stack will do. A few mappings are kept for later calls; swapping a pointer takes
//! one and gives it back. A child of `fork` has copies of those that were free.

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Errno;

/// Number of mappings that are kept: so many calls at a time need no new one.
const KEPT: usize = 16;

static POOL: [AtomicPtr<u8>; KEPT] = [const { AtomicPtr::new(ptr::null_mut()) }; KEPT];

pub(crate) struct Scratch {
    at: NonNull<u8>,
}

impl Scratch {
    /// Room for the longest FPDU with its markers, and for a train of shorter ones.
    pub(crate) const LEN: usize = 72 * 1024;

    pub(crate) fn take() -> Result<Self, Errno> {
        #[cfg(test)]
        super::tests::spend_a_scratch()?;
        let free = POOL.iter().find_map(|slot| NonNull::new(slot.swap(ptr::null_mut(), Ordering::Acquire)));
        match free {
            Some(at) => Ok(Self { at }),
            None => Self::map(),
        }
    }

    fn map() -> Result<Self, Errno> {
        // SAFETY: a new private mapping, which replaces no mapping that exists.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self { at }),
            _ => Err(Errno::NO_BUFFERS),
        }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a mapping of that length, initialised by the kernel, which this value alone has.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), Self::LEN) }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), Self::LEN) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let at = self.at.as_ptr();
        let kept = POOL.iter().any(|slot| {
            slot.compare_exchange(ptr::null_mut(), at, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        if !kept {
            // SAFETY: the mapping was made by `map`, and nothing refers to it any more.
            unsafe { libc::munmap(at.cast(), Self::LEN) };
        }
    }
}
