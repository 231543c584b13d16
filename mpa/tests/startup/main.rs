//! Startup of revisions 1 and 2 in both roles: our two ends against each other, and each against
//! unusual peers.
#![allow(clippy::unwrap_used)] // in tests

mod depths;
mod frames;
mod outcomes;
mod properties;
mod rtr;

use rddp_mpa::{
    EnhancedData, Frame, FrameKind, Initiator, InitiatorStep, Negotiated, Parsed, Request, Responder,
    ResponderStep, Revision, RtrSet, StartupConfig, StartupError,
};

fn request(octets: &[u8]) -> Request {
    match Responder::new().handle(octets) {
        Ok(ResponderStep::Request { request, used }) if used == octets.len() => request,
        other => panic!("{other:?}"),
    }
}

/// Returns the outcome of an accepted startup at the initiator and at the responder.
fn startup(initiator: &StartupConfig, responder: &StartupConfig) -> (Negotiated, Negotiated) {
    let mut initiator = Initiator::new(initiator, b"").unwrap();
    let (reply, settled) = request(initiator.request()).accept(responder, b"").unwrap();
    match initiator.handle(&reply) {
        Ok(InitiatorStep::Accepted { negotiated, used, .. }) if used == reply.len() => (negotiated, settled),
        other => panic!("{other:?}"),
    }
}

/// Returns the outcome at an initiator with this configuration of a Reply with this data.
fn answered(config: &StartupConfig, data: EnhancedData) -> Result<Negotiated, StartupError> {
    match Initiator::new(config, b"").unwrap().handle(&reply_frame(data))? {
        InitiatorStep::Accepted { negotiated, .. } => Ok(negotiated),
        other => panic!("{other:?}"),
    }
}

fn reply_frame(data: EnhancedData) -> Vec<u8> {
    enhanced_frame(FrameKind::Reply, data)
}

fn request_frame(data: EnhancedData) -> Vec<u8> {
    enhanced_frame(FrameKind::Request, data)
}

fn enhanced_frame(kind: FrameKind, data: EnhancedData) -> Vec<u8> {
    Frame {
        kind,
        markers: false,
        crc: true,
        rejected: false,
        large_fpdus: false,
        revision: Revision::Two,
        enhanced: Some(data),
        private_data: b"",
    }
    .emit()
    .unwrap()
    .to_vec()
}

/// Returns the data of our Reply to a Request with this data, and the responder's outcome.
fn reply_to(data: EnhancedData, config: &StartupConfig) -> (EnhancedData, Negotiated) {
    let (reply, settled) = request(&request_frame(data)).accept(config, b"").unwrap();
    (data_of(&reply), settled)
}

fn data_of(reply: &[u8]) -> EnhancedData {
    match Frame::parse(FrameKind::Reply, reply) {
        Ok(Parsed::Frame { frame, .. }) => frame.enhanced.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A client-server exchange of these depths.
fn depths(ird: u16, ord: u16) -> EnhancedData {
    EnhancedData { peer_to_peer: false, rtr: RtrSet::NONE, ird, ord }
}

/// A peer-to-peer exchange of these kinds of RTR.
fn peer_to_peer(rtr: RtrSet) -> EnhancedData {
    EnhancedData { peer_to_peer: true, rtr, ird: 4, ord: 4 }
}

fn client_server() -> StartupConfig {
    StartupConfig { peer_to_peer: false, ..StartupConfig::default() }
}
