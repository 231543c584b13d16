//! A lock in shared memory whose owner may die.
//!
//! The lock is a robust mutex of the C library: uncontended it makes no system call, and the kernel
//! gives a dead owner's lock to the next process that asks. The value must show what the owner was
//! doing. The lock of a direction is held for a few microseconds and never while a thread sleeps,
//! which [debug builds watch](held).

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use super::held;
use crate::Errno;
use crate::state::{Rx, Tx};

/// Data that may lie in memory which several processes map, and which a process may leave half
/// changed.
///
/// # Safety
/// The type has no pointers and nothing to drop. All zeros is a value, and so is every mixture of
/// two values field by field: fields are stored one at a time, each by one instruction, but for
/// octet arrays.
pub(crate) unsafe trait Plain {
    /// The bit of its lock, where that is a direction's: locks are awaited in the order of bits.
    /// 0: nobody awaits it, and its owner may sleep.
    const LOCK: u8;
}

// SAFETY: integers, booleans and octets alone.
unsafe impl Plain for Rx {
    const LOCK: u8 = 1;
}
// SAFETY: integers, booleans and octets alone.
unsafe impl Plain for Tx {
    const LOCK: u8 = 2;
}
// SAFETY: an integer.
unsafe impl Plain for u64 {
    const LOCK: u8 = 0;
}

/// A value and its lock. Both begin as zeros; [`init`](Self::init) must be called first.
#[repr(C)]
pub(crate) struct Guarded<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the mutex only, which works between processes and so between
// threads.
unsafe impl<T: Plain> Sync for Guarded<T> {}
// SAFETY: plain data, and a mutex that is free once the value is owned.
unsafe impl<T: Plain> Send for Guarded<T> {}

impl<T: Plain> Guarded<T> {
    /// Offset of the value.
    pub(crate) const VALUE: usize = std::mem::offset_of!(Self, value);

    /// Makes the mutex of a value that no other process knows of yet.
    pub(crate) fn init(&mut self) -> Result<(), Errno> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised first, used, and destroyed; the mutex is not in
        // use yet.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            let attributes = attributes.as_mut_ptr();
            check(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK))?;
            check(libc::pthread_mutex_init(self.mutex.get(), attributes))?;
            libc::pthread_mutexattr_destroy(attributes);
        }
        Ok(())
    }

    /// Waits for the lock. `EDEADLK` when this thread has it already: a signal handler interrupted
    /// the call that has it, and cannot send or receive in the middle of that.
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Errno> {
        held::assert_order(T::LOCK);
        // SAFETY: `init` has made the mutex before the mapping was handed out.
        match unsafe { libc::pthread_mutex_lock(self.mutex.get()) } {
            0 => Ok(Guard::of(self)),
            libc::EOWNERDEAD => {
                // SAFETY: the lock is held now; the value is plain data, whatever its last owner
                // was doing.
                unsafe { libc::pthread_mutex_consistent(self.mutex.get()) };
                Ok(Guard::of(self))
            }
            error => Err(Errno(error)),
        }
    }

    /// Locks if nobody has the lock.
    pub(crate) fn try_lock(&self) -> Tried<'_, T> {
        // SAFETY: as in `lock`.
        match unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } {
            0 => Tried::Free(Guard::of(self)),
            libc::EOWNERDEAD => {
                // SAFETY: as in `lock`.
                unsafe { libc::pthread_mutex_consistent(self.mutex.get()) };
                Tried::OfTheDead(Guard::of(self))
            }
            _ => Tried::Taken,
        }
    }
}

/// Result of an attempt to lock.
pub(crate) enum Tried<'a, T: Plain> {
    /// The lock was free, and is held now.
    Free(Guard<'a, T>),
    /// The lock was that of an owner who has died, and is held now.
    OfTheDead(Guard<'a, T>),
    /// A thread has it, perhaps the calling one.
    Taken,
}

/// The lock, held.
pub(crate) struct Guard<'a, T: Plain> {
    of: &'a Guarded<T>,
}

impl<'a, T: Plain> Guard<'a, T> {
    #[inline(always)]
    fn of(of: &'a Guarded<T>) -> Self {
        held::note(T::LOCK);
        Self { of }
    }
}

impl<T: Plain> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held, and `T` is plain: whatever another process left there is a
        // value.
        unsafe { &*self.of.value.get() }
    }
}

impl<T: Plain> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed alone.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T: Plain> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        held::forget(T::LOCK);
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.of.mutex.get()) };
    }
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno(result)) }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::super::{Calls, SharedState};
    use super::*;
    use crate::{Options, Role, Stream, Why};

    /// Runs `body` in a child, which is killed in the middle of it.
    fn die_in(body: impl FnOnce()) {
        // SAFETY: the child only takes a lock of ours and is killed; the parent waits for that.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                body();
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
        }
    }

    #[test]
    fn a_lock_outlives_its_owner() {
        let state = SharedState::anonymous(&Options::new(Role::Initiator)).unwrap();
        die_in(|| {
            let mut tx = state.tx.lock().unwrap();
            tx.out.msn = 7;
            std::mem::forget(tx);
        });
        assert_eq!(state.tx.lock().unwrap().out.msn, 7);
        let _held = state.tx.lock().unwrap();
        assert_eq!(
            state.tx.lock().map(drop),
            Err(Errno(libc::EDEADLK)),
            "a signal handler does not wait for itself"
        );
    }

    #[test]
    fn an_owner_that_died_with_octets_on_the_move_ends_the_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let calls = Calls::libc();
        for receiving in [false, true] {
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let state = SharedState::anonymous(&Options::new(Role::Initiator)).unwrap();
            die_in(|| {
                if receiving {
                    let mut rx = state.rx.lock().unwrap();
                    rx.moving = true;
                    std::mem::forget(rx);
                } else {
                    let mut tx = state.tx.lock().unwrap();
                    tx.moving = true;
                    std::mem::forget(tx);
                }
            });
            let stream = Stream::new(tcp.as_raw_fd(), &state, &calls).unwrap();
            assert_eq!(stream.send(&[IoSlice::new(b"x")], libc::MSG_NOSIGNAL), Err(Errno::ABORTED));
            assert_eq!(state.ended().unwrap().why, Why::Damaged);
        }
    }
}
