//! Memory that a thread keeps for its next call.

use std::cell::Cell;
use std::thread::LocalKey;

/// A thread's own `T`: none before the first call, and while a call has it.
pub(crate) type Own<T> = Cell<Option<Box<T>>>;

/// Calls `f` with the thread's own, or with a new one. So it is also where the thread's is gone for
/// good: a program may close its connections at its very end.
pub(crate) fn with_own<T: Default, R>(key: &'static LocalKey<Own<T>>, f: impl FnOnce(&mut T) -> R) -> R {
    let mut own = key.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = f(&mut own);
    let _ = key.try_with(|place| place.set(Some(own)));
    result
}
