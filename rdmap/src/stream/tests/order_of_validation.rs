use super::*;

#[test]
fn the_first_fault_in_the_order_of_the_checks_is_the_one() {
    // RFC 5040 §7.2
    let mut stream = stream();
    let bad_version_and_opcode = with_octet(send(1), 0x8f);
    assert_eq!(refused(&mut stream, bad_version_and_opcode, 4), TerminateCode::RDMAP_VERSION);
    let bad_opcode_and_queue = on_queue(with_octet(send(1), 0x4c), 9);
    assert_eq!(refused(&mut stream, bad_opcode_and_queue, 4), TerminateCode::UNEXPECTED_OPCODE);
    let bad_queue_and_msn = on_queue(send(9), 9);
    assert_eq!(refused(&mut stream, bad_queue_and_msn, 4), TerminateCode::UNTAGGED_INVALID_QN);
    let wrong_queue_and_msn = on_queue(send(9), 1);
    assert_eq!(refused(&mut stream, wrong_queue_and_msn, 4), TerminateCode::UNEXPECTED_OPCODE);
    let mut none = || None;
    let code = |fault: Result<Place, Fault>| fault.unwrap_err().code();
    let bad_msn_no_buffer = stream.accept(&send(2), 4, &mut none);
    assert_eq!(code(bad_msn_no_buffer), TerminateCode::UNTAGGED_MSN_RANGE);
    let no_buffer_bad_mo = stream.accept(&untagged(Opcode::Send, 1, 7, true), 4, &mut none);
    assert_eq!(code(no_buffer_bad_mo), TerminateCode::UNTAGGED_NO_BUFFER);
    let bad_mo_too_long = stream.accept(&untagged(Opcode::Send, 1, 7, true), 4, &mut || Some(3));
    assert_eq!(code(bad_mo_too_long), TerminateCode::UNTAGGED_INVALID_MO);
}

#[test]
fn ddp_is_checked_before_the_read_header() {
    // RFC 5040 §7.2
    let mut stream = Stream::new(StreamConfig { ird: 0, ord: 0, extensions: false });
    assert_eq!(refused(&mut stream, read_request(1), 27), TerminateCode::UNTAGGED_MSN_RANGE);
    assert_eq!(refused(&mut plain(), read_request(2), 27), TerminateCode::UNTAGGED_MSN_RANGE);
    let shifted = untagged(Opcode::ReadRequest, 1, 1, false);
    assert_eq!(refused(&mut plain(), shifted, 27), TerminateCode::UNTAGGED_INVALID_MO);
}

#[test]
fn every_version_but_one_is_refused() {
    // RFC 5040 §4.1
    for version in [0, 2, 3] {
        let header = with_octet(send(1), version << 6 | 3);
        let fault = accept(&mut stream(), header, 4).unwrap_err();
        assert_eq!(fault, Fault::Version { version });
        let terminate = terminate_for(&fault, Some(&Offending::new(header, 4)));
        assert_eq!((terminate.segment_len, terminate.header), (Some(22), Some(header)));
    }
}

#[test]
fn reserved_bits_are_ignored() {
    // RFC 5040 §4.1
    for reserved in 0..4 {
        let header = with_octet(send(1), 0x43 | reserved << 4);
        assert!(matches!(take(&mut stream(), header, 4), Event::Received { .. }));
    }
}

#[test]
fn only_the_legal_combinations_of_opcode_kind_and_queue_pass() {
    // RFC 5040 §4.1 Figure 4, RFC 7306 §4
    for extensions in [true, false] {
        for number in 0..16 {
            let tagged = with_octet(tagged_header(Opcode::Write, Stag(1), 0, true), 0x40 | number);
            check_combination(extensions, number, tagged, None);
            for qn in [0, 1, 2, 3, 4, 5, 0x8000_0000, u32::MAX] {
                let untagged = on_queue(with_octet(send(1), 0x40 | number), qn);
                check_combination(extensions, number, untagged, Some(qn));
            }
        }
    }
}

fn check_combination(extensions: bool, number: u8, header: Header, qn: Option<u32>) {
    let mut stream = Stream::new(StreamConfig { ird: 1, ord: 2, extensions });
    // A request for responses to answer; only one of the two is at the head of the line.
    if number == 2 {
        stream.issue_read(1, Stag(1), 0, 4);
    } else {
        stream.issue_atomic(1);
    }
    let len = match number {
        1 => 28,
        8 | 9 => 8,
        10 => 52,
        11 => 12,
        _ => 4,
    };
    let legal_queue = match number {
        0 | 2 => Some(None),
        3..=6 => Some(Some(0)),
        1 => Some(Some(1)),
        7 => Some(Some(2)),
        8 | 9 if extensions => Some(Some(0)),
        10 if extensions => Some(Some(1)),
        11 if extensions => Some(Some(3)),
        _ => None,
    };
    let queues = if extensions { 4 } else { 3 };
    let expected = match legal_queue {
        Some(legal) if legal == qn => Ok(()),
        // A Terminate is not answered, and has no code of its own.
        Some(_) if number != 7 && qn.is_some_and(|qn| qn >= queues) => {
            Err(TerminateCode::UNTAGGED_INVALID_QN)
        }
        _ => Err(TerminateCode::UNEXPECTED_OPCODE),
    };
    let got = accept(&mut stream, header, len).map(|_| ()).map_err(|fault| fault.code());
    assert_eq!(got, expected, "opcode {number:#x} {header} extensions {extensions}");
}

#[test]
fn without_the_extensions_their_opcodes_are_unexpected() {
    // RFC 7306 §1.1: extensions that were not negotiated are refused.
    for op in Opcode::ALL.into_iter().filter(|op| op.is_extension()) {
        let header = untagged(op, 1, 0, true);
        let fault = accept(&mut plain(), header, 8).unwrap_err();
        assert_eq!(fault, Fault::UnknownOpcode { opcode: op as u8 });
        assert_eq!(fault.code(), TerminateCode::UNEXPECTED_OPCODE);
    }
}
