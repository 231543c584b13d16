//! The alarm of a thread: the descriptor by which others wake it while it sleeps.
//!
//! It is the thread's and not a queue's, so that descriptors go by the threads that sleep at a
//! time, and not by the queues that they may sleep on. A thread has one from its first sleep on.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use super::notify::Notify;
use crate::home::Home;

thread_local! {
    static OWN: Cell<Option<Home<Arc<Notify>>>> = const { Cell::new(None) };
}

/// Returns the alarm of the calling thread. A child of `fork` makes its own, for its parent's
/// thread sleeps on the other.
pub(crate) fn alarm() -> io::Result<Arc<Notify>> {
    // There is none in a thread that ends and whose data is gone: see `scratch`.
    let kept = OWN.try_with(Cell::take).ok().flatten();
    let kept = kept.filter(|own| own.here().is_ok());
    let own = kept.map_or_else(|| Ok::<_, io::Error>(Home::new(Arc::new(Notify::new()?))), Ok)?;
    let alarm = own.here()?.clone();
    let _ = OWN.try_with(|place| place.set(Some(own)));
    Ok(alarm)
}
