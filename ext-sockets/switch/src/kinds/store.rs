//! The states of streams: slots in a file of the user's, found by the socket's cookie.
//!
//! The children of `fork` have the mapping. A program started by `exec` has the descriptor alone;
//! it asks the kernel for the socket's cookie and looks for that in the file. The last holder of a
//! socket frees its state. States whose holders were all killed are swept away when room is needed,
//! and unused files when the next process needs one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rddp_real as real;
use rddp_stream::{self as stream, Errno, Found, Options, Process, SameErrno, SharedState, Slots};

const FOLDER: &str = "/dev/shm";

/// The number of states that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);
/// The number of states made between two sweeps; a sweep looks at all slots.
const SWEEP_EVERY: u32 = 4096;

/// Makes a state for the socket with this cookie. Where there is no such folder, no right to it, or
/// no room in it, the state is for this process and its children alone.
pub(super) fn create(cookie: u64, options: &Options) -> Result<SharedState, Errno> {
    let _same = SameErrno::here();
    let (folder, user) = (Path::new(FOLDER), real::user_id());
    let sweeps = MADE.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY);
    if sweeps {
        stream::remove_unused(folder, user);
    }
    let slots = Slots::open(folder, user);
    if sweeps {
        slots.map(Slots::sweep);
    }
    slots.and_then(|slots| slots.create(cookie, options)).map_or_else(|| create_own(options), Ok)
}

fn create_own(options: &Options) -> Result<SharedState, Errno> {
    HAS_OWN.store(true, Ordering::Relaxed);
    let state = SharedState::anonymous(options)?;
    state.join(Process::me());
    Ok(state)
}

/// Returns whether this process, or one it was forked from, has had a state that lies in no file.
pub(super) fn has_own() -> bool {
    HAS_OWN.load(Ordering::Relaxed)
}

static HAS_OWN: AtomicBool = AtomicBool::new(false);

/// Finds the state of the socket with this cookie, if another process has left one, or the program
/// that ran in this process before `exec`.
pub(super) fn find(cookie: u64) -> Found {
    Slots::find(Path::new(FOLDER), real::user_id(), cookie)
}

/// Releases the states of sockets that a program which has just begun does not have; `has` tells by
/// cookie which it has.
pub(super) fn release_closed(has: impl Fn(u64) -> bool) {
    stream::leave_closed(Path::new(FOLDER), real::user_id(), has);
}
