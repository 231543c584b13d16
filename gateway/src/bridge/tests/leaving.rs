//! Completions of the device, and what the plain host gets of them.

use rddp_mpa::{Rtr, fpdu_len};

use super::*;

#[test]
fn a_read_is_answered_when_the_device_has_brought_its_octets() {
    let mut world = world();
    let (size, octets) = (2 * PIECE as u32 + 500, pattern(2 * PIECE + 500, 1));
    world.read(7, size).unwrap();
    let mut done = 0;
    while let Some(request) = world.bridge.next_request() {
        let Operation::Read { sink, remote, .. } = request.operation else { panic!("{request:?}") };
        assert_eq!((remote, sink.stag), (there(7 + done as u64), SHAPE.sink));
        let (at, len) = ((sink.addr - START) as usize, sink.len as usize);
        world.memory.write(at, &octets[done..done + len]);
        done += len;
        assert_eq!(world.left(), [], "a Read that has not completed");
    }
    assert_eq!(done, size as usize);
    let mut events = Vec::new();
    for _ in 0..3 {
        world.complete(Status::Success).unwrap();
        assert!(!world.bridge.is_quiet(), "an answer has not left");
        events.extend(world.left());
        events.extend(world.left());
    }
    assert_eq!(events, [Event::ReadDone { id: 7 }]);
    assert!(world.host.sink == octets && world.bridge.is_quiet());
}

/// Programs learn by it that their Writes are there.
#[test]
fn a_read_without_octets_is_answered_when_the_writes_before_it_have_completed() {
    let mut world = world();
    world.write(9, 0, b"four", true).unwrap();
    world.read(1, 0).unwrap();
    world.read(2, 4).unwrap();
    assert!(matches!(world.bridge.next_request().unwrap().operation, Operation::Write { .. }));
    let request = world.bridge.next_request().unwrap();
    let Operation::Read { sink, remote, .. } = request.operation else { panic!("{request:?}") };
    assert_eq!((sink.len, remote), (0, there(1)));
    assert!(world.bridge.next_request().is_some() && world.bridge.next_request().is_none());
    for events in [vec![], vec![Event::ReadDone { id: 1 }], vec![Event::ReadDone { id: 2 }]] {
        assert_eq!(world.left(), []);
        world.complete(Status::Success).unwrap();
        assert_eq!(world.left(), events);
    }
    assert!(world.bridge.is_quiet());
}

/// RFC 6581 §9: an initiator is ready by it, whatever the device's host answers.
#[test]
fn a_read_without_octets_that_comes_first_is_answered_at_once() {
    let mut world = world();
    world.bridge.completed(&completion(1, Status::Success, Completed::Receive, 0)).unwrap();
    world.read(1, 0).unwrap();
    assert_eq!(world.bridge.next_request(), None);
    assert_eq!(world.left()[0], Event::ReadDone { id: 1 });
    assert!(world.bridge.is_quiet());
}

/// RFC 6581 §9: the first message may be this end's own, by which it says that it is ready.
#[test]
fn messages_are_numbered_behind_this_ends_own() {
    for (rtr, events) in [(Rtr::Send, 2), (Rtr::Write, 1)] {
        let mut world = world_with(Some(OwnMessage::ready_to_receive(rtr)));
        world.bridge.completed(&completion(1, Status::Success, Completed::Receive, 0)).unwrap();
        // The plain host takes no message whose number is not the next one.
        let received = world.left().into_iter().filter(|event| matches!(event, Event::Received { .. }));
        assert_eq!(received.count(), events, "{rtr:?}");
    }
}

/// The startup has agreed on it.
#[test]
fn as_many_reads_as_were_agreed_on_may_be_outstanding() {
    let mut world = world();
    for at in 0..IRD {
        world.read(at.into(), 4).unwrap();
    }
    let stop = world.read(0, 4).unwrap_err();
    assert_eq!(world.terminate(&stop).code.0, 0x1203);
}

