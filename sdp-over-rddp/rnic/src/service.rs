//! The thread that answers peers between the calls of a program.
//!
//! A device has one for all its streams, from the first stream to the last. It sleeps on a
//! completion channel. A stream that no call has used for a moment is *watched*: its completion
//! queue is armed, and each arrival has the thread drive the stream on. While a call is inside a
//! stream, that call does so, and the thread leaves it alone; it looks again a moment after the
//! last call has left, so that a program with one call behind the other does not wake it each time.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rnic::{CompletionChannel, CqNum, Rnic};

use crate::bell::Bell;
use crate::stream::Shared;

/// Time without a call after which a stream is watched.
const MOMENT: Duration = Duration::from_millis(10);

/// Time between two looks at what peers' hosts have.
const TO_LOOK: Duration = Duration::from_millis(1);

/// The service of a device.
#[derive(Debug)]
pub(crate) struct Service {
    channel: CompletionChannel,
    bell: Bell,
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    by_cq: HashMap<CqNum, Watched>,
    is_running: bool,
}

/// A stream, as the thread sees it.
#[derive(Debug)]
struct Watched {
    stream: Arc<Shared>,
    /// The calls there had been at the last turn.
    calls: usize,
    /// The time of the next turn; `None` where an arrival or the end of a call leads to one.
    due_at: Option<Instant>,
}

/// Counts the calls inside a stream.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    inside: AtomicUsize,
    total: AtomicUsize,
    watch: AtomicU8,
}

/// The thread serves the stream by itself, or its queue is armed.
const WATCHED: u8 = 0;
/// The thread has left the stream to the calls inside; the last one tells it.
const LEFT: u8 = 1;

impl Service {
    pub(crate) fn new(rnic: &Rnic) -> io::Result<Arc<Self>> {
        let channel = rnic.create_channel().map_err(io::Error::other)?;
        Ok(Arc::new(Service { channel, bell: Bell::new()?, streams: Mutex::default() }))
    }

    /// Returns the channel on which queues of streams are made.
    pub(crate) fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    /// Serves a stream until it is over and its program has closed it.
    pub(crate) fn add(self: &Arc<Self>, stream: &Arc<Shared>) -> io::Result<()> {
        let mut streams = self.streams();
        let watched = Watched { stream: stream.clone(), calls: 0, due_at: Some(Instant::now()) };
        streams.by_cq.insert(stream.cq().num(), watched);
        if !streams.is_running {
            let service = self.clone();
            let thread = std::thread::Builder::new().name("rddp-sdp".into());
            if let Err(error) = thread.spawn(move || service.run()) {
                streams.by_cq.remove(&stream.cq().num());
                return Err(error);
            }
            streams.is_running = true;
        }
        drop(streams);
        self.bell.ring();
        Ok(())
    }

    /// Has the thread serve all streams that may have something new for it.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Returns whether there is a thread: as long as there are streams.
    pub(crate) fn is_running(&self) -> bool {
        self.streams().is_running
    }

    /// Waits until the peers' hosts have all that the streams have to send which their programs
    /// have closed, at most for this time.
    pub(crate) fn finish(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            let waits = |watched: &Watched| watched.stream.is_closed() && !watched.stream.has_said_all();
            if !self.streams().by_cq.values().any(waits) {
                return;
            }
            // An acknowledgement is no event.
            std::thread::sleep(TO_LOOK);
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let Some(timeout) = self.serve_due() else { return };
            let mut fds = [
                PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.channel.watch(), PollFlags::POLLIN),
            ];
            // A signal, or a system without memory for a moment: the next turn finds what is new.
            if poll(&mut fds, timeout).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Serves the streams that are due. Returns how long to sleep, and `None` when there is no
    /// stream left.
    fn serve_due(&self) -> Option<PollTimeout> {
        self.bell.silence();
        let mut armed = Vec::new();
        while let Some(cq) = self.channel.next_event() {
            armed.push(cq.num());
        }
        let now = Instant::now();
        let mut streams = self.streams();
        streams.by_cq.retain(|num, watched| {
            let told = watched.stream.calls().was_told();
            let due = watched.due_at.is_some_and(|at| at <= now) || armed.contains(num);
            if due || told || watched.stream.is_closed() {
                watched.serve(now);
            }
            !watched.is_done()
        });
        if streams.by_cq.is_empty() {
            streams.is_running = false;
            return None;
        }
        let next = streams.by_cq.values().filter_map(|watched| watched.due_at).min();
        let left = next.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        Some(left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)))
    }
}

impl Watched {
    /// Drives the stream on, unless a call does so, and decides what leads to the next turn.
    fn serve(&mut self, now: Instant) {
        let calls = self.stream.calls();
        let total = calls.total.load(Ordering::SeqCst);
        if calls.are_inside() {
            self.due_at = None;
            return;
        }
        let is_used = std::mem::replace(&mut self.calls, total) != total;
        let deadline = self.stream.drive();
        self.due_at = deadline.map(|left| now + left);
        // What a watcher is to be told is told at once.
        if is_used && !self.stream.has_watcher() {
            let soon = now + MOMENT;
            self.due_at = Some(self.due_at.map_or(soon, |at| at.min(soon)));
        } else {
            // A completion that has come meanwhile is told at once.
            self.stream.cq().arm(false);
        }
    }

    fn is_done(&self) -> bool {
        self.stream.is_closed() && self.stream.is_over()
    }
}

impl Calls {
    /// Counts a call, until what is returned is dropped.
    pub(crate) fn enter<'a>(&'a self, service: &'a Service) -> Inside<'a> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
        Inside { calls: self, service }
    }

    /// Returns whether calls are inside, the last of which then tells the service that it leaves.
    fn are_inside(&self) -> bool {
        if self.inside.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.watch.store(LEFT, Ordering::SeqCst);
        // The last one may have left before it could see that it has to tell.
        let are_inside = self.inside.load(Ordering::SeqCst) > 0;
        if !are_inside {
            self.watch.store(WATCHED, Ordering::SeqCst);
        }
        are_inside
    }

    /// Has the thread look at the stream: a call has left something to do that has a time.
    pub(crate) fn tell(&self) {
        self.watch.store(TOLD, Ordering::SeqCst);
    }

    /// Returns whether the last call has told that it left, which is looked at once.
    fn was_told(&self) -> bool {
        self.watch.compare_exchange(TOLD, WATCHED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// The last call has left a stream that the thread had left to it.
const TOLD: u8 = 2;

/// A call inside a stream.
pub(crate) struct Inside<'a> {
    calls: &'a Calls,
    service: &'a Service,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let is_last = self.calls.inside.fetch_sub(1, Ordering::SeqCst) == 1;
        let tells = is_last
            && self.calls.watch.compare_exchange(LEFT, TOLD, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if tells {
            self.service.ring();
        }
    }
}
