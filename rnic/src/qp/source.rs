//! Entries to a queue pair for those that drive it on: a completion queue that its program polls
//! ([`Member`]), and the background thread with its timers ([`Source`]).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use nix::poll::PollFlags;
use parking_lot::MutexGuard;
use rddp_rdma::{AsyncEventKind, Element};
use rddp_rdmap::Fault;

use super::QpInner;
use super::core::Core;
use crate::cq::{CqInner, Member, Watched};
use crate::io::driver::{Driver, Failure, Holder, Source};
use crate::io::lease::Lease;
use crate::queues::srq::User;
use crate::queues::state::QpState;
use crate::trace;
use crate::wire::{Connection, Pulled};

impl QpInner {
    /// Delivers a parked segment, reads for one turn, and sends, all without sleeping. Returns how
    /// the reading ended.
    pub(super) fn progress(&self, core: &mut MutexGuard<'_, Core>) -> Pulled {
        let Some((may_read, may_write)) =
            core.connection.as_ref().map(|connection| connection.watch.readiness())
        else {
            return Pulled::Dry;
        };
        let pulled = if self.unpark(core) { self.pull_if(core, may_read) } else { Pulled::Dry };
        self.check_queues(core);
        if (may_write || pulled == Pulled::More) && core.has_output() || core.state != QpState::ReadyToSend {
            self.pump(core);
        }
        if core.is_parked() {
            self.update_interest(core);
        }
        pulled
    }

    /// Reads for a turn if TCP may have something and this QP may keep more octets.
    fn pull_if(&self, core: &mut Core, may_read: bool) -> Pulled {
        let Some((connection, cx)) = core.split(&self.attrs) else { return Pulled::Dry };
        if connection.must_pause(&cx) {
            self.device.relieve_partial();
            connection.pause_reading(&cx);
            return Pulled::Paused;
        }
        if !may_read {
            return Pulled::Dry;
        }
        connection.resume_reading(&cx);
        self.pull(core)
    }

    /// Ends the connection if one of the QP's completion queues has overflowed (RFC 5042 §6.4.6).
    /// Returns whether it did.
    pub(super) fn check_queues(&self, core: &mut Core) -> bool {
        if !self.attrs.cqs().any(|cq| cq.is_overflowed()) {
            return false;
        }
        self.tell_of_overflow(core);
        let ends = core.state.is_at_work();
        if ends {
            self.terminate(core, Fault::CqOverflow, None);
        }
        ends
    }

    /// Reports the completion queues that have overflowed, whatever state the QP is in: what is
    /// flushed may be too much for a queue, too.
    #[cold]
    fn tell_of_overflow(&self, core: &mut Core) {
        let overflowed = || self.attrs.cqs().filter(|cq| cq.is_overflowed());
        let count = overflowed().count();
        if std::mem::replace(&mut core.overflows_told, count) < count {
            overflowed().for_each(|cq| {
                self.attrs.report_about(Element::Cq(cq.num), AsyncEventKind::CqOverflow);
            });
        }
    }

    /// Resets the connection if the partial FPDU that it holds has been arriving for too long while
    /// others need the memory (RFC 5042 §6.4.2).
    pub(crate) fn lose_if_stalled(&self, now: Instant) {
        let Some(mut core) = self.core.try_lock() else { return };
        if core.connection.as_ref().is_some_and(|connection| connection.is_stalled(now)) {
            tracing::info!(
                qp = self.attrs.num.0,
                "reset: the peer stopped in the middle of an FPDU, and memory for partial FPDUs is short"
            );
            self.lose(&mut core, Some(AsyncEventKind::ConnectionLost));
        }
    }

    /// Arms the socket in the background thread's epoll set again, after it was read until TCP had
    /// nothing more.
    fn rearm(&self, core: &mut Core) {
        let armed = core.connection.as_mut().map_or(Ok(()), |connection| connection.watch.rearm(&self.attrs));
        if let Err(event) = armed {
            self.on_event(core, event);
        }
    }

    /// Does the background thread's work on the core. If that panics, the connection is reset
    /// before the lock is released, so that no other thread sees the core half changed.
    fn guarded<T>(&self, work: impl FnOnce(&mut MutexGuard<'_, Core>) -> T) -> Option<T> {
        let _span = trace::connection(self.attrs.num);
        let mut core = self.core.lock();
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut core)));
        if result.is_err() {
            tracing::error!(qp = self.attrs.num.0, "a panic of the background thread: reset");
            self.abandon(&mut core);
        }
        result.ok()
    }
}

