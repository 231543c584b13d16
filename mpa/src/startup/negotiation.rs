//! What the two ends make of each other's wishes (RFC 6581 §9.1, §9.2).
//!
//! Depths cross over: the initiator's ORD asks for the responder's IRD, and the other way round. [`answer`] is the
//! responder's half and [`conclude`] the initiator's; neither sees an octet.

use super::{
    DEPTH_MAX, EnhancedData, Rtr, RtrSet, StartupConfig, StartupError, StartupMisuse, ULP_NEGOTIATES,
};

/// What one end arrived at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) ird: u16,
    pub(super) ord: u16,
    pub(super) rtr: Option<Rtr>,
}

/// Without RFC 6581's data the ends agree on no depths: what this one holds to.
pub(super) fn assume(own: &StartupConfig) -> Settled {
    Settled { ird: own.ird, ord: own.ord.min(own.assumed_ird), rtr: None }
}

/// The responder accepts: what it says in the Reply, and what it holds to.
pub(super) fn answer(
    request: &EnhancedData,
    own: &StartupConfig,
) -> Result<(EnhancedData, Settled), StartupMisuse> {
    let rtr =
        if request.peer_to_peer { Some(name_rtr(request, own).ok_or(StartupMisuse::NoRtr)?) } else { None };
    let (ird, told_ird) = crossed(request.ord, own.ird, |asked| answer_ird(asked, rtr, own));
    // RFC 6581 §9.1: no more Reads outstanding than the initiator takes.
    let (ord, told_ord) = crossed(request.ird, own.ord, |offered| own.ord.min(offered));
    let reply = EnhancedData {
        peer_to_peer: request.peer_to_peer,
        rtr: rtr.map_or(RtrSet::NONE, RtrSet::only),
        ird: told_ird,
        ord: told_ord,
    };
    Ok((reply, Settled { ird, ord, rtr }))
}

/// The responder rejects: the same, but its ORD is what it would have needed (RFC 6581 §9.1).
pub(super) fn refuse(request: &EnhancedData, own: &StartupConfig) -> EnhancedData {
    let rtr = if request.peer_to_peer { name_rtr(request, own) } else { None };
    let (_, ird) = crossed(request.ord, own.ird, |asked| answer_ird(asked, rtr, own));
    let (_, ord) = crossed(request.ird, own.ord, |_| own.ord.min(DEPTH_MAX));
    let rtr = rtr.map_or(RtrSet::NONE, RtrSet::only);
    EnhancedData { peer_to_peer: request.peer_to_peer, rtr, ird, ord }
}

/// The initiator has an accepting Reply.
pub(super) fn conclude(reply: &EnhancedData, own: &StartupConfig) -> Result<Settled, StartupError> {
    // RFC 6581 §9.2: the Reply's A is that of the Request.
    if reply.peer_to_peer != own.peer_to_peer {
        return Err(StartupError::ConnectionModel { got: reply.peer_to_peer });
    }
    let rtr = if own.peer_to_peer { Some(pick_rtr(reply, own)?) } else { None };
    // RFC 6581 §9.1: no more Reads outstanding than the responder takes. A Read as RTR needs one.
    let wanted = own.ord.max(needed_by(rtr));
    let (ord, _) = crossed(reply.ird, own.ord, |offered| wanted.min(offered));
    // RFC 6581 §9.1: at least as many taken as the responder will have outstanding, or Terminate.
    let max_ird = ird_limit(own);
    if reply.ord != ULP_NEGOTIATES && reply.ord > max_ird {
        return Err(StartupError::InsufficientIrd { ord: reply.ord, max_ird });
    }
    let (ird, _) = crossed(reply.ord, own.ird, |asked| own.ird.max(asked));
    Ok(Settled { ird, ord, rtr })
}

/// A local depth and what the peer is told of it. RFC 6581 §9.1: 0x3FFF from the peer is answered by itself, and
/// leaves the local depth as it is.
fn crossed(peer: u16, own: u16, settle: impl FnOnce(u16) -> u16) -> (u16, u16) {
    if peer == ULP_NEGOTIATES {
        return (own, ULP_NEGOTIATES);
    }
    let depth = settle(peer);
    (depth, depth)
}

// RFC 6581 §9.1: the responder's IRD may be raised so that a Read as RTR can be taken.
fn answer_ird(asked: u16, rtr: Option<Rtr>, own: &StartupConfig) -> u16 {
    asked.max(needed_by(rtr)).min(ird_limit(own))
}

fn ird_limit(own: &StartupConfig) -> u16 {
    own.max_ird.max(own.ird)
}

fn needed_by(rtr: Option<Rtr>) -> u16 {
    u16::from(rtr == Some(Rtr::Read))
}

/// The one kind that the responder names: of the offer if it can be, else one that it supports (RFC 6581 §9.2).
fn name_rtr(request: &EnhancedData, own: &StartupConfig) -> Option<Rtr> {
    let ird = if request.ord == ULP_NEGOTIATES { own.ird } else { ird_limit(own) };
    let supported = without_read_unless(ird > 0, own.rtr);
    preferred(supported.and(request.rtr)).or_else(|| preferred(supported))
}

/// The kind that the initiator sends, of those that the Reply names.
fn pick_rtr(reply: &EnhancedData, own: &StartupConfig) -> Result<Rtr, StartupError> {
    let ord = if reply.ird == ULP_NEGOTIATES { own.ord } else { reply.ird };
    let offered = without_read_unless(ord > 0, own.rtr);
    preferred(offered.and(reply.rtr)).ok_or(StartupError::NoCommonRtr { named: reply.rtr, offered: own.rtr })
}

/// A Read cannot be the RTR where the queue that it needs has no place at all.
fn without_read_unless(possible: bool, kinds: RtrSet) -> RtrSet {
    RtrSet { read: kinds.read && possible, ..kinds }
}

fn preferred(kinds: RtrSet) -> Option<Rtr> {
    [Rtr::Read, Rtr::Write, Rtr::Send].into_iter().find(|&kind| kinds.contains(kind))
}
