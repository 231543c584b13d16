//! The calling thread's `errno`: the one place where it is read and set.

use crate::Errno;

impl Errno {
    /// Returns the error of the C library's function that just failed in this thread.
    #[must_use]
    #[inline]
    pub fn last() -> Self {
        // SAFETY: the C library gives each thread an errno, which lives as long as the thread.
        Self(unsafe { *libc::__errno_location() })
    }

    /// Sets the calling thread's errno.
    #[inline]
    pub fn set_last(self) {
        // SAFETY: as in `last`; only this thread reads or writes it.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The calling thread's errno at one moment, which is restored when this is dropped.
#[derive(Debug)]
#[must_use = "errno is set back when this is dropped"]
pub struct SameErrno(Errno);

impl SameErrno {
    /// Notes the errno of the calling thread.
    #[inline]
    pub fn here() -> Self {
        Self(Errno::last())
    }
}

impl Drop for SameErrno {
    #[inline]
    fn drop(&mut self) {
        self.0.set_last();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_set_back_when_the_guard_is_dropped() {
        Errno::RESET.set_last();
        let same = SameErrno::here();
        Errno::FAULT.set_last();
        assert_eq!(Errno::last(), Errno::FAULT);
        drop(same);
        assert_eq!(Errno::last(), Errno::RESET);
    }
}
