//! Startup frames: the octets that are sent, the deviations that are ignored, and those that are
//! refused.

use rddp_mpa::{
    DEPTH_MAX, Frame, FrameKind, Initiator, MAX_ENHANCED_PRIVATE_DATA, MAX_PRIVATE_DATA, MpaError, Parsed,
    Request, Responder, ResponderStep, Revision, RtrSet, StartupConfig, StartupError, StartupMisuse,
};

use crate::{client_server, depths, reply_frame, request, request_frame};

/// The reserved bit by which siw asks for FPDUs longer than a segment.
const LARGE_FPDUS: u8 = 0x08;

const PLAIN: [u8; 20] = *b"MPA ID Req Frame\x40\x01\0\0";

fn refused(octets: &[u8]) -> StartupError {
    Responder::new().handle(octets).unwrap_err()
}

fn with(at: usize, octet: u8) -> Vec<u8> {
    let mut octets = PLAIN.to_vec();
    octets[at] = octet;
    octets
}

// RFC 5044 §7.1.1: the Request of revision 1, with CRCs asked for.
#[test]
fn a_plain_request_is_what_the_rfc_draws() {
    let config = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
    let initiator = Initiator::new(&config, b"hello iwarp").unwrap();
    assert_eq!(initiator.request(), b"MPA ID Req Frame\x40\x01\0\x0bhello iwarp");
}

// RFC 6581 §9: A, IRD, the RTR kinds, ORD, then the private data.
#[test]
fn an_enhanced_request_puts_its_data_first() {
    let config = StartupConfig { ird: 16, ord: 8, markers: true, ..StartupConfig::default() };
    let initiator = Initiator::new(&config, b"ulp").unwrap();
    assert_eq!(initiator.request(), b"MPA ID Req Frame\xd0\x02\0\x07\x80\x10\xc0\x08ulp");
    let config = StartupConfig { rtr: RtrSet::ALL, ..config };
    assert_eq!(Initiator::new(&config, b"").unwrap().request()[20..], [0xc0, 0x10, 0xc0, 0x08]);
}

// RFC 5044 §7.1.1, RFC 6581 §9: as many octets fit as the constants say, and not one more.
#[test]
fn private_data_has_a_limit_in_each_revision() {
    let limits = [(Revision::One, MAX_PRIVATE_DATA), (Revision::Two, MAX_ENHANCED_PRIVATE_DATA)];
    for (revision, most) in limits {
        let config = StartupConfig { revision, ..StartupConfig::default() };
        let initiator = Initiator::new(&config, &vec![7; most]).unwrap();
        assert_eq!(initiator.request().len(), Frame::HEADER_LEN + 512);
        let refused = Initiator::new(&config, &vec![7; most + 1]).unwrap_err();
        assert_eq!(refused, StartupMisuse::PrivateDataTooLong { len: most + 1, max: most });
    }
}

// RFC 6581 §9.2: without A, the flags of the RTR kinds are zero.
#[test]
fn a_client_server_request_offers_no_rtr() {
    let config = StartupConfig { rtr: RtrSet::ALL, ..client_server() };
    assert_eq!(Initiator::new(&config, b"").unwrap().request()[20..], [0, 32, 0, 32]);
}

// RFC 6581 §9.2: without A, the flags of the RTR kinds are ignored.
#[test]
fn rtr_flags_without_peer_to_peer_are_ignored() {
    let mut octets = request_frame(depths(8, 4));
    octets[20] |= 0x40;
    octets[22] |= 0xc0;
    let request = request(&octets);
    assert_eq!((request.peer_to_peer, request.rtr), (false, RtrSet::NONE));
    assert_eq!((request.peer_ird, request.peer_ord), (Some(8), Some(4)));
}

// RFC 5044 §7.1.1: reserved bits and a Request's R are not checked. In revision 1, S is a reserved
// bit.
#[test]
fn reserved_bits_change_nothing() {
    let plain = request(&PLAIN);
    for bits in 0..0x40 {
        let large_fpdus = bits & LARGE_FPDUS != 0;
        let seen = request(&with(16, 0x40 | bits));
        assert_eq!(seen, Request { large_fpdus, ..plain.clone() }, "siw's bit is only told");
        let (reply, negotiated) = seen.accept(&StartupConfig::default(), b"").unwrap();
        assert!(reply[16] & 0x0f == 0 && !negotiated.large_fpdus, "{bits:#x}");
    }
}

