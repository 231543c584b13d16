//! Delivering: segments that have been placed complete what they complete (RFC 5041 §5.4,
//! RFC 5040 §5).

use rddp_ddp::{DdpError, Stag};
use rddp_iwarp::{Delivered, Segment, Trouble};
use rddp_rdma::{Operation, Status};
use rddp_rdmap::{Event, Fault, Place, Plain};
use rddp_stat::Counter;

use super::first::{RTR_ID, RtrRead};
use super::link::Link;
use crate::kernel::Guided;
use crate::queues::context::Context;
use crate::queues::rq::Outcome;
use crate::queues::sq::Phase;
use crate::wire::WireEvent;

/// A ULPDU from which on its payload is better received straight into its place.
pub(super) const BULK_ULPDU: usize = 32 * 1024;

impl Link {
    /// Completes what a segment completes, and notes how large segments are.
    // `inline(always)`, as the receiver of `iwarp`: what has been delivered is large.
    #[inline(always)]
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, delivered: Delivered) -> Result<(), WireEvent> {
        let segment = &delivered.segment;
        self.note_size(segment.ulpdu_len() >= BULK_ULPDU && self.may_place_directly(segment.place));
        self.complete(cx, delivered)
    }

    /// Completes what a segment completes.
    #[inline(always)]
    pub(super) fn complete(&mut self, cx: &mut Context<'_>, delivered: Delivered) -> Result<(), WireEvent> {
        let Delivered { segment, event } = delivered;
        match event {
            Event::None => {
                if let Place::Write { .. } = segment.place {
                    self.count_write(cx, segment.payload_len, false);
                }
                Ok(())
            }
            Event::WriteDone => {
                self.count_write(cx, segment.payload_len, true);
                if segment.payload_len == 0 {
                    self.note_empty_write();
                }
                Ok(())
            }
            Event::InboundRequest => {
                cx.tally.add(Counter::ReadsReceived, 1);
                let [.., last] = Counter::READS_BESIDE;
                let beside = self.stream.inbound().saturating_sub(1);
                cx.tally.add(Counter::READS_BESIDE.get(beside).copied().unwrap_or(last), 1);
                if self.acknowledging.is_some() { self.answer_short(cx) } else { Ok(()) }
            }
            Event::Received { length, invalidate, solicited } => {
                self.end_receive_in_kernel();
                if let Some(stag) = invalidate {
                    invalidate_for_peer(cx, segment, stag, length)?;
                }
                cx.tally.add(Counter::SendsReceived, 1);
                let (invalidated, immediate) = (invalidate, self.value_of_send());
                let outcome =
                    Outcome { byte_len: length, invalidated, immediate, solicited, ..Outcome::default() };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::Immediate { data, solicited } => {
                self.end_receive_in_kernel();
                cx.tally.add(Counter::SendsReceived, 1);
                let byte_len = std::mem::take(&mut self.written);
                let outcome = Outcome { byte_len, immediate: Some(data), solicited, ..Outcome::default() };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::ReadDone { id: RTR_ID } => self.rtr_done(),
            Event::ReadDone { id } => {
                self.end_sink_in_kernel(id);
                Ok(read_done(cx, id)?)
            }
            Event::AtomicDone { id, original } => Ok(atomic_done(cx, id, original, self.guided.as_mut())?),
            Event::Terminated(terminate) => Err(self.terminated(terminate)),
        }
    }

    /// Notes a segment that was placed and completed by the short way.
    #[inline]
    pub(super) fn note_plain(&mut self, cx: &Context<'_>, plain: &Plain, payload_len: usize) {
        self.note_size(false);
        if let Plain::Write(header) = plain {
            self.count_write(cx, payload_len, header.last);
        }
    }

    /// Counts the octets of a Write, for the Immediate Data that may follow it.
    #[inline]
    fn count_write(&mut self, cx: &Context<'_>, payload_len: usize, last: bool) {
        self.writing = self.writing.saturating_add(payload_len as u32);
        if last {
            self.written = std::mem::take(&mut self.writing);
            cx.tally.add(Counter::WritesReceived, 1);
        }
    }

    fn rtr_done(&mut self) -> Result<(), WireEvent> {
        match std::mem::replace(&mut self.rtr, RtrRead::None) {
            RtrRead::OutBeforeClose => Err(WireEvent::Close),
            RtrRead::None | RtrRead::Out => Ok(()),
        }
    }
}

/// Returns the event for a segment that was refused, and completes the receive of one that does not
/// fit.
#[cold]
pub(super) fn refused(cx: &mut Context<'_>, trouble: Trouble) -> WireEvent {
    if matches!(trouble.fault, Fault::Ddp(DdpError::TooLong { .. })) {
        cx.end_receive(Status::MessageTooLong, &Outcome::default());
    }
    trouble.into()
}

/// Invalidates the STag that a Send names, before the program learns of it (RFC 5040 §5.3).
fn invalidate_for_peer(
    cx: &mut Context<'_>,
    segment: Segment,
    stag: Stag,
    byte_len: u32,
) -> Result<(), Trouble> {
    cx.attrs.invalidate_remote(stag).map_err(|error| {
        cx.end_receive(Status::RemoteInvalidate, &Outcome { byte_len, ..Outcome::default() });
        segment.trouble(Fault::invalidate(error))
    })
}

fn read_done(cx: &mut Context<'_>, id: u64) -> Result<(), Fault> {
    let Some(wqe) = cx.sq.get_mut(id) else { return Ok(()) };
    if let Operation::Read { sink, invalidate_sink: true, .. } = wqe.wr.operation
        && cx.attrs.device.mem.invalidate_local(sink.stag, cx.attrs.pd, cx.attrs.num).is_err()
    {
        // draft-hilland-rddp-verbs §8.3.2: as where the invalidation is a request of its own.
        wqe.phase = Phase::Done(Status::MemoryBind);
        return Err(Fault::local_catastrophic());
    }
    wqe.phase = Phase::Done(Status::Success);
    cx.retire();
    Ok(())
}

fn atomic_done(
    cx: &mut Context<'_>,
    id: u64,
    original: u64,
    guided: Option<&mut Guided>,
) -> Result<(), Fault> {
    let Some(wqe) = cx.sq.get_mut(id) else { return Ok(()) };
    let (Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. }) = wqe.wr.operation else {
        return Ok(());
    };
    let grant = cx.attrs.device.mem.check_local(sink.stag, sink.addr, 8, true, cx.attrs.pd);
    let is_stored = grant.is_ok_and(|grant| {
        let store = || grant.place(0, &original.to_ne_bytes()).is_ok();
        match guided {
            Some(guided) => guided.store(&grant, store),
            None => store(),
        }
    });
    if !is_stored {
        wqe.phase = Phase::Done(Status::LocalProtection);
        return Err(Fault::local_catastrophic());
    }
    wqe.phase = Phase::Done(Status::Success);
    cx.retire();
    Ok(())
}
