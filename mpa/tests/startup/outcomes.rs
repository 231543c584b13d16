//! CRC, markers, revision and rejection, as both ends see them.

use rddp_mpa::{
    Framing, Initiator, InitiatorStep, Responder, ResponderStep, Revision, StartupConfig, StartupError,
};

use crate::{client_server, depths, reply_frame, request, startup};

// RFC 5044 §7.1.1: every combination of C and M at both ends, in both revisions.
#[test]
fn both_ends_agree_on_crc_and_markers() {
    for bits in 0..32 {
        let on = |bit: u32| bits & 1 << bit != 0;
        let revision = if on(4) { Revision::Two } else { Revision::One };
        let initiator = StartupConfig { revision, crc: on(0), markers: on(1), ..StartupConfig::default() };
        let responder = StartupConfig { crc: on(2), markers: on(3), ..StartupConfig::default() };
        let (at_initiator, at_responder) = startup(&initiator, &responder);
        let to_responder = Framing { crc: on(0) || on(2), markers: on(3) };
        let to_initiator = Framing { crc: on(0) || on(2), markers: on(1) };
        assert_eq!((at_initiator.tx(), at_responder.rx()), (to_responder, to_responder));
        assert_eq!((at_responder.tx(), at_initiator.rx()), (to_initiator, to_initiator));
        assert_eq!((at_initiator.revision, at_responder.revision), (revision, revision));
        assert_eq!((at_initiator.enhanced, at_responder.enhanced), (on(4), on(4)));
    }
}

// RFC 5044 §4.4: CRCs unless an administrator said otherwise.
#[test]
fn crcs_are_asked_for_by_default() {
    assert!(StartupConfig::default().crc);
    let none = StartupConfig { crc: false, ..StartupConfig::default() };
    assert!(startup(&StartupConfig::default(), &none).1.crc);
    assert!(startup(&none, &StartupConfig::default()).0.crc);
    assert!(!startup(&none, &none).0.crc);
}

// RFC 5044 §7.1.1: C in the Reply says whether CRCs will be used.
#[test]
fn the_reply_says_what_will_be_done() {
    let none = StartupConfig { crc: false, ..client_server() };
    let initiator = Initiator::new(&client_server(), b"").unwrap();
    let (reply, _) = request(initiator.request()).accept(&none, b"").unwrap();
    assert_eq!(reply[16..20], [0x50, 2, 0, 4]);
}

// RFC 5044 §4.5, §7.1.1: only where both ends ask by siw's bit, and neither has markers.
#[test]
fn large_fpdus_need_the_consent_of_both_ends_and_no_markers() {
    for bits in 0..32 {
        let on = |bit: u32| bits & 1 << bit != 0;
        let revision = if on(4) { Revision::Two } else { Revision::One };
        let config = |large_fpdus: bool, markers: bool| StartupConfig {
            revision,
            large_fpdus,
            markers,
            ..StartupConfig::default()
        };
        let (asking, answering) = (config(on(0), on(1)), config(on(2), on(3)));
        let asked = Initiator::new(&asking, b"").unwrap().request()[16] & 0x0f;
        assert_eq!(asked, if on(0) && !on(1) { 0x08 } else { 0 }, "{bits:#b}");
        let agreed = on(0) && on(2) && !on(1) && !on(3);
        let seen = request(Initiator::new(&asking, b"").unwrap().request());
        let reply = seen.accept(&answering, b"").unwrap().0;
        assert_eq!(reply[16] & 0x0f, if agreed { 0x08 } else { 0 }, "{bits:#b}");
        assert_eq!(seen.reject(&answering, b"").unwrap()[16] & 0x0f, 0);
        let (at_initiator, at_responder) = startup(&asking, &answering);
        assert_eq!((at_initiator.large_fpdus, at_responder.large_fpdus), (agreed, agreed), "{bits:#b}");
    }
}

