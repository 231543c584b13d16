//! Neighbours of one address and one size leave together, and are datagrams of their own all the
//! same.

use std::net::UdpSocket;

use rddp_rnic::{Access, DatagramOptions, Gather, SendWr, SrqConfig, Status, Transport};
use rddp_test_support::{Random, pattern};

use super::common::End;
use super::{Inbox, MOMENT, addr_of, bound, bound_to, idle, program};

fn inline(id: u64, octets: &[u8], to: std::net::SocketAddr) -> SendWr {
    SendWr::datagram(id, Gather::Inline(octets.to_vec()), to)
}

#[test]
fn bundles_of_every_size_arrive_as_their_datagrams() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (near, far) =
            (bound_to(addr, DatagramOptions::default()), bound_to(addr, DatagramOptions::default()));
        let inbox = Inbox::new(&far, 140, 4000);
        let source = near.region(4000, Access::empty());
        source.write(0, &pattern(4000, 1)).unwrap();
        let sizes = [1, 39, 40, 41, 64, 1400, 3999];
        for (round, count) in (1..=67).chain([100, 128, 130]).enumerate() {
            // A socket takes some 200 KB.
            let len = sizes[round % sizes.len()].min(100_000 / count);
            let last = if round % 3 == 0 { len } else { 1 + (round * 7) % len };
            inbox.post(&far, 0..count);
            let list: Vec<SendWr> = (0..count)
                .map(|at| {
                    let len = if at + 1 == count { last } else { len };
                    let from = at % (4000 - len);
                    SendWr::datagram(1, vec![source.sge(from..from + len)], addr_of(&far)).unsignaled()
                })
                .collect();
            let calls = near.qp.counters().send_calls;
            near.qp.post_sends(&list).unwrap();
            let most = (65_000 / len).min(64);
            assert_eq!(
                near.qp.counters().send_calls - calls,
                count.div_ceil(most) as u64,
                "{count} of {len}"
            );
            for at in 0..count {
                let len = if at + 1 == count { last } else { len };
                let (datagram, octets) = inbox.next(&far, at);
                assert!(octets == pattern(4000, 1)[at % (4000 - len)..][..len], "{at} of {count} of {len}");
                assert_eq!((datagram.source, datagram.len as usize), (addr_of(&near), len));
            }
        }
    }
}

/// Only neighbours of one address and one size are bundled, and a message of no octets is one.
#[test]
fn mixtures_keep_their_order_and_their_addresses() {
    let (near, far) = (bound(), [bound(), bound()]);
    let inboxes = [0, 1].map(|at: usize| Inbox::new(&far[at], 400, 300));
    (0..2).for_each(|at: usize| inboxes[at].post(&far[at], 0..400));
    let mut random = Random::new(7);
    let mut wanted = [Vec::new(), Vec::new()];
    let mut list = Vec::new();
    let (mut at, mut len) = (0, 64);
    for id in 0..400 {
        if random.below(4) == 0 {
            (at, len) = (random.below(2), [0, 1, 64, 300][random.below(4)]);
        }
        let octets = pattern(len.min(64), id as u8);
        list.push(inline(id, &octets, addr_of(&far[at])).unsignaled());
        wanted[at].push(octets);
    }
    near.qp.post_sends(&list).unwrap();
    assert!(near.qp.counters().send_calls < 300, "{:?}", near.qp.counters());
    for at in 0..2 {
        for (slot, octets) in wanted[at].iter().enumerate() {
            assert_eq!(inboxes[at].next(&far[at], slot).1, *octets);
        }
    }
}

/// A socket without checksums takes no bundles, as tunnels and some devices do not.
#[test]
fn a_refused_bundle_goes_one_by_one_and_so_does_its_destination_from_then_on() {
    let near = idle();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let without: libc::c_int = 1;
    // SAFETY: the value lives through the call, and the length is its size.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const without).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    near.qp.bind_to(socket, &DatagramOptions::default()).unwrap();
    let far = [bound(), bound()];
    let inboxes = [0, 1].map(|at: usize| Inbox::new(&far[at], 10, 64));
    // The first bundle is tried, and the first to another destination.
    for (round, (at, calls)) in [(0, 11), (0, 10), (1, 11), (0, 10), (1, 10)].into_iter().enumerate() {
        inboxes[at].post(&far[at], 0..10);
        let before = near.qp.counters().send_calls;
        let list: Vec<SendWr> =
            (0..10).map(|id| inline(id, &pattern(64, id as u8), addr_of(&far[at]))).collect();
        near.qp.post_sends(&list).unwrap();
        assert_eq!(near.qp.counters().send_calls - before, calls, "round {round}");
        for id in 0..10 {
            assert_eq!(near.success().wr_id, id);
            assert!(inboxes[at].next(&far[at], id as usize).1 == pattern(64, id as u8));
        }
    }
}

/// Datagrams of a bundle that are left wait, and so do those in the socket.
#[test]
fn a_bundle_may_meet_fewer_receives_than_it_has_datagrams() {
    let (near, far) = (bound(), bound());
    let inbox = Inbox::new(&far, 64, 100);
    inbox.post(&far, 0..5);
    let list: Vec<SendWr> = (0..64).map(|id| inline(id, &pattern(64, id as u8), addr_of(&far))).collect();
    near.qp.post_sends(&list).unwrap();
    (0..5).for_each(|slot| assert!(inbox.next(&far, slot).1 == pattern(64, slot as u8)));
    std::thread::sleep(MOMENT);
    assert!(far.cq.poll_one().is_none());
    let calls = far.qp.counters().receive_calls;
    for slot in 5..64 {
        inbox.post(&far, slot..slot + 1);
        let (datagram, octets) = inbox.next(&far, slot);
        assert_eq!((datagram.source, octets == pattern(64, slot as u8)), (addr_of(&near), true));
    }
    assert!(far.qp.counters().receive_calls <= calls + 1, "what is staged needs no call");
    assert_eq!(far.qp.counters().dropped, 0);
}

/// Each queue pair of a shared queue takes a receive only for what has come for it.
#[test]
fn queue_pairs_share_receives() {
    let host = End::new();
    let srq = host.pd.create_srq(SrqConfig::default());
    let ends = [0; 3].map(|_| {
        let end = host.sibling_with(|config| {
            config.transport = Transport::Udp;
            config.srq = Some(srq.clone());
        });
        end.qp.bind("127.0.0.1:0".parse().unwrap(), &DatagramOptions::default()).unwrap();
        end
    });
    let inbox = Inbox::new(&host, 90, 100);
    let peer = program(addr_of(&ends[0]));
    for round in 0..3 {
        for at in 0..30 {
            peer.send_to(&pattern(50, at as u8), addr_of(&ends[at % 3])).unwrap();
        }
        if round > 0 {
            // Those that wait are told of each receive.
            std::thread::sleep(MOMENT);
        }
        for slot in 0..30 {
            srq.post_recv(inbox.receive(slot)).unwrap();
        }
        let mut got = [0; 3];
        for _ in 0..30 {
            let done = host.success();
            let at = ends.iter().position(|end| end.qp.num() == done.qp).unwrap();
            let (_, octets) = inbox.message(done.wr_id, done.byte_len);
            assert!(octets == pattern(50, (3 * got[at] + at) as u8));
            got[at] += 1;
        }
        assert_eq!((got, srq.len()), ([10; 3], 0));
    }
    drop(ends);
    assert!(host.cq.poll_one().is_none_or(|done| done.status == Status::Flushed));
}
