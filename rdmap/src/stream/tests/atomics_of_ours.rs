use super::*;

fn answer(msn: u32) -> Header {
    untagged(Opcode::AtomicResponse, msn, 0, true)
}

fn octets(request_id: u32) -> [u8; 12] {
    AtomicResponseRepr { request_id, original: 0x1122 }.octets()
}

#[test]
fn an_answer_is_matched_by_msn_and_identifier() {
    // RFC 7306 §5.2.1, §5.4 rule 7
    let mut stream = stream();
    let (first, second) = (stream.issue_atomic(1), stream.issue_atomic(2));
    assert_ne!(first, second);
    let event = take_control(&mut stream, answer(1), &octets(first));
    assert_eq!(event, Ok(Event::AtomicDone { id: 1, original: 0x1122 }));
    assert_eq!(refused(&mut stream, answer(1), 12), TerminateCode::UNTAGGED_MSN_RANGE);
    let fault = take_control(&mut stream, answer(2), &octets(first)).unwrap_err();
    assert_eq!(fault, Fault::RequestId { got: first, expected: second });
    assert!(stream.is_dead());
}

#[test]
fn an_answer_of_another_length_is_refused() {
    // RFC 7306 §5.2.2
    let mut stream = stream();
    stream.issue_atomic(1);
    for len in [0, 11, 13] {
        assert_eq!(refused(&mut stream, answer(1), len), TerminateCode::UNSPECIFIED_OPERATION);
    }
}

#[test]
fn an_answer_that_nobody_waits_for_is_refused() {
    // RFC 7306 §5.4 rule 8: Reads and atomics are answered in one order.
    assert_eq!(refused(&mut stream(), answer(1), 12), TerminateCode::UNEXPECTED_OPCODE);
    let mut stream = stream();
    stream.issue_read(1, Stag(7), 0, 4);
    stream.issue_atomic(2);
    assert_eq!(refused(&mut stream, answer(1), 12), TerminateCode::UNEXPECTED_OPCODE);
    take(&mut stream, response(7, 0, true), 4);
    assert_eq!(refused(&mut stream, response(7, 0, true), 4), TerminateCode::UNEXPECTED_OPCODE);
}

#[test]
fn identifiers_may_begin_anywhere_and_wrap() {
    let mut stream = stream();
    stream.number_atomics_from(u32::MAX);
    assert_eq!((stream.issue_atomic(1), stream.issue_atomic(2)), (u32::MAX, 0));
}
