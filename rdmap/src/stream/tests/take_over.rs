//! Reads and atomics in progress, exported in one stream and taken over by another.

use proptest::prelude::*;
use rddp_ddp::OpenTagged;

use super::*;
use crate::{OutstandingAtomic, OutstandingRead, OutstandingRequest, TakeOverError};

/// Returns a new stream that goes on where `before` stopped, from exported octets alone.
fn successor(before: &Stream) -> Stream {
    let mut after = stream();
    let requests = before.requests().map(|request| request.octets()).collect::<Vec<_>>();
    let requests = requests.iter().map(|octets| OutstandingRequest::parse(octets).unwrap());
    after.take_over_requests(before.open_tagged(), requests).unwrap();
    after.number_atomics_from(before.next_request_id());
    let responses = before.responses().map(Response::octets).collect::<Vec<_>>();
    let responses = responses.iter().map(|octets| Response::parse(octets).unwrap());
    after.take_over_responses(responses).unwrap();
    for qn in 0..QUEUES {
        after.take_over(Qn(qn), before.queue(Qn(qn)).clone());
    }
    after
}

fn request_of(stream: &mut Stream, msn: u32, header: Opcode, payload: &[u8]) {
    let event = take_control(stream, untagged(header, msn, 0, true), payload);
    assert_eq!(event, Ok(Event::InboundRequest));
}

#[test]
fn a_read_goes_on_between_two_segments_of_its_response() {
    // RFC 5040 §5.2.2
    let mut before = stream();
    before.issue_read(11, Stag(7), 0x2000, 1000);
    before.issue_read(12, Stag(8), 0, 4);
    let mut after = successor(&before);
    assert_eq!(take(&mut after, response(7, 0x2000, false), 600), Event::None);
    let mut after = successor(&after);
    assert_eq!((after.outstanding(), after.is_between_messages()), (2, false));
    assert_eq!(refused(&mut after, response(7, 0x2000, true), 400), TerminateCode::TAGGED_BOUNDS);
    let sink = Place::Sink { id: 11, stag: Stag(7), to: 0x2258, offset: 600 };
    assert_eq!(accept(&mut after, response(7, 0x2258, true), 400), Ok(sink));
    assert_eq!(take(&mut after, response(7, 0x2258, true), 400), Event::ReadDone { id: 11 });
    let mut after = successor(&after);
    assert_eq!(take(&mut after, response(8, 0, true), 4), Event::ReadDone { id: 12 });
}

#[test]
fn a_read_up_to_the_end_of_the_space_goes_on() {
    // RFC 5041 §7.1
    let mut before = stream();
    before.issue_read(11, Stag(7), u64::MAX - 7, 8);
    assert_eq!(take(&mut before, response(7, u64::MAX - 7, false), 8), Event::None);
    let mut after = successor(&before);
    assert_eq!(take(&mut after, response(7, 0, true), 0), Event::ReadDone { id: 11 });
}

#[test]
fn a_response_goes_on_between_two_segments() {
    // RFC 5040 §5.2.1
    let mut before = stream();
    request_of(&mut before, 1, Opcode::ReadRequest, &READ.octets());
    let mut after = successor(&before);
    let Some(Response::Read(read)) = after.next_response() else { panic!("the Read") };
    let first = read.segment(614);
    assert_eq!((first.len, first.last, first.header), (600, false, response(7, 0x2000, false)));
    read.advance(first.len);
    let mut after = successor(&after);
    let Some(Response::Read(read)) = after.next_response() else { panic!("the Read") };
    let second = read.segment(614);
    assert_eq!((second.len, second.last, second.src_to), (400, true, 0x100 + 600));
    assert_eq!(second.header, response(7, 0x2258, true));
    assert_eq!(read.offending().read_request, Some(READ.advanced(600)));
    after.response_done();
    assert_eq!(successor(&after).inbound(), 0);
}

#[test]
fn an_atomic_that_was_carried_out_is_not_carried_out_again() {
    // RFC 7306 §5.2
    let mut before = stream();
    request_of(&mut before, 1, Opcode::AtomicRequest, &ATOMIC.octets());
    let Some(Response::Atomic(atomic)) = before.next_response() else { panic!("the atomic") };
    assert_eq!(atomic.original, None);
    atomic.original = Some(99);
    let mut after = successor(&before);
    let Some(Response::Atomic(atomic)) = after.next_response() else { panic!("the atomic") };
    assert_eq!((atomic.request, atomic.original, atomic.origin.msn), (ATOMIC, Some(99), Msn(1)));
}

#[test]
fn an_atomic_of_ours_keeps_its_identifier_and_the_next_gets_another() {
    // RFC 7306 §5.2.2
    let mut before = stream();
    before.number_atomics_from(40);
    assert_eq!(before.issue_atomic(5), 40);
    let mut after = successor(&before);
    let answer = AtomicResponseRepr { request_id: 40, original: 3 }.octets();
    let event = take_control(&mut after, untagged(Opcode::AtomicResponse, 1, 0, true), &answer);
    assert_eq!(event, Ok(Event::AtomicDone { id: 5, original: 3 }));
    assert_eq!(after.issue_atomic(6), 41);
}

