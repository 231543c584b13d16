//! Cancellation of threads (`pthread_cancel`) that sleep in a call of this library.
//!
//! No system call of the library ends a thread, but for those of the sleeps in which programs of
//! rdma-core can be cancelled, too: where that library reads a descriptor. The thread is unwound
//! from there, through functions of Rust: those that sleep hold no lock meanwhile, and the exported
//! ones above them are `extern "C-unwind"`.

use std::cell::Cell;

thread_local! {
    static MAY_BE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread may be cancelled in `read(2)`.
pub(crate) fn may_be() -> bool {
    MAY_BE.get()
}

/// Calls a function in whose `read(2)` the thread may be cancelled.
pub(crate) fn cancellable<T>(function: impl FnOnce() -> T) -> T {
    MAY_BE.set(true);
    let result = function();
    MAY_BE.set(false);
    result
}

/// Ends the thread here if it has been cancelled.
pub(crate) fn end_if_cancelled() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    // SAFETY: may be called anywhere.
    unsafe { pthread_testcancel() };
}