impl User for QpInner {
    fn report_limit(&self, srq: Element) {
        self.attrs.report_about(srq, AsyncEventKind::SrqLimit);
    }

    fn resume(&self) {
        let mut core = self.core.lock();
        if core.is_parked() {
            self.go_on_with_receive(&mut core);
        }
    }
}

impl Member for QpInner {
    fn try_progress(&self) {
        if let Some(mut core) = self.core.try_lock() {
            self.progress(&mut core);
        }
    }

    fn watch_for(&self) -> Option<(Watched, PollFlags)> {
        let (socket, events) = self.core.lock().connection.as_ref()?.watch.watch_for();
        Some((socket, events))
    }

    fn is_idle(&self) -> bool {
        // A thread that holds the core makes progress.
        let Some(core) = self.core.try_lock() else { return false };
        let is_open = core.connection.is_some() && core.takes_receives();
        // What waits for room is told of room, by the same sleep.
        let is_done = !core.has_output()
            || core.connection.as_ref().is_some_and(|connection| connection.watch.is_blocked());
        let owes = core.connection.as_ref().is_some_and(Connection::owes_acknowledgement);
        is_open && is_done && !core.is_parked() && !owes
    }

    fn enter(&self, cq: &CqInner) -> io::Result<()> {
        let core = self.core.lock();
        core.connection.as_ref().map_or(Ok(()), |connection| connection.watch.enter(&self.attrs, cq))
    }
}

impl Source for QpInner {
    fn lease(&self, turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        let (lease, cq) = self.attrs.cqs().map(|cq| (cq.lease(turn), cq)).max_by_key(|(lease, _)| *lease)?;
        lease.is_held().then(|| (lease, cq.clone() as Arc<dyn Holder>))
    }

    fn has_arrived(&self) -> bool {
        // A thread that holds the core is reading the socket already.
        let Some(core) = self.core.try_lock() else { return false };
        core.connection.as_ref().is_some_and(|connection| connection.watch.has_arrived())
    }

    fn leave_to_program(&self, driver: &Driver) -> bool {
        // If the completion queue has an epoll set of its own, taking the socket out of the
        // background thread's set would save no measurable time.
        if self.attrs.cqs().any(|cq| cq.is_by_epoll()) {
            return true;
        }
        // A thread that holds the core is reading the socket already.
        let Some(mut core) = self.core.try_lock() else { return false };
        if let Some(connection) = &mut core.connection {
            connection.watch.leave_to_program(driver);
        }
        true
    }

    fn disarm(&self, driver: &Driver) {
        if let Some(mut core) = self.core.try_lock()
            && let Some(connection) = &mut core.connection
        {
            connection.watch.disarm(driver, self.attrs.token);
        }
    }

    fn on_ready(&self, _driver: &Driver) -> bool {
        let more = self.guarded(|core| match self.progress(core) {
            Pulled::More => true,
            Pulled::Dry => {
                self.rearm(core);
                false
            }
            // The socket is not armed: `on_timer` ends this pause in reading.
            Pulled::Paused => false,
        });
        more == Some(true)
    }

    fn on_timer(&self, _driver: &Driver, now: Instant) {
        self.guarded(|core| {
            let due = core.split(&self.attrs).map(|(connection, cx)| connection.on_timer(&cx, now));
            match due {
                Some(Ok(true)) => self.pump(core),
                Some(Ok(false)) => {}
                // A message has waited for a receive, if there is anything.
                None => {
                    self.pump_to_itself(core);
                    self.lose_unjoined(core, now);
                }
                Some(Err(event)) => self.on_event(core, event),
            }
            if self.check_queues(core) {
                self.pump(core);
            }
            // This timer may be the end of a pause in reading: arming the socket again reports what
            // has arrived meanwhile. If it is left to a program, the timer is no news of it.
            let is_over = core.split(&self.attrs).is_none_or(|(connection, cx)| {
                connection.resume_reading(&cx) || connection.watch.is_watched()
            });
            if is_over {
                self.rearm(core);
            }
        });
    }

    fn give_up(&self, _driver: &Driver, failure: Failure) {
        let mut core = self.core.lock();
        match failure {
            Failure::Panic => self.abandon(&mut core),
            Failure::Device if core.connection.is_none() => {}
            Failure::Device => self.lose(&mut core, Some(AsyncEventKind::DeviceFailed)),
        }
    }
}
