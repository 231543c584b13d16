//! Two ends that agree, or do not, and peers that speak something else.

use std::error::Error;

use rddp_ddp::Header;
use rddp_mpa::{Frame, FrameKind, MpaError, Parsed, Revision, Rtr, RtrSet, StartupConfig, StartupError};
use rddp_octets::{
    Afterwards, Agreed, Asked, Duplex, End, Handshake, HandshakeOptions, Position, Progress, Refused,
};
use rddp_rdmap::{Fault, Opcode, TerminateCode};

const BEGINNING: &[u8] = b"MPA ID";
const HTTP: &[u8] = b"GET / HTTP/1.1\r\n";

fn asks(startup: StartupConfig) -> HandshakeOptions {
    HandshakeOptions { startup, ..HandshakeOptions::default() }
}

fn supporting(rtr: RtrSet) -> HandshakeOptions {
    asks(StartupConfig { rtr, ..StartupConfig::default() })
}

fn plain_peers() -> HandshakeOptions {
    HandshakeOptions { plain_peers: true, ..HandshakeOptions::default() }
}

fn initiator(options: &HandshakeOptions) -> Handshake {
    Handshake::initiator(options.clone(), b"").unwrap()
}

fn asked<'a>(options: &HandshakeOptions, request: &'a [u8]) -> Asked<'a> {
    match Handshake::responder(options.clone()).step(request) {
        Progress::Asked(asked) => asked,
        other => panic!("{other:?}"),
    }
}

/// Returns what both ends agree on.
fn agreed(active: &HandshakeOptions, passive: &HandshakeOptions) -> [Agreed; 2] {
    crate::ends::agreed([active.clone(), passive.clone()])
}

