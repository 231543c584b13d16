//! [`Home`]: a program's handle on an object of this crate, in the process that made the object and
//! in its children.
//!
//! A child of `fork` has copies of its parent's objects, of locks held by threads that the child
//! does not have, and of descriptors whose files it shares. So in a child nothing is touched,
//! locked or freed: each call through a `Home` returns [`Forked`], and the parent's connections are
//! closed in the child without a word to their peers.

use rddp_fault_guard::fork::Origin;
use rddp_fault_guard::sockets;

/// The object was made by a parent of this process, before `fork`.
///
/// ```
/// let inherited: std::io::Error = rddp_rnic::Forked.into();
/// assert!(inherited.to_string().contains("open a device in this process"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it belongs to the process that forked this one: open a device in this process")]
pub struct Forked;

/// An object, and the process that made it.
#[derive(Debug)]
pub(crate) struct Home<T> {
    /// `Some` but for a moment in `drop`.
    object: Option<T>,
    origin: Origin,
}

impl<T> Home<T> {
    pub(crate) fn new(object: T) -> Self {
        Home { object: Some(object), origin: Origin::here() }
    }

    /// Returns a home for another object, of the process that made this one.
    pub(crate) fn beside<U>(&self, object: U) -> Home<U> {
        Home { object: Some(object), origin: self.origin }
    }

    /// Returns the object, in the process that made it.
    #[inline]
    pub(crate) fn here(&self) -> Result<&T, Forked> {
        match &self.object {
            Some(object) if self.origin.is_here() => Ok(object),
            _ => Err(inherited()),
        }
    }

    /// Takes the object out, in the process that made it.
    pub(crate) fn into_inner(mut self) -> Result<T, Forked> {
        match self.object.take() {
            Some(object) if self.origin.is_here() => Ok(object),
            inherits => {
                std::mem::forget(inherits);
                Err(inherited())
            }
        }
    }

    /// Returns the object in any process, for values that were set when it was made, and for its
    /// atomics: nothing that is locked.
    #[inline]
    pub(crate) fn anywhere(&self) -> &T {
        self.object.as_ref().expect("an object is taken only when its home is dropped")
    }
}

impl<T: Clone> Clone for Home<T> {
    fn clone(&self) -> Self {
        Home { object: self.object.clone(), origin: self.origin }
    }
}

impl<T> Drop for Home<T> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            inherited();
            std::mem::forget(self.object.take());
        }
    }
}

/// Returns the error of a call on an inherited object, and closes the sockets that this process has
/// inherited.
#[cold]
fn inherited() -> Forked {
    sockets::close_inherited();
    Forked
}

impl From<Forked> for std::io::Error {
    fn from(forked: Forked) -> Self {
        std::io::Error::other(forked)
    }
}