// siw's bit is answered where it is asked for, and not beside markers.
#[test]
fn a_responder_agrees_to_large_fpdus_without_markers() {
    let asks = StartupConfig { large_fpdus: true, ..StartupConfig::default() };
    for (flags, agreed) in [(0x48, true), (0x4c, true), (0x44, false), (0xc8, false), (0xc0, false)] {
        let (reply, negotiated) = request(&with(16, flags)).accept(&asks, b"").unwrap();
        assert_eq!(reply[16] & 0x0f, if agreed { LARGE_FPDUS } else { 0 }, "{flags:#x}");
        assert_eq!(negotiated.large_fpdus, agreed, "{flags:#x}");
    }
}

// RFC 5044 §7.1.1, RFC 6581 §6: revisions 1 and 2, and no other.
#[test]
fn other_revisions_are_closed() {
    for revision in [0, 3, 4, 255] {
        let error = refused(&with(17, revision));
        assert_eq!(error, StartupError::Revision(revision));
        assert_eq!((error.code(), error.terminate()), (MpaError::Startup, None));
    }
    assert_eq!(request(&with(17, 1)).revision, Revision::One);
    assert_eq!(request(&with(17, 2)).revision, Revision::Two);
}

// RFC 5044 §7.1.1, §7.1.2 rule 9: 512 octets and not one more, refused before any of them has
// arrived.
#[test]
fn private_data_beyond_the_limit_is_refused_at_the_header() {
    for len in [513, 0x7fff, 0xffff_u16] {
        let mut octets = PLAIN;
        octets[18..].copy_from_slice(&len.to_be_bytes());
        assert_eq!(refused(&octets), StartupError::PrivateDataTooLong { len });
    }
    let mut octets = PLAIN.to_vec();
    octets[18..].copy_from_slice(&512_u16.to_be_bytes());
    assert_eq!(Responder::new().handle(&octets), Ok(ResponderStep::Need { total: 532 }));
    octets.resize(532, 7);
    assert_eq!(request(&octets).private_data, [7; 512]);
}

// RFC 5044 §7.1.1, RFC 6581 §7: the private data that the local caller may send.
#[test]
fn private_data_fits_or_is_the_callers_mistake() {
    let plain = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
    let enhanced = StartupConfig::default();
    for (config, max) in [(&plain, 512), (&enhanced, 508)] {
        let initiator = Initiator::new(config, &vec![1; max]).unwrap();
        assert_eq!(initiator.request().len(), 532);
        let wrong = StartupMisuse::PrivateDataTooLong { len: max + 1, max };
        assert_eq!(Initiator::new(config, &vec![1; max + 1]).unwrap_err(), wrong);
        let request = request(initiator.request());
        assert_eq!(request.accept(config, &vec![1; max]).unwrap().0.len(), 532);
        assert_eq!(request.accept(config, &vec![1; max + 1]).unwrap_err(), wrong);
        assert_eq!(request.reject(config, &vec![1; max]).unwrap().len(), 532);
        assert_eq!(request.reject(config, &vec![1; max + 1]).unwrap_err(), wrong);
    }
}

// RFC 6581 §6: with S there are at least four octets.
#[test]
fn an_enhanced_frame_without_its_data_is_refused() {
    for len in 0..4 {
        let mut octets = *b"MPA ID Req Frame\x50\x02\0\0";
        octets[19] = len;
        assert_eq!(refused(&octets), StartupError::PrefixMissing);
    }
}

// RFC 5044 §7.1.2 rules 5 and 8.
#[test]
fn a_frame_of_the_own_role_has_its_own_error() {
    let mut initiator = Initiator::new(&client_server(), b"").unwrap();
    let own = initiator.request().to_vec();
    assert_eq!(initiator.handle(&own), Err(StartupError::WrongRole));
    assert_eq!(refused(&reply_frame(depths(1, 1))), StartupError::WrongRole);
    assert_eq!(refused(b"MPA ID Rep Framf\x40\x01\0\0"), StartupError::BadKey);
    assert_eq!(refused(b"MPA ID Rex"), StartupError::BadKey);
}

// A peer of another protocol is refused at its first octets, without waiting for more.
#[test]
fn rubbish_is_refused_at_its_first_octet() {
    assert_eq!(refused(b"GET / HTTP/1.1\r\n"), StartupError::BadKey);
    assert_eq!(refused(b"G"), StartupError::BadKey);
    assert_eq!(refused(b"MPA ID Req FramE"), StartupError::BadKey);
    assert_eq!(refused(b"\x16\x03\x01"), StartupError::BadKey);
}

