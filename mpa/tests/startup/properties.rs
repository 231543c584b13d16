//! Properties for any configurations, any frames and random octets.

use proptest::collection::vec;
use proptest::prelude::*;
use rddp_mpa::{
    EnhancedData, Frame, FrameKind, Initiator, InitiatorStep, Parsed, Revision, RtrSet, StartupConfig,
    StartupError,
};

use crate::request;

fn kind() -> impl Strategy<Value = FrameKind> {
    prop_oneof![Just(FrameKind::Request), Just(FrameKind::Reply)]
}

fn revision() -> impl Strategy<Value = Revision> {
    prop_oneof![Just(Revision::One), Just(Revision::Two)]
}

fn rtr() -> impl Strategy<Value = RtrSet> {
    any::<[bool; 3]>().prop_map(|[send, write, read]| RtrSet { send, write, read })
}

prop_compose! {
    fn enhanced()(peer_to_peer: bool, rtr in rtr(), ird in 0..0x4000_u16, ord in 0..0x4000_u16) -> EnhancedData {
        let rtr = if peer_to_peer { rtr } else { RtrSet::NONE };
        EnhancedData { peer_to_peer, rtr, ird, ord }
    }
}

prop_compose! {
    fn config()(
        revision in revision(),
        crc: bool,
        markers: bool,
        (ird, ord, max_ird) in (0..40_u16, 0..40_u16, 0..40_u16),
        peer_to_peer: bool,
        rtr in rtr(),
        large_fpdus: bool,
    ) -> StartupConfig {
        StartupConfig {
            revision, crc, markers, ird, ord, max_ird, assumed_ird: ord, peer_to_peer, rtr, large_fpdus,
        }
    }
}

/// Octets that are close to a frame.
fn nearly_a_frame() -> impl Strategy<Value = Vec<u8>> {
    let header = (kind(), any::<u8>(), 0..4_u8, 0..30_u16).prop_map(|(kind, flags, revision, pd_length)| {
        let key: &[u8] = match kind {
            FrameKind::Request => b"MPA ID Req Frame",
            FrameKind::Reply => b"MPA ID Rep Frame",
        };
        [key, &[flags, revision], &pd_length.to_be_bytes()].concat()
    });
    let damage = proptest::option::weighted(0.2, (0..20_usize, any::<u8>()));
    (header, damage, vec(any::<u8>(), 0..40)).prop_map(|(mut octets, damage, rest)| {
        if let Some((at, octet)) = damage {
            octets[at] = octet;
        }
        octets.extend(rest);
        octets
    })
}

proptest! {
    // RFC 5044 §7.1.1, RFC 6581 §9: a frame that is emitted and parsed again is the same frame.
    #[test]
    fn a_frame_survives_its_octets(
        kind in kind(),
        markers: bool,
        crc: bool,
        rejected: bool,
        large_fpdus: bool,
        revision in revision(),
        enhanced in enhanced(),
        s: bool,
        private_data in vec(any::<u8>(), 0..=508),
    ) {
        let enhanced = (s && revision == Revision::Two).then_some(enhanced);
        let rejected = rejected && kind == FrameKind::Reply;
        let private_data = &private_data;
        let frame = Frame { kind, markers, crc, rejected, large_fpdus, revision, enhanced, private_data };
        let octets = frame.emit().unwrap();
        prop_assert_eq!(Frame::parse(kind, &octets), Ok(Parsed::Frame { frame, used: octets.len() }));
    }

    // Octets that are accepted give a frame whose own octets are read alike.
    #[test]
    fn accepted_octets_make_a_frame_that_reads_alike(kind in kind(), octets in nearly_a_frame()) {
        if let Ok(Parsed::Frame { frame, used }) = Frame::parse(kind, &octets) {
            let again = frame.emit().unwrap();
            prop_assert_eq!(again.len(), used);
            prop_assert_eq!(Frame::parse(kind, &again), Ok(Parsed::Frame { frame, used }));
        }
    }

    // However a frame is cut, the verdict is `Need` until there are enough octets, then always the
    // same.
    #[test]
    fn the_verdict_does_not_depend_on_the_cut(kind in kind(), octets in nearly_a_frame()) {
        let verdict = Frame::parse(kind, &octets);
        for cut in 0..octets.len() {
            match Frame::parse(kind, &octets[..cut]) {
                Ok(Parsed::Need { total }) => prop_assert!(cut < total && total <= 532),
                early => prop_assert_eq!(early, verdict),
            }
        }
    }

    #[test]
    fn random_octets_cause_no_panic(kind in kind(), octets in vec(any::<u8>(), 1..600)) {
        let parsed = Frame::parse(kind, &octets);
        prop_assert!(octets[0] == b'M' || parsed == Err(StartupError::BadKey));
    }

    // RFC 5044 §7.1.1, RFC 6581 §9.1, §9.2: whatever both ends are configured for, they arrive at
    // the same parameters, or startup fails with the error that is due.
    #[test]
    fn both_ends_arrive_at_the_same_parameters(initiator in config(), responder in config()) {
        prop_assume!(!(initiator.peer_to_peer && initiator.rtr.is_empty()));
        let mut active = Initiator::new(&initiator, b"").unwrap();
        let Ok((reply, at_responder)) = request(active.request()).accept(&responder, b"") else {
            // The responder has no kind of RTR to name.
            let possible = RtrSet { read: responder.ird.max(responder.max_ird) > 0, ..RtrSet::ALL };
            prop_assert!(responder.rtr.and(possible).is_empty());
            return Ok(());
        };
        match active.handle(&reply) {
            Ok(InitiatorStep::Accepted { negotiated: at_initiator, .. }) => {
                prop_assert_eq!(at_initiator.tx(), at_responder.rx());
                prop_assert_eq!(at_initiator.rx(), at_responder.tx());
                prop_assert_eq!(at_initiator.rtr, at_responder.rtr);
                prop_assert_eq!(at_initiator.revision, initiator.revision);
                if at_initiator.enhanced {
                    prop_assert!(at_initiator.ord <= at_responder.ird);
                    prop_assert!(at_responder.ord <= at_initiator.ird);
                    prop_assert!(at_initiator.ird >= initiator.ird);
                    prop_assert_eq!(at_responder.peer_ird, Some(initiator.ird));
                    prop_assert_eq!(at_initiator.peer_ord, Some(at_responder.ord));
                }
            }
            Err(StartupError::NoCommonRtr { named, .. }) => {
                prop_assert!(named.and(initiator.rtr).is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
}
