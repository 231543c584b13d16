//! Receives that several connections take from.

use std::collections::BTreeSet;
use std::time::Instant;

use rddp_rdma::{Access, RecvWr, SendWr, Status};
use rddp_verbs_device::{Endpoint, Event, Offer, Registration, SharedReceives};

use crate::support::{Host, Kind, QUEUES, completion, completions, event, host, hosts, quirk, wait};

const PLACE: usize = 8;

/// Returns a queue of receives with these numbers, and their memory.
fn shared(host: &Host, numbers: impl Iterator<Item = u64>) -> (SharedReceives, Registration) {
    let (shared, memory) =
        (host.device.share_receives(16).unwrap(), host.memory(16 * PLACE, Access::LOCAL_WRITE));
    for (index, number) in numbers.enumerate() {
        shared.post(number, &[memory.piece(index * PLACE, PLACE)], Some).unwrap();
    }
    (shared, memory)
}

/// Returns both ends of a connection: the passive one takes receives from the queue.
fn connect(host: &Host, shared: &SharedReceives) -> (Endpoint, Endpoint) {
    let listener = host.listen();
    let mut active = host.ask(listener.address(), Offer::default());
    wait(&listener, Instant::now());
    let request = listener.take().unwrap().expect("a request");
    let mut other = request.endpoint_sharing(&host.device, QUEUES, Some(shared.clone())).unwrap();
    other.accept(Offer::default()).unwrap();
    assert!(matches!(event(&mut active), Event::Connected(_)));
    assert!(matches!(event(&mut other), Event::Connected(_)));
    (active, other)
}

#[test]
fn completions_have_the_numbers_of_their_receives() {
    for host in hosts("numbers", 0) {
        let (shared, memory) = shared(&host, [7, 3, (1 << 63) - 1, 0].into_iter());
        let octets = host.open_memory(4);
        let mut ends = [connect(&host, &shared), connect(&host, &shared)];
        octets.write(0, b"abcd");
        for (index, (end, number)) in [(0, 7), (1, 3), (1, (1 << 63) - 1), (0, 0)].into_iter().enumerate() {
            let (from, to) = &mut ends[end];
            from.post_send(&SendWr::send(1, vec![octets.piece(index, 1)])).unwrap();
            let told = completion(to);
            assert_eq!((told.wr_id, told.status, told.byte_len), (number, Status::Success, 1));
            let mut octet = [0];
            memory.read(index * PLACE, &mut octet);
            assert_eq!(octet, [b"abcd"[index]]);
        }
        assert!(shared.take_returned().is_empty());
        assert!(ends[0].1.post_receive(&RecvWr::new(1, Vec::new())).is_err(), "none of its own");
    }
}

#[test]
fn what_nobody_has_looked_for_is_given_back() {
    for host in hosts("unseen", 0) {
        let (shared, _memory) = shared(&host, 4..7);
        let (mut active, passive) = connect(&host, &shared);
        active.post_send(&SendWr::send(1, Vec::new())).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        // On an RNIC, TCP has it, and a Read behind it tells that the peer has.
        let (place, sink) = (host.open_memory(8), host.open_memory(8));
        active.post_send(&SendWr::read(2, sink.piece(0, 8), place.remote().unwrap())).unwrap();
        assert_eq!(completion(&mut active).status, Status::Success);
        drop(passive);
        assert_eq!(shared.take_returned(), BTreeSet::from([4]));
        // The next one takes the others.
        let (mut active, mut passive) = connect(&host, &shared);
        for number in [5, 6] {
            active.post_send(&SendWr::send(1, Vec::new())).unwrap();
            assert_eq!(completion(&mut passive).wr_id, number);
        }
    }
}

#[test]
fn an_end_takes_no_receives_with_it() {
    for host in hosts("untaken", 0) {
        let (shared, _memory) = shared(&host, 0..2);
        let (mut active, mut passive) = connect(&host, &shared);
        active.close();
        active.poll(&mut Vec::new()).unwrap();
        assert!(matches!(event(&mut passive), Event::Disconnected));
        drop((active, passive));
        assert!(shared.take_returned().is_empty());
        let (mut active, mut passive) = connect(&host, &shared);
        active.post_send(&SendWr::send(1, Vec::new())).unwrap();
        active.post_send(&SendWr::send(2, Vec::new())).unwrap();
        let told = completions(&mut passive, 2);
        assert_eq!([told[0].wr_id, told[1].wr_id], [0, 1]);
    }
}

/// Nothing was taken from the queue, so that the device has nothing to tell.
#[test]
fn a_refused_connection_does_not_show_that_a_device_is_silent() {
    let host = host("refused_shared", Kind::Rxe, quirk::NO_LAST);
    let is_silent = || format!("{:?}", host.device).contains("is_silent: true");
    let (shared, _memory) = shared(&host, 0..2);
    let mut refused = host.look_for(host.address(1, 9)).sharing(Some(shared.clone()));
    assert!(matches!(event(&mut refused), Event::Resolved));
    refused.connect(Offer::default()).unwrap();
    assert!(matches!(event(&mut refused), Event::Failed(_)));
    drop(refused);
    assert!(!is_silent());
    drop(connect(&host, &shared));
    assert!(is_silent());
}

/// Numbers of queue pairs would be kept for ever.
#[test]
fn what_a_device_has_told_of_a_queue_pair_is_forgotten_with_it() {
    let host = host("forgotten", Kind::Rxe, 0);
    let (shared, _memory) = shared(&host, 0..2);
    for _ in 0..3 {
        drop(connect(&host, &shared));
    }
    let told = format!("{:?}", host.device);
    assert!(told.contains("ended: Mutex { data: {}"), "{told}");
}

#[test]
fn a_device_has_shared_queues_or_says_so() {
    let without = host("no_shared", Kind::Rxe, quirk::UNSHARED);
    assert!(!without.device.capabilities().shared_receives);
    let error = without.device.share_receives(1).unwrap_err().to_string();
    assert!(error.contains("no_shared") && error.contains("shared receive queues"), "{error}");
    let short = host("short_shared", Kind::Rxe, quirk::SHORT);
    assert_eq!([4, 9].map(|wanted| short.device.share_receives(wanted).unwrap().capacity()), [4, 8]);
}
