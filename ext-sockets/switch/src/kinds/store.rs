//! The states of streams: slots in a file of the user's, found by the socket's cookie.
//!
//! The children of `fork` have the mapping; what a process becomes by `exec` has the descriptor
//! alone, asks the kernel for its cookie and looks for it in the file. A state goes with the last
//! holder of the socket; those whose holders were all killed are swept away when room is needed,
//! and files that nobody uses when the next process needs one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rddp_real as real;
use rddp_stream::{self as stream, Errno, Found, Options, Process, SameErrno, SharedState, Slots};

const FOLDER: &str = "/dev/shm";

/// How many this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);
/// Sweeping looks at all there are.
const SWEEP_EVERY: u32 = 4096;

/// A new state for the socket of this cookie. Where there is no such folder, no right to it, or no
/// room in it, the state is for this process and its children alone.
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

/// Returns whether this process, or one that it was forked from, has had a state that lies in no
/// file.
pub(super) fn has_own() -> bool {
    HAS_OWN.load(Ordering::Relaxed)
}

static HAS_OWN: AtomicBool = AtomicBool::new(false);

/// The state of the socket of this cookie, if another process, or what this one was before `exec`,
/// has left one.
pub(super) fn find(cookie: u64) -> Found {
    Slots::find(Path::new(FOLDER), real::user_id(), cookie)
}

/// Leaves the states whose sockets a program that begins does not have; `has` says so by cookie.
pub(super) fn leave_closed(has: impl Fn(u64) -> bool) {
    stream::leave_closed(Path::new(FOLDER), real::user_id(), has);
}
