//! Ids whose peer has been told that the connection is over, and has still to answer.
//!
//! On InfiniBand that word is a datagram, which may be lost. The connection manager says it again
//! until it is answered, but only while there is the id: one that is destroyed at once may leave a
//! peer that never hears of the end. So an id without its queue pair waits here for the answer.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use rddp_verbs_layout::{cm, rdma_cm_id};

use super::events::EventChannel;

/// Time after which the connection manager has given a silent peer up: Linux tells it sixteen
/// times, four to five seconds apart.
const ANSWER: Duration = Duration::from_secs(80);
/// Time between two looks for ids that have come to wait.
const LOOK: Duration = Duration::from_millis(50);
/// Most ids that wait at a time, each with a descriptor. One beyond them goes at once.
const MOST: usize = 256;

/// The ids that wait. A thread watches them while there are any.
static WAITING: Mutex<Vec<Last>> = Mutex::new(Vec::new());

/// An id that is destroyed when this is dropped.
pub(super) struct Last {
    raw: NonNull<rdma_cm_id>,
    events: Arc<EventChannel>,
    until: Instant,
}

// SAFETY: see the module of ids.
unsafe impl Send for Last {}

impl Last {
    /// # Safety
    /// The id is there, has no queue pair, and nobody else uses it any more. Its events come by
    /// this channel.
    pub(super) unsafe fn new(raw: NonNull<rdma_cm_id>, events: &Arc<EventChannel>) -> Self {
        Last { raw, events: events.clone(), until: Instant::now() + ANSWER }
    }

    /// Keeps the id until the peer has answered.
    pub(super) fn wait(self) {
        if self.is_answered() {
            return;
        }
        let mut waiting = waiting();
        if waiting.len() >= MOST {
            return;
        }
        waiting.push(self);
        let is_first = waiting.len() == 1;
        if is_first && thread::Builder::new().name("rddp-parting".to_owned()).spawn(watch).is_err() {
            waiting.pop();
        }
    }

    /// Returns whether the connection manager will say nothing more to the peer.
    fn is_answered(&self) -> bool {
        loop {
            match self.events.event() {
                Ok(None) => return false,
                Ok(Some(event)) if !matches!(event.kind, cm::DISCONNECTED | cm::DEVICE_REMOVAL) => {}
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

fn waiting() -> MutexGuard<'static, Vec<Last>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches the ids that wait, until there are none.
fn watch() {
    loop {
        let mut waiting = waiting();
        let is_over = |last: &mut Last| Instant::now() >= last.until || last.is_answered();
        let over: Vec<Last> = waiting.extract_if(.., is_over).collect();
        let channels: Vec<_> = waiting.iter().map(|last| last.events.clone()).collect();
        drop(waiting);
        drop(over);
        if channels.is_empty() {
            return;
        }
        let fd = |channel| PollFd::new(AsFd::as_fd(channel), PollFlags::POLLIN);
        let mut fds: Vec<_> = channels.iter().map(|channel| fd(&**channel)).collect();
        if poll(&mut fds, LOOK.as_millis() as u16).is_err() {
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        // SAFETY: promised to `new`; the id goes before its channel.
        unsafe { (self.events.library.table.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}
