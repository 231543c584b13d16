use super::*;

fn assert_drops_everything(mut stream: Stream) {
    for (header, len) in [
        (send(1), 4),
        (send(9), 4),
        (with_octet(send(1), 0xff), 4),
        (tagged_header(Opcode::Write, Stag(1), 0, true), 4),
        (read_request(1), 28),
        (response(7, 0, true), 4),
    ] {
        let place = stream.accept(&header, len, &mut || panic!("no receive is taken"));
        assert_eq!(place, Ok(Place::Dropped));
        assert_eq!(stream.commit(&header, len, &[]), Ok(Event::None));
    }
    assert_eq!((stream.inbound(), stream.holds_receive()), (0, false));
}

#[test]
fn after_the_driver_ends_it_a_stream_drops_everything() {
    // RFC 5041 §7.1
    let mut stream = stream();
    stream.fail();
    assert!(stream.is_dead());
    assert_drops_everything(stream);
}

#[test]
fn after_a_fault_in_a_payload_a_stream_drops_everything() {
    // RFC 5041 §7.1
    let mut stream = stream();
    let mut octets = ATOMIC.octets();
    octets[3] = 1;
    take_control(&mut stream, untagged(Opcode::AtomicRequest, 1, 0, true), &octets).unwrap_err();
    assert_drops_everything(stream);
}

#[test]
fn a_fault_in_a_header_decides_nothing_by_itself() {
    // RFC 5044 §6: until its CRC is known a segment may be anything.
    let mut stream = stream();
    let fault = accept(&mut stream, send(3), 4).unwrap_err();
    assert_eq!(accept(&mut stream, send(3), 4), Err(fault), "asked again it is the same");
    assert!(!stream.is_dead());
    assert!(accept(&mut stream, send(1), 4).is_ok());
}

#[test]
fn accepting_changes_nothing_however_often() {
    let mut stream = stream();
    stream.issue_read(1, Stag(7), 0, 8);
    for _ in 0..3 {
        assert!(accept(&mut stream, response(7, 0, false), 4).is_ok());
        assert!(accept(&mut stream, tagged_header(Opcode::Write, Stag(1), 5, false), 4).is_ok());
        assert!(accept(&mut stream, untagged(Opcode::Send, 1, 0, false), 4).is_ok());
        assert!(accept(&mut stream, read_request(1), 28).is_ok());
    }
    assert!(stream.is_between_messages());
    assert_eq!((stream.inbound(), stream.outstanding()), (0, 1));
}