// RFC 5044 §7.1.1: a responder that echoes reserved bits, as siw does, and one that sets its own.
#[test]
fn an_initiator_that_did_not_ask_takes_no_consent() {
    for (large_fpdus, markers, flags, agreed) in [
        (true, false, 0x48, true),
        (true, false, 0x4c, true),
        (true, false, 0x44, false),
        (true, false, 0xc8, false),
        (true, true, 0x48, false),
        (false, false, 0x4f, false),
    ] {
        let config =
            StartupConfig { revision: Revision::One, large_fpdus, markers, ..StartupConfig::default() };
        let mut reply = *b"MPA ID Rep Frame\0\x01\0\0";
        reply[16] = flags;
        let negotiated = match Initiator::new(&config, b"").unwrap().handle(&reply) {
            Ok(InitiatorStep::Accepted { negotiated, .. }) => negotiated,
            other => panic!("{other:?}"),
        };
        assert_eq!(negotiated.large_fpdus, agreed, "{flags:#x}");
    }
}

// RFC 6581 §6, §10: a Request of revision 1 is answered in revision 1, whatever the responder
// supports.
#[test]
fn a_plain_request_gets_a_plain_reply() {
    let initiator =
        StartupConfig { revision: Revision::One, ird: 3, ord: 5, assumed_ird: 4, ..StartupConfig::default() };
    let responder = StartupConfig { ird: 7, ord: 9, ..StartupConfig::default() };
    let (reply, _) =
        request(Initiator::new(&initiator, b"").unwrap().request()).accept(&responder, b"no").unwrap();
    assert_eq!(reply, b"MPA ID Rep Frame\x40\x01\0\x02no");
    let (at_initiator, at_responder) = startup(&initiator, &responder);
    // No depths were exchanged: each end assumes how many Reads its peer takes (`assumed_ird`), and
    // no RTR is due.
    assert_eq!((at_initiator.ird, at_initiator.ord, at_initiator.rtr), (3, 4, None));
    assert_eq!((at_responder.ird, at_responder.ord, at_responder.rtr), (7, 1, None));
    let none = StartupConfig { ord: 0, ..initiator };
    assert_eq!(startup(&none, &responder).0.ord, 0);
    assert_eq!((at_initiator.peer_ird, at_responder.peer_ord), (None, None));
}

// RFC 6581 §6: revision 2 without S is revision 1 except for the number.
#[test]
fn a_plain_request_of_revision_two_gets_a_plain_reply_of_revision_two() {
    let request = request(b"MPA ID Req Frame\x40\x02\0\x03ulp");
    assert_eq!((request.enhanced, &request.private_data[..]), (false, &b"ulp"[..]));
    let (reply, settled) = request.accept(&StartupConfig::default(), b"").unwrap();
    assert_eq!(reply, b"MPA ID Rep Frame\x40\x02\0\0");
    assert_eq!((settled.revision, settled.enhanced), (Revision::Two, false));
}

// RFC 6581 §10: an enhanced Request gets an enhanced Reply, unless the peer does not know RFC 6581.
#[test]
fn a_plain_reply_to_an_enhanced_request_suggests_revision_one() {
    for reply in
        [b"MPA ID Rep Frame\x40\x01\0\0", b"MPA ID Rep Frame\x50\x01\0\0", b"MPA ID Rep Frame\x40\x02\0\0"]
    {
        let error = Initiator::new(&StartupConfig::default(), b"").unwrap().handle(reply).unwrap_err();
        assert_eq!(error, StartupError::UnenhancedReply);
        assert!(error.retry_with_revision_one());
        assert_eq!(error.terminate(), None);
    }
}

// RFC 6581 §10: a plain Request is never answered by an enhanced Reply.
#[test]
fn an_enhanced_reply_to_a_plain_request_is_refused() {
    let plain = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
    let error = Initiator::new(&plain, b"").unwrap().handle(&reply_frame(depths(1, 1))).unwrap_err();
    assert_eq!(error, StartupError::RevisionMismatch);
    assert!(!error.retry_with_revision_one());
}

// RFC 5044 §7.1.1: a Reply of any supported revision is accepted.
#[test]
fn a_plain_reply_of_revision_two_to_a_plain_request_is_taken() {
    let plain = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
    let mut initiator = Initiator::new(&plain, b"").unwrap();
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = initiator.handle(b"MPA ID Rep Frame\x00\x02\0\0")
    else {
        panic!("accepted");
    };
    assert_eq!((negotiated.revision, negotiated.enhanced), (Revision::Two, false));
}

