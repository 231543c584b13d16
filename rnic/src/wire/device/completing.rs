//! Completions of the device, and the end of the connection.

use std::time::Instant;

use rddp_rdma::{AsyncEventKind, Completed, Completion, Status};
use rddp_stat::Counter;
use rddp_verbs_device::{Event, Transport};

use super::{Device, NEWS, broken};
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::rq::Outcome;
use crate::wire::{Pulled, Watch, WireEvent};

/// A program that polls has the descriptor looked at in one of so many polls that find nothing:
/// that is a system call. An event waits there until then, and wakes a program that goes to sleep.
const VAIN: u32 = 64;

/// Batches of completions, or looks at the descriptor, of one turn.
const LOOKS: usize = 64;

impl Device {
    /// Takes completions and events, until there are none and the descriptor tells of the next.
    #[inline(never)]
    pub(in crate::wire) fn receive(
        &mut self,
        watch: &mut Watch,
        cx: &mut Context<'_>,
    ) -> (Pulled, Option<WireEvent>) {
        for _ in 0..LOOKS {
            match self.look(watch, cx) {
                Ok(true) => {}
                Ok(false) => return (Pulled::Dry, None),
                Err(event) => return (Pulled::Dry, Some(event)),
            }
        }
        (Pulled::More, None)
    }

    /// Takes what there is. Returns whether there may be more, which nothing has yet been asked to
    /// tell of.
    fn look(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        self.endpoint.poll(&mut self.taken).map_err(|error| broken(&error))?;
        // A program that polls looks again, and a queue that wakes nobody needs no request for it.
        let is_polled = cx.attrs.cqs().any(|cq| cq.is_polled());
        if !self.taken.is_empty() {
            return self.settle(watch, cx).map(|()| !is_polled);
        }
        // Those that were posted while the connection was made.
        self.give_receives(cx)?;
        self.vain = self.vain.wrapping_add(1);
        if self.is_armed && (is_polled && !self.vain.is_multiple_of(VAIN) || !watch.has_arrived()) {
            return Ok(false);
        }
        while let Some(event) = self.endpoint.event().map_err(|error| broken(&error))? {
            self.on_event(&event, watch, cx)?;
        }
        self.end_in_time(watch, cx.attrs);
        self.endpoint.arm().map_err(|error| broken(&error))?;
        self.is_armed = true;
        Ok(true)
    }

    /// Acts on a change of the connection.
    fn on_event(&mut self, event: &Event, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        match event {
            Event::Disconnected => {
                // InfiniBand's queue pairs flush by a fault alone until both ends disconnect.
                let is_infiniband = self.endpoint.device().transport() == Transport::InfiniBand;
                let has_flushed = is_infiniband && self.flushed.is_some() && !self.is_closing;
                let has_failed = has_flushed || self.endpoint.has_failed();
                // What was done before is told before.
                self.endpoint.poll(&mut self.taken).map_err(|error| broken(&error))?;
                self.settle(watch, cx)?;
                let lost = WireEvent::Lost(AsyncEventKind::ConnectionLost);
                Err(if cx.sq.is_empty() && !has_failed { WireEvent::Fin } else { lost })
            }
            Event::Removed => Err(WireEvent::Lost(AsyncEventKind::DeviceFailed)),
            Event::Connected(_) => {
                self.established(watch, cx.attrs);
                Ok(())
            }
            Event::Failed(why) => {
                tracing::info!(qp = cx.attrs.num.0, %why, "no connection");
                Err(WireEvent::Lost(AsyncEventKind::ConnectionLost))
            }
            Event::Resolved => Ok(()),
        }
    }

    /// Begins with requests: the peer has taken up the connection that this end has accepted.
    fn established(&mut self, watch: &mut Watch, attrs: &QpAttributes) {
        self.taken_up_by = None;
        attrs.report(AsyncEventKind::Established);
        if self.is_closing {
            self.close(watch, attrs);
        }
    }

    /// Completes the requests and receives of what was taken.
    fn settle(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let mut result = Ok(());
        let mut taken = std::mem::take(&mut self.taken);
        for completion in &taken {
            // Also behind one that has failed: the peer of a message knows that it has come.
            result = result.and(match (completion.status, completion.completed) {
                // The QP's own end flushes, and all that is posted.
                (Status::Flushed, _) => self.note_flushed(watch, cx),
                (_, Completed::Receive | Completed::ReceiveImmediate) => self.received(cx, completion),
                (status, _) => {
                    self.end_binding(completion.wr_id, status);
                    carried_out(cx, completion.wr_id, status);
                    ended(status)
                }
            });
        }
        taken.clear();
        self.taken = taken;
        result.and_then(|()| self.give_receives(cx))
    }

    /// Completes the oldest receive.
    fn received(&mut self, cx: &mut Context<'_>, completion: &Completion) -> Result<(), WireEvent> {
        let Completion { status, byte_len, invalidated, immediate, solicited, .. } = *completion;
        let host = cx.attrs.device.host.as_ref();
        let invalidated = invalidated.map(|key| host.and_then(|host| host.stag_of(key)).unwrap_or(key));
        if let Some(stag) = invalidated {
            // The device has done it, whatever rights the window has.
            let _ = cx.attrs.device.mem.invalidate_local(stag, cx.attrs.pd, cx.attrs.num);
        }
        if status == Status::Success {
            cx.tally.add(Counter::SendsReceived, 1);
        }
        let outcome = Outcome { byte_len, invalidated, immediate, source: None, solicited };
        if self.shared.is_some() {
            cx.begin_given(completion.wr_id);
            cx.end_receive(status, &outcome);
        } else {
            self.given = self.given.saturating_sub(1);
            cx.end_next_receive(status, &outcome);
        }
        ended(status)
    }

    /// Notes that the connection is over. Its news is on the way, or there is none.
    fn note_flushed(&mut self, watch: &mut Watch, cx: &Context<'_>) -> Result<(), WireEvent> {
        if self.flushed.is_none() {
            let now = Instant::now();
            self.flushed = Some(now + NEWS);
            watch.wake_by(now + NEWS, now, cx.attrs);
        }
        Ok(())
    }
}

/// Completes a request.
// `inline(never)`: with two callers of that, what it calls would go out of line of the other wires.
#[inline(never)]
pub(super) fn carried_out(cx: &mut Context<'_>, seq: u64, status: Status) {
    cx.sq.carried_out(seq, status);
    cx.retire();
}

/// Ends the connection behind a request that has failed: the device has ended it, too.
fn ended(status: Status) -> Result<(), WireEvent> {
    match status {
        Status::Success => Ok(()),
        _ => Err(WireEvent::Lost(AsyncEventKind::ConnectionLost)),
    }
}
