//! Notice, to the maker of a call, of the sleeps in it.

use std::fmt;

/// Gets notice of the sleeps of a call that makes several system calls on one descriptor, so that
/// another thread does not close that in the middle.
pub trait Caller: fmt::Debug {
    /// Called before a system call that sleeps, after which the number is not used before
    /// [`wakes`](Self::wakes).
    fn sleeps(&self);
    /// Called after a sleep. Returns whether the number still is that of the socket.
    fn wakes(&self) -> bool;
}

/// The caller where the descriptor is not closed by another thread.
#[derive(Debug)]
pub(super) struct Nobody;

impl Caller for Nobody {
    fn sleeps(&self) {}

    fn wakes(&self) -> bool {
        true
    }
}
