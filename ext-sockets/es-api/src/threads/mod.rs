//! The asynchronous threads of the technical report TR37 (OSU-CISRC-6/05-TR37 §3.2): one for sends, one for receives.
//!
//! Work is posted to a thread by one small write to a UNIX socket, which never waits: a [descriptor](DESCRIPTOR) that names the
//! work. The thread polls that socket and all sockets with work under way. Both threads begin with the first work of their direction
//! and serve all sockets of the process.
//!
//! | | |
//! |---|---|
//! | [`run`] | a blocking call: post, and sleep until it is done |
//! | [`post`] | a [`Task`] that tells by itself when it is done; the ES-API's way |
//! | the socket is full | `EAGAIN` to who posts |
//! | a thread has died | `ECONNABORTED`, for what it had and for what comes |
//! | a child of `fork` | has none of it: its own threads begin when it posts |
//!
//! This is here to be measured beside [`Progress::Caller`](crate::progress::Progress), where no thread is handed anything.

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

/// Which of the two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The one for sends, and for connecting.
    Send = 0,
    /// The one for receives, and for accepting.
    Receive = 1,
}

static WORKERS: [PerProcess<Worker>; 2] = [const { PerProcess::new() }; 2];

/// Has a thread go on with this until nothing of it is left. It may be posted again while the thread has it.
///
/// # Errors
/// `EAGAIN`: the descriptor socket is full. `ECONNABORTED`: the thread has died. What making a thread failed with.
pub fn post(direction: Direction, task: &Arc<dyn Task>) -> Result<(), Errno> {
    worker(direction)?.post(task)
}

/// Has the threads that there are look anew at what they wait for.
pub fn nudge() {
    for worker in WORKERS.iter().filter_map(PerProcess::get) {
        worker.nudge();
    }
}

fn worker(direction: Direction) -> Result<&'static Worker, Errno> {
    watch_for_fork();
    WORKERS[direction as usize].get_or_make(|| Worker::begin(direction))
}

/// In a child of `fork` the threads are gone, and what they shared is as they left it.
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
