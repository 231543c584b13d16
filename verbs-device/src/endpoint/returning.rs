//! Receives that the end of a connection leaves with the device.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rdma::{Completed, Completion};

use super::{Endpoint, Stage};

/// Time in which a queue pair that is told to fail gives its receives back. A device takes some
/// microseconds, and one that is broken for ever.
const DRAIN: Duration = Duration::from_secs(2);

/// Time for that where receives are shared: devices do not tell how many a queue pair has taken,
/// and not all tell when it has given back the last. One that has not done so once gets the shorter
/// time.
const LAST: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(5);

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.is_iwarp() && matches!(self.stage, Stage::Connected | Stage::Closing(_)) {
            self.end();
        }
        if Arc::strong_count(&self.link) > 1 || self.shared.is_some() {
            // What a device that is gone does not give back, it does not touch.
            let _ = self.take_back();
        }
        self.give_back_shared();
        self.windows.end();
    }
}

impl Endpoint {
    /// Has the device give the receives back. It would have them for as long as a thread that waits
    /// in `rdma_connect` holds the queue pair: the peer may answer yet. A shared one that it has
    /// taken would be lost with the queue pair.
    fn take_back(&mut self) -> io::Result<()> {
        let most = self.time_to_give_back();
        self.stage = Stage::Over;
        let until = Instant::now() + most;
        if let Some(pair) = self.link.id.pair() {
            pair.fail()?;
        }
        while let Some(pair) = self.link.id.pair() {
            pair.completions.take_events()?;
            pair.completions.arm()?;
            // What completes before the device tells of the last one is fetched behind that.
            let has_taken_last = self.shared.is_some() && self.device.has_taken_last(pair.number());
            self.fetch()?;
            let is_done = if self.shared.is_some() { has_taken_last } else { self.receives == 0 };
            let left = until.saturating_duration_since(Instant::now());
            if self.shared.is_some() && left.is_zero() && most == LAST && !is_done {
                self.device.last().note_silence();
            }
            if is_done || left.is_zero() {
                break;
            }
            self.await_completion(left);
        }
        Ok(())
    }

    /// Returns how long the device may take to give receives back. Without a connection, none was
    /// taken from a shared queue.
    fn time_to_give_back(&self) -> Duration {
        use Stage::{Address, Asked, Refused, Resolved, Route};
        let was_open = !matches!(self.stage, Address | Route | Resolved | Asked | Refused);
        match &self.shared {
            None => DRAIN,
            Some(_) if was_open && !self.device.last().is_silent() => LAST,
            Some(_) if was_open => GLANCE,
            Some(_) => Duration::ZERO,
        }
    }

    /// Sleeps until the device tells of something, or for this long. Events of the device another
    /// thread may take.
    fn await_completion(&self, most: Duration) {
        let Some(pair) = self.link.id.pair() else { return };
        let mut fds = vec![PollFd::new(pair.completions.as_fd(), PollFlags::POLLIN)];
        let mut time = most;
        if self.shared.is_some() {
            fds.push(PollFd::new(self.device.as_fd(), PollFlags::POLLIN));
            time = time.min(GLANCE);
        }
        let _ = poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO));
    }

    /// Gives those receives back to a shared queue of whose completions the owner is not told any
    /// more.
    fn give_back_shared(&mut self) {
        let Some(shared) = &self.shared else { return };
        let is_receive =
            |of: &Completion| matches!(of.completed, Completed::Receive | Completed::ReceiveImmediate);
        let untold = self.ready.drain(..).filter(is_receive);
        untold.for_each(|completion| shared.give_back(completion.wr_id));
        if let Some(pair) = self.link.id.pair() {
            self.device.last().forget(pair.number());
        }
    }
}
