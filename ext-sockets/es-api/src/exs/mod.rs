//! The ES-API (Open Group, Extended Sockets API Issue 1.0): calls that begin an operation and
//! return, and events that say how it has ended. `include/rddp/exs.h` is the program's side of it;
//! `docs/extended-sockets.md` says what we chose where only the names are known.
//!
//! | rule | where |
//! |---|---|
//! | EX1 one event for each accepted call | `operation.rs`: it ends once, and by that is gone |
//! | EX2 events of a socket and direction in the order of posting | `lane.rs`: one for each, the first operation alone, but for sends that are lent |
//! | EX3 the memory is the library's until the event | [`Work`] owns the right to it |
//! | EX4 no overflow | `queue.rs`: posting reserves |
//! | EX5 short receives, 0 at the peer's close | `work.rs` |
//! | EX6, EX7 handles are checked, and held while in use | `memory.rs` |
//! | EX8 close ends what is under way | [`closing`], before the number is free |
//! | EX9 what an event says | `operation.rs` |
//!
//! An operation is carried out by the calls that a program would make ([`crate::as_program`]), none
//! of which waits: at once when it is posted, then in [`dequeue`] ([`Progress::Caller`]), or by two
//! threads ([`Progress::Threads`]). The memory of long sends over SDP is lent to the peer instead
//! (`lending.rs`).

mod close;
mod event;
mod handles;
mod lane;
mod lending;
pub(crate) mod memory;
mod operation;
mod polled;
mod polling;
mod queue;
mod registry;
mod timeouts;
pub(crate) mod work;

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rddp_real::{self as real, Errno, deadline};

use crate::as_program::PollPlaces;
use crate::progress::Progress;
use crate::threads::{Direction, PerProcess};

pub use crate::sys::exs::{
    Event, EventPlaces, FdVec, IoVec, MsgHdr, XferFile, XferPart, accept, connect, parts, poll, receive,
    receive_message, send, send_file, send_message,
};
pub use close::{closing, closing_range, is_used, replacing};
pub use event::EventType;
pub use memory::{UNREGISTERED, deregister, register};
pub use queue::MOST;
pub use timeouts::{answers_option, option, set_option};
pub use work::Work;

use lane::{Lane, Posted};
use operation::Operation;
use polling::Polling;
use queue::{Queue, Wanted};

/// `EXS_VERSION`.
pub const VERSION: c_int = 1;

/// The ES-API's state in one process.
#[derive(Default)]
struct Engine {
    /// ID of that process.
    owner: u32,
    queues: Mutex<HashMap<c_int, Arc<Queue>>>,
    regions: memory::Regions,
    registry: registry::Registry,
}

static ENGINE: PerProcess<Engine> = PerProcess::new();
static IS_INITIALISED: AtomicBool = AtomicBool::new(false);

/// Begins the use of the ES-API (`exs_init`).
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub fn init(version: c_int) -> Result<(), Errno> {
    extern "C" fn after_fork() {
        handles::after_fork();
        lending::after_fork();
        ENGINE.forget();
    }
    if version != VERSION {
        return Err(Errno::INVALID);
    }
    if !IS_INITIALISED.swap(true, Ordering::AcqRel) {
        real::after_fork(after_fork);
    }
    Ok(())
}

/// Returns this process's state; a child of `fork` begins with none.
fn engine() -> Result<&'static Engine, Errno> {
    if !IS_INITIALISED.load(Ordering::Acquire) {
        return Err(Errno::INVALID);
    }
    let make = || Ok::<_, Infallible>(Engine { owner: std::process::id(), ..Engine::default() });
    ENGINE.get_or_make(make).map_err(|never| match never {})
}

impl Engine {
    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<c_int, Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, handle: c_int) -> Result<Arc<Queue>, Errno> {
        self.queues().get(&handle).cloned().ok_or_else(|| handles::unknown(handle))
    }

    /// Returns the lane of the socket that has this number now.
    fn lane(&self, fd: c_int, direction: Direction) -> Result<Arc<Lane>, Errno> {
        for _ in 0..2 {
            let lane = self.registry.lane(fd, direction);
            if lane.is_current() {
                return Ok(lane);
            }
            self.registry.forget_stale(fd, &lane);
        }
        Err(real::why_no_socket(fd))
    }
}

/// Makes a queue (`exs_qcreate`).
///
/// # Errors
/// As in `include/rddp/exs.h`; so for the functions that refer here.
pub fn create_queue(depth: c_int) -> Result<c_int, Errno> {
    let engine = engine()?;
    let queue = Arc::new(Queue::new(depth, Progress::of_process())?);
    let handle = handles::next()?;
    engine.queues().insert(handle, queue);
    Ok(handle)
}

/// Deletes a queue (`exs_qdelete`).
///
/// # Errors
/// See [`create_queue`].
pub fn delete_queue(handle: c_int) -> Result<(), Errno> {
    let engine = engine()?;
    engine.queue(handle)?.delete()?;
    engine.queues().remove(&handle);
    Ok(())
}

/// Attributes of queues: the numbers of `EXS_QATTR_*`.
mod attribute {
    use std::ffi::c_int;

