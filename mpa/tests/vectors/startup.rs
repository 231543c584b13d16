//! Layer `mpa-startup`: Request and Reply frames.

use rddp_mpa::{
    EnhancedData, Frame, FrameKind, Initiator, InitiatorStep, MpaError, Parsed, Request, Responder,
    ResponderStep, Revision, RtrSet, StartupConfig, StartupError,
};
use serde_json::Value;

use crate::{bit, hex, name, number, vectors};

#[test]
fn every_startup_vector_holds() {
    for vector in vectors("mpa-startup", 31) {
        let octets = hex(&vector["hex"]);
        match vector["expect"]["verdict"].as_str().unwrap() {
            "accept" | "rejected" => is_understood(&vector, &octets),
            "error" => is_refused(&vector, &octets),
            other => panic!("{}: {other}", name(&vector)),
        }
    }
}

fn is_understood(vector: &Value, octets: &[u8]) {
    let private_data = hex(&vector["in"]["private_data_hex"]);
    let frame = meant(vector, &private_data);
    for cut in 0..octets.len() {
        match Frame::parse(frame.kind, &octets[..cut]) {
            Ok(Parsed::Need { total }) => assert!(cut < total && total <= octets.len(), "{}", name(vector)),
            other => panic!("{} cut at {cut}: {other:?}", name(vector)),
        }
    }
    let whole = Parsed::Frame { frame, used: octets.len() };
    assert_eq!(Frame::parse(frame.kind, octets), Ok(whole), "{}", name(vector));
    // Octets that follow the frame are not part of it.
    let longer = [octets, b"\0\x16"].concat();
    assert_eq!(Frame::parse(frame.kind, &longer), Ok(whole), "{}", name(vector));
    is_emitted(vector, &frame, octets);
    match frame.kind {
        FrameKind::Request => reaches_the_responder(vector, &frame, octets),
        FrameKind::Reply => reaches_the_initiator(vector, &frame, octets),
    }
}

/// The frame that the vector's fields describe.
fn meant<'a>(vector: &Value, private_data: &'a [u8]) -> Frame<'a> {
    let input = &vector["in"];
    let kind = match input["key"].as_str().unwrap() {
        "MPA ID Req Frame" => FrameKind::Request,
        "MPA ID Rep Frame" => FrameKind::Reply,
        other => panic!("{other}"),
    };
    let revision = if number(&input["rev"]) == 2 { Revision::Two } else { Revision::One };
    let (enhanced, private_data) = if bit(&input["s"]) {
        let (data, private_data) = private_data.split_at(4);
        (Some(enhanced(data)), private_data)
    } else {
        (None, private_data)
    };
    Frame {
        kind,
        markers: bit(&input["m"]),
        crc: bit(&input["c"]),
        // R is not checked in a Request.
        rejected: kind == FrameKind::Reply && bit(&input["r"]),
        large_fpdus: input["res"].as_u64().is_some_and(|bits| bits & 8 != 0),
        revision,
        enhanced,
        private_data,
    }
}

fn enhanced(data: &[u8]) -> EnhancedData {
    let flag = |octet: usize, mask: u8| data[octet] & mask != 0;
    EnhancedData {
        peer_to_peer: flag(0, 0x80),
        rtr: RtrSet { send: flag(0, 0x40), write: flag(2, 0x80), read: flag(2, 0x40) },
        ird: u16::from(data[0] & 0x3f) << 8 | u16::from(data[1]),
        ord: u16::from(data[2] & 0x3f) << 8 | u16::from(data[3]),
    }
}

/// Checks that the frame is emitted octet for octet, except for the bits that a sender leaves at
/// zero.
fn is_emitted(vector: &Value, frame: &Frame<'_>, octets: &[u8]) {
    let mut clean = octets.to_vec();
    clean[16] &= if frame.kind == FrameKind::Request { 0xd8 } else { 0xf8 };
    assert_eq!(frame.emit().unwrap(), clean, "{}", name(vector));
}

fn reaches_the_responder(vector: &Value, frame: &Frame<'_>, octets: &[u8]) {
    let request = Request {
        revision: frame.revision,
        crc: frame.crc,
        markers: frame.markers,
        enhanced: frame.enhanced.is_some(),
        large_fpdus: frame.large_fpdus,
        peer_ird: frame.enhanced.map(|data| data.ird),
        peer_ord: frame.enhanced.map(|data| data.ord),
        peer_to_peer: frame.enhanced.is_some_and(|data| data.peer_to_peer),
        rtr: frame.enhanced.map_or(RtrSet::NONE, |data| data.rtr),
        private_data: frame.private_data.to_vec(),
    };
    let step = Responder::new().handle(octets);
    assert_eq!(step, Ok(ResponderStep::Request { request, used: octets.len() }), "{}", name(vector));
}

