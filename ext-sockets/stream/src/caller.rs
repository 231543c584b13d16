//! Whoever made a call, and wants to know when it sleeps.

use std::fmt;

/// Told by a call that makes several system calls on one number, so that nobody closes that in the middle of it.
pub trait Caller: fmt::Debug {
    /// The call makes a system call that sleeps, and does not touch the number before [`wakes`](Self::wakes).
    fn sleeps(&self);
    /// It is awake. Whether the number still is what it was.
    fn wakes(&self) -> bool;
}

/// Nobody closes the number.
#[derive(Debug)]
pub(super) struct Nobody;

impl Caller for Nobody {
    fn sleeps(&self) {}

    fn wakes(&self) -> bool {
        true
    }
}