fn refused(progress: Progress<'_>) -> Refused {
    match progress {
        Progress::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}

/// Returns the kinds that a Reply names.
fn named(reply: &[u8]) -> RtrSet {
    match Frame::parse(FrameKind::Reply, reply) {
        Ok(Parsed::Frame { frame, .. }) => frame.enhanced.unwrap().rtr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_direction_is_framed_as_its_receiver_asks() {
    let marked = StartupConfig { markers: true, crc: false, ..StartupConfig::default() };
    let [active, passive] = agreed(&asks(marked), &HandshakeOptions::default());
    assert!(active.terms.markers && !active.outgoing.markers && active.terms.crc);
    assert_eq!(
        (active.outgoing.framing(), passive.outgoing.framing()),
        (passive.terms.framing(), active.terms.framing())
    );
    assert_eq!((passive.at, passive.outgoing.msn, passive.first), (Position::FIRST, 1, None));
}

#[test]
fn private_data_of_both_programs_lie_in_what_has_come() {
    let mut initiator = Handshake::initiator(HandshakeOptions::default(), b"which file?").unwrap();
    let request = initiator.request().to_vec();
    let asked = asked(&HandshakeOptions::default(), &request);
    assert_eq!((asked.private_data(), asked.used), (&b"which file?"[..], request.len()));
    // Octets behind the Reply are FPDUs, and none of it.
    let mut octets = asked.accept(b"that one").unwrap().0.to_vec();
    let len = octets.len();
    octets.extend(b"an FPDU");
    assert_eq!(initiator.step(&octets[..3]), Progress::Need { total: 20 });
    assert_eq!(initiator.step(&octets[..20]), Progress::Need { total: len });
    match initiator.step(&octets) {
        Progress::Accepted { private_data, used, .. } => {
            assert_eq!((private_data, used), (&b"that one"[..], len));
        }
        other => panic!("{other:?}"),
    }
}

// RFC 5044 §7.1.2 r4, RFC 6581 §9.2: the initiator begins with the RTR agreed on, else with a Send
// without octets. Its own message, if the format has one that goes first, does the same.
#[test]
fn an_initiator_begins_with_the_rtr_or_a_send() {
    let opcode = |agreed: &Agreed| match agreed.first.map(|first| first.header) {
        Some(Header::Tagged(_)) => Some(Opcode::Write),
        Some(header @ Header::Untagged(_)) => Opcode::from_number(header.control() & 0xf),
        None => None,
    };
    let kinds =
        [(Rtr::Write, Opcode::Write, 1), (Rtr::Read, Opcode::ReadRequest, 1), (Rtr::Send, Opcode::Send, 2)];
    for (rtr, first, msn) in kinds {
        let [active, _] = agreed(&supporting(RtrSet::only(rtr)), &supporting(RtrSet::ALL));
        assert_eq!((opcode(&active), active.outgoing.msn), (Some(first), msn));
        assert_eq!(active.at, Position { rtr_read: rtr == Rtr::Read, ..Position::FIRST });
        let begins = HandshakeOptions { format_begins: true, ..supporting(RtrSet::only(rtr)) };
        assert_eq!(agreed(&begins, &supporting(RtrSet::ALL))[0], active);
    }
    let one = asks(StartupConfig { revision: Revision::One, ..StartupConfig::default() });
    let [active, _] = agreed(&one, &HandshakeOptions::default());
    assert_eq!((opcode(&active), active.outgoing.msn), (Some(Opcode::Send), 2));
    let [active, _] = agreed(&HandshakeOptions { format_begins: true, ..one }, &HandshakeOptions::default());
    assert_eq!((active.first, active.outgoing.msn), (None, 1));
}

// RFC 6581 §9.2: a Response to a Read would be left unread by an end that writes and closes.
#[test]
fn a_responder_names_a_write_where_it_can() {
    let cases = [
        (RtrSet::ALL, RtrSet::SILENT, Rtr::Write),
        (RtrSet::only(Rtr::Read), RtrSet::SILENT, Rtr::Read),
        (RtrSet::ALL, RtrSet::only(Rtr::Send), Rtr::Send),
    ];
    for (offered, supported, expected) in cases {
        let initiator = initiator(&supporting(offered));
        let asked = asked(&supporting(supported), initiator.request());
        let (accepting, rejecting) = (asked.accept(b"").unwrap().0, asked.reject().unwrap().0);
        assert_eq!(named(&accepting), RtrSet::only(expected));
        assert_eq!(named(&rejecting), RtrSet::only(expected));
    }
}

// RFC 5044 §7.1.2 r5
#[test]
fn a_plain_client_is_served_by_a_responder_that_serves_such() {
    let mut responder = Handshake::responder(plain_peers());
    assert_eq!(responder.step(HTTP), Progress::Plain);
    // It may still become a Request; when the peer has closed, it may not.
    assert_eq!(responder.step(BEGINNING), Progress::Need { total: 20 });
    assert_eq!(responder.closed(BEGINNING), Progress::Plain);
    assert_eq!(responder.closed(b""), Progress::Plain);
    // This one speaks MPA, and in the wrong role.
    let reply = asked(&plain_peers(), initiator(&plain_peers()).request()).accept(b"").unwrap().0;
    assert_eq!(refused(responder.step(&reply)).error, StartupError::WrongRole);

    let mut responder = Handshake::responder(HandshakeOptions::default());
    let refused = refused(responder.step(HTTP));
    assert_eq!(refused, Refused { error: StartupError::BadKey, terminate: None });
    assert_eq!(refused.to_string(), "the startup has failed");
    assert_eq!(refused.source().unwrap().to_string(), StartupError::BadKey.to_string());
    assert!(matches!(responder.closed(BEGINNING), Progress::Refused(_)));
}

#[test]
fn a_request_spoils_the_connection_for_a_plain_server() {
    let mut initiator = initiator(&plain_peers());
    let echo = initiator.request().to_vec();
    for (answer, error) in [(HTTP, StartupError::BadKey), (&echo, StartupError::WrongRole)] {
        let refused = refused(initiator.step(answer));
        assert_eq!(refused, Refused { error, terminate: None });
        assert!(refused.error.is_foreign());
    }
    let closed = refused(initiator.closed(BEGINNING));
    assert_eq!(closed.error, StartupError::Closed { have: 6, total: 20, enhanced: true });
    assert!(!closed.error.is_foreign());
}

// RFC 6581 §8, §9.1
#[test]
fn a_reply_that_cannot_be_met_gets_a_terminate() {
    let shallow = StartupConfig { ird: 1, max_ird: 1, markers: true, ..StartupConfig::default() };
    let mut initiator = initiator(&asks(shallow));
    let wants = StartupConfig { ord: 7, crc: false, ..StartupConfig::default() };
    let deep = Handshake::initiator(asks(StartupConfig { ird: 7, ..wants.clone() }), b"").unwrap();
    let (reply, responder) = asked(&asks(wants), deep.request()).accept(b"").unwrap();
    let refused = refused(initiator.step(&reply));
    let error = StartupError::InsufficientIrd { ord: 7, max_ird: 1 };
    let fpdu = refused.fpdu();
    let (terminate, framing) = refused.terminate.unwrap();
    assert_eq!((refused.error, terminate.code), (error, Fault::mpa(MpaError::InsufficientIrd).code()));
    assert_ne!(terminate.code, TerminateCode(0));
    assert!(framing.crc && !framing.markers);
    // The responder learns why.
    let mut duplex = Duplex::new(&responder);
    duplex.space()[..fpdu.len()].copy_from_slice(&fpdu);
    duplex.filled(fpdu.len());
    assert_eq!((duplex.take(&mut [0; 9]), duplex.end()), (0, Some(End::Terminated(terminate.code))));
}

// RFC 5044 §7.1.2 r3
#[test]
fn a_rejection_leaves_the_connection_to_plain_octets_or_the_program() {
    let ends = [
        (false, false, Afterwards::Open, Afterwards::Open),
        (true, false, Afterwards::Open, Afterwards::Open),
        (true, true, Afterwards::Plain, Afterwards::Plain),
        (false, true, Afterwards::Fin, Afterwards::Plain),
    ];
    for (active, passive, at_initiator, at_responder) in ends {
        let options = |plain_peers| HandshakeOptions { plain_peers, ..HandshakeOptions::default() };
        let mut initiator = initiator(&options(active));
        let (reply, afterwards) = asked(&options(passive), initiator.request()).reject().unwrap();
        assert_eq!(afterwards, at_responder);
        let private_data = if passive { &b"rddp: plain TCP"[..] } else { b"" };
        let rejected = Progress::Rejected { afterwards: at_initiator, private_data, used: reply.len() };
        assert_eq!(initiator.step(&reply), rejected);
    }
}
