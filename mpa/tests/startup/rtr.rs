//! Peer-to-peer connections and the RTR (RFC 6581 §9.2).

use rddp_mpa::{Initiator, MpaError, Rtr, RtrSet, StartupConfig, StartupError, StartupMisuse};

use crate::{answered, client_server, depths, peer_to_peer, reply_to, request, request_frame, startup};

const READ: RtrSet = RtrSet::only(Rtr::Read);
const WRITE: RtrSet = RtrSet::only(Rtr::Write);
const SEND: RtrSet = RtrSet::only(Rtr::Send);

fn supporting(rtr: RtrSet) -> StartupConfig {
    StartupConfig { rtr, ..StartupConfig::default() }
}

fn every_set() -> impl Iterator<Item = RtrSet> {
    (0..8).map(|bits| RtrSet { send: bits & 1 != 0, write: bits & 2 != 0, read: bits & 4 != 0 })
}

// RFC 6581 §9.2: A is repeated in the Reply, and exactly one kind is named: one of the offer if
// possible, preferring Read, then Write, then Send.
#[test]
fn the_responder_names_one_kind_of_the_offer() {
    for offered in every_set() {
        for supported in every_set().filter(|set| !set.is_empty()) {
            let (reply, settled) = reply_to(peer_to_peer(offered), &supporting(supported));
            let from = if offered.and(supported).is_empty() { supported } else { offered.and(supported) };
            let named = match from {
                RtrSet { read: true, .. } => Rtr::Read,
                RtrSet { write: true, .. } => Rtr::Write,
                _ => Rtr::Send,
            };
            assert!(reply.peer_to_peer);
            assert_eq!((reply.rtr, settled.rtr), (RtrSet::only(named), Some(named)));
        }
    }
}

#[test]
fn a_write_is_taken_alone_where_both_ends_know_it() {
    for offered in every_set() {
        for supported in every_set() {
            let both_write = offered.write && supported.write;
            assert_eq!(supported.write_if_offered(offered), if both_write { WRITE } else { supported });
        }
    }
}

#[test]
fn only_a_read_is_answered() {
    for kind in [Rtr::Read, Rtr::Write, Rtr::Send] {
        assert_eq!(kind.is_answered(), kind == Rtr::Read);
        assert_eq!(RtrSet::ALL.unanswered().contains(kind), !kind.is_answered());
    }
}

// RFC 6581 §9.2: without A in the Request, the Reply has no A either, and there is no RTR.
#[test]
fn the_responder_does_not_make_a_connection_peer_to_peer() {
    let (reply, settled) = reply_to(depths(4, 4), &supporting(RtrSet::ALL));
    assert_eq!((reply.peer_to_peer, reply.rtr, settled.rtr), (false, RtrSet::NONE, None));
}

// RFC 6581 §9.2: out of the kinds that a Reply names, one that was offered is sent.
#[test]
fn the_initiator_sends_a_kind_that_both_ends_know() {
    for named in every_set() {
        for offered in every_set().filter(|set| !set.is_empty()) {
            let outcome = answered(&supporting(offered), peer_to_peer(named));
            match offered.and(named) {
                RtrSet { read: true, .. } => assert_eq!(outcome.unwrap().rtr, Some(Rtr::Read)),
                RtrSet { write: true, .. } => assert_eq!(outcome.unwrap().rtr, Some(Rtr::Write)),
                RtrSet { send: true, .. } => assert_eq!(outcome.unwrap().rtr, Some(Rtr::Send)),
                _ => {
                    let error = outcome.unwrap_err();
                    assert_eq!(error, StartupError::NoCommonRtr { named, offered });
                    assert_eq!(error.terminate(), Some(MpaError::NoMatchingRtr));
                }
            }
        }
    }
}

// RFC 6581 §9.2: the connection model of the Reply is the Request's; if it is not, the ends have
// none in common: code 7.
#[test]
fn a_reply_of_the_other_connection_model_is_refused() {
    let error = answered(&supporting(RtrSet::ALL), depths(4, 4)).unwrap_err();
    assert_eq!(error, StartupError::ConnectionModel { got: false });
    assert_eq!(error.terminate(), Some(MpaError::NoMatchingRtr));
    let error = answered(&client_server(), peer_to_peer(RtrSet::ALL)).unwrap_err();
    assert_eq!(error, StartupError::ConnectionModel { got: true });
    assert_eq!(error.terminate(), Some(MpaError::NoMatchingRtr));
}

// RFC 6581 §9.2: a peer-to-peer connection needs at least one kind, at each end.
#[test]
fn peer_to_peer_without_any_rtr_is_the_callers_mistake() {
    let none = supporting(RtrSet::NONE);
    assert_eq!(Initiator::new(&none, b"").unwrap_err(), StartupMisuse::NoRtr);
    let asked = request(&request_frame(peer_to_peer(RtrSet::ALL)));
    assert_eq!(asked.accept(&none, b"").unwrap_err(), StartupMisuse::NoRtr);
    // Rejecting does not need one.
    assert!(asked.reject(&none, b"").is_ok());
    let no_reads = StartupConfig { ird: 0, max_ird: 0, ..supporting(READ) };
    assert_eq!(asked.accept(&no_reads, b"").unwrap_err(), StartupMisuse::NoRtr);
}

#[test]
fn every_kind_can_be_agreed_on() {
    for (rtr, kind) in [(READ, Rtr::Read), (WRITE, Rtr::Write), (SEND, Rtr::Send)] {
        let (initiator, responder) = startup(&supporting(rtr), &supporting(RtrSet::ALL));
        assert_eq!((initiator.rtr, responder.rtr), (Some(kind), Some(kind)));
        let (initiator, responder) = startup(&supporting(RtrSet::ALL), &supporting(rtr));
        assert_eq!((initiator.rtr, responder.rtr), (Some(kind), Some(kind)));
    }
}

// cxgb4 sends such a Reply, which names Write and Read.
#[test]
fn a_reply_that_leaves_a_choice_gets_a_read() {
    assert_eq!(
        answered(&supporting(RtrSet::ALL), peer_to_peer(RtrSet::SILENT)).unwrap().rtr,
        Some(Rtr::Read)
    );
}
