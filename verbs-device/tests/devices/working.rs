//! Requests and their completions.

use rddp_rdma::{Access, Completed, RecvWr, SendWr, Sge, Status};
use rddp_verbs_device::{Endpoint, Event, Offer, PostError};

use crate::support::{Host, Kind, adapters, completion, completions, event, host, hosts, post, quirk, rnics};

/// Sends octets that one end has and the other one receives.
fn carry(host: &Host, from: &mut Endpoint, to: &mut Endpoint) {
    let (source, sink) = (host.memory(16, Access::empty()), host.memory(16, Access::LOCAL_WRITE));
    source.write(0, b"sixteen octets..");
    to.post_receive(&RecvWr::one(1, sink.piece(0, 16))).unwrap();
    from.post_send(&SendWr::send(2, source.piece(0, 16))).unwrap();
    let received = completion(to);
    assert_eq!((received.wr_id, received.status, received.byte_len), (1, Status::Success, 16));
    let sent = completion(from);
    assert_eq!((sent.wr_id, sent.completed, sent.byte_len), (2, Completed::Send, 0));
    let mut octets = [0; 16];
    sink.read(0, &mut octets);
    assert_eq!(&octets, b"sixteen octets..");
}

#[test]
fn messages_are_carried_both_ways() {
    for host in hosts("carry", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        carry(&host, &mut active, &mut passive);
        carry(&host, &mut passive, &mut active);
    }
}

/// A completion that has come between the last poll and the request for an event causes none.
#[test]
fn a_completion_that_comes_before_the_queue_is_armed_wakes_all_the_same() {
    for host in hosts("late", quirk::LATE) {
        let (mut active, mut passive) = host.connect_plainly();
        carry(&host, &mut active, &mut passive);
    }
}

#[test]
fn an_event_without_a_completion_is_no_completion() {
    for host in hosts("idle", quirk::IDLE_EVENTS) {
        let (mut active, mut passive) = host.connect_plainly();
        carry(&host, &mut active, &mut passive);
    }
}

/// A device of hardware frees places when a later request that is signaled completes, and siw asks
/// for an error number with the other sign when there is none.
#[test]
fn requests_that_nobody_is_told_of_never_fill_the_device() {
    for host in hosts("silence", quirk::LATE) {
        let (mut active, _passive) = host.connect_plainly();
        let target = host.open_memory(8);
        let source = host.memory(8, Access::empty());
        let write = SendWr::write(3, source.piece(0, 8), target.remote().unwrap()).unsignaled();
        let mut told = Vec::new();
        for _ in 0..100 {
            post(&mut active, &write, &mut told);
        }
        active.poll(&mut told).unwrap();
        assert_eq!(told, [], "success was not asked for");
    }
}

/// siw sends a request that is not signaled from the program's pages, even when a later one has
/// completed.
#[test]
fn memory_may_be_changed_when_a_later_request_has_completed() {
    for host in hosts("later", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        let (source, sink) = (host.memory(8192, Access::empty()), host.open_memory(8192));
        source.write(0, &[1; 8192]);
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        let write = SendWr::write(2, source.piece(0, 8192), sink.remote().unwrap());
        active.post_send(&write.unsignaled()).unwrap();
        active.post_send(&SendWr::send(3, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).wr_id, 3);
        source.write(0, &[2; 8192]);
        assert_eq!(completion(&mut passive).wr_id, 1);
        let mut octets = [0; 8192];
        sink.read(0, &mut octets);
        assert!(octets == [1; 8192], "octets that were stored after the completion were sent");
    }
}

/// siw completes a Send before the Read in front of it, whose Response is on its way.
#[test]
fn a_read_completes_when_its_octets_are_there_whatever_is_behind_it() {
    const LEN: usize = 1 << 20;
    for host in hosts("behind", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        let (there, here) =
            (host.open_memory(LEN), host.memory(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE));
        there.write(0, &vec![5; LEN]);
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        active.post_send(&SendWr::read(2, here.piece(0, LEN), there.remote().unwrap())).unwrap();
        active.post_send(&SendWr::send(3, Vec::new())).unwrap();
        let told = completion(&mut active);
        assert_eq!((told.wr_id, told.status), (2, Status::Success));
        let mut octets = vec![0; LEN];
        here.read(0, &mut octets);
        assert!(octets == vec![5; LEN], "the octets have not come");
    }
}

