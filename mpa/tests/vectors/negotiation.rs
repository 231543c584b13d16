//! Layer `mpa-negotiation`: depths, RTR, CRC and markers, through the frames of both ends.

use rddp_mpa::{
    EnhancedData, Frame, FrameKind, Initiator, InitiatorStep, Negotiated, Parsed, Request, Responder,
    ResponderStep, Revision, Rtr, RtrSet, StartupConfig, StartupError,
};
use serde_json::Value;

use crate::{bit, name, number, vectors};

#[test]
fn every_negotiation_vector_holds() {
    for vector in vectors("mpa-negotiation", 14) {
        assert_eq!(vector["kind"], "compute");
        let input = &vector["in"];
        if !input["request_c"].is_null() {
            crc_is_used_if_either_wants_it(&vector);
        } else if !input["request_m"].is_null() {
            markers_go_to_the_end_that_wants_them(&vector);
        } else {
            depths_and_rtr_are_settled(&vector);
        }
    }
}

fn kinds(names: &Value) -> RtrSet {
    let has = |kind: &str| names.as_array().is_some_and(|names| names.iter().any(|name| name == kind));
    RtrSet { send: has("send"), write: has("write"), read: has("read") }
}

fn depth(value: &Value) -> u16 {
    number(value) as u16
}

/// Checks the outcome at the end that the vector describes.
fn depths_and_rtr_are_settled(vector: &Value) {
    let (asked, able) = (&vector["in"]["request"], &vector["in"]["responder"]);
    let offer = EnhancedData {
        peer_to_peer: bit(&asked["a"]),
        rtr: kinds(&asked["rtr"]),
        ird: depth(&asked["ird"]),
        ord: depth(&asked["ord"]),
    };
    let responder = StartupConfig {
        ird: depth(&able["max_ird"]),
        ord: depth(&able["max_ord"]),
        max_ird: depth(&able["max_ird"]),
        rtr: kinds(&able["rtr"]),
        ..StartupConfig::default()
    };
    let (reply, settled) = request(&frame_with(offer)).accept(&responder, b"").unwrap();
    responder_is_settled(vector, &reply, &settled, &responder);
    initiator_is_settled(vector, &offer, &reply);
}

fn responder_is_settled(vector: &Value, reply: &[u8], settled: &Negotiated, own: &StartupConfig) {
    let Ok(Parsed::Frame { frame, .. }) = Frame::parse(FrameKind::Reply, reply) else {
        panic!("{}", name(vector));
    };
    let expect = &vector["expect"]["reply"];
    let said = EnhancedData {
        peer_to_peer: bit(&expect["a"]),
        rtr: kinds(&expect["rtr"]),
        ird: depth(&expect["ird"]),
        ord: depth(&expect["ord"]),
    };
    assert_eq!(frame.enhanced, Some(said), "{}", name(vector));
    let held = |said: u16, own: u16| if said == 0x3fff { own } else { said };
    assert_eq!(
        (settled.ird, settled.ord),
        (held(said.ird, own.ird), held(said.ord, own.ord)),
        "{}",
        name(vector)
    );
    assert_eq!(settled.rtr.map_or(RtrSet::NONE, RtrSet::only), said.rtr, "{}", name(vector));
}

fn initiator_is_settled(vector: &Value, offer: &EnhancedData, reply: &[u8]) {
    // Our initiator never sends 0x3FFF: it has depths of its own, which stay where the vector's
    // initiator leaves them to the ULP.
    let own = |asked: u16| if asked == 0x3fff { 16 } else { asked };
    let config = StartupConfig {
        ird: own(offer.ird),
        ord: own(offer.ord),
        max_ird: 16,
        peer_to_peer: offer.peer_to_peer,
        rtr: offer.rtr,
        ..StartupConfig::default()
    };
    let expect = &vector["expect"]["initiator"];
    match Initiator::new(&config, b"").unwrap().handle(reply) {
        Ok(InitiatorStep::Accepted { negotiated, .. }) => {
            let held = |value: &Value, own: u16| if *value == "unchanged" { own } else { depth(value) };
            assert_eq!(negotiated.ird, held(&expect["ird"], config.ird), "{}", name(vector));
            assert_eq!(negotiated.ord, held(&expect["ord"], config.ord), "{}", name(vector));
            assert_eq!(negotiated.rtr, rtr(&expect["rtr"]), "{}", name(vector));
        }
        Err(error @ StartupError::NoCommonRtr { .. }) => {
            let code = error.terminate().unwrap().code();
            assert_eq!(0x2000 | u64::from(code), number(&expect["terminate"]), "{}", name(vector));
        }
        other => panic!("{}: {other:?}", name(vector)),
    }
}