fn reaches_the_initiator(vector: &Value, frame: &Frame<'_>, octets: &[u8]) {
    match initiator_for(vector).handle(octets).unwrap() {
        InitiatorStep::Accepted { negotiated, private_data, used } => {
            assert_eq!(vector["expect"]["verdict"], "accept", "{}", name(vector));
            assert_eq!((&private_data[..], used), (frame.private_data, octets.len()), "{}", name(vector));
            assert_eq!(negotiated.markers_tx, frame.markers, "{}", name(vector));
            assert_eq!(negotiated.peer_ird, frame.enhanced.map(|data| data.ird), "{}", name(vector));
            assert_eq!(negotiated.peer_ord, frame.enhanced.map(|data| data.ord), "{}", name(vector));
        }
        InitiatorStep::Rejected { private_data, peer_ird, peer_ord, used } => {
            assert_eq!(vector["expect"]["verdict"], "rejected", "{}", name(vector));
            assert_eq!((&private_data[..], used), (frame.private_data, octets.len()), "{}", name(vector));
            assert_eq!(peer_ird, frame.enhanced.map(|data| data.ird), "{}", name(vector));
            assert_eq!(peer_ord, frame.enhanced.map(|data| data.ord), "{}", name(vector));
        }
        InitiatorStep::Need { .. } => panic!("{}", name(vector)),
    }
}

/// Returns an initiator to whose Request the vector's Reply could be an answer. It can provide an
/// IRD of 16.
fn initiator_for(vector: &Value) -> Initiator {
    let input = &vector["in"];
    let private_data = hex(&input["private_data_hex"]);
    let plain = number(&input["rev"]) == 1 && name(vector) != "mpa_rep_unenhanced_to_enhanced";
    let config = StartupConfig {
        revision: if plain { Revision::One } else { Revision::Two },
        ird: 16,
        ord: 16,
        max_ird: 16,
        peer_to_peer: private_data.first().is_some_and(|octet| octet & 0x80 != 0),
        rtr: RtrSet::SILENT,
        ..StartupConfig::default()
    };
    Initiator::new(&config, b"").unwrap()
}

/// Checks that the verdict is the same however the octets arrive, and never comes before it is
/// certain.
fn is_refused(vector: &Value, octets: &[u8]) {
    let error = refusal(vector, octets).unwrap_or_else(|| panic!("{}", name(vector)));
    for cut in 0..octets.len() {
        let early = refusal(vector, &octets[..cut]);
        assert!(
            early.is_none() || early == Some(error) || is_cut_short(vector),
            "{} cut at {cut}",
            name(vector)
        );
    }
    let expect = &vector["expect"];
    if expect["terminate"].is_null() {
        assert_eq!(u64::from(error.code().code()), number(&expect["mpa_error"]), "{}: {error}", name(vector));
        // Code 4 has a Terminate only "if any": before startup is over, none is sent.
        assert_eq!(error.terminate(), None, "{}", name(vector));
    } else {
        let code = error.terminate().map(|code| 0x2000 | u64::from(code.code()));
        assert_eq!(code, Some(number(&expect["terminate"]["code"])), "{}: {error}", name(vector));
    }
    assert_eq!(error, named(vector), "{}", name(vector));
}

fn is_cut_short(vector: &Value) -> bool {
    name(vector) == "mpa_req_pd_short"
}

/// Returns the error of the end that the vector describes for these octets.
fn refusal(vector: &Value, octets: &[u8]) -> Option<StartupError> {
    let at_initiator = match name(vector) {
        "mpa_req_key_at_initiator" => true,
        "mpa_rep_key_at_responder" => false,
        other => other.starts_with("mpa_rep_"),
    };
    if is_cut_short(vector) {
        assert!(matches!(Responder::new().handle(octets), Ok(ResponderStep::Need { .. })));
        return Some(Responder::new().closed(octets));
    }
    if at_initiator {
        initiator_for(vector).handle(octets).err()
    } else {
        Responder::new().handle(octets).err()
    }
}

fn named(vector: &Value) -> StartupError {
    match name(vector) {
        "mpa_req_bad_key" => StartupError::BadKey,
        "mpa_rep_key_at_responder" | "mpa_req_key_at_initiator" => StartupError::WrongRole,
        "mpa_req_pd_too_long" => StartupError::PrivateDataTooLong { len: 513 },
        "mpa_req_pd_short" => StartupError::Closed { have: 25, total: 28, enhanced: false },
        "mpa_req_rev_3" => StartupError::Revision(3),
        "mpa_req_v2_prefix_missing" => StartupError::PrefixMissing,
        "mpa_rep_v2_no_common_rtr" => StartupError::NoCommonRtr {
            named: RtrSet { send: true, ..RtrSet::NONE },
            offered: RtrSet::SILENT,
        },
        "mpa_rep_v2_insufficient_ird" => StartupError::InsufficientIrd { ord: 64, max_ird: 16 },
        "mpa_rep_unenhanced_to_enhanced" => StartupError::UnenhancedReply,
        other => panic!("{other}"),
    }
}

// A Terminate that is due during startup is framed as the Reply asks.
#[test]
fn a_terminate_is_framed_as_the_reply_asks() {
    for vector in vectors("mpa-startup", 31) {
        if !vector["expect"]["terminate"].is_null() {
            let mut octets = hex(&vector["hex"]);
            octets[16] |= 0x80;
            let mut initiator = initiator_for(&vector);
            assert_eq!(initiator.tx(), None);
            let error = initiator.handle(&octets).unwrap_err();
            assert!(matches!(error.code(), MpaError::InsufficientIrd | MpaError::NoMatchingRtr));
            assert_eq!(initiator.tx(), Some(rddp_mpa::Framing { crc: true, markers: true }));
        }
    }
}
