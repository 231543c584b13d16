//! Delivering: segments are checked, placed, and complete what they complete (RFC 5041 §5.4,
//! RFC 5040 §5).

use rddp_ddp::{DdpError, Header};
use rddp_rdma::{Operation, Status};
use rddp_rdmap::{Event, Fault, Offending, Place, SEND_QUEUE, parse_header};

use super::first::{RTR_ID, RtrRead};
use super::link::Link;
use super::place::place_payload;
use crate::qp::context::Context;
use crate::qp::rq::Outcome;
use crate::qp::sq::Phase;
use crate::wire::LinkEvent;

/// A ULPDU from which on its payload is better received straight into its place.
const BULK_ULPDU: usize = 32 * 1024;

impl Link {
    /// Checks, places and delivers a segment, or parks it until there is a receive for it.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, ulpdu: &[u8]) -> Result<(), LinkEvent> {
        let header = parse_header(ulpdu)?;
        let payload = &ulpdu[header.len()..];
        let Some(place) = self.accept(cx, &header, payload.len())? else {
            self.park(cx.attrs, ulpdu);
            return Ok(());
        };
        self.note_size(ulpdu.len() >= BULK_ULPDU && self.may_place_directly(place));
        place_payload(cx, &header, place, payload)?;
        self.commit(cx, &header, payload.len(), if place == Place::Control { payload } else { &[] })
    }

    /// Asks the stream what the segment is; takes a receive when a message begins. `None`: there is
    /// none, and it waits.
    fn accept(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
    ) -> Result<Option<Place>, LinkEvent> {
        match self.classify(cx, header, payload_len) {
            Ok(place) => Ok(Some(place)),
            Err(Fault::Ddp(DdpError::NoBuffer { qn: SEND_QUEUE, .. })) if cx.attrs.waits() => Ok(None),
            Err(fault) => {
                if matches!(fault, Fault::Ddp(DdpError::TooLong { .. })) {
                    cx.end_receive(Status::MessageTooLong, &Outcome::default());
                }
                Err(LinkEvent::Fault(fault, Some(Offending::new(*header, payload_len))))
            }
        }
    }

    /// Asks the stream what the segment is, with no consequences of a fault: the segment's CRC may
    /// not be known yet.
    #[inline]
    pub(super) fn classify(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
    ) -> Result<Place, Fault> {
        self.stream.accept(header, payload_len, &mut || cx.begin_receive())
    }

    /// Completes what a segment completes that has been placed, and whose CRC was good.
    pub(super) fn commit(
        &mut self,
        cx: &mut Context<'_>,
        header: &Header,
        payload_len: usize,
        control: &[u8],
    ) -> Result<(), LinkEvent> {
        let faulty = |fault| LinkEvent::Fault(fault, Some(Offending::new(*header, payload_len)));
        let event = self.stream.commit(header, payload_len, control).map_err(faulty)?;
        match event {
            Event::None | Event::WriteDone | Event::InboundRequest => Ok(()),
            Event::Received { length, invalidate, solicited } => {
                if let Some(stag) = invalidate {
                    // RFC 5040 §5.3: invalidated when the Send is delivered, before the program
                    // learns of it.
                    cx.attrs.invalidate_remote(stag).map_err(|error| {
                        let outcome = Outcome { byte_len: length, ..Outcome::default() };
                        cx.end_receive(Status::RemoteInvalidate, &outcome);
                        faulty(Fault::invalidate(error))
                    })?;
                }
                let outcome =
                    Outcome { byte_len: length, invalidated: invalidate, immediate: None, solicited };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::Immediate { data, solicited } => {
                let outcome = Outcome { byte_len: 8, invalidated: None, immediate: Some(data), solicited };
                cx.end_receive(Status::Success, &outcome);
                Ok(())
            }
            Event::ReadDone { id: RTR_ID } => self.rtr_done(),
            Event::ReadDone { id } => Ok(read_done(cx, id)?),
            Event::AtomicDone { id, original } => Ok(atomic_done(cx, id, original)?),
            Event::Terminated(terminate) => Err(self.terminated(terminate)),
        }
    }

    fn rtr_done(&mut self) -> Result<(), LinkEvent> {
        match std::mem::replace(&mut self.rtr, RtrRead::None) {
            RtrRead::OutBeforeClose => Err(LinkEvent::Close),
            RtrRead::None | RtrRead::Out => Ok(()),
        }
    }
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

fn atomic_done(cx: &mut Context<'_>, id: u64, original: u64) -> Result<(), Fault> {
    let Some(wqe) = cx.sq.get_mut(id) else { return Ok(()) };
    let (Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. }) = wqe.wr.operation else {
        return Ok(());
    };
    let grant = cx.attrs.device.mem.check_local(sink.stag, sink.addr, 8, true, cx.attrs.pd);
    if !grant.is_ok_and(|grant| grant.place(0, &original.to_ne_bytes()).is_ok()) {
        wqe.phase = Phase::Done(Status::LocalProtection);
        return Err(Fault::local_catastrophic());
    }
    wqe.phase = Phase::Done(Status::Success);
    cx.retire();
    Ok(())
}
