//! IRD and ORD (RFC 6581 §9.1).

use rddp_mpa::{MpaError, Rtr, RtrSet, StartupConfig, StartupError, ULP_NEGOTIATES};

use crate::{answered, client_server, depths, peer_to_peer, reply_to, startup};

fn config(ird: u16, ord: u16, max_ird: u16) -> StartupConfig {
    StartupConfig { ird, ord, max_ird, ..client_server() }
}

// RFC 6581 §9.1: the responder's ORD is at most the initiator's IRD.
#[test]
fn the_responder_wants_no_more_than_the_initiator_takes() {
    for (ird, own, told) in [(8, 16, 8), (16, 8, 8), (0, 8, 0), (0x3ffe, 0xffff, 0x3ffe)] {
        let (reply, settled) = reply_to(depths(ird, 4), &config(4, own, 4));
        assert_eq!((reply.ord, settled.ord), (told, told));
        assert_eq!(settled.peer_ird, Some(ird));
    }
}

// RFC 6581 §9.1: the responder's IRD is what the initiator asked for, up to the responder's limit.
#[test]
fn the_responder_takes_what_is_asked_up_to_its_limit() {
    for (ord, told) in [(4, 4), (0, 0), (16, 16), (17, 16), (0x3ffe, 16)] {
        let (reply, settled) = reply_to(depths(8, ord), &config(4, 4, 16));
        assert_eq!((reply.ird, settled.ird), (told, told));
        assert_eq!(settled.peer_ord, Some(ord));
    }
}

// RFC 6581 §9.1: the initiator's ORD is at most the responder's IRD.
#[test]
fn the_initiator_wants_no_more_than_the_responder_takes() {
    for (ird, ord) in [(16, 8), (8, 8), (3, 3), (0, 0)] {
        let settled = answered(&config(4, 8, 4), depths(ird, 4)).unwrap();
        assert_eq!((settled.ord, settled.peer_ird), (ord, Some(ird)));
    }
}

// RFC 6581 §9.1: the initiator's IRD is at least the responder's ORD.
#[test]
fn the_initiator_raises_its_ird_to_what_the_responder_wants() {
    for (ord, ird) in [(2, 4), (4, 4), (5, 5), (16, 16)] {
        let settled = answered(&config(4, 8, 16), depths(8, ord)).unwrap();
        assert_eq!((settled.ird, settled.peer_ord), (ird, Some(ord)));
    }
}

// RFC 6581 §9.1: or else the initiator sends a Terminate with code 6.
#[test]
fn an_ird_that_cannot_be_provided_ends_the_connection() {
    let error = answered(&config(4, 8, 16), depths(8, 17)).unwrap_err();
    assert_eq!(error, StartupError::InsufficientIrd { ord: 17, max_ird: 16 });
    assert_eq!(error.terminate(), Some(MpaError::InsufficientIrd));
    // An IRD that is configured beyond the limit for raising it needs no raising.
    assert_eq!(answered(&config(32, 8, 16), depths(8, 32)).unwrap().ird, 32);
    assert_eq!(reply_to(depths(8, 64), &config(32, 8, 16)).0.ird, 32);
}

// RFC 6581 §9.1: 0x3FFF is answered in the crossed field and leaves the local depth alone.
#[test]
fn a_depth_left_to_the_ulp_is_answered_as_such() {
    let own = config(5, 6, 16);
    let (reply, settled) = reply_to(depths(ULP_NEGOTIATES, 4), &own);
    assert_eq!((reply.ird, reply.ord), (4, ULP_NEGOTIATES));
    assert_eq!((settled.ird, settled.ord, settled.peer_ird), (4, 6, Some(ULP_NEGOTIATES)));

    let (reply, settled) = reply_to(depths(4, ULP_NEGOTIATES), &own);
    assert_eq!((reply.ird, reply.ord), (ULP_NEGOTIATES, 4));
    assert_eq!((settled.ird, settled.ord, settled.peer_ord), (5, 4, Some(ULP_NEGOTIATES)));
}

// RFC 6581 §9.1: the initiator's depths stay, each independently of the other.
#[test]
fn a_depth_that_the_reply_leaves_to_the_ulp_stays() {
    let own = config(5, 6, 16);
    let settled = answered(&own, depths(ULP_NEGOTIATES, 7)).unwrap();
    assert_eq!((settled.ird, settled.ord), (7, 6));
    let settled = answered(&own, depths(3, ULP_NEGOTIATES)).unwrap();
    assert_eq!((settled.ird, settled.ord), (5, 3));
}

// RFC 6581 §9.1: a Read as RTR needs an entry in the queue, even if the ULP wants no Reads.
#[test]
fn a_read_as_rtr_raises_the_depths_to_one() {
    let read = RtrSet::only(Rtr::Read);
    let initiator = StartupConfig { ord: 0, rtr: read, ..StartupConfig::default() };
    let (at_initiator, at_responder) = startup(&initiator, &StartupConfig::default());
    assert_eq!((at_initiator.ord, at_responder.ird), (1, 1));
    assert_eq!((at_initiator.rtr, at_responder.rtr), (Some(Rtr::Read), Some(Rtr::Read)));
    // The other kinds of RTR raise nothing.
    let initiator = StartupConfig { rtr: RtrSet::only(Rtr::Write), ..initiator };
    let (at_initiator, at_responder) = startup(&initiator, &StartupConfig::default());
    assert_eq!((at_initiator.ord, at_responder.ird), (0, 0));
}

// A Read queue without entries takes no Read: another kind is named and sent.
#[test]
fn a_read_is_no_rtr_where_no_read_can_be() {
    let none = StartupConfig { ird: 0, max_ird: 0, rtr: RtrSet::ALL, ..StartupConfig::default() };
    assert_eq!(reply_to(peer_to_peer(RtrSet::ALL), &none).1.rtr, Some(Rtr::Write));
    let reply = crate::EnhancedData { ird: 0, ..peer_to_peer(RtrSet::ALL) };
    assert_eq!(answered(&StartupConfig::default(), reply).unwrap().rtr, Some(Rtr::Write));
    let reply = crate::EnhancedData { ird: 0, ..peer_to_peer(RtrSet::only(Rtr::Read)) };
    let error = answered(&StartupConfig::default(), reply).unwrap_err();
    assert_eq!(error.terminate(), Some(MpaError::NoMatchingRtr));
    // Depths that the ULP settles are not looked at.
    let left =
        crate::EnhancedData { ird: ULP_NEGOTIATES, ord: ULP_NEGOTIATES, ..peer_to_peer(RtrSet::SILENT) };
    assert_eq!(reply_to(left, &StartupConfig { max_ird: 8, ..none }).1.rtr, Some(Rtr::Write));
    let no_reads = StartupConfig { ord: 0, ..StartupConfig::default() };
    assert_eq!(answered(&no_reads, left).unwrap().rtr, Some(Rtr::Write));
}
