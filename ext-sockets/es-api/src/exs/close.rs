//! Ending of operations when the program closes their descriptor, before the number can be reused
//! (EX8).
//!
//! These functions run in every `close` of the program; a program that does not use the ES-API pays
//! one load.

use std::ffi::{c_int, c_uint};

use rddp_real::{self as real, Errno};

use super::{ENGINE, Engine};
use crate::threads;

/// Returns whether this process has used the ES-API, so that it must hear of closes.
#[inline]
pub fn is_used() -> bool {
    ENGINE.get().is_some()
}

/// Ends the operations of `fd`, which is about to be closed, with `ECONNABORTED`. Once this has
/// returned, nothing here uses the number.
#[inline]
pub fn closing(fd: c_int) {
    if let Some(engine) = ENGINE.get() {
        engine.closing(fd);
    }
}

/// Ends the operations of all descriptors from `first` to `last`, which are about to be closed.
#[inline]
pub fn closing_range(first: c_uint, last: c_uint) {
    if let Some(engine) = ENGINE.get() {
        let clamp = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
        for fd in engine.registry.within(clamp(first), clamp(last)) {
            engine.closing(fd);
        }
    }
}

/// Ends the operations of `to`, which is about to become a duplicate of `from`, if that is open.
#[inline]
pub fn replacing(from: c_int, to: c_int) {
    if from != to
        && let Some(engine) = ENGINE.get()
        && real::is_open(from)
    {
        engine.closing(to);
    }
}

impl Engine {
    fn closing(&self, fd: c_int) {
        // A child of `vfork` closes descriptors of its own, while this memory is its parent's.
        if self.registry.within(fd, fd).is_empty() || self.owner != std::process::id() {
            return;
        }
        let (lanes, polls) = (self.registry.forget(fd), self.registry.polls(fd));
        lanes.iter().for_each(|lane| lane.close(Errno::ABORTED));
        for poll in &polls {
            poll.end(Err(Errno::ABORTED), &[]);
        }
        threads::nudge();
        lanes.iter().for_each(|lane| lane.wait_until_unpolled());
        polls.iter().for_each(|poll| poll.wait_until_unpolled());
    }
}
