//! Memory that a thread keeps from one call to the next.

use std::cell::Cell;
use std::thread::LocalKey;

/// A value that each thread has for itself: `None` before the first call, and while a call uses it.
pub(crate) type Own<T> = Cell<Option<Box<T>>>;

/// Calls `f` with the thread's own value, or with a new one if the thread has none. That also
/// covers a thread that ends and whose value is gone for good: a program may close its connections
/// in a destructor of thread-local data.
#[inline(always)]
pub(crate) fn with_own<T: Default, R>(key: &'static LocalKey<Own<T>>, f: impl FnOnce(&mut T) -> R) -> R {
    let mut own = key.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = f(&mut own);
    let _ = key.try_with(|place| place.set(Some(own)));
    result
}
