use super::*;

fn reading(size: u32) -> Stream {
    let mut stream = stream();
    stream.issue_read(11, Stag(7), 0x2000, size);
    stream
}

#[test]
fn a_response_goes_into_the_sink_and_ends_the_read() {
    // RFC 5040 §5.2.2, §5.5 rule 19
    let mut stream = reading(1000);
    let sink = |to, offset| Ok(Place::Sink { id: 11, stag: Stag(7), to, offset });
    assert_eq!(accept(&mut stream, response(7, 0x2000, false), 600), sink(0x2000, 0));
    assert_eq!(take(&mut stream, response(7, 0x2000, false), 600), Event::None);
    assert_eq!(accept(&mut stream, response(7, 0x2258, true), 400), sink(0x2258, 600));
    assert_eq!(stream.outstanding(), 1);
    assert_eq!(take(&mut stream, response(7, 0x2258, true), 400), Event::ReadDone { id: 11 });
    assert_eq!(stream.outstanding(), 0);
}

#[test]
fn a_response_that_is_not_the_one_asked_for_is_refused() {
    // RFC 5040 §5.2.2
    assert_eq!(refused(&mut reading(8), response(8, 0x2000, true), 8), TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(refused(&mut reading(8), response(7, 0x2001, true), 8), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(refused(&mut reading(8), response(7, 0x2000, true), 9), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(refused(&mut reading(8), response(7, 0x2000, false), 9), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(refused(&mut reading(8), response(7, 0x2000, true), 7), TerminateCode::TAGGED_BOUNDS, "short");
    assert_eq!(refused(&mut reading(8), response(7, 0x2000, true), 0), TerminateCode::TAGGED_BOUNDS, "empty");
    assert_eq!(refused(&mut reading(0), response(7, 0x2000, true), 1), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(refused(&mut stream(), response(7, 0x2000, true), 8), TerminateCode::UNEXPECTED_OPCODE);
}

#[test]
fn a_response_without_octets_needs_no_stag_and_no_to() {
    // RFC 5041 §5.2
    let mut stream = reading(0);
    assert_eq!(accept(&mut stream, response(99, 5, true), 0), Ok(Place::Nothing));
    assert_eq!(take(&mut stream, response(99, 5, true), 0), Event::ReadDone { id: 11 });
}

#[test]
fn an_empty_last_segment_may_end_a_response_that_is_all_there() {
    let mut stream = reading(8);
    assert_eq!(take(&mut stream, response(7, 0x2000, false), 8), Event::None);
    assert_eq!(take(&mut stream, response(7, 0x2008, true), 0), Event::ReadDone { id: 11 });
}

#[test]
fn responses_come_in_the_order_of_the_requests() {
    // RFC 5040 §5.5 rule 20
    let mut stream = stream();
    stream.issue_read(1, Stag(7), 0, 4);
    stream.issue_read(2, Stag(8), 0, 4);
    assert_eq!(refused(&mut stream, response(8, 0, true), 4), TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(take(&mut stream, response(7, 0, true), 4), Event::ReadDone { id: 1 });
    assert_eq!(take(&mut stream, response(8, 0, true), 4), Event::ReadDone { id: 2 });
}

#[test]
fn no_more_than_ord_are_outstanding() {
    // RFC 5040 §6.1
    let mut stream = stream();
    assert!(stream.can_issue());
    stream.issue_read(1, Stag(7), 0, 0);
    assert!(stream.can_issue());
    stream.issue_atomic(2);
    assert!(!stream.can_issue());
    assert_eq!(take(&mut stream, response(7, 0, true), 0), Event::ReadDone { id: 1 });
    assert!(stream.can_issue());
    stream.set_ord(1);
    assert!(!stream.can_issue());
}

#[test]
fn without_ord_nothing_may_be_issued() {
    let stream = Stream::new(StreamConfig { ird: 1, ord: 0, extensions: true });
    assert!(!stream.can_issue());
}

#[test]
fn the_longest_read_ends_where_its_size_says() {
    // RFC 5040 §4.4
    let mut stream = reading(u32::MAX);
    let step = 0x4000_0000;
    for part in 0..3 {
        take(&mut stream, response(7, 0x2000 + part * step, false), step as usize);
    }
    let header = response(7, 0x2000 + 3 * step, true);
    assert_eq!(refused(&mut stream, header, step as usize), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(take(&mut stream, header, step as usize - 1), Event::ReadDone { id: 11 });
}
