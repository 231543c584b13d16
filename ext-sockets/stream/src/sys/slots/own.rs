//! The reference of this process to a state: in a slot, or in memory of its own.

use std::ops::Deref;
use std::ptr::NonNull;

use super::claim;
use super::home::{Home, Slab, Slot};
use super::layout::{OWN_ALL, OWN_MORE_AT, slot_at};
use super::many;
use crate::{Errno, Options, State};

/// A [`State`] in memory that children of `fork` share, and, if it lies in a file, other processes
/// that find it there.
#[derive(Debug)]
pub struct SharedState {
    at: NonNull<State>,
}

// SAFETY: a `State` is made of atomics, locks and settings that never change: any thread may use
// it.
unsafe impl Send for SharedState {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedState {}

impl SharedState {
    /// Makes a state in memory without a name: for this process and its children.
    ///
    /// # Errors
    /// The errno of the failure to get memory; `EINVAL` for options that do not go together.
    pub fn anonymous(options: &Options) -> Result<Self, Errno> {
        options.check()?;
        let slab = Slab::map(OWN_ALL, Home { pool: None, number: 0 }, |at| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let map = |at: *mut u8, len, more| {
                // SAFETY: `at` and the octets behind it are addresses that `map` has reserved.
                unsafe { libc::mmap(at.cast(), len, rights, shared | more, -1, 0) != libc::MAP_FAILED }
            };
            // Most streams never use the blocks of chains, for which no memory is set aside.
            map(at, OWN_MORE_AT, 0)
                && map(at.wrapping_add(OWN_MORE_AT), OWN_ALL - OWN_MORE_AT, libc::MAP_NORESERVE)
        });
        let slab = slab.ok_or_else(Errno::last)?;
        let at = slab.place(slot_at(0)).cast();
        // SAFETY: the memory is zeros, and nothing else refers to it.
        unsafe { Self::begin(at, options) }.inspect_err(|_| {
            // SAFETY: nothing refers to the slab: no state was made.
            unsafe { slab.unmap(OWN_ALL) };
        })
    }

    /// Returns how many blocks the stream has at this moment, each of
    /// [`shm::BLOCK`](crate::shm::BLOCK) octets; without a file those of the Sockets Direct
    /// Protocol alone.
    #[must_use]
    pub fn blocks(&self) -> usize {
        // SAFETY: `self` refers to the state at this address.
        many::count(unsafe { Slot::of(self.at.addr().get()) })
    }

    /// Fills a slot with a new state.
    ///
    /// # Safety
    /// The slot is all zeros, mapped by [`Slab::map`] for as long as the result may live, and
    /// nothing else refers to it.
    pub(super) unsafe fn begin(at: NonNull<State>, options: &Options) -> Result<Self, Errno> {
        // SAFETY: a `State` is atomics, plain data and locks, for which zeros are values; nothing
        // else refers to it before this function returns.
        let state = unsafe { &mut *at.as_ptr() };
        state.rx.init()?;
        state.tx.init()?;
        state.begin(options)?;
        Ok(Self { at })
    }

    /// Returns the state in a slot, of which this process has become a holder.
    pub(super) const fn of_slot(at: NonNull<State>) -> Self {
        Self { at }
    }
}

impl Deref for SharedState {
    type Target = State;

    fn deref(&self) -> &State {
        // SAFETY: mapped for as long as `self` lives, initialised, and never borrowed for writing
        // again.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        // SAFETY: `self` refers to the state at this address.
        let slot = unsafe { Slot::of(self.at.addr().get()) };
        match slot.slab.home().pool {
            Some(pool) => claim::leave(self, slot.slab, pool, slot.number()),
            // SAFETY: borrows of the state end before `self`, its only owner.
            None => unsafe { slot.slab.unmap(OWN_ALL) },
        }
    }
}
