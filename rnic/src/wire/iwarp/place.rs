//! Placing: a segment's payload is copied to where it belongs, if it may be (RFC 5041 §7,
//! RFC 5040 §8.1).

use rddp_ddp::Header;
use rddp_rdma::Status;
use rddp_rdmap::{AccessError, Fault, Offending, Place};

use crate::mem::Access;
use crate::qp::context::Context;
use crate::qp::memory::Grants;
use crate::qp::rq::Outcome;
use crate::wire::LinkEvent;

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
    pub(super) fn refuse(self, cx: &mut Context<'_>, header: &Header, payload_len: usize) -> LinkEvent {
        match self {
            Unplaceable::Write(error) => {
                LinkEvent::Fault(Fault::write_access(error), Some(Offending::new(*header, payload_len)))
            }
            // draft-hilland-rddp-verbs §8.3.2: a receive or a sink that is no good is this side's
            // fault.
            Unplaceable::Receive => {
                cx.end_receive(Status::LocalProtection, &Outcome::default());
                Fault::local_catastrophic().into()
            }
            Unplaceable::Sink(id) => {
                cx.end_request(id, Status::LocalProtection);
                Fault::local_catastrophic().into()
            }
        }
    }
}

/// Returns whether the program may learn of a message from its last octets: the segment is the last
/// of a Write, which completes nothing here.
pub(super) fn is_polled(place: Place, header: &Header) -> bool {
    matches!(place, Place::Write { .. }) && header.last()
}

/// Copies a segment's payload to where it belongs.
pub(super) fn place_payload(
    cx: &mut Context<'_>,
    header: &Header,
    place: Place,
    payload: &[u8],
) -> Result<(), LinkEvent> {
    if payload.is_empty() || matches!(place, Place::Nothing | Place::Control | Place::Dropped) {
        return Ok(());
    }
    place_from(cx, header, place, 0, payload)
}

/// Copies the end of a segment's payload, `skip` octets into it, to where it belongs: in order,
/// where a program may poll the last octet.
#[inline]
pub(super) fn place_from(
    cx: &mut Context<'_>,
    header: &Header,
    place: Place,
    skip: usize,
    payload: &[u8],
) -> Result<(), LinkEvent> {
    let mut grants = Grants::new();
    if let Err(why) = targets(cx, place, skip, payload.len(), &mut grants) {
        return Err(why.refuse(cx, header, skip + payload.len()));
    }
    let in_order = is_polled(place, header);
    let mut rest = payload;
    for grant in &grants {
        let (now, later) = rest.split_at(grant.len());
        let placed = if in_order { grant.place_in_order(0, now) } else { grant.place(0, now) };
        if placed.is_err() {
            grants.clear();
            return Err(Unplaceable::gone_bad(place).refuse(cx, header, skip + payload.len()));
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
