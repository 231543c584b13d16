//! How long a socket stays what it is: as long as a number leads to it or a call looks at it.
//!
//! The state of its stream is mapped once in that time and unmapped by whoever ends it. That nobody can have a reference to it any more
//! then is what the count is for, and why the two are together here.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rddp_stream::{SharedState, State};

use crate::socket::{self, Socket};

/// The count of uses, and what lives as long as there are any.
#[derive(Debug)]
pub(crate) struct Uses {
    /// 0: free. [`ENDING`]: the last one was given back, and what it held is being cleared away.
    count: AtomicU32,
    state: AtomicPtr<SharedState>,
}

const ENDING: u32 = u32::MAX;

impl Uses {
    pub(crate) const fn none() -> Self {
        Uses { count: AtomicU32::new(0), state: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The first use of a free one.
    pub(crate) fn first(&self) -> bool {
        self.count.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// One more, if there are any.
    pub(crate) fn another(&self) -> bool {
        let more = |count| (count != 0 && count != ENDING).then(|| count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Gives one back that [`first`](Self::first) or [`another`](Self::another) gave. Whether it is free now.
    fn give_back(&self) -> bool {
        let less = |count| Some(if count == 1 { ENDING } else { count - 1 });
        if self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) != Ok(1) {
            return false;
        }
        self.clear();
        self.count.store(0, Ordering::Release);
        true
    }

    fn clear(&self) {
        let state = self.state.swap(ptr::null_mut(), Ordering::AcqRel);
        if !state.is_null() {
            // SAFETY: it came from a box, and this took it out. References to it live no longer than a `Held`, which is a use, and
            // there are none.
            drop(unsafe { Box::from_raw(state) });
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A socket of ours, not used for another while this lives.
#[derive(Debug)]
pub struct Held {
    socket: &'static Socket,
    index: NonZeroU32,
}

impl Held {
    /// Of a use that the caller has, and gives to the result.
    pub(crate) fn of_use(socket: &'static Socket, index: NonZeroU32) -> Self {
        Held { socket, index }
    }

    /// What leads to it in the table of descriptors.
    pub(crate) fn index(&self) -> NonZeroU32 {
        self.index
    }

    /// The same for as long as the program lives, without being held.
    pub(crate) fn socket(&self) -> &'static Socket {
        self.socket
    }

    /// The state of its stream, once it has one.
    #[inline]
    pub fn state(&self) -> Option<&State> {
        let state = self.socket.uses.state.load(Ordering::Acquire);
        // SAFETY: set once, from a box, and dropped only when all uses are given back; this is one for as long as the borrow lasts.
        unsafe { state.as_ref() }.map(Deref::deref)
    }

    /// Gives it the state of its stream; what it has already stays.
    pub fn set_state(&self, state: SharedState) {
        let new = Box::into_raw(Box::new(state));
        let place = &self.socket.uses.state;
        if place.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and given to nobody.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl Deref for Held {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        self.socket
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        // There is at least the use of `self`.
        self.socket.uses.another();
        Held { socket: self.socket, index: self.index }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.socket.uses.give_back() {
            socket::is_free(self.index);
        }
    }
}
