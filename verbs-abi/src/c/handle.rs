//! Objects that a program holds by pointer: C's structure first, what it does not see behind it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};

use super::process::process;
use crate::errors::Outcome;
use crate::refusal::because;

/// An object whose first field is the C structure that programs know.
///
/// # Safety
/// The type is `repr(C)`, and its first field is a [`Shared`] whose first field is a `C`.
pub(super) unsafe trait Object: Send + Sync + 'static {
    type C;

    /// Returns the pointer by which the program knows the object.
    fn handle(&self) -> *mut Self::C {
        std::ptr::from_ref(self).cast::<Self::C>().cast_mut()
    }
}

/// C's part of an object. The program reads and writes fields of it when it likes, so that Rust
/// does, too, by pointer and field by field.
#[repr(transparent)]
pub(super) struct Shared<T>(UnsafeCell<T>);

// SAFETY: all that is done to the contents is done by raw pointers, under the rules of C's headers.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Shared(UnsafeCell::new(value))
    }

    pub(super) fn get(&self) -> *mut T {
        self.0.get()
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// Follows a handle, on the path of data. NULL is `EINVAL`.
///
/// # Safety
/// The handle is one of this type that has not been destroyed, and is not while `'a` lasts.
pub(super) unsafe fn follow<'a, T: Object>(handle: *mut T::C) -> Outcome<&'a T> {
    // SAFETY: as promised by the caller, there is such an object behind the handle.
    unsafe { handle.cast::<T>().as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"))
}

/// The objects that a program has and may destroy, by address.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<HashMap<usize, Arc<dyn Any + Send + Sync>>>);

impl Handles {
    fn find<T: Object>(&self, handle: *mut T::C) -> Outcome<Arc<T>> {
        let object = self.0.lock().get(&handle.addr()).cloned();
        object.and_then(|object| object.downcast().ok()).ok_or_else(|| because(Errno::EINVAL, "the program has no such object: it was never made, or is destroyed, or a parent process has it"))
    }
}

/// Gives an object to the program, until it is [retired](retire).
pub(super) fn publish<T: Object>(object: &Arc<T>) -> *mut T::C {
    let handle = object.handle();
    process().handles.0.lock().insert(handle.addr(), object.clone());
    handle
}

/// Looks a handle up: `EINVAL` if the program has no such object, or a parent process had it.
pub(super) fn find<T: Object>(handle: *mut T::C) -> Outcome<Arc<T>> {
    process().handles.find(handle)
}

/// Looks a handle up that may be NULL.
pub(super) fn find_if<T: Object>(handle: *mut T::C) -> Outcome<Option<Arc<T>>> {
    (!handle.is_null()).then(|| find(handle)).transpose()
}

/// Takes an object back from the program.
pub(super) fn retire<T: Object>(handle: *mut T::C) -> Outcome<Arc<T>> {
    let object = find::<T>(handle)?;
    process().handles.0.lock().remove(&handle.addr()).map(|_| object).ok_or_else(|| {
        because(
            Errno::EINVAL,
            "the program has no such object: it was never made, or is destroyed, or a parent process has it",
        )
    })
}

/// Looks a handle up of an object that no others use: else it is `EBUSY`.
pub(super) fn find_unused<T: Object + Used>(handle: *mut T::C) -> Outcome<Arc<T>> {
    let object = find::<T>(handle)?;
    if object.users().count() > 0 {
        return Err(because(Errno::EBUSY, "other objects use it"));
    }
    Ok(object)
}

/// Takes an object back from the program, unless others use it: then it is `EBUSY`.
pub(super) fn retire_unused<T: Object + Used>(handle: *mut T::C) -> Outcome<Arc<T>> {
    find_unused::<T>(handle)?;
    retire(handle)
}

/// Waits until nobody else holds an object that the program destroys, so that what it uses is free
/// when the call returns. Others hold it for the time of a look-up or an event only.
pub(super) fn await_sole<T>(object: &Arc<T>) {
    while Arc::strong_count(object) > 1 {
        std::thread::yield_now();
    }
}

/// A count of the objects that use another one.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicUsize);

impl Users {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// An object that others use.
pub(super) trait Used {
    fn users(&self) -> &Users;
}

/// An object that the holder uses.
#[derive(Debug)]
pub(super) struct Held<T: Used>(Arc<T>);

impl<T: Used> Held<T> {
    pub(super) fn new(object: Arc<T>) -> Self {
        object.users().0.fetch_add(1, Ordering::SeqCst);
        Held(object)
    }
}

impl<T: Used> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Used> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.users().0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The events that a program has been given about an object and has not acknowledged. To destroy
/// the object waits until there are none.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    count: Mutex<u64>,
    none: Condvar,
}

impl Unacknowledged {
    pub(super) fn given(&self) {
        *self.count.lock() += 1;
    }

    pub(super) fn acknowledge(&self, events: u64) {
        let mut count = self.count.lock();
        *count = count.saturating_sub(events);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    pub(super) fn wait(&self) {
        let mut count = self.count.lock();
        self.none.wait_while(&mut count, |count| *count > 0);
    }
}
