//! Octets of all lengths, by each operation.

use rddp_rdma::{RecvWr, SendWr, Status};
use rddp_verbs_device::{Endpoint, PostError, Registration};

use crate::support::{Host, completion, hosts};

/// Lengths of messages: none, one octet, many segments, more than some devices carry.
const LENGTHS: [usize; 4] = [0, 1, 64 << 10, (8 << 20) + 1];

/// Calls a test with memory for each length that the devices carry, and with the ends of a
/// connection. Of the two regions, the first has octets, which the test brings to the second.
fn for_each_length(name: &str, test: impl Fn(&mut Endpoint, &mut Endpoint, &Registration, &Registration)) {
    for host in hosts(name, 0) {
        let (mut active, mut passive) = host.connect_plainly();
        for len in LENGTHS {
            let (source, sink) = (filled(&host, len), host.open_memory(len));
            if len as u64 > host.device.capabilities().max_message {
                refuses(&mut active, &source);
                continue;
            }
            test(&mut active, &mut passive, &source, &sink);
            assert!(octets(&source) == octets(&sink), "{len} octets arrived changed");
        }
    }
}

fn filled(host: &Host, len: usize) -> Registration {
    let memory = host.open_memory(len);
    let mut state = 1_u32;
    let octets = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    memory.write(0, &octets.take(len).collect::<Vec<u8>>());
    memory
}

fn octets(memory: &Registration) -> Vec<u8> {
    let mut octets = vec![0; memory.len()];
    memory.read(0, &mut octets);
    octets
}

fn refuses(active: &mut Endpoint, memory: &Registration) {
    let refused = active.post_send(&SendWr::send(1, memory.piece(0, memory.len()))).unwrap_err();
    assert!(matches!(refused, PostError::MessageTooLong { .. }), "{refused}");
}

#[test]
fn sends_of_all_lengths_arrive() {
    for_each_length("sends", |active, passive, source, sink| {
        let len = source.len();
        passive.post_receive(&RecvWr::one(1, sink.piece(0, len))).unwrap();
        active.post_send(&SendWr::send(2, source.piece(0, len))).unwrap();
        let received = completion(passive);
        assert_eq!((received.status, received.byte_len as usize), (Status::Success, len));
        assert_eq!(completion(active).status, Status::Success);
    });
}

#[test]
fn writes_of_all_lengths_arrive() {
    for_each_length("writes", |active, passive, source, sink| {
        let len = source.len();
        passive.post_receive(&RecvWr::new(1, Vec::new())).unwrap();
        active.post_send(&SendWr::write(2, source.piece(0, len), sink.remote().unwrap())).unwrap();
        // The Write's own completion may come before its octets have arrived.
        active.post_send(&SendWr::send(3, Vec::new()).unsignaled()).unwrap();
        assert_eq!(completion(active).status, Status::Success);
        assert_eq!(completion(passive).status, Status::Success);
    });
}

#[test]
fn reads_of_all_lengths_bring_what_is_there() {
    for_each_length("reads", |active, _, source, sink| {
        let len = source.len();
        active.post_send(&SendWr::read(1, sink.piece(0, len), source.remote().unwrap())).unwrap();
        let read = completion(active);
        assert_eq!((read.status, read.byte_len as usize), (Status::Success, len));
    });
}