#[test]
fn the_limits_hold_behind_a_take_over() {
    // RFC 5040 §6.1
    let mut before = stream();
    before.issue_read(1, Stag(7), 0, 4);
    before.issue_atomic(2);
    request_of(&mut before, 1, Opcode::ReadRequest, &READ.octets());
    request_of(&mut before, 2, Opcode::AtomicRequest, &ATOMIC.octets());
    let mut after = successor(&before);
    assert!(!after.can_issue());
    assert_eq!(accept(&mut after, read_request(3), 28), Err(Fault::IrdExceeded { ird: 2 }));
}

fn read(done: u32) -> OutstandingRequest {
    OutstandingRequest::Read(OutstandingRead { id: 1, sink_stag: Stag(7), sink_to: 0x2000, size: 8, done })
}

fn open(opcode: Opcode, stag: u32, next_to: u64) -> Option<OpenTagged> {
    Some(OpenTagged { rsvd_ulp: opcode.control(), stag: Stag(stag), next_to: Some(next_to) })
}

/// Returns the reason why these requests are refused. The stream must be unchanged.
fn refused_requests(open: Option<OpenTagged>, requests: &[OutstandingRequest]) -> TakeOverError {
    let mut stream = stream();
    stream.issue_read(77, Stag(1), 0, 4);
    let error = stream.take_over_requests(open, requests.iter().copied()).unwrap_err();
    assert_eq!((stream.outstanding(), stream.is_between_messages()), (1, true));
    assert_eq!(take(&mut stream, response(1, 0, true), 4), Event::ReadDone { id: 77 });
    error
}

#[test]
fn a_line_that_no_stream_can_have_left_is_refused() {
    // RFC 5040 §6.1, §5.5 rule 20
    assert_eq!(refused_requests(None, &[read(0); 3]), TakeOverError::TooMany { limit: 2 });
    let begun = open(Opcode::ReadResponse, 7, 0x2004);
    assert_eq!(refused_requests(begun, &[read(4), read(4)]), TakeOverError::OutOfTurn { index: 1 });
    let atomic = OutstandingRequest::Atomic(OutstandingAtomic { id: 1, request_id: 0 });
    let error = plain().take_over_requests(None, [atomic]).unwrap_err();
    assert_eq!(error, TakeOverError::NoExtensions);
}

#[test]
fn an_open_message_that_is_not_the_reads_is_refused() {
    for (open, done) in [
        (None, 4),
        (open(Opcode::Write, 7, 0x2004), 4),
        (open(Opcode::ReadResponse, 8, 0x2004), 4),
        (open(Opcode::ReadResponse, 7, 0x2005), 4),
        (open(Opcode::ReadResponse, 7, 0x2000), 0),
        (open(Opcode::Send, 7, 0x2000), 0),
    ] {
        assert_eq!(refused_requests(open, &[read(done)]), TakeOverError::OpenMessage, "{open:?}, {done}");
    }
    let other_version = open(Opcode::Write, 7, 0).map(|open| OpenTagged { rsvd_ulp: 0x80, ..open });
    assert_eq!(refused_requests(other_version, &[]), TakeOverError::OpenMessage);
    assert_eq!(refused_requests(open(Opcode::ReadResponse, 7, 0), &[]), TakeOverError::OpenMessage);
    let writing = stream().take_over_requests(open(Opcode::Write, 9, 5), [read(0)]);
    assert_eq!(writing, Ok(()), "a Write may be open while a Read waits");
}

fn inbound_read(msn: u32, done: u32) -> Response {
    let Header::Untagged(origin) = read_request(msn) else { unreachable!() };
    Response::Read(ReadResponse { request: READ, done, origin })
}

#[test]
fn responses_that_no_stream_can_have_left_are_refused() {
    let refused = |responses: &[Response]| {
        let mut stream = stream();
        let error = stream.take_over_responses(responses.iter().cloned()).unwrap_err();
        assert_eq!(stream.inbound(), 0);
        error
    };
    let three = [1, 2, 3].map(|msn| inbound_read(msn, 0));
    assert_eq!(refused(&three), TakeOverError::TooMany { limit: 2 });
    let out_of_turn = [inbound_read(1, 0), inbound_read(2, 1)];
    assert_eq!(refused(&out_of_turn), TakeOverError::OutOfTurn { index: 1 });
    let gap = [inbound_read(u32::MAX, 0), inbound_read(1, 0)];
    assert_eq!(refused(&gap), TakeOverError::Msn { got: Msn(1), expected: Msn(0) });
    let Header::Untagged(origin) = untagged(Opcode::AtomicRequest, 1, 0, true) else { unreachable!() };
    let atomic = Response::Atomic(AtomicResponse { request: ATOMIC, original: None, origin });
    assert_eq!(plain().take_over_responses([atomic]), Err(TakeOverError::NoExtensions));
}

