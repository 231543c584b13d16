//! The rules by which the parameters of both ends become those of the connection (RFC 6581 §9.1,
//! §9.2).
//!
//! Depths cross over: the initiator's ORD asks for the responder's IRD, and the other way round.
//! [`answer`] is the responder's half and [`conclude`] the initiator's. Both work on values; frames
//! are parsed and emitted elsewhere.

use super::{
    DEPTH_MAX, EnhancedData, Rtr, RtrSet, StartupConfig, StartupError, StartupMisuse, ULP_NEGOTIATES,
};

/// The parameters that one end arrived at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) ird: u16,
    pub(super) ord: u16,
    pub(super) rtr: Option<Rtr>,
}

/// Returns the parameters of an end when no data of RFC 6581 was exchanged, and so no depths were
/// agreed on.
pub(super) fn assume(own: &StartupConfig) -> Settled {
    Settled { ird: own.ird, ord: own.ord.min(own.assumed_ird), rtr: None }
}

/// Accepts a Request at the responder: returns the data of the Reply, and the responder's
/// parameters.
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

/// Rejects a Request at the responder: returns the data of the Reply. It is that of an accepting
/// Reply, except that the ORD is what the responder would have needed (RFC 6581 §9.1).
pub(super) fn refuse(request: &EnhancedData, own: &StartupConfig) -> EnhancedData {
    let rtr = if request.peer_to_peer { name_rtr(request, own) } else { None };
    let (_, ird) = crossed(request.ord, own.ird, |asked| answer_ird(asked, rtr, own));
    let (_, ord) = crossed(request.ird, own.ord, |_| own.ord.min(DEPTH_MAX));
    let rtr = rtr.map_or(RtrSet::NONE, RtrSet::only);
    EnhancedData { peer_to_peer: request.peer_to_peer, rtr, ird, ord }
}

/// Returns the initiator's parameters once it has an accepting Reply.
pub(super) fn conclude(reply: &EnhancedData, own: &StartupConfig) -> Result<Settled, StartupError> {
    // RFC 6581 §9.2: the Reply's A is that of the Request.
    if reply.peer_to_peer != own.peer_to_peer {
        return Err(StartupError::ConnectionModel { got: reply.peer_to_peer });
    }
    let rtr = if own.peer_to_peer { Some(pick_rtr(reply, own)?) } else { None };
    // RFC 6581 §9.1: no more Reads outstanding than the responder takes. A Read as RTR needs an ORD
    // of one.
    let wanted = own.ord.max(needed_by(rtr));
    let (ord, _) = crossed(reply.ird, own.ord, |offered| wanted.min(offered));
    // RFC 6581 §9.1: the initiator must take as many Reads as the responder will have outstanding,
    // or send a Terminate.
    let max_ird = ird_limit(own);
    if reply.ord != ULP_NEGOTIATES && reply.ord > max_ird {
        return Err(StartupError::InsufficientIrd { ord: reply.ord, max_ird });
    }
    let (ird, _) = crossed(reply.ord, own.ird, |asked| own.ird.max(asked));
    Ok(Settled { ird, ord, rtr })
}

/// Returns a local depth and the depth to tell the peer. RFC 6581 §9.1: 0x3FFF from the peer is
/// answered by 0x3FFF, and leaves the local depth as it is.
fn crossed(peer: u16, own: u16, settle: impl FnOnce(u16) -> u16) -> (u16, u16) {
    if peer == ULP_NEGOTIATES {
        return (own, ULP_NEGOTIATES);
    }
    let depth = settle(peer);
    (depth, depth)
}

// RFC 6581 §9.1: the responder's IRD may be raised so that it can take a Read as RTR.
fn answer_ird(asked: u16, rtr: Option<Rtr>, own: &StartupConfig) -> u16 {
    asked.max(needed_by(rtr)).min(ird_limit(own))
}

fn ird_limit(own: &StartupConfig) -> u16 {
    own.max_ird.max(own.ird)
}

fn needed_by(rtr: Option<Rtr>) -> u16 {
    u16::from(rtr == Some(Rtr::Read))
}

/// Returns the one kind that the responder names: one that the initiator offers if both support
/// one, or else one that the responder supports (RFC 6581 §9.2).
fn name_rtr(request: &EnhancedData, own: &StartupConfig) -> Option<Rtr> {
    let ird = if request.ord == ULP_NEGOTIATES { own.ird } else { ird_limit(own) };
    let supported = without_read_unless(ird > 0, own.rtr);
    preferred(supported.and(request.rtr)).or_else(|| preferred(supported))
}

/// Returns the kind that the initiator sends, out of those that the Reply names.
fn pick_rtr(reply: &EnhancedData, own: &StartupConfig) -> Result<Rtr, StartupError> {
    let ord = if reply.ird == ULP_NEGOTIATES { own.ord } else { reply.ird };
    let offered = without_read_unless(ord > 0, own.rtr);
    preferred(offered.and(reply.rtr)).ok_or(StartupError::NoCommonRtr { named: reply.rtr, offered: own.rtr })
}

/// Removes Read from `kinds` unless `possible`: a Read cannot be the RTR where the Read queue has
/// no entries.
fn without_read_unless(possible: bool, kinds: RtrSet) -> RtrSet {
    if possible { kinds } else { kinds.unanswered() }
}

fn preferred(kinds: RtrSet) -> Option<Rtr> {
    [Rtr::Read, Rtr::Write, Rtr::Send].into_iter().find(|&kind| kinds.contains(kind))
}
