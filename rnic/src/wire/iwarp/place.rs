//! Placing: receives and memory for the segments that arrive, if they may have them (RFC 5041 §7,
//! RFC 5040 §8.1).

use std::time::Instant;

use rddp_iwarp::{Acknowledgement, Receive, Receiver, Segment, Target};
use rddp_rdma::{AsyncEventKind, Status};
use rddp_rdmap::{AccessError, Fault, Place, Plain};
use rddp_stat::Counter;

use super::deliver::BULK_ULPDU;
use super::link::Link;
use crate::kernel::Guided;
use crate::mem::Access;
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::rq::Outcome;
use crate::trace;

/// The target of arriving segments: their queue pair, and what the connection has beside the state
/// of the protocols.
pub(super) struct Arriving<'a, 'q> {
    cx: &'a mut Context<'q>,
    may_send: &'a mut bool,
    deadline: &'a mut Option<Instant>,
    guided: Option<&'a mut Guided>,
}

impl Link {
    /// Lends the state of the protocols, and what arriving segments ask for.
    #[inline]
    pub(super) fn receiving<'a, 'q>(
        &'a mut self,
        cx: &'a mut Context<'q>,
    ) -> (Receiver<'a>, Arriving<'a, 'q>) {
        let receiver = Receiver { deframer: &mut self.deframer, stream: &mut self.stream };
        let arriving = Arriving {
            cx,
            may_send: &mut self.may_send,
            deadline: &mut self.deadline,
            guided: self.guided.as_mut(),
        };
        (receiver, arriving)
    }
}

impl Target for Arriving<'_, '_> {
    const TAKES_PLAIN: bool = true;

    /// Lets a responder send: MPA has found its first FPDU good (RFC 5044 §7.1.2).
    #[inline]
    fn note_good_fpdu(&mut self) {
        self.cx.tally.add(Counter::FpdusReceived, 1);
        if !*self.may_send {
            *self.may_send = true;
            *self.deadline = None;
            self.cx.attrs.report(AsyncEventKind::Established);
        }
    }

    #[inline]
    fn receive(&mut self) -> Receive {
        match self.cx.begin_receive() {
            Some(room) => Receive::Posted(room),
            None if self.cx.attrs.waits_for_receives() => Receive::Awaited,
            None => Receive::Missing,
        }
    }

    #[inline]
    fn place(&mut self, segment: &Segment, skip: usize, payload: &[u8]) -> Result<(), Fault> {
        let guided = self.guided.as_deref_mut();
        if let Err(why) = place_from(self.cx, segment, skip, payload, guided) {
            if let Some(guided) = &mut self.guided {
                guided.stop();
            }
            return Err(why.refuse(self.cx));
        }
        trace::placed(self.cx.attrs.num, segment);
        Ok(())
    }

    #[cold]
    fn leaves(&self, opcode: u8) -> bool {
        opcode == Acknowledgement::OPCODE && self.cx.attrs.acknowledges()
    }

    #[inline]
    fn take_plain(&mut self, plain: &Plain, payload: &[u8]) -> bool {
        if payload.len() >= BULK_ULPDU || self.guided.is_some() || trace::is_traced() {
            return false;
        }
        match plain {
            Plain::Send { solicited, .. } => self.cx.take_send(payload, *solicited),
            Plain::Write(header) => self.cx.take_write(header, payload),
        }
    }
}

/// The reason why a payload has no place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unplaceable {
    /// The peer may not write there.
    Write(AccessError),
    /// Our program's receive names memory that is no good.
    Receive,
    /// The sink of our program's Read with this number is memory that is no good.
    Sink(u64),
}

impl Unplaceable {
    /// Returns the reason where the memory of `place` has gone bad. For a Write, what is no longer
    /// there is out of bounds.
    pub(super) fn gone_bad(place: Place) -> Self {
        match place {
            Place::Write { .. } => Unplaceable::Write(AccessError::Bounds),
            Place::Sink { id, .. } => Unplaceable::Sink(id),
            // The others have no memory that could.
            Place::Receive { .. } | Place::Nothing | Place::Control | Place::Dropped => Unplaceable::Receive,
        }
    }

    /// Ends the request whose memory it was. Returns the fault.
    #[cold]
    pub(super) fn refuse(self, cx: &mut Context<'_>) -> Fault {
        trace::unplaceable(cx.attrs.num, &self);
        match self {
            Unplaceable::Write(error) => Fault::write_access(error),
            // draft-hilland-rddp-verbs §8.3.2: a receive or a sink that is no good is this side's
            // fault.
            Unplaceable::Receive => {
                cx.end_receive(Status::LocalProtection, &Outcome::default());
                Fault::local_catastrophic()
            }
            Unplaceable::Sink(id) => {
                cx.end_request(id, Status::LocalProtection);
                Fault::local_catastrophic()
            }
        }
    }
}

/// Returns whether the program may learn of a message from its last octets: the segment is the last
/// of a Write, which completes nothing here.
#[inline]
pub(super) fn is_polled(segment: &Segment) -> bool {
    matches!(segment.place, Place::Write { .. }) && segment.header.last()
}

/// Copies the end of a segment's payload, `skip` octets into it, to where it belongs: in order,
/// where a program may poll the last octet.
#[inline]
fn place_from(
    cx: &Context<'_>,
    segment: &Segment,
    skip: usize,
    payload: &[u8],
    mut guided: Option<&mut Guided>,
) -> Result<(), Unplaceable> {
    let mut grants = Grants::new();
    targets(cx, segment.place, skip, payload.len(), &mut grants)?;
    let in_order = is_polled(segment);
    let mut rest = payload;
    for grant in &grants {
        let (now, later) = rest.split_at(grant.len());
        let store = || if in_order { grant.place_in_order(0, now) } else { grant.place(0, now) }.is_ok();
        let stored = match guided.as_deref_mut() {
            Some(guided) => guided.store(grant, store),
            None => store(),
        };
        if !stored {
            return Err(Unplaceable::gone_bad(segment.place));
        }
        rest = later;
    }
    Ok(())
}

/// Adds the memory for `len` octets of a segment's payload from `skip` on.
pub(super) fn targets(
    cx: &Context<'_>,
    place: Place,
    skip: usize,
    len: usize,
    grants: &mut Grants,
) -> Result<(), Unplaceable> {
    match place {
        Place::Write { stag, to } => {
            let to = to.wrapping_add(skip as u64);
            let grant = cx.attrs.check_remote(stag, to, len as u64, Access::REMOTE_WRITE);
            grants.push(grant.map_err(Unplaceable::Write)?);
            Ok(())
        }
        Place::Receive { mo } => {
            let from = u64::from(mo) + skip as u64;
            cx.receive_grants(from, len, grants).map_err(|_| Unplaceable::Receive)
        }
        Place::Sink { id, offset, .. } => {
            let from = u64::from(offset) + skip as u64;
            cx.sink_grants(id, from, len, grants).map_err(|_| Unplaceable::Sink(id))
        }
        Place::Nothing | Place::Control | Place::Dropped => Ok(()),
    }
}