#[test]
fn octets_of_no_request_are_refused() {
    assert_eq!(OutstandingRequest::parse(&[0; 32]), Err(TakeOverError::Kind { kind: 0 }));
    assert_eq!(Response::parse(&[0; Response::LEN]), Err(TakeOverError::Kind { kind: 0 }));
    let too_far = OutstandingRequest::parse(&read(9).octets());
    assert_eq!(too_far, Err(TakeOverError::Progress { done: 9, size: 8 }));
    let too_far = Response::parse(&inbound_read(1, 1001).octets());
    assert_eq!(too_far, Err(TakeOverError::Progress { done: 1001, size: 1000 }));
}

#[test]
fn a_request_that_came_with_another_header_is_refused() {
    // RFC 5040 §4.1 Figure 4, §4.4
    for header in [
        untagged(Opcode::AtomicRequest, 1, 0, true),
        untagged(Opcode::Send, 1, 0, true),
        untagged(Opcode::ReadRequest, 1, 4, true),
        untagged(Opcode::ReadRequest, 1, 0, false),
        on_queue(read_request(1), 0),
        with_octet(read_request(1), 0x81),
    ] {
        let Header::Untagged(origin) = header else { unreachable!() };
        let response = Response::Read(ReadResponse { request: READ, done: 0, origin });
        assert_eq!(Response::parse(&response.octets()), Err(TakeOverError::Origin), "{header}");
    }
    let mut octets = inbound_read(1, 0).octets();
    octets[12] |= 0x80; // T
    assert_eq!(Response::parse(&octets), Err(TakeOverError::Origin));
}

#[test]
fn an_atomic_operation_that_there_is_not_is_refused() {
    // RFC 7306 §5.2.1
    let Header::Untagged(origin) = untagged(Opcode::AtomicRequest, 1, 0, true) else { unreachable!() };
    let mut octets = Response::Atomic(AtomicResponse { request: ATOMIC, original: None, origin }).octets();
    octets[12 + 18 + 3] = 1;
    assert_eq!(Response::parse(&octets), Err(TakeOverError::AtomicOpcode { aopcode: 1 }));
}

fn outstanding() -> impl Strategy<Value = OutstandingRequest> {
    prop_oneof![
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |(id, stag, sink_to, one, other)| OutstandingRequest::Read(OutstandingRead {
                id,
                sink_stag: Stag(stag),
                sink_to,
                size: one.max(other),
                done: one.min(other),
            })
        ),
        (any::<u64>(), any::<u32>())
            .prop_map(|(id, request_id)| OutstandingRequest::Atomic(OutstandingAtomic { id, request_id })),
    ]
}

proptest! {
    #[test]
    fn what_is_exported_is_read_back(
        request in outstanding(),
        msn: u32,
        done in 0..=1000_u32,
        original: Option<u64>,
    ) {
        prop_assert_eq!(OutstandingRequest::parse(&request.octets()), Ok(request));
        let read = inbound_read(msn, done);
        prop_assert_eq!(Response::parse(&read.octets()), Ok(read));
        let Header::Untagged(origin) = untagged(Opcode::AtomicRequest, msn, 0, true) else { unreachable!() };
        let atomic = Response::Atomic(AtomicResponse { request: ATOMIC, original, origin });
        prop_assert_eq!(Response::parse(&atomic.octets()), Ok(atomic));
    }

    /// Any octets in shared memory are refused, or make a stream that may be driven.
    #[test]
    fn octets_that_anybody_wrote_never_panic(
        kinds in prop::collection::vec(0..5_u8, 3),
        requests in prop::collection::vec(any::<[u8; 32]>(), 0..3),
        responses in prop::collection::vec(any::<[u8; 32]>(), 0..3),
        open in prop::option::of((any::<u8>(), any::<u32>(), any::<Option<u64>>())),
        to: u64,
        len in 0..2000_usize,
    ) {
        let mut stream = stream();
        let parsed = requests.iter().zip(&kinds).filter_map(|(octets, kind)| {
            let mut octets = *octets;
            octets[..4].copy_from_slice(&[0, 0, 0, *kind]);
            OutstandingRequest::parse(&octets).ok()
        });
        let open = open.map(|(rsvd_ulp, stag, next_to)| OpenTagged { rsvd_ulp, stag: Stag(stag), next_to });
        let _ = stream.take_over_requests(open, parsed);
        let parsed = responses.iter().zip(&kinds).filter_map(|(octets, kind)| {
            let mut whole = inbound_read(1, 0).octets();
            whole[..4].copy_from_slice(&[0, 0, 0, *kind]);
            whole[4..12].copy_from_slice(&octets[..8]);
            whole[12 + 18..][..24].copy_from_slice(&octets[8..]);
            Response::parse(&whole).ok()
        });
        let _ = stream.take_over_responses(parsed);
        let _ = stream.accept(&response(7, to, true), len, &mut || Some(BUFFER));
        let _ = stream.commit(&response(7, to, true), len, &[]);
        while let Some(response) = stream.next_response() {
            if let Response::Read(read) = response {
                read.advance(read.segment(128).len);
                let _ = read.offending();
            }
            stream.response_done();
        }
    }
}
