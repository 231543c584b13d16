use super::*;

const HEADER: Header = Header::Untagged(UntaggedRepr {
    last: true,
    rsvd_ulp: [0x47, 0, 0, 0, 0],
    qn: TERMINATE_QUEUE,
    msn: Msn::FIRST,
    mo: 0,
});

fn flaw(header: Header, len: usize) -> TerminateFlaw {
    match accept(&mut stream(), header, len).unwrap_err() {
        fault @ Fault::Terminate(flaw) => {
            assert!(!fault.is_answerable());
            flaw
        }
        fault => panic!("{fault}"),
    }
}

#[test]
fn a_terminate_ends_the_stream_and_is_handed_on() {
    // RFC 5040 §5.4
    let mut stream = stream();
    let terminate = TerminateRepr::bare(TerminateCode::MPA_CRC);
    assert_eq!(take_control(&mut stream, HEADER, &terminate.octets()), Ok(Event::Terminated(terminate)));
    assert!(stream.is_dead());
    assert_eq!(accept(&mut stream, HEADER, 4), Ok(Place::Dropped));
}

#[test]
fn a_malformed_terminate_is_not_answered() {
    // RFC 5040 §5.4
    assert!(matches!(flaw(untagged(Opcode::Terminate, 2, 0, true), 4), TerminateFlaw::Ddp(_)));
    assert!(matches!(flaw(untagged(Opcode::Terminate, 1, 4, true), 4), TerminateFlaw::Ddp(_)));
    assert_eq!(flaw(untagged(Opcode::Terminate, 1, 0, false), 4), TerminateFlaw::NotLast);
    for len in [0, 3, CONTROL_MAX + 1] {
        assert_eq!(flaw(HEADER, len), TerminateFlaw::Length(len));
    }
    for qn in [0, 1, 3, 4] {
        assert_eq!(flaw(on_queue(HEADER, qn), 4), TerminateFlaw::Misdirected(Some(Qn(qn))));
    }
    let tagged = with_octet(tagged_header(Opcode::Write, Stag(1), 0, true), 0x47);
    assert_eq!(flaw(tagged, 4), TerminateFlaw::Misdirected(None));
}

#[test]
fn a_terminate_finds_room_whatever_else_is_going_on() {
    // RFC 5040 §5.4
    let mut stream = Stream::new(StreamConfig { ird: 0, ord: 0, extensions: false });
    let place = stream.accept(&HEADER, 4, &mut || panic!("it takes no receive"));
    assert_eq!(place, Ok(Place::Control));
}

#[test]
fn a_longer_terminate_than_any_of_ours_is_read_as_far_as_it_means_something() {
    let mut octets = [0; CONTROL_MAX];
    octets[..2].copy_from_slice(&0x0102u16.to_be_bytes());
    let event = take_control(&mut stream(), HEADER, &octets);
    assert_eq!(event, Ok(Event::Terminated(TerminateRepr::bare(TerminateCode::ACCESS_RIGHTS))));
}
