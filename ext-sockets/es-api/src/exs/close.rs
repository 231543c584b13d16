//! EX8: what a close ends, before the number can be another's.
//!
//! These run in every `close` of the program; one that does not use the ES-API pays a load.

use std::ffi::{c_int, c_uint};

use rddp_real::{self as real, Errno};

use super::{ENGINE, Engine};
use crate::threads;

/// Whether this process has used the ES-API: then what closes a number concerns it.
#[inline]
pub fn is_used() -> bool {
    ENGINE.get().is_some()
}

/// `fd` is about to be closed: operations under way for it end with `ECONNABORTED`. Once this has returned, nothing here
/// touches the number.
#[inline]
pub fn closing(fd: c_int) {
    if let Some(engine) = ENGINE.get() {
        engine.closing(fd);
    }
}

/// All from `first` to `last` are about to be closed.
#[inline]
pub fn closing_range(first: c_uint, last: c_uint) {
    if let Some(engine) = ENGINE.get() {
        let clamp = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
        for fd in engine.registry.within(clamp(first), clamp(last)) {
            engine.closing(fd);
        }
    }
}

/// `to` is about to become another number of `from`, if that is open.
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
        // What a child of `vfork` closes is its own.
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