// RFC 5044 §7.1.2 rules 2, 5 and 8.
#[test]
fn peers_that_do_not_speak_mpa_are_told_from_others() {
    let cases = [
        (StartupError::BadKey, true, true),
        (StartupError::WrongRole, true, false),
        (Responder::new().closed(b""), false, true),
        (Responder::new().closed(b"MPA ID"), false, true),
        (StartupError::Revision(3), false, false),
        (StartupError::UnenhancedReply, false, false),
    ];
    for (error, is_foreign, is_plain_client) in cases {
        assert_eq!((error.is_foreign(), error.is_plain_client()), (is_foreign, is_plain_client), "{error}");
    }
}

#[test]
fn need_grows_from_the_header_to_the_whole_frame() {
    let octets = Initiator::new(&client_server(), b"twelve octet").unwrap().request().to_vec();
    for have in 0..octets.len() {
        let total = if have < 20 { 20 } else { 36 };
        assert_eq!(Frame::parse(FrameKind::Request, &octets[..have]), Ok(Parsed::Need { total }));
    }
}

// RFC 5044 §7.1.2 rules 2 and 3: a FIN before the frame is complete. Only one that arrives before
// any octet may mean that the peer does not know RFC 6581 (RFC 6581 §10).
#[test]
fn a_peer_that_closes_early_is_reported() {
    let initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
    let nothing = initiator.closed(b"");
    assert_eq!(nothing, StartupError::Closed { have: 0, total: 20, enhanced: true });
    assert_eq!(nothing.code(), MpaError::Closed);
    assert!(nothing.retry_with_revision_one());
    let half = initiator.closed(&reply_frame(depths(1, 1))[..22]);
    assert_eq!(half, StartupError::Closed { have: 22, total: 24, enhanced: true });
    assert_eq!(half.code(), MpaError::Startup);
    assert!(!half.retry_with_revision_one());
    assert_eq!(initiator.closed(b"HTTP"), StartupError::BadKey);

    let plain = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
    assert!(!Initiator::new(&plain, b"").unwrap().closed(b"").retry_with_revision_one());
    assert!(!Responder::new().closed(b"").retry_with_revision_one());
    assert_eq!(Responder::new().closed(b"SSH-2.0"), StartupError::BadKey);
}

#[test]
fn octets_behind_a_frame_are_left() {
    let mut octets = PLAIN.to_vec();
    octets.extend_from_slice(b"early");
    assert!(matches!(Responder::new().handle(&octets), Ok(ResponderStep::Request { used: 20, .. })));
}

#[test]
fn depths_have_fourteen_bits() {
    for wrong in [
        StartupConfig { ird: 0x3fff, ..client_server() },
        StartupConfig { ord: 0x3fff, ..client_server() },
        StartupConfig { ord: 0x4000, ..client_server() },
    ] {
        assert_eq!(Initiator::new(&wrong, b"").unwrap_err(), StartupMisuse::DepthTooLarge);
    }
    let deepest = StartupConfig { ird: DEPTH_MAX, ord: DEPTH_MAX, ..StartupConfig::default() };
    assert!(Initiator::new(&deepest, b"").is_ok());
    assert_eq!(depths(0x4000, 0).emit(), Err(StartupMisuse::DepthTooLarge));
    assert_eq!(depths(0, 0xffff).emit(), Err(StartupMisuse::DepthTooLarge));
    assert_eq!(depths(0x3fff, 0x3fff).emit(), Ok([0x3f, 0xff, 0x3f, 0xff]));
}

#[test]
fn errors_say_what_the_peer_did() {
    let no_common_rtr = StartupError::NoCommonRtr { named: RtrSet::NONE, offered: RtrSet::SILENT };
    assert_eq!(
        no_common_rtr.to_string(),
        "the ends have no RTR in common: the Reply names none, this end can send Write, Read"
    );
    assert_eq!(
        StartupError::InsufficientIrd { ord: 64, max_ird: 16 }.to_string(),
        "the peer wants 64 Reads outstanding, this end takes no more than 16"
    );
    assert_eq!(StartupError::Revision(0).to_string(), "the peer's MPA revision is 0, supported are 1 and 2");
}
