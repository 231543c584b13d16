//! The asynchronous threads of the technical report TR37 (OSU-CISRC-6/05-TR37 §3.2): one for sends,
//! one for receives.
//!
//! Work is posted to a thread by one small write to a UNIX socket, which never waits: a
//! [descriptor](DESCRIPTOR) that names the work. The thread polls that socket and all sockets with
//! work under way. Each thread starts with the first work of its direction; the two serve all
//! sockets of the process.
//!
//! | | |
//! |---|---|
//! | [`run`] | a blocking call: post, and sleep until it is done |
//! | [`post`] | a [`Task`] that tells by itself when it is done; the ES-API's way |
//! | the socket is full | `EAGAIN` to who posts |
//! | a thread has died | `ECONNABORTED`, for what it had and for what comes |
//! | a child of `fork` | has none of it: its own threads begin when it posts |
//!
//! The threads are here to be measured beside [`Progress::Caller`](crate::progress::Progress),
//! where no work is handed to a thread.

mod descriptor;
mod job;
mod rounds;
mod task;
mod worker;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use crate::sys::threads::{Bell, PerProcess};
pub use descriptor::DESCRIPTOR;
pub use job::{Tried, Waiting, run};
pub(crate) use rounds::Rounds;
pub use task::{Task, Waits, next_id};

use rddp_real::{self as real, Errno};
use worker::Worker;

/// One of the two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The thread for sends, and for connecting.
    Send = 0,
    /// The thread for receives, and for accepting.
    Receive = 1,
}

static WORKERS: [PerProcess<Worker>; 2] = [const { PerProcess::new() }; 2];

/// Has a thread make progress with a task until nothing of it is left. The task may be posted again
/// meanwhile.
///
/// # Errors
/// `EAGAIN`: the descriptor socket is full. `ECONNABORTED`: the thread has died. Also the error
/// with which a thread could not be made.
pub fn post(direction: Direction, task: &Arc<dyn Task>) -> Result<(), Errno> {
    worker(direction)?.post(task)
}

/// Has the running threads collect anew what their tasks wait for.
pub fn nudge() {
    for worker in WORKERS.iter().filter_map(PerProcess::get) {
        worker.nudge();
    }
}

fn worker(direction: Direction) -> Result<&'static Worker, Errno> {
    watch_for_fork();
    WORKERS[direction as usize].get_or_make(|| Worker::begin(direction))
}

/// Forgets the threads in a child of `fork`, where they do not run and what they shared is in any
/// state.
fn watch_for_fork() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn forget() {
        WORKERS.iter().for_each(PerProcess::forget);
    }
    if !WATCHED.swap(true, Ordering::AcqRel) {
        real::after_fork(forget);
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}
