//! The end of all sockets of a process: its exit, and, in the child of a `fork`, of the copies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rddp_stream::Errno;

use super::{adapter, link};
use crate::switch;

/// The time for which the exit of the process waits for peers that read nothing.
const AT_EXIT: Duration = Duration::from_secs(5);

/// The process exits.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Closes all sockets at the exit of the process, and waits until the peers' hosts have what was
/// sent. Calls of other threads on them do not return.
pub(in crate::kinds) fn finish() {
    if !adapter::was_used() {
        return;
    }
    let Some(device) = adapter::opened() else { return };
    IS_OVER.store(true, Ordering::SeqCst);
    for link in link::take_all().into_values() {
        link.close(link.lingers().filter(Duration::is_zero));
    }
    device.finish(AT_EXIT);
}

/// Returns the error of calls on a socket of which nothing is known: it is another process's.
#[cold]
pub(super) fn refusal() -> Errno {
    while IS_OVER.load(Ordering::SeqCst) {
        std::thread::sleep(AT_EXIT);
    }
    switch::tell_inherited();
    Errno::ABORTED
}

/// Forgets the parent's sockets in the child of a `fork`.
pub(in crate::kinds) fn after_fork() {
    if !adapter::was_used() {
        return;
    }
    IS_OVER.store(false, Ordering::SeqCst);
    for (_, link) in link::take_all() {
        link.close_inherited();
        // Its stream is the parent's, whose threads are not here.
        std::mem::forget(link);
    }
    adapter::forget();
}