fn rtr(value: &Value) -> Option<Rtr> {
    match value.as_str() {
        None => None,
        Some("send") => Some(Rtr::Send),
        Some("write") => Some(Rtr::Write),
        Some("read") => Some(Rtr::Read),
        other => panic!("{other:?}"),
    }
}

fn frame_with(data: EnhancedData) -> Vec<u8> {
    let frame = Frame {
        kind: FrameKind::Request,
        markers: false,
        crc: true,
        rejected: false,
        large_fpdus: false,
        revision: Revision::Two,
        enhanced: Some(data),
        private_data: b"",
    };
    frame.emit().unwrap().to_vec()
}

fn request(octets: &[u8]) -> Request {
    match Responder::new().handle(octets) {
        Ok(ResponderStep::Request { request, .. }) => request,
        other => panic!("{other:?}"),
    }
}

/// Runs a startup of both ends, each with the configuration that `want` set. The Reply's flag octet
/// is replaced by `reply_flags`, since our responder would repeat C.
fn startup(want: impl Fn(&mut StartupConfig, bool), reply_flags: u8) -> (Negotiated, Negotiated) {
    let [initiator, responder] = [true, false].map(|initiator| {
        let mut config = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
        want(&mut config, initiator);
        config
    });
    let mut initiator = Initiator::new(&initiator, b"").unwrap();
    let (reply, settled) = request(initiator.request()).accept(&responder, b"").unwrap();
    let mut reply = reply.to_vec();
    reply[16] = reply_flags;
    match initiator.handle(&reply) {
        Ok(InitiatorStep::Accepted { negotiated, .. }) => (negotiated, settled),
        other => panic!("{other:?}"),
    }
}

// RFC 5044 §7.1.1
fn crc_is_used_if_either_wants_it(vector: &Value) {
    let (request_c, reply_c) = (bit(&vector["in"]["request_c"]), bit(&vector["in"]["reply_c"]));
    let want =
        |config: &mut StartupConfig, initiator| config.crc = if initiator { request_c } else { reply_c };
    let (initiator, responder) = startup(want, if reply_c { 0x40 } else { 0 });
    let used = vector["expect"]["crc_used_both_ways"].as_bool().unwrap();
    assert_eq!((initiator.crc, responder.crc), (used, used), "{}", name(vector));
}

// RFC 5044 §7.1.1
fn markers_go_to_the_end_that_wants_them(vector: &Value) {
    let (request_m, reply_m) = (bit(&vector["in"]["request_m"]), bit(&vector["in"]["reply_m"]));
    let want =
        |config: &mut StartupConfig, initiator| config.markers = if initiator { request_m } else { reply_m };
    let (initiator, responder) = startup(want, if reply_m { 0xc0 } else { 0x40 });
    let to_responder = vector["expect"]["markers_initiator_to_responder"].as_bool().unwrap();
    let to_initiator = vector["expect"]["markers_responder_to_initiator"].as_bool().unwrap();
    assert_eq!(
        (initiator.markers_tx, responder.markers_rx),
        (to_responder, to_responder),
        "{}",
        name(vector)
    );
    assert_eq!(
        (responder.markers_tx, initiator.markers_rx),
        (to_initiator, to_initiator),
        "{}",
        name(vector)
    );
}