#[test]
fn inline_octets_are_as_many_as_the_device_takes() {
    for host in hosts("inline", 0) {
        let most = match host.kind {
            Kind::Siw => 64,
            Kind::Rxe => 512,
            Kind::Adapter => 0,
        };
        let (mut active, mut passive) = host.connect_plainly();
        assert_eq!(active.max_inline(), most);
        let long = active.post_send(&SendWr::send_inline(1, &vec![0; most + 1])).unwrap_err();
        assert!(matches!(long, PostError::InlineTooLong { max, .. } if max == most), "{long}");
        let sink = host.memory(512, Access::LOCAL_WRITE);
        passive.post_receive(&RecvWr::one(1, sink.piece(0, 512))).unwrap();
        active.post_send(&SendWr::send_inline(2, &vec![8; most])).unwrap();
        assert_eq!(completion(&mut passive).byte_len as usize, most);
    }
}

#[test]
fn operations_that_a_device_lacks_are_refused() {
    for host in rnics("lacks", 0) {
        let (mut active, _passive) = host.connect_plainly();
        let memory = host.open_memory(8);
        let add = SendWr::fetch_add(1, memory.piece(0, 8), memory.remote().unwrap(), 1);
        for request in [&add, &SendWr::immediate(1, FOUR)] {
            let refused = active.post_send(request).unwrap_err();
            assert!(matches!(refused, PostError::Unsupported { .. }), "{refused}");
        }
    }
}

const FOUR: [u8; 8] = [1, 2, 3, 4, 0, 0, 0, 0];

#[test]
fn atomics_change_what_they_bring() {
    for host in adapters("atomics", 0) {
        let (mut active, _passive) = host.connect_plainly();
        let (counter, sink) = (host.open_memory(8), host.memory(8, Access::LOCAL_WRITE));
        counter.write(0, &40_u64.to_ne_bytes());
        let place = counter.remote().unwrap();
        active.post_send(&SendWr::fetch_add(1, sink.piece(0, 8), place, 2)).unwrap();
        assert_eq!(completion(&mut active).completed, Completed::FetchAdd);
        active.post_send(&SendWr::cmp_swap(2, sink.piece(0, 8), place, 42, 7)).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        let mut octets = [[0; 8]; 2];
        counter.read(0, &mut octets[0]);
        sink.read(0, &mut octets[1]);
        assert_eq!(octets.map(u64::from_ne_bytes), [7, 42]);
    }
}

#[test]
fn four_octets_of_an_immediate_are_carried() {
    for host in adapters("immediate", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        passive.post_receive(&RecvWr::new(3, Vec::new())).unwrap();
        active.post_send(&SendWr::immediate(4, FOUR)).unwrap();
        let received = completion(&mut passive);
        assert_eq!((received.completed, received.immediate), (Completed::ReceiveImmediate, Some(FOUR)));
    }
}

/// rxe never completes one.
#[test]
fn a_read_on_a_connection_without_reads_is_refused() {
    for host in hosts("ord0", 0) {
        let none = || Offer { ird: 0, ord: 0, ..Offer::default() };
        let (mut active, _passive) = host.connect(none(), none());
        let memory = host.open_memory(8);
        let read = SendWr::read(1, memory.piece(0, 8), memory.remote().unwrap());
        let refused = active.post_send(&read).unwrap_err();
        assert!(matches!(refused, PostError::NoReads), "{refused}");
    }
}

#[test]
fn requests_beyond_the_device_are_refused() {
    for host in hosts("beyond", 0) {
        let (mut active, _passive) = host.connect_plainly();
        let (memory, limits) = (host.open_memory(8), host.device.capabilities());
        let piece = memory.piece(0, 8);
        let long = SendWr::send(1, Sge { len: limits.max_message + 1, ..piece });
        let refused = active.post_send(&long).unwrap_err();
        assert!(matches!(refused, PostError::MessageTooLong { max, .. } if max == limits.max_message));
        let refused = active.post_send(&SendWr::send(1, vec![piece; limits.max_sge + 1])).unwrap_err();
        assert!(matches!(refused, PostError::TooManyPieces { max, .. } if max == limits.max_sge));
    }
}

