//! FPDUs of the plain host, and the requests that they become.

use rddp_ddp::Msn;
use rddp_rdma::Gather;

use super::*;

#[test]
fn segments_of_a_write_are_joined_and_go_to_the_key_that_the_plain_host_names() {
    let mut world = world();
    let octets = pattern(2500, 1);
    for (at, last) in [(0, false), (1000, false), (2000, true)] {
        world.write(9, 100 + at as u64, &octets[at..2500.min(at + 1000)], last).unwrap();
    }
    assert_eq!(world.bridge.next_request(), Some(SendWr::write(0, local(0, 2500), there(100))));
    assert_eq!(world.bridge.next_request(), None);
    assert_eq!(&world.memory.0.borrow()[..2500], &octets);
    assert_eq!(world.bridge.counts().writes, 1);
    // What has come goes on before the rest has.
    world.write(9, 0, &octets[..10], false).unwrap();
    assert_eq!(world.bridge.next_request(), None);
    world.bridge.no_more();
    assert_eq!(world.bridge.next_request(), Some(SendWr::write(0, local(2500, 10), there(0))));
}

#[test]
fn writes_to_other_places_are_not_joined() {
    let mut world = world();
    // Another key, a gap, and the end of the addresses.
    for (stag, to) in [(9, 0), (8, 4), (8, 9), (8, u64::MAX - 3), (8, 0)] {
        world.write(stag, to, b"four", true).unwrap();
    }
    let mut requests = std::iter::from_fn(|| world.bridge.next_request());
    assert_eq!(requests.by_ref().count(), 5);
}

#[test]
fn sends_keep_their_length_what_they_invalidate_and_whether_they_are_solicited() {
    let mut world = world();
    world.send(Opcode::Send, b"plain").unwrap();
    world.send(Opcode::SendSolicitedInvalidate, b"").unwrap();
    assert_eq!(world.bridge.next_request(), Some(SendWr::send(0, local(0, 5))));
    let second = SendWr::send_invalidate(0, Vec::<Sge>::new(), Stag(77)).solicited();
    assert_eq!(world.bridge.next_request(), Some(second));
    // A message takes the room of its octets, and one without octets that of one.
    world.send(Opcode::Send, b"third").unwrap();
    assert_eq!(world.bridge.next_request(), Some(SendWr::send(0, local(6, 5))));
    assert_eq!(&world.memory.0.borrow()[..5], b"plain");
}

#[test]
fn a_send_that_is_longer_than_allowed_ends_the_connection() {
    let mut world = world();
    let stop = world.send(Opcode::Send, &pattern(MAX_MESSAGE + 1, 1)).unwrap_err();
    assert_eq!(world.terminate(&stop).code, TerminateCode::UNTAGGED_TOO_LONG);
}

#[test]
fn four_octets_of_immediate_data_go_on_and_eight_do_not() {
    let mut world = world();
    world.send(Opcode::ImmediateSolicited, &[1, 2, 3, 4, 0, 0, 0, 0]).unwrap();
    // As rddp's library for verbs marks that of a Send.
    world.send(Opcode::Immediate, b"\x05\x06\x07\x08Send").unwrap();
    let wanted = SendWr::immediate(0, [1, 2, 3, 4, 0, 0, 0, 0]).solicited();
    assert_eq!(world.bridge.next_request(), Some(wanted));
    assert_eq!(world.bridge.next_request(), Some(SendWr::immediate(0, [5, 6, 7, 8, 0, 0, 0, 0])));
    let stop = world.send(Opcode::Immediate, &[1; 8]).unwrap_err();
    assert!(stop.to_string().contains("InfiniBand carries the first four"), "{stop}");
    assert_eq!(world.terminate(&stop).code, TerminateCode::UNEXPECTED_OPCODE);
}

#[test]
fn requests_are_posted_in_their_order_and_no_write_is_passed_by_a_later_request() {
    let mut world = world();
    world.write(9, 0, b"first", true).unwrap();
    world.read(7, 3).unwrap();
    world.send(Opcode::Send, b"last").unwrap();
    let kinds: Vec<_> = std::iter::from_fn(|| world.bridge.next_request())
        .map(|request| match request.operation {
            Operation::Write { .. } => 'w',
            Operation::Send { .. } => 's',
            Operation::Read { .. } => 'r',
            operation => panic!("{operation:?}"),
        })
        .collect();
    // RFC 5040 §5.5: what comes behind a Read may pass it.
    assert_eq!(kinds, ['w', 's', 'r']);
}

#[test]
fn atomics_that_infiniband_does_not_have_end_the_connection() {
    let swap = |swap_mask, compare_mask| AtomicOp::CmpSwap { swap: 1, swap_mask, compare: 2, compare_mask };
    for (op, to, code) in [
        (AtomicOp::FetchAdd { add: 1, mask: 1 << 31 }, 0, TerminateCode::UNEXPECTED_OPCODE),
        (swap(1, u64::MAX), 0, TerminateCode::UNEXPECTED_OPCODE),
        (swap(u64::MAX, 0), 0, TerminateCode::UNEXPECTED_OPCODE),
        (AtomicOp::FetchAdd { add: 1, mask: 0 }, 4, TerminateCode::CATASTROPHIC_STREAM),
    ] {
        let mut world = world();
        let stop = world.atomic(op, to).unwrap_err();
        assert_eq!(world.terminate(&stop).code, code, "{op}");
    }
}