    pub(super) const DEPTH: c_int = 1;
    pub(super) const SIGNAL: c_int = 2;
    pub(super) const EVENTS: c_int = 3;
    pub(super) const WAIT: c_int = 4;
    pub(super) const PROGRESS: c_int = 5;
    pub(super) const PENDING: c_int = 6;
}

/// `EXS_SIG_DISABLE`: no signals are sent.
const SIGNAL_DISABLED: c_int = 0;

/// Sets an attribute of a queue (`exs_qmodify`).
///
/// # Errors
/// See [`create_queue`].
pub fn modify_queue(handle: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let queue = engine()?.queue(handle)?;
    match name {
        attribute::DEPTH => queue.set_depth(value),
        attribute::WAIT => queue.set_wait_style(value),
        attribute::PROGRESS => queue.set_progress(Progress::numbered(value).ok_or(Errno::INVALID)?),
        attribute::SIGNAL if value == SIGNAL_DISABLED => Ok(()),
        attribute::SIGNAL => Err(Errno(libc::ENOTSUP)),
        _ => Err(Errno::INVALID),
    }
}

/// Returns an attribute of a queue (`exs_qstatus`).
///
/// # Errors
/// See [`create_queue`].
pub fn queue_status(handle: c_int, name: c_int) -> Result<c_int, Errno> {
    let queue = engine()?.queue(handle)?;
    match name {
        attribute::DEPTH => Ok(queue.depth() as c_int),
        attribute::SIGNAL => Ok(SIGNAL_DISABLED),
        attribute::EVENTS => Ok(queue.waiting_events() as c_int),
        attribute::WAIT => Ok(queue.wait_style() as c_int),
        attribute::PROGRESS => Ok(queue.progress() as c_int),
        attribute::PENDING => Ok(queue.pending() as c_int),
        _ => Err(Errno::INVALID),
    }
}

/// Returns a queue's descriptor (`exs_qfd`). From here on the threads make progress: a caller that
/// sleeps on the descriptor makes none.
///
/// # Errors
/// See [`create_queue`].
pub fn queue_descriptor(handle: c_int) -> Result<c_int, Errno> {
    let queue = engine()?.queue(handle)?;
    let fd = queue.readable()?;
    queue.set_progress(Progress::Threads)?;
    Ok(fd)
}

/// Takes events (`exs_qdequeue`): `least` of them, or those that are there after `timeout`; `None`
/// waits for ever.
///
/// # Errors
/// See [`create_queue`].
pub fn dequeue(
    handle: c_int,
    places: &mut EventPlaces,
    least: usize,
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let queue = engine()?.queue(handle)?;
    // A time that the clock cannot tell is for ever.
    let until = deadline::after(timeout);
    queue.dequeue(places, Wanted { least, until })
}

/// The receiver of an operation's event.
#[derive(Clone, Copy, Debug)]
pub struct To {
    /// Handle of the queue.
    pub queue: c_int,
    /// Value of the program's own, returned in the event.
    pub ahandle: usize,
}

/// Begins an operation on a socket.
///
/// # Errors
/// See [`create_queue`]. After an error there is no event.
pub fn post(fd: c_int, work: Work, to: To) -> Result<(), Errno> {
    let engine = engine()?;
    let queue = engine.queue(to.queue)?;
    queue.reserve()?;
    let posted = post_reserved(engine, fd, Operation::new(work, queue.clone(), to.ahandle));
    if posted.is_err() {
        queue.release();
    }
    posted
}

fn post_reserved(engine: &Engine, fd: c_int, mut operation: Operation) -> Result<(), Errno> {
    // Tried again once, when the number had been closed unseen and belongs to another socket now.
    for _ in 0..2 {
        let lane = engine.registry.lane(fd, operation.direction());
        operation = match lane.post(operation) {
            Posted::Accepted => return Ok(()),
            Posted::Refused(errno) => return Err(errno),
            Posted::OtherSocket(operation) => operation,
        };
        engine.registry.forget_stale(fd, &lane);
    }
    Err(real::why_no_socket(fd))
}

/// Begins a poll (`exs_poll`).
///
/// # Errors
/// See [`create_queue`].
pub fn post_poll(places: PollPlaces, to: To) -> Result<(), Errno> {
    let engine = engine()?;
    let queue = engine.queue(to.queue)?;
    queue.reserve()?;
    let poll = Polling::new(places, queue.clone(), to.ahandle);
    // Registered before it begins: a close may come at once.
    engine.registry.add_poll(poll.clone());
    match poll.begin() {
        Err(errno) if poll.withdraw() => {
            queue.release();
            Err(errno)
        }
        _ => Ok(()),
    }
}

/// Cancels the operations of this descriptor with this handle, or all of them (`exs_cancel`).
///
/// # Errors
/// See [`create_queue`].
pub fn cancel(fd: c_int, ahandle: Option<usize>) -> Result<(), Errno> {
    let engine = engine()?;
    let mut found = false;
    for lane in engine.registry.lanes(fd) {
        found |= lane.cancel(ahandle);
    }
    for poll in engine.registry.polls(fd) {
        if ahandle.is_none_or(|ahandle| ahandle == poll.ahandle()) {
            found |= poll.end(Err(Errno(libc::ECANCELED)), &[]);
        }
    }
    if found { Ok(()) } else { Err(Errno(libc::ENOENT)) }
}
