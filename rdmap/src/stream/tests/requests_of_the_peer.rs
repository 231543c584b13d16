use super::*;

fn queue_read(stream: &mut Stream, msn: u32) {
    assert_eq!(take_control(stream, read_request(msn), &READ.octets()), Ok(Event::InboundRequest));
}

#[test]
fn reads_and_atomics_are_answered_in_the_order_they_came() {
    // RFC 5040 §5.5 rule 20, RFC 7306 §5.4 rule 8
    let mut stream = stream();
    queue_read(&mut stream, 1);
    let event = take_control(&mut stream, untagged(Opcode::AtomicRequest, 2, 0, true), &ATOMIC.octets());
    assert_eq!(event, Ok(Event::InboundRequest));
    let Some(Response::Read(read)) = stream.next_response() else { panic!("the Read came first") };
    assert_eq!((read.request, read.remaining()), (READ, 1000));
    stream.response_done();
    let Some(Response::Atomic(atomic)) = stream.next_response() else { panic!("then the atomic") };
    assert_eq!((atomic.request, atomic.original), (ATOMIC, None));
    stream.response_done();
    assert_eq!(stream.next_response(), None);
}

#[test]
fn ird_counts_what_is_queued_and_what_is_being_answered() {
    // RFC 5040 §6.1, draft-hilland-rddp-verbs §8.3.3
    let mut stream = stream();
    queue_read(&mut stream, 1);
    queue_read(&mut stream, 2);
    assert_eq!(stream.inbound(), 2);
    let third = accept(&mut stream, read_request(3), 28).unwrap_err();
    assert_eq!(third, Fault::IrdExceeded { ird: 2 });
    assert_eq!(third.code(), TerminateCode::UNTAGGED_MSN_RANGE);
    let atomic = untagged(Opcode::AtomicRequest, 3, 0, true);
    assert_eq!(refused(&mut stream, atomic, 52), TerminateCode::UNTAGGED_MSN_RANGE);
    let Some(Response::Read(read)) = stream.next_response() else { unreachable!() };
    read.advance(999);
    assert_eq!(refused(&mut stream, atomic, 52), TerminateCode::UNTAGGED_MSN_RANGE);
    stream.response_done();
    assert_eq!(accept(&mut stream, atomic, 52), Ok(Place::Control));
}

#[test]
fn without_ird_every_read_is_one_too_many() {
    let mut stream = Stream::new(StreamConfig { ird: 0, ord: 1, extensions: true });
    assert_eq!(refused(&mut stream, read_request(1), 28), TerminateCode::UNTAGGED_MSN_RANGE);
}

#[test]
fn a_read_request_is_28_octets_in_one_segment() {
    // RFC 5040 §4.4
    for len in [0, 27, 29, 32] {
        assert_eq!(refused(&mut stream(), read_request(1), len), TerminateCode::UNSPECIFIED_OPERATION);
    }
    let split = untagged(Opcode::ReadRequest, 1, 0, false);
    for len in [14, 28] {
        assert_eq!(refused(&mut stream(), split, len), TerminateCode::CATASTROPHIC_STREAM);
    }
    let shifted = untagged(Opcode::ReadRequest, 1, 4, true);
    assert_eq!(refused(&mut stream(), shifted, 28), TerminateCode::UNTAGGED_INVALID_MO);
}

#[test]
fn an_atomic_request_is_52_octets_in_one_segment() {
    // RFC 7306 §5.2.1
    for len in [0, 48, 51, 53] {
        let header = untagged(Opcode::AtomicRequest, 1, 0, true);
        assert_eq!(refused(&mut stream(), header, len), TerminateCode::UNSPECIFIED_OPERATION);
    }
    let split = untagged(Opcode::AtomicRequest, 1, 0, false);
    assert_eq!(refused(&mut stream(), split, 52), TerminateCode::CATASTROPHIC_STREAM);
}

#[test]
fn an_unknown_atomic_operation_ends_the_stream() {
    // RFC 7306 §5.2.1
    for aopcode in (0..16).filter(|aopcode| ![0, 2].contains(aopcode)) {
        let mut stream = stream();
        let mut octets = ATOMIC.octets();
        octets[3] = aopcode;
        let fault =
            take_control(&mut stream, untagged(Opcode::AtomicRequest, 1, 0, true), &octets).unwrap_err();
        assert_eq!(
            (fault, fault.code()),
            (Fault::AtomicOpcode { aopcode }, TerminateCode::UNEXPECTED_OPCODE)
        );
        assert!(stream.is_dead());
        assert_eq!(stream.inbound(), 0);
    }
}

#[test]
fn a_response_is_cut_like_a_write_to_the_sink() {
    // RFC 5040 §4.4, §5.2.2
    for (size, lens) in [
        (0, vec![0]),
        (1, vec![1]),
        (1486, vec![1486]),
        (1487, vec![1486, 1]),
        (65536, [vec![1486; 44], vec![152]].concat()),
    ] {
        let request = ReadRequestRepr { size, ..READ };
        let Header::Untagged(origin) = read_request(1) else { unreachable!() };
        let mut read = ReadResponse { request, done: 0, origin };
        let mut done = 0;
        for (at, len) in lens.iter().enumerate() {
            let segment = read.segment(1500);
            let last = at + 1 == lens.len();
            assert_eq!(segment.header, response(7, 0x2000 + done, last));
            assert_eq!((segment.src_to, segment.len, segment.last), (0x100 + done, *len, last));
            read.advance(segment.len);
            done += segment.len as u64;
        }
        assert_eq!(read.remaining(), 0);
    }
}

#[test]
fn a_huge_read_costs_nothing_but_its_header() {
    let mut stream = stream();
    let huge = ReadRequestRepr { size: u32::MAX, src_to: u64::MAX, ..READ };
    take_control(&mut stream, read_request(1), &huge.octets()).unwrap();
    let Some(Response::Read(read)) = stream.next_response() else { unreachable!() };
    let segment = read.segment(64768);
    assert_eq!((segment.len, segment.last), (64754, false));
}

#[test]
fn a_terminate_shows_the_read_as_far_as_it_had_got() {
    // RFC 5040 §4.8
    let mut stream = stream();
    queue_read(&mut stream, 1);
    let Some(Response::Read(read)) = stream.next_response() else { unreachable!() };
    read.advance(600);
    let fault = Fault::read_source(crate::AccessError::Stag);
    let terminate = terminate_for(&fault, Some(&read.offending()));
    assert_eq!(terminate.segment_len, Some(46));
    assert_eq!(terminate.header, Some(read_request(1)));
    let left = ReadRequestRepr { sink_to: 0x2258, size: 400, src_to: 0x358, ..READ };
    assert_eq!(terminate.read_request, Some(left));
}

#[test]
fn a_terminate_about_an_atomic_shows_its_ddp_header_only() {
    // RFC 7306 §8.1
    let mut stream = stream();
    let header = untagged(Opcode::AtomicRequest, 1, 0, true);
    take_control(&mut stream, header, &ATOMIC.octets()).unwrap();
    let Some(Response::Atomic(atomic)) = stream.next_response() else { unreachable!() };
    let terminate = terminate_for(&Fault::misaligned_atomic(), Some(&atomic.offending()));
    assert_eq!(terminate.code, TerminateCode::CATASTROPHIC_STREAM);
    assert_eq!((terminate.segment_len, terminate.header), (Some(70), Some(header)));
    assert_eq!(terminate.read_request, None);
}
