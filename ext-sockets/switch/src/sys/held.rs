//! The lifetime of a socket: it is not used for another as long as a number leads to it or a call
//! holds it.
//!
//! The state of its stream is mapped once in that time, and unmapped when the last use is given
//! back. The count of uses proves that nobody has a reference to the state any more, so the two are
//! kept together here.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rddp_stream::{SharedState, State};

use crate::socket::{self, Socket};

/// The count of uses of a socket, and the state that lives as long as there are any.
#[derive(Debug)]
pub(crate) struct Uses {
    /// 0: the socket is free. [`ENDING`]: the last use was given back, and the state is being
    /// dropped.
    count: AtomicU32,
    state: AtomicPtr<SharedState>,
}

const ENDING: u32 = u32::MAX;

impl Uses {
    pub(crate) const fn none() -> Self {
        Uses { count: AtomicU32::new(0), state: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes the first use of a free socket; returns false if it is not free.
    pub(crate) fn first(&self) -> bool {
        self.count.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes one more use; returns false if there are none.
    pub(crate) fn another(&self) -> bool {
        let more = |count| (count != 0 && count != ENDING).then(|| count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back a use from [`first`](Self::first) or [`another`](Self::another). Returns whether
    /// the socket is free now.
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
            // SAFETY: the pointer came from a box, and the swap took it out, so this is its only
            // owner. References to it live no longer than a `Held`, which is a use, and the last
            // use has been given back.
            drop(unsafe { Box::from_raw(state) });
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A use of a socket of ours, which stays the same socket while this lives.
#[derive(Debug)]
pub struct Held {
    socket: &'static Socket,
    index: NonZeroU32,
}

impl Held {
    /// Makes a `Held` of a use that the caller has taken and gives up.
    pub(crate) fn of_use(socket: &'static Socket, index: NonZeroU32) -> Self {
        Held { socket, index }
    }

    /// Returns the socket's entry in the table of descriptors.
    pub(crate) fn index(&self) -> NonZeroU32 {
        self.index
    }

    /// Returns the socket for any time, without a use: it may be used for another one later.
    pub(crate) fn socket(&self) -> &'static Socket {
        self.socket
    }

    /// Returns the state of the stream, once there is one.
    #[inline]
    pub fn state(&self) -> Option<&State> {
        let state = self.socket.uses.state.load(Ordering::Acquire);
        // SAFETY: the pointer is set once, from a box, and dropped only when all uses are given
        // back; `self` is a use for as long as the borrow lasts.
        unsafe { state.as_ref() }.map(Deref::deref)
    }

    /// Sets the state of the stream, unless there is one already.
    pub fn set_state(&self, state: SharedState) {
        let new = Box::into_raw(Box::new(state));
        let place = &self.socket.uses.state;
        if place.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: the pointer was made from a box above, and was stored nowhere.
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
        // This cannot fail, as `self` is a use.
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