// RFC 5044 §7.1.2 rules 2 and 3: R, with the ULP's reason.
#[test]
fn a_rejection_carries_private_data() {
    for private_data in [&b""[..], b"busy"] {
        let config = StartupConfig { revision: Revision::One, ..StartupConfig::default() };
        let mut initiator = Initiator::new(&config, b"").unwrap();
        let reply = request(initiator.request()).reject(&config, private_data).unwrap();
        assert_eq!(reply[16..18], [0x60, 1]);
        let rejected = InitiatorStep::Rejected {
            private_data: private_data.to_vec(),
            peer_ird: None,
            peer_ord: None,
            used: reply.len(),
        };
        assert_eq!(initiator.handle(&reply), Ok(rejected));
    }
}

#[test]
fn private_data_may_be_left_where_they_lie() {
    let mut initiator = Initiator::new(&StartupConfig::default(), b"asked").unwrap();
    let octets = initiator.request().to_vec();
    let Ok(ResponderStep::Request { request, used }) = Responder::new().read(&octets) else { panic!() };
    assert_eq!(request.private_data.as_ptr_range(), octets[24..used].as_ptr_range());
    let (accepting, rejecting) = (
        request.accept(&StartupConfig::default(), b"told").unwrap().0,
        request.reject(&StartupConfig::default(), b"told").unwrap(),
    );
    let Ok(InitiatorStep::Accepted { private_data, .. }) = initiator.read(&accepting) else { panic!() };
    assert_eq!(private_data.as_ptr_range(), accepting[24..28].as_ptr_range());
    let Ok(InitiatorStep::Rejected { private_data, .. }) = initiator.read(&rejecting) else { panic!() };
    assert_eq!(private_data.as_ptr_range(), rejecting[24..28].as_ptr_range());
}

// RFC 6581 §9.1, §10: an enhanced Request gets an enhanced rejection; its ORD is what the responder
// would have wanted.
#[test]
fn an_enhanced_rejection_carries_depths() {
    let mut initiator =
        Initiator::new(&StartupConfig { ird: 2, ord: 4, ..StartupConfig::default() }, b"").unwrap();
    let config = StartupConfig { ird: 16, ord: 12, max_ird: 16, ..StartupConfig::default() };
    let reply = request(initiator.request()).reject(&config, b"busy").unwrap();
    assert_eq!(reply, b"MPA ID Rep Frame\x70\x02\0\x08\x80\x04\x40\x0cbusy");
    let rejected = InitiatorStep::Rejected {
        private_data: b"busy".to_vec(),
        peer_ird: Some(4),
        peer_ord: Some(12),
        used: reply.len(),
    };
    assert_eq!(initiator.handle(&reply), Ok(rejected));
}

// RFC 6581 §9.1: in a rejection too, 0x3FFF is answered by 0x3FFF, and sent only as such an answer.
#[test]
fn a_rejection_says_no_depth_that_was_not_asked_for() {
    let config = StartupConfig { ord: u16::MAX, ..StartupConfig::default() };
    let told = |ird, ord| {
        let octets = crate::request_frame(depths(ird, ord));
        let data = crate::data_of(&request(&octets).reject(&config, b"").unwrap());
        (data.ird, data.ord)
    };
    assert_eq!(told(0x3fff, 0x3fff), (0x3fff, 0x3fff));
    assert_eq!(told(1, 1), (1, 0x3ffe));
}

// A plain rejection from a responder that does not know RFC 6581 is understood, and is not a reason
// to retry in revision 1.
#[test]
fn a_plain_rejection_of_an_enhanced_request_is_a_rejection() {
    let mut initiator = Initiator::new(&StartupConfig::default(), b"").unwrap();
    let step = initiator.handle(b"MPA ID Rep Frame\x60\x01\0\x02no");
    assert!(matches!(step, Ok(InitiatorStep::Rejected { peer_ird: None, .. })), "{step:?}");
}

// A Reply and a Request as siw sends them: no CRC, no markers, S without A, depths of 1.
#[test]
fn siw_is_understood() {
    let request = request(b"MPA ID Req Frame\x10\x02\0\x04\0\x01\0\x01");
    let (reply, settled) = request.accept(&StartupConfig::default(), b"").unwrap();
    assert_eq!(reply, b"MPA ID Rep Frame\x50\x02\0\x04\0\x01\0\x01");
    assert_eq!((settled.ird, settled.ord, settled.rtr), (1, 1, None));
    let none = StartupConfig { crc: false, ..StartupConfig::default() };
    assert_eq!(request.accept(&none, b"").unwrap().0, b"MPA ID Rep Frame\x10\x02\0\x04\0\x01\0\x01");
}