/// The error comes with the other sign on siw: taken for success, the request would be lost.
#[test]
fn a_refusal_is_no_success_whatever_its_sign() {
    for kind in [Kind::Siw, Kind::Rxe] {
        let host = host(&format!("user{}", kind as u8), kind, quirk::CREDENTIALS);
        let (mut active, _passive) = host.connect_plainly();
        let refused = active.post_send(&SendWr::send(1, Vec::new())).unwrap_err();
        assert!(matches!(refused, PostError::Credentials), "{refused}");
    }
}

/// The device's words on a failed request are misleading; those of both ends are right.
#[test]
fn a_refused_write_ends_the_connection_at_both_ends() {
    for host in hosts("refused", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        passive.post_receive(&RecvWr::new(9, Vec::new())).unwrap();
        let (closed, source) = (host.open_memory(8), host.memory(8, Access::empty()));
        let place = closed.remote().unwrap();
        drop(closed);
        active.post_send(&SendWr::write(1, source.piece(0, 8), place)).unwrap();
        let told = completion(&mut active);
        assert_eq!((told.wr_id, told.completed), (1, Completed::Write));
        // An RNIC has given it to TCP by the time that the peer refuses.
        let status = if host.kind.is_iwarp() { Status::Success } else { Status::RemoteAccess };
        assert_eq!(told.status, status);
        assert!(matches!(event(&mut active), Event::Disconnected));
        assert!(matches!(event(&mut passive), Event::Disconnected));
        assert!(active.post_send(&SendWr::send(2, Vec::new())).is_err());
    }
}

#[test]
fn one_request_fails_and_those_behind_it_are_flushed() {
    for host in adapters("one_fails", quirk::SLOW) {
        let (mut active, _passive) = host.connect_plainly();
        let good = host.open_memory(8);
        let source = host.memory(8, Access::empty());
        let place = good.remote().unwrap();
        let beyond = place.at(4);
        active.post_send(&SendWr::write(1, source.piece(0, 8), beyond)).unwrap();
        active.post_send(&SendWr::send(2, Vec::new()).unsignaled()).unwrap();
        active.post_receive(&RecvWr::new(3, Vec::new())).unwrap();
        let told = completions(&mut active, 3);
        let told: Vec<_> = told.iter().map(|told| (told.wr_id, told.status)).collect();
        assert!(told.contains(&(1, Status::RemoteAccess)), "{told:?}");
        assert!(told.contains(&(2, Status::Flushed)) && told.contains(&(3, Status::Flushed)), "{told:?}");
    }
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_told_so() {
    for host in hosts("longer", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        let source = host.memory(4, Access::empty());
        active.post_send(&SendWr::send(2, source.piece(0, 4))).unwrap();
        let received = completion(&mut passive);
        assert_eq!((received.status, received.byte_len), (Status::MessageTooLong, 0));
        assert_eq!(received.completed, Completed::Receive);
    }
}

/// On InfiniBand a peer waits for a receive, for as long as it was told; an RNIC ends.
#[test]
fn a_message_waits_for_a_receive_on_infiniband_alone() {
    for host in adapters("waits", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        active.post_send(&SendWr::send(1, Vec::new())).unwrap();
        passive.post_receive(&RecvWr::new(2, Vec::new())).unwrap();
        assert_eq!(completion(&mut passive).wr_id, 2);
        assert_eq!(completion(&mut active).status, Status::Success);
    }
    for host in rnics("ends", 0) {
        let (mut active, _passive) = host.connect_plainly();
        active.post_send(&SendWr::send(1, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        assert!(matches!(event(&mut active), Event::Disconnected));
    }
}

#[test]
fn a_send_may_invalidate_on_iwarp() {
    for host in rnics("invalidate", 0) {
        let (mut active, mut passive) = host.connect_plainly();
        let memory = host.open_memory(8);
        let (source, place) = (host.memory(8, Access::empty()), memory.remote().unwrap());
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        active.post_send(&SendWr::send_invalidate(2, Vec::new(), place.stag)).unwrap();
        let received = completion(&mut passive);
        // siw invalidates, and does not tell.
        assert_eq!((received.status, received.invalidated), (Status::Success, None));
        active.post_send(&SendWr::write(3, source.piece(0, 8), place)).unwrap();
        assert!(matches!(event(&mut active), Event::Disconnected), "the region is still valid");
    }
}