#[test]
fn atomics_without_masks_are_answered_with_what_was_there() {
    let mut world = world();
    world.atomic(AtomicOp::FetchAdd { add: 5, mask: 0 }, 16).unwrap();
    let request = world.bridge.next_request().unwrap();
    let Operation::FetchAdd { sink, remote, add: 5, mask: 0 } = request.operation else {
        panic!("{request:?}");
    };
    assert_eq!(remote, there(16));
    world.memory.write((sink.addr - START) as usize, &40_u64.to_ne_bytes());
    world.complete(Status::Success).unwrap();
    assert_eq!(world.left(), [Event::AtomicDone { id: 1, original: 40 }]);
    let all = u64::MAX;
    let swap = AtomicOp::CmpSwap { swap: 1, swap_mask: all, compare: 2, compare_mask: all };
    world.atomic(swap, 24).unwrap();
    let request = world.bridge.next_request().unwrap();
    assert!(matches!(request.operation, Operation::CmpSwap { compare: 2, swap: 1, .. }), "{request:?}");
}

#[test]
fn a_message_of_the_device_leaves_in_segments_and_its_receive_is_posted_again() {
    let mut world = world();
    let octets = pattern(MAX_MESSAGE, 1);
    let receive = SHAPE.receive(3);
    world.memory.write((receive.scatter[0].addr - START) as usize, &octets);
    let told = completion(3, Status::Success, Completed::Receive, MAX_MESSAGE as u32);
    world.bridge.completed(&told).unwrap();
    // RFC 5044 §7.1.2: a responder waits for the initiator's first FPDU.
    assert_eq!((world.left(), world.bridge.next_receive()), (vec![], None));
    world.write(0, 0, b"", true).unwrap();
    let received = Event::Received { length: MAX_MESSAGE as u32, invalidate: None, solicited: false };
    assert_eq!(world.left(), [received]);
    assert_eq!(world.host.message, octets);
    assert_eq!(world.bridge.next_receive(), Some(receive));
    assert_eq!(world.bridge.next_receive(), None);
    assert_eq!(world.bridge.next_request(), None, "a Write of nothing ends here");
}

#[test]
fn a_value_of_the_device_becomes_immediate_data() {
    let mut world = world();
    world.write(0, 0, b"", true).unwrap();
    let data = [1, 2, 3, 4, 0, 0, 0, 0];
    let told = completion(1, Status::Success, Completed::ReceiveImmediate, 0);
    let told = Completion { immediate: Some(data), ..told };
    world.bridge.completed(&told).unwrap();
    assert_eq!(world.left(), [Event::Immediate { data, solicited: false }]);
    let stop = world.bridge.completed(&Completion { byte_len: 1, ..told }).unwrap_err();
    assert_eq!(world.terminate(&stop).code, TerminateCode::CATASTROPHIC_STREAM);
}

#[test]
fn a_request_that_the_devices_host_refuses_becomes_the_terminate_of_its_kind() {
    let of = |ask: &dyn Fn(&mut World), status| {
        let mut world = world();
        ask(&mut world);
        assert!(world.bridge.next_request().is_some());
        let stop = world.complete(status).unwrap_err();
        world.terminate(&stop)
    };
    let write = |world: &mut World| world.write(9, 0, b"four", true).unwrap();
    let read = |world: &mut World| world.read(1, 4).unwrap();
    let add = |world: &mut World| world.atomic(AtomicOp::FetchAdd { add: 1, mask: 0 }, 0).unwrap();
    let send = |world: &mut World| world.send(Opcode::Send, b"four").unwrap();
    let refused = of(&write, Status::RemoteAccess);
    assert_eq!((refused.code, refused.segment_len), (TerminateCode::TAGGED_INVALID_STAG, Some(18)));
    let refused = of(&read, Status::RemoteAccess);
    assert_eq!(refused.code, TerminateCode::ACCESS_RIGHTS);
    assert_eq!(refused.read_request.unwrap().src_stag, Stag(9));
    assert_eq!(of(&add, Status::RemoteAccess).code, TerminateCode::ACCESS_RIGHTS);
    assert_eq!(of(&send, Status::ReceiverNotReady).code, TerminateCode::UNTAGGED_NO_BUFFER);
    assert_eq!(of(&send, Status::Unanswered).code, TerminateCode::CATASTROPHIC_STREAM);
    assert_eq!(of(&write, Status::RemoteInvalidRequest).code, TerminateCode::CATASTROPHIC_STREAM);
}

