//! The short way: it takes what is in turn, and does what the other way does.

use super::*;

/// Octets of a segment with this header and a payload.
fn octets(header: &Header, len: usize) -> Vec<u8> {
    [header.octets().as_ref(), &vec![7; len]].concat()
}

fn is_plain(stream: &Stream, header: Header, len: usize) -> bool {
    stream.plain(&octets(&header, len)).is_some()
}

fn write(stag: u32, to: u64, last: bool) -> Header {
    tagged_header(Opcode::Write, Stag(stag), to, last)
}

/// Takes a segment by both ways, in two copies of a stream, and compares events and states.
fn takes_alike(before: &Stream, header: Header, len: usize, place: Place, event: &Event) -> Stream {
    let (mut short, mut other) = (before.clone(), before.clone());
    let plain = short.plain(&octets(&header, len)).unwrap();
    assert_eq!(plain.header_len(), header.len());
    short.commit_plain(&plain, len);
    assert_eq!(accept(&mut other, header, len), Ok(place));
    assert_eq!(other.commit(&header, len, &[]).as_ref(), Ok(event));
    assert_eq!(format!("{short:?}"), format!("{other:?}"));
    short
}

#[test]
fn whole_sends_and_writes_in_turn_are_taken_as_by_the_other_way() {
    let mut stream = stream();
    for (msn, opcode, solicited) in [(1, Opcode::Send, false), (2, Opcode::SendSolicited, true)] {
        let event = Event::Received { length: 9, invalidate: None, solicited };
        let header = untagged(opcode, msn, 0, true);
        let Some(Plain::Send { solicited: told, .. }) = stream.plain(&octets(&header, 9)) else {
            panic!("a plain Send");
        };
        assert_eq!(told, solicited);
        stream = takes_alike(&stream, header, 9, Place::Receive { mo: 0 }, &event);
        for (to, last, event) in [(100, false, Event::None), (109, true, Event::WriteDone)] {
            let place = Place::Write { stag: Stag(5), to };
            stream = takes_alike(&stream, write(5, to, last), 9, place, &event);
        }
    }
    // The last MSN before the numbers begin anew (RFC 5041 §4.3).
    stream.expect_msn(SEND_QUEUE, Msn(u32::MAX));
    let event = Event::Received { length: 1, invalidate: None, solicited: false };
    let stream = takes_alike(&stream, send(u32::MAX), 1, Place::Receive { mo: 0 }, &event);
    assert!(is_plain(&stream, send(0), 1));
}

// RFC 5041 §4.1, RFC 5040 §4.1: reserved bits are ignored.
#[test]
fn reserved_bits_change_nothing() {
    let stream = stream();
    for header in [send(1), write(5, 100, true)] {
        let mut octets = octets(&header, 4);
        octets[0] |= 0x3c;
        octets[1] |= 0x30;
        assert!(stream.plain(&octets).is_some());
    }
}

/// Each condition alone keeps a segment from the short way.
#[test]
fn a_segment_with_anything_special_goes_the_other_way() {
    let mut stream = stream();
    assert!(is_plain(&stream, send(1), 4) && is_plain(&stream, write(5, 100, false), 4));
    for number in 0..16 {
        let control = 0x40 | number;
        let is_send = [Opcode::Send as u8, Opcode::SendSolicited as u8].contains(&number);
        assert_eq!(is_plain(&stream, with_octet(send(1), control), 4), is_send, "{number}");
        let header = with_octet(write(5, 100, true), control);
        assert_eq!(is_plain(&stream, header, 4), number == Opcode::Write as u8, "{number}");
    }
    // Another version of RDMAP, and of DDP (RFC 5040 §4.1, RFC 5041 §4.1).
    for version in [0x00, 0x80, 0xc0] {
        assert!(!is_plain(&stream, with_octet(send(1), version | Opcode::Send as u8), 4));
        assert!(!is_plain(&stream, with_octet(write(5, 100, true), version), 4));
    }
    for header in [send(1), write(5, 100, true)] {
        for version in [0, 2, 3] {
            let mut octets = octets(&header, 4);
            octets[0] = octets[0] & !3 | version;
            assert_eq!(stream.plain(&octets), None);
        }
        (0..=header.len()).for_each(|len| assert_eq!(stream.plain(&octets(&header, 4)[..len]), None));
        assert!(!is_plain(&stream, header, 0), "without octets");
    }
    // RFC 5041 §7.1: QN, MSN, MO.
    assert!(![0, 2].iter().any(|msn| is_plain(&stream, send(*msn), 4)));
    assert!(![1, 2, 3, 4, 1 << 24].iter().any(|qn| is_plain(&stream, on_queue(send(1), *qn), 4)));
    assert!(!is_plain(&stream, untagged(Opcode::Send, 1, 4, true), 4));
    assert!(!is_plain(&stream, untagged(Opcode::Send, 1, 0, false), 4), "not all of it");
    // RFC 5041 §5.2: inside a Write.
    take(&mut stream, write(5, 100, false), 4);
    assert!(is_plain(&stream, write(5, 104, false), 4) && is_plain(&stream, send(1), 4));
    assert!(!is_plain(&stream, write(5, 105, false), 4) && !is_plain(&stream, write(6, 104, false), 4));
    // A receive that was taken when the segment was looked at early, and an open message.
    accept(&mut stream, send(1), 4).unwrap();
    assert!(!is_plain(&stream, send(1), 4));
    take(&mut stream, send(1), 4);
    assert!(is_plain(&stream, send(2), 4));
    take(&mut stream, untagged(Opcode::Send, 2, 0, false), 0);
    stream.receive = None;
    assert!(!is_plain(&stream, send(2), 4), "an open message");
    take(&mut stream, untagged(Opcode::Send, 2, 0, true), 4);
    assert!(is_plain(&stream, send(3), 4));
    stream.fail();
    assert!(!is_plain(&stream, send(3), 4) && !is_plain(&stream, write(5, 104, true), 4));
}