#[test]
fn what_the_device_lacks_is_an_opcode_that_is_not_spoken() {
    let mut world = world();
    world.send(Opcode::Immediate, &[0; 8]).unwrap();
    assert!(world.bridge.next_request().is_some());
    let error = rddp_verbs_device::PostError::Unsupported { what: "Immediate Data" };
    let stop = world.bridge.refused(error);
    assert_eq!(world.terminate(&stop).code, TerminateCode::UNEXPECTED_OPCODE);
}

/// The plain host sends without an end, and the device is in no hurry.
#[test]
fn a_flood_waits_for_the_device_and_goes_on_when_that_has_taken_it() {
    let mut world = world();
    let (mut sent, mut posted, mut random) = (0, 0, rddp_test_support::Random::new(3));
    while sent < 5000 {
        if world.bridge.has_room() {
            let (len, to) = (1 + random.below(EMSS), sent * 1_000_000);
            match random.below(2) {
                0 => world.write(9, to, &pattern(len, 1), true).unwrap(),
                _ => world.send(Opcode::Send, &pattern(len, 1)).unwrap(),
            }
            sent += 1;
            continue;
        }
        while world.bridge.next_request().is_some() {
            posted += 1;
        }
        assert!(posted <= SENDS, "{posted}");
        for _ in 0..=random.below(posted) {
            world.complete(Status::Success).unwrap();
            posted -= 1;
        }
    }
}

/// RFC 5041 §5.3 has segments of one message in their order, and says nothing of those of two.
#[test]
fn a_write_inside_of_a_send_harms_neither() {
    let mut world = world();
    let (message, octets) = (pattern(1500, 1), pattern(200, 2));
    let send = |mo: usize, last| untagged_header(Opcode::Send, Stag(0), Msn::FIRST, mo as u32, last);
    world.write(9, 0, &octets[..100], false).unwrap();
    world.arrive(&send(0, false), &message[..1000]).unwrap();
    world.write(9, 100, &octets[100..], true).unwrap();
    world.arrive(&send(1000, true), &message[1000..]).unwrap();
    let mut written = Vec::new();
    let mut fetch = |sge: &Sge| {
        let at = (sge.addr - START) as usize;
        written.push(world.memory.0.borrow()[at..at + sge.len as usize].to_vec());
    };
    while let Some(request) = world.bridge.next_request() {
        match request.operation {
            Operation::Write { gather: Gather::List(list), .. }
            | Operation::Send { gather: Gather::List(list), .. } => list.iter().for_each(&mut fetch),
            operation => panic!("{operation:?}"),
        }
    }
    assert!(written == [octets[..100].to_vec(), octets[100..].to_vec(), message]);
}

/// RFC 5041 leaves it to the sender what comes between the segments of a Send.
#[test]
fn writes_between_the_segments_of_a_send_take_no_more_room_than_there_is() {
    let mut world = world();
    let msn = world.counters.next(SEND_QUEUE);
    world.arrive(&untagged_header(Opcode::Send, Stag(0), msn, 0, false), b"half a ").unwrap();
    for at in 0..1000 {
        assert!(world.bridge.has_room(), "{at}");
        world.write(9, at * 1_000_000, &pattern(EMSS, 1), true).unwrap();
        assert!(world.bridge.next_request().is_some());
        world.complete(Status::Success).unwrap();
    }
    world.arrive(&untagged_header(Opcode::Send, Stag(0), msn, 7, true), b"message").unwrap();
    assert_eq!(world.bridge.next_request(), Some(SendWr::send(0, local(0, 14))));
    assert_eq!(&world.memory.0.borrow()[..14], b"half a message");
}

/// A value needs no memory, but a place in the send queue, as all that waits for one.
#[test]
fn values_wait_for_places_in_the_send_queue() {
    let mut world = world();
    let mut taken = 0;
    while world.bridge.has_room() {
        world.send(Opcode::Immediate, &[0; 8]).unwrap();
        taken += 1;
        assert!(taken <= SENDS, "{taken} values wait");
    }
    assert!(world.bridge.next_request().is_some());
    world.complete(Status::Success).unwrap();
    assert!(world.bridge.has_room());
}

/// Each has a place for octets while it arrives.
#[test]
fn values_that_have_gone_on_leave_no_memory_taken() {
    let mut world = world();
    for at in 0..100 {
        assert!(world.bridge.has_room(), "{at}");
        world.send(Opcode::Immediate, &[0; 8]).unwrap();
        assert!(world.bridge.next_request().is_some());
        world.complete(Status::Success).unwrap();
    }
}
