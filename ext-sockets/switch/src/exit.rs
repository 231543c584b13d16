//! Calls of other threads while the process exits.
//!
//! The exit sends what is owed, and the ends of all connections, while threads that the program has
//! not ended still use its sockets. Over plain TCP they would see nothing of it before they are
//! gone. Here a call of theirs on a socket of ours that begins, or wakes, after the exit has begun
//! sleeps until the process is gone; the kernel's numbers of closed sockets stay taken
//! (`kinds/close.rs`), so that no call meets another file under one of them.
//!
//! No thread sleeps here with a lock of ours: calls are kept back where they begin, and where their
//! result goes to the program, and everything between only fails.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rddp_stream::{Errno, Uncancelled};

use crate::gate::Route;
use crate::{process, table};

/// The time that threads still sleep after the sockets are finished, when functions of the program
/// may run that wait for one of them.
const FOR_OTHERS: Duration = Duration::from_secs(10);
/// The time between two looks whether the sockets are finished.
const A_WHILE: Duration = Duration::from_millis(100);

static BEGUN: AtomicBool = AtomicBool::new(false);
static FINISHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set in the thread that exits.
    static IS_MINE: Cell<bool> = const { Cell::new(false) };
}

/// Keeps all other threads from the sockets of ours, from their next call on.
pub(crate) fn begin() {
    IS_MINE.set(true);
    BEGUN.store(true, Ordering::SeqCst);
}

/// Notes that nothing is left to do for any socket.
pub(crate) fn is_finished() {
    FINISHED.store(true, Ordering::Release);
}

/// Forgets the exit in the child of a `fork`, which goes on.
pub(crate) fn forget() {
    BEGUN.store(false, Ordering::SeqCst);
    FINISHED.store(false, Ordering::Release);
}

/// Returns whether the process exits.
#[inline]
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::SeqCst)
}

/// Returns whether the calling thread is to leave the sockets alone, since another one exits.
#[inline]
pub(crate) fn is_anothers() -> bool {
    has_begun() && !IS_MINE.get()
}

/// Keeps the calling thread until the process is gone, if another one exits.
#[inline]
pub fn wait_out() {
    if has_begun() {
        sleep();
    }
}

/// Routes a call on a number that leads to no socket of ours, while the process exits.
#[cold]
pub(crate) fn route(fd: c_int) -> Route {
    if table::entry(fd).is_none() {
        return Route::Plain;
    }
    sleep();
    Route::Refused(Errno::NO_DESCRIPTOR)
}

#[cold]
fn sleep() {
    // A child of `vfork` uses this memory, and is not the process that exits.
    if !is_anothers() || !process::owns_table() {
        return;
    }
    let _uncancelled = Uncancelled::here();
    while !FINISHED.load(Ordering::Acquire) {
        std::thread::sleep(A_WHILE);
    }
    std::thread::sleep(FOR_OTHERS);
}
