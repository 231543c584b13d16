use super::*;

#[test]
fn each_kind_of_send_says_what_it_is_on_delivery() {
    // RFC 5040 §5.3, §4.1
    let cases = [
        (Opcode::Send, None, false),
        (Opcode::SendInvalidate, Some(Stag(77)), false),
        (Opcode::SendSolicited, None, true),
        (Opcode::SendSolicitedInvalidate, Some(Stag(77)), true),
    ];
    let mut stream = stream();
    for (msn, (op, invalidate, solicited)) in (1..).zip(cases) {
        let header = untagged_header(op, Stag(77), Msn(msn), 0, true);
        let event = take(&mut stream, header, 10);
        assert_eq!(event, Event::Received { length: 10, invalidate, solicited });
    }
}

#[test]
fn the_invalidate_field_of_a_plain_send_is_ignored() {
    // RFC 5040 §4.1
    let Header::Untagged(header) = send(1) else { unreachable!() };
    let header = UntaggedRepr { rsvd_ulp: [0x43, 0xde, 0xad, 0xbe, 0xef], ..header }.into();
    let event = take(&mut stream(), header, 3);
    assert_eq!(event, Event::Received { length: 3, invalidate: None, solicited: false });
}

#[test]
fn a_send_in_segments_is_delivered_once_at_its_end() {
    // RFC 5041 §5.4
    let mut stream = stream();
    let first = untagged(Opcode::Send, 1, 0, false);
    assert_eq!(accept(&mut stream, first, 1482), Ok(Place::Receive { mo: 0 }));
    assert_eq!(take(&mut stream, first, 1482), Event::None);
    assert!(!stream.is_between_messages());
    let second = untagged(Opcode::Send, 1, 1482, true);
    assert_eq!(accept(&mut stream, second, 566), Ok(Place::Receive { mo: 1482 }));
    let event = take(&mut stream, second, 566);
    assert_eq!(event, Event::Received { length: 2048, invalidate: None, solicited: false });
    assert!(stream.is_between_messages());
}

#[test]
fn a_message_takes_one_receive_when_it_begins() {
    // RFC 5040 §5.3
    let mut stream = stream();
    let mut taken = 0;
    let mut receive = || {
        taken += 1;
        Some(100)
    };
    for (header, len) in [
        (untagged(Opcode::Send, 1, 0, false), 50),
        (untagged(Opcode::Send, 1, 50, true), 50),
        (send(2), 0),
        (send(3), 1),
    ] {
        stream.accept(&header, len, &mut receive).unwrap();
        stream.accept(&header, len, &mut receive).unwrap();
        assert!(stream.holds_receive());
        stream.commit(&header, len, &[]).unwrap();
    }
    assert_eq!(taken, 3, "one for each message, without octets too");
    assert!(!stream.holds_receive());
}

#[test]
fn without_a_receive_a_send_is_refused_until_there_is_one() {
    // RFC 5041 §7.1
    let mut stream = stream();
    for len in [0, 10] {
        let fault = stream.accept(&send(1), len, &mut || None).unwrap_err();
        assert_eq!(fault.code(), TerminateCode::UNTAGGED_NO_BUFFER);
    }
    assert_eq!(stream.accept(&send(1), 10, &mut || Some(10)), Ok(Place::Receive { mo: 0 }));
    assert_eq!(stream.accept(&send(1), 10, &mut || None), Ok(Place::Receive { mo: 0 }), "it holds one now");
}

#[test]
fn a_send_longer_than_its_receive_is_refused() {
    // RFC 5041 §7.1
    let mut stream = stream();
    let fault = stream.accept(&send(1), 33, &mut || Some(32)).unwrap_err();
    assert_eq!(fault.code(), TerminateCode::UNTAGGED_TOO_LONG);
}

#[test]
fn immediate_data_completes_a_receive_without_touching_it() {
    // RFC 7306 §6.3, §6.1
    let mut stream = stream();
    let mut taken = 0;
    for (msn, op, solicited) in [(1, Opcode::Immediate, false), (2, Opcode::ImmediateSolicited, true)] {
        let header = untagged(op, msn, 0, true);
        let place = stream.accept(&header, 8, &mut || {
            taken += 1;
            Some(0)
        });
        assert_eq!(place, Ok(Place::Control));
        let event = stream.commit(&header, 8, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(event, Event::Immediate { data: [1, 2, 3, 4, 5, 6, 7, 8], solicited });
    }
    assert_eq!(taken, 2);
    assert_eq!(
        take(&mut stream, send(3), 1),
        Event::Received { length: 1, invalidate: None, solicited: false }
    );
}

#[test]
fn immediate_data_is_eight_octets_in_one_segment() {
    // RFC 7306 §6.3
    let header = untagged(Opcode::Immediate, 1, 0, true);
    for len in [0, 7, 9, 16] {
        assert_eq!(refused(&mut stream(), header, len), TerminateCode::UNSPECIFIED_OPERATION);
    }
    let split = untagged(Opcode::Immediate, 1, 0, false);
    for len in [4, 8] {
        assert_eq!(refused(&mut stream(), split, len), TerminateCode::CATASTROPHIC_STREAM);
    }
    let fault = stream().accept(&header, 8, &mut || None).unwrap_err();
    assert_eq!(fault.code(), TerminateCode::UNTAGGED_NO_BUFFER);
}

#[test]
fn messages_go_on_across_the_wrap_of_msn() {
    // RFC 5041 §4.3
    let mut stream = stream();
    stream.expect_msn(SEND_QUEUE, Msn(0xffff_fffe));
    let mut counters = crate::SendCounters::new();
    counters.set(SEND_QUEUE, Msn(0xffff_fffe));
    for _ in 0..4 {
        let header = untagged_header(Opcode::Send, Stag(0), counters.next(SEND_QUEUE), 0, true);
        take(&mut stream, header, 1);
    }
    assert_eq!(counters.next(SEND_QUEUE), Msn(2));
}

#[test]
fn a_send_without_octets_has_nothing_to_place() {
    assert_eq!(accept(&mut stream(), send(1), 0), Ok(Place::Nothing));
    assert_eq!(accept(&mut stream(), send(1), 1), Ok(Place::Receive { mo: 0 }));
}

#[test]
fn another_stream_goes_on_in_the_middle_of_a_message() {
    let (mut first, mut second) = (stream(), stream());
    assert_eq!(
        take(&mut first, untagged(Opcode::Send, 1, 0, true), 3),
        Event::Received { length: 3, invalidate: None, solicited: false }
    );
    assert_eq!(take(&mut first, untagged(Opcode::Send, 2, 0, false), 100), Event::None);
    second.take_over(Qn(0), first.queue(Qn(0)).clone());
    assert!(!second.is_between_messages());
    let event = take(&mut second, untagged(Opcode::Send, 2, 100, true), 10);
    assert_eq!(event, Event::Received { length: 110, invalidate: None, solicited: false });
}