#[test]
fn flushed_requests_have_no_reason_of_their_own() {
    let mut world = world();
    world.write(9, 0, b"four", true).unwrap();
    assert!(world.bridge.next_request().is_some());
    world.complete(Status::Flushed).unwrap();
    world.bridge.completed(&completion(0, Status::Flushed, Completed::Receive, 0)).unwrap();
}

#[test]
fn a_terminate_of_the_plain_host_is_not_answered() {
    let mut world = world();
    let message = OwnMessage::terminate(&TerminateRepr::bare(TerminateCode::LOCAL_CATASTROPHIC));
    let stop = world.arrive(&message.header, message.payload()).unwrap_err();
    assert!(matches!(stop, Stop::Terminated(TerminateCode::LOCAL_CATASTROPHIC)) && stop.trouble().is_none());
}

/// RFC 5040 §5.4: a Terminate is the last message of its stream.
#[test]
fn nothing_leaves_behind_a_terminate() {
    let mut world = world();
    world.read(1, 4).unwrap();
    assert!(world.bridge.next_request().is_some());
    world.complete(Status::Success).unwrap();
    world.bridge.completed(&completion(0, Status::Success, Completed::Receive, 8)).unwrap();
    let stop = world.send(Opcode::Send, &[0; MAX_MESSAGE + 1]).unwrap_err();
    world.terminate(&stop);
    assert!(!world.bridge.has_more());
    assert_eq!(world.left(), []);
}

#[test]
fn reads_wait_for_places_and_come_to_all_of_their_octets() {
    let mut world = world();
    for id in 0..8 {
        world.read(id, 3 * PIECE as u32).unwrap();
    }
    let (mut asked, mut events) = (0, Vec::new());
    while events.len() < 8 {
        let mut now = 0;
        while world.bridge.next_request().is_some() {
            now += 1;
        }
        assert!(now <= SINKS / PIECE);
        for _ in 0..now {
            world.complete(Status::Success).unwrap();
        }
        events.extend(world.left());
        asked += now;
    }
    assert_eq!((asked, world.host.sink.len()), (24, 24 * PIECE));
}

/// Reads of few octets: as many as the peer may have outstanding, and as the send queue has places.
#[test]
fn the_send_queue_is_never_overfull_of_reads() {
    let mut world = world();
    for id in 0..IRD {
        world.read(id.into(), 1).unwrap();
    }
    let (mut done, mut posted) = (0, 0);
    while done < IRD {
        while world.bridge.next_request().is_some() {
            posted += 1;
        }
        assert!(posted <= SENDS, "{posted}");
        world.complete(Status::Success).unwrap();
        (done, posted) = (done + 1, posted - 1);
    }
    let mut left = 0;
    while world.bridge.has_more() {
        left += world.left().len();
    }
    assert_eq!(left, IRD as usize);
}

/// RFC 5044 §5.1: each segment begins with an FPDU.
#[test]
fn no_fpdu_reaches_over_the_end_of_a_tcp_segment() {
    let mut world = world();
    world.read(1, 10_000).unwrap();
    world.atomic(AtomicOp::FetchAdd { add: 1, mask: 0 }, 0).unwrap();
    world.read(2, 500).unwrap();
    while world.bridge.next_request().is_some() {
        world.complete(Status::Success).unwrap();
    }
    for (slot, len) in (0..).zip([MAX_MESSAGE as u32, 1, 900, 960, 0, 3000]) {
        world.bridge.completed(&completion(slot, Status::Success, Completed::Receive, len)).unwrap();
        let value = completion(slot, Status::Success, Completed::ReceiveImmediate, 0);
        world.bridge.completed(&Completion { immediate: Some([slot as u8; 8]), ..value }).unwrap();
    }
    let mut events = 0;
    while world.bridge.has_more() {
        let mut train = Vec::new();
        let ends = world.bridge.leave(&mut train, &world.memory);
        let mut at = 0;
        while at < train.len() {
            let len = fpdu_len(u16::from_be_bytes([train[at], train[at + 1]]).into());
            assert_eq!(at / EMSS, (at + len - 1) / EMSS, "an FPDU of {len} octets at {at}");
            at += len;
        }
        assert!(ends || train.len() < EMSS, "the next train would begin within a segment");
        assert!(ends || !world.bridge.has_more());
        events += world.events(train).len();
    }
    assert_eq!(events, 3 + 2 * 6);
}
