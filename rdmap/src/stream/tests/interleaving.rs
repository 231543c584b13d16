use super::*;

#[test]
fn a_write_may_be_interrupted_by_a_send() {
    let mut stream = stream();
    let write = |to, last| tagged_header(Opcode::Write, Stag(1), to, last);
    assert_eq!(take(&mut stream, write(0, false), 100), Event::None);
    assert_eq!(take(&mut stream, untagged(Opcode::Send, 1, 0, false), 10), Event::None);
    assert_eq!(take(&mut stream, write(100, false), 100), Event::None);
    assert!(matches!(
        take(&mut stream, untagged(Opcode::Send, 1, 10, true), 10),
        Event::Received { length: 20, .. }
    ));
    assert_eq!(take(&mut stream, write(200, true), 100), Event::WriteDone);
}

#[test]
fn two_sends_are_not_interleaved() {
    let mut stream = stream();
    take(&mut stream, untagged(Opcode::Send, 1, 0, false), 10);
    assert_eq!(
        refused(&mut stream, untagged(Opcode::Send, 2, 0, false), 10),
        TerminateCode::UNTAGGED_MSN_RANGE
    );
    assert_eq!(
        refused(&mut stream, untagged(Opcode::Send, 1, 20, false), 10),
        TerminateCode::UNTAGGED_INVALID_MO
    );
    assert_eq!(
        refused(&mut stream, untagged(Opcode::SendSolicited, 1, 10, true), 10),
        TerminateCode::UNTAGGED_MSN_RANGE
    );
}

#[test]
fn two_writes_are_not_interleaved() {
    let mut stream = stream();
    let write = |stag, to| tagged_header(Opcode::Write, Stag(stag), to, false);
    take(&mut stream, write(1, 0), 100);
    assert_eq!(refused(&mut stream, write(2, 0), 10), TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(refused(&mut stream, write(1, 101), 10), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(refused(&mut stream, write(1, 0), 10), TerminateCode::TAGGED_BOUNDS);
    assert_eq!(accept(&mut stream, write(1, 100), 10), Ok(Place::Write { stag: Stag(1), to: 100 }));
}

#[test]
fn a_read_response_does_not_interrupt_a_write() {
    let mut stream = stream();
    stream.issue_read(1, Stag(7), 0, 10);
    take(&mut stream, tagged_header(Opcode::Write, Stag(1), 0, false), 100);
    assert_eq!(refused(&mut stream, response(7, 0, true), 10), TerminateCode::TAGGED_INVALID_STAG);
}

#[test]
fn messages_of_other_queues_may_come_in_the_middle_of_a_send() {
    let mut stream = stream();
    take(&mut stream, untagged(Opcode::Send, 1, 0, false), 10);
    assert_eq!(take_control(&mut stream, read_request(1), &READ.octets()), Ok(Event::InboundRequest));
    let terminate = TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC);
    let event = take_control(&mut stream, untagged(Opcode::Terminate, 1, 0, true), &terminate.octets());
    assert_eq!(event, Ok(Event::Terminated(terminate)));
    assert!(stream.holds_receive(), "the receive of the Send is to be flushed");
}
