//! Ids whose peer has been told that the connection is over, and has still to answer.
//!
//! On InfiniBand that word is a datagram, which may be lost. The connection manager says it again
//! until it is answered, but only while there is the id: one that is destroyed at once may leave a
//! peer that never hears of the end. So an id without its queue pair waits here for the answer.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_verbs_layout::{cm, rdma_cm_id};

use super::events::EventChannel;

/// Time after which the connection manager has given a silent peer up: Linux tells it sixteen
/// times, four to five seconds apart.
const ANSWER: Duration = Duration::from_secs(80);
/// Most ids that wait at a time, each with a descriptor and a thread. One beyond them goes at once.
const MOST: usize = 256;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// An id that is destroyed when this is dropped.
pub(super) struct Last {
    raw: NonNull<rdma_cm_id>,
    events: Arc<EventChannel>,
}

// SAFETY: see the module of ids.
unsafe impl Send for Last {}

impl Last {
    /// # Safety
    /// The id is there, has no queue pair, and nobody else uses it any more. Its events come by
    /// this channel.
    pub(super) unsafe fn new(raw: NonNull<rdma_cm_id>, events: &Arc<EventChannel>) -> Self {
        Last { raw, events: events.clone() }
    }

    /// Keeps the id until the peer has answered, in a thread.
    pub(super) fn wait(self) {
        if self.is_answered() {
            return;
        }
        if WAITING.fetch_add(1, Ordering::Relaxed) >= MOST {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let wait = move || {
            let until = Instant::now() + ANSWER;
            while !self.is_answered() && self.sleep(until) {}
            drop(self);
            WAITING.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("rddp-parting".to_owned()).spawn(wait).is_err() {
            WAITING.fetch_sub(1, Ordering::Relaxed);
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

    /// Waits for an event; returns whether there is time left.
    fn sleep(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let woken = poll(&mut [PollFd::new(self.events.as_fd(), PollFlags::POLLIN)], time);
        !left.is_zero() && matches!(woken, Ok(_) | Err(Errno::EINTR))
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        // SAFETY: promised to `new`; the id goes before its channel.
        unsafe { (self.events.library.table.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}
