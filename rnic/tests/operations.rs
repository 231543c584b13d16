//! Every operation, both ways, with CRC and markers on and off.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use common::device::{is_on_device, needs, needs_software};
use common::{ALL, End, connect_on, connected, exchange};
use rddp_rnic::{
    Access, Atomics, Completed, ConnectOptions, Operation, QpConfig, RecvWr, Revision, Rtr, RtrSet, SendWr,
    Status,
};
use rddp_test_support::pattern;

/// Returns all combinations of framings; of a device, whose own is the only one, the plainest.
fn framings() -> impl Iterator<Item = (ConnectOptions, ConnectOptions)> {
    let most = if is_on_device() { 1 } else { usize::MAX };
    let all = [false, true].into_iter().flat_map(|crc| {
        [(false, false), (false, true), (true, false), (true, true)].into_iter().map(move |(a, p)| {
            let base = ConnectOptions { crc, ..Default::default() };
            (ConnectOptions { markers: a, ..base.clone() }, ConnectOptions { markers: p, ..base })
        })
    });
    all.take(most)
}

fn each_framing(run: impl Fn(&End, &End)) {
    for (active_options, passive_options) in framings() {
        let (active, passive) = (End::new(), End::new());
        connect_on("127.0.0.1:0", &active, &passive, &active_options, &passive_options);
        run(&active, &passive);
    }
}

const SIZES: [usize; 10] = [0, 1, 3, 64, 507, 512, 1448, 65_536, 100_001, 3_000_000];

#[test]
fn sends_arrive_whole_and_in_order() {
    each_framing(|active, passive| {
        let source = active.region(3_000_000, Access::empty());
        source.write(0, &pattern(3_000_000, 7)).unwrap();
        let inbox = passive.region(3_000_000, Access::LOCAL_WRITE);
        for (i, size) in SIZES.into_iter().enumerate() {
            passive.qp.post_recv(RecvWr::one(i as u64, inbox.sge(0..size))).unwrap();
            active.qp.post_send(&SendWr::send(i as u64, source.sge(0..size))).unwrap();
            let received = passive.success();
            assert_eq!((received.wr_id, received.byte_len as usize), (i as u64, size));
            assert_eq!(inbox.read(0, size).unwrap(), pattern(size, 7));
            assert_eq!(active.success().completed, Completed::Send);
        }
    });
}

#[test]
fn writes_are_placed_where_the_header_says() {
    each_framing(|active, passive| {
        let source = active.region(3_000_000, Access::empty());
        source.write(0, &pattern(3_000_000, 9)).unwrap();
        let target = passive.region(3_000_016, ALL);
        let inbox = passive.region(16, Access::LOCAL_WRITE);
        for size in SIZES {
            target.write(0, &vec![0xee; size + 16]).unwrap();
            passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
            active.qp.post_send(&SendWr::write(2, source.sge(0..size), target.remote(8))).unwrap();
            active.qp.post_send(&SendWr::send_inline(3, b"written")).unwrap();
            passive.success();
            assert_eq!(target.read(8, size).unwrap(), pattern(size, 9));
            assert_eq!(target.read(0, 8).unwrap(), [0xee; 8]);
            assert_eq!(target.read(size + 8, 8).unwrap(), [0xee; 8]);
            assert_eq!(active.success().completed, Completed::Write);
            active.success();
        }
    });
}

#[test]
fn reads_fetch_what_the_peer_has() {
    each_framing(|active, passive| {
        for (from, to) in [(passive, active), (active, passive)] {
            // The passive side may send only after the first FPDU; a Read RTR was that.
            let source = from.region(3_000_000, Access::REMOTE_READ);
            source.write(0, &pattern(3_000_000, 3)).unwrap();
            let sink = to.region(3_000_016, Access::LOCAL_WRITE);
            for size in SIZES {
                to.qp.post_send(&SendWr::read(4, sink.sge(8..size + 8), source.remote(0))).unwrap();
                let done = to.success();
                assert_eq!((done.completed, done.byte_len as usize), (Completed::Read, size));
                assert_eq!(sink.read(8, size).unwrap(), pattern(size, 3));
            }
        }
    });
}

#[test]
fn gather_and_scatter_lists_are_walked_in_order() {
    each_framing(|active, passive| {
        let source = active.region(10_000, Access::empty());
        source.write(0, &pattern(10_000, 1)).unwrap();
        let inbox = passive.region(10_000, Access::LOCAL_WRITE);
        let gather = vec![source.sge(0..1), source.sge(1..1), source.sge(1..5000), source.sge(5000..9999)];
        let scatter = vec![inbox.sge(0..7), inbox.sge(7..7), inbox.sge(7..9000), inbox.sge(9000..10_000)];
        passive.qp.post_recv(RecvWr::new(1, scatter)).unwrap();
        active.qp.post_send(&SendWr::send(2, gather)).unwrap();
        assert_eq!(passive.success().byte_len, 9999);
        assert_eq!(inbox.read(0, 9999).unwrap(), pattern(9999, 1));
    });
}

/// RFC 7306 §5: both atomics, their masks, the original value returned.
#[test]
fn atomics_change_the_target_and_return_the_original() {
    needs("atomics with masks", |device| device.atomics == Atomics::Masked);
    each_framing(|active, passive| {
        let target = passive.region(64, ALL);
        let sink = active.region(8, Access::LOCAL_WRITE);
        let original = || u64::from_ne_bytes(sink.read(0, 8).unwrap().try_into().unwrap());
        let value = || u64::from_ne_bytes(target.read(8, 8).unwrap().try_into().unwrap());
        target.write(8, &10u64.to_ne_bytes()).unwrap();
        active.qp.post_send(&SendWr::fetch_add(1, sink.whole(), target.remote(8), 5)).unwrap();
        assert_eq!(active.success().completed, Completed::FetchAdd);
        assert_eq!((original(), value()), (10, 15));
        active.qp.post_send(&SendWr::cmp_swap(2, sink.whole(), target.remote(8), 15, 99)).unwrap();
        assert_eq!(active.success().completed, Completed::CmpSwap);
        assert_eq!((original(), value()), (15, 99));
        active.qp.post_send(&SendWr::cmp_swap(3, sink.whole(), target.remote(8), 15, 1)).unwrap();
        active.success();
        assert_eq!((original(), value()), (99, 99));
        let swap = Operation::CmpSwap {
            sink: sink.whole(),
            remote: target.remote(8),
            compare: 0,
            compare_mask: 0,
            swap: 0xff00,
            swap_mask: 0xff00,
        };
        active.qp.post_send(&SendWr::new(4, swap)).unwrap();
        active.success();
        assert_eq!((original(), value()), (99, 0xff63));
    });
}

/// RFC 7306 §6: eight octets in the completion, the receive's memory left alone.
#[test]
fn immediate_data_completes_a_receive_without_touching_it() {
    needs("Immediate Data of eight octets", |device| device.immediate_len == 8);
    each_framing(|active, passive| {
        let inbox = passive.region(8, ALL);
        inbox.write(0, &[0xaa; 8]).unwrap();
        passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        passive.qp.post_recv(RecvWr::new(2, [])).unwrap();
        active.qp.post_send(&SendWr::immediate(3, *b"12345678").solicited()).unwrap();
        let received = passive.success();
        assert_eq!(received.completed, Completed::ReceiveImmediate);
        assert_eq!(received.immediate, Some(*b"12345678"));
        assert_eq!((received.byte_len, received.solicited), (0, true));
        assert_eq!(inbox.read(0, 8).unwrap(), [0xaa; 8]);
        let source = active.region(8, Access::empty());
        source.write(0, b"abcdefgh").unwrap();
        let wr = SendWr::write_immediate(4, source.whole(), inbox.remote(0), [0, 0, 0, 5, 0, 0, 0, 0]);
        active.qp.post_send(&wr).unwrap();
        let received = passive.success();
        assert_eq!((received.immediate_u32(), received.byte_len), (Some(5), 8));
        assert_eq!(inbox.read(0, 8).unwrap(), b"abcdefgh");
        assert_eq!(active.success().wr_id, 3);
        let written = active.success();
        assert_eq!((written.wr_id, written.completed), (4, Completed::Write));
    });
}

/// RFC 5040 §5.3: the STag is invalid before the receive completes.
#[test]
fn send_with_invalidate_revokes_the_region() {
    needs_software("regions that peers invalidate");
    each_framing(|active, passive| {
        let (target, inbox) = (passive.region(64, ALL), passive.region(64, Access::LOCAL_WRITE));
        passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
        let source = active.region(4, Access::empty());
        active.qp.post_send(&SendWr::send_invalidate(2, source.whole(), target.stag()).solicited()).unwrap();
        let received = passive.success();
        assert_eq!((received.invalidated, received.solicited), (Some(target.stag()), true));
        assert!(!target.is_valid());
        active.success();
        active.qp.post_send(&SendWr::write(3, source.whole(), target.remote(0))).unwrap();
        passive.event_like(|event| matches!(event, rddp_rnic::AsyncEventKind::Fault(_)));
        assert_eq!(passive.qp.terminate_sent().unwrap().code.0, 0x1100);
    });
}

/// The program tells its peer the STag of a bind before the bind has completed.
#[test]
fn a_bind_gives_the_window_the_key_that_the_request_names() {
    needs_software("windows that are bound again while they are bound");
    let (active, passive) = connected(&ConnectOptions::default());
    let region = passive.region(64, Access::LOCAL_WRITE | Access::BIND);
    let window = passive.pd.allocate_rebindable_window().unwrap();
    let source = active.region(64, Access::empty());
    source.write(0, &pattern(64, 7)).unwrap();
    for (turn, range) in [0..32, 32..64].into_iter().enumerate() {
        let key = window.stag().0.wrapping_add(1) as u8;
        let stag = rddp_rnic::Stag(window.stag().0 & !0xff | u32::from(key));
        let bind =
            SendWr::bind_with_key(1, window.stag(), region.sge(range.clone()), Access::REMOTE_WRITE, key);
        passive.qp.post_send(&bind).unwrap();
        assert_eq!((passive.success().completed, window.stag()), (Completed::Bind, stag));
        let remote = rddp_rnic::Remote { stag, to: region.base() + range.start as u64 };
        active.qp.post_send(&SendWr::write(2, source.sge(range.clone()), remote)).unwrap();
        active.success();
        exchange(&active, &passive);
        assert_eq!(region.read(0, range.end).unwrap(), pattern(64, 7)[..range.end], "turn {turn}");
    }
    let stag = window.stag();
    let unbind = SendWr::bind(3, stag, region.sge(0..0), Access::empty());
    passive.qp.post_send(&unbind).unwrap();
    passive.success();
    let remote = rddp_rnic::Remote { stag, to: region.base() + 32 };
    active.qp.post_send(&SendWr::write(4, source.sge(32..64), remote)).unwrap();
    passive.event_like(|event| matches!(event, rddp_rnic::AsyncEventKind::Fault(_)));
    assert_eq!(passive.qp.terminate_sent().unwrap().code.0, 0x1100);
}

#[test]
fn a_window_gives_rights_to_a_part_and_to_one_qp() {
    needs("memory windows", |device| device.windows);
    let (active, passive) = connected(&ConnectOptions::default());
    let region = passive.region(4096, Access::LOCAL_WRITE | Access::BIND);
    let window = passive.pd.allocate_window().unwrap();
    let rights = Access::REMOTE_WRITE;
    passive.qp.post_send(&SendWr::bind(1, window.stag(), region.sge(100..200), rights)).unwrap();
    assert_eq!(passive.success().completed, Completed::Bind);
    let source = active.region(100, Access::empty());
    source.write(0, &pattern(100, 5)).unwrap();
    active.qp.post_send(&SendWr::write(2, source.whole(), window.remote(0))).unwrap();
    active.success();
    let inbox = passive.region(1, Access::LOCAL_WRITE);
    passive.qp.post_recv(RecvWr::one(3, inbox.whole())).unwrap();
    active.qp.post_send(&SendWr::send_inline(4, b"!")).unwrap();
    passive.success();
    active.success();
    assert_eq!(region.read(100, 100).unwrap(), pattern(100, 5));
    active.qp.post_send(&SendWr::write(5, source.whole(), window.remote(1))).unwrap();
    refused(&active, &passive, 0x1101);
}

/// Expects a Write of the active end to be refused: by a Terminate with this code, or as a device
/// tells it.
fn refused(active: &End, passive: &End, code: u16) {
    if is_on_device() {
        return assert_eq!(active.next().status, Status::RemoteAccess);
    }
    passive.event_like(|event| matches!(event, rddp_rnic::AsyncEventKind::Fault(_)));
    assert_eq!(passive.qp.terminate_sent().unwrap().code.0, code);
}

/// RFC 5040 §5.5 rule 15: completions come in the order of posting, Reads among the rest.
#[test]
fn completions_keep_the_order_of_posting() {
    let options = ConnectOptions { ord: 2, ird: 2, ..Default::default() };
    let (active, passive) = connected(&options);
    let (source, local) = (passive.region(1 << 20, ALL), active.region(1 << 20, ALL));
    let inbox = passive.region(64, Access::LOCAL_WRITE);
    for i in 0..20 {
        passive.qp.post_recv(RecvWr::one(i, inbox.whole())).unwrap();
    }
    let list: Vec<SendWr> = (0..60)
        .map(|i| match i % 3 {
            0 => SendWr::read(i, local.sge(0..50_000), source.remote(0)),
            1 => SendWr::send_inline(i, b"x"),
            _ => SendWr::write(i, local.sge(0..1000), source.remote(0)),
        })
        .collect();
    active.qp.post_sends(&list).unwrap();
    for i in 0..60 {
        assert_eq!(active.success().wr_id, i);
    }
}

#[test]
fn a_read_fence_holds_back_what_follows() {
    let (active, passive) = connected(&ConnectOptions::default());
    let (source, sink) = (passive.region(1 << 20, ALL), active.region(1 << 20, ALL));
    source.write(0, &pattern(1 << 20, 1)).unwrap();
    let list = [
        SendWr::read(1, sink.whole(), source.remote(0)).unsignaled(),
        SendWr::write(2, sink.whole(), source.remote(0)).read_fence().unsignaled(),
        SendWr::read(3, sink.sge(0..0), source.remote(0)),
    ];
    active.qp.post_sends(&list).unwrap();
    assert_eq!(active.success().wr_id, 3);
    assert_eq!(source.read(0, 1 << 20).unwrap(), pattern(1 << 20, 1));
}

/// A fenced Read that finds no room in the segment at first does not wait for itself.
#[test]
fn a_fenced_read_that_is_cut_off_by_a_segments_end_goes_out() {
    needs_software("a limit of TCP's segments");
    let options = ConnectOptions { mss: Some(1460), ..Default::default() };
    let (active, passive) = connected(&options);
    let (local, remote) = (active.region(4096, ALL), passive.region(4096, ALL));
    for len in (1300..1460).step_by(4) {
        let list = [
            SendWr::write(1, local.sge(0..len), remote.remote(0)).unsignaled(),
            SendWr::read(2, local.sge(0..8), remote.remote(0)).read_fence(),
        ];
        active.qp.post_sends(&list).unwrap();
        assert_eq!(active.success().wr_id, 2, "behind a Write of {len}");
    }
}

/// draft-hilland-rddp-verbs §8.1: a local fence waits for earlier requests of the queue, and for
/// nothing else. The posting program makes no further call here, so nobody but the fence's own end
/// may send what it held back.
#[test]
fn a_local_fence_ends_when_the_requests_before_it_are_done() {
    needs("Immediate Data of eight octets", |device| device.immediate_len == 8);
    let (active, passive) = connected(&ConnectOptions::default());
    let (source, local) = (passive.region(64, ALL), active.region(64, ALL));
    let window = active.pd.allocate_window().unwrap();
    let fenced = |i| SendWr::send_inline(i, b"fenced").local_fence();
    let bind = SendWr::bind(3, window.stag(), local.whole(), Access::REMOTE_WRITE);
    let read = SendWr::read(5, local.whole(), source.remote(0));
    let lists = [
        vec![SendWr::send_inline(0, b""), fenced(1)],
        vec![fenced(2)],
        vec![bind, fenced(4)],
        vec![read, fenced(6), fenced(7)],
        vec![SendWr::write_immediate(8, local.sge(0..8), source.remote(0), [8; 8]).local_fence(), fenced(9)],
    ];
    let (mut received, mut done) = (0, 0);
    for list in lists {
        let messages = list.iter().filter(|wr| !matches!(wr.wr_id, 3 | 5)).count() as u64;
        for id in received..received + messages {
            passive.qp.post_recv(RecvWr::one(id, source.whole())).unwrap();
        }
        active.qp.post_sends(&list).unwrap();
        for _ in 0..messages {
            assert_eq!(passive.success().wr_id, received);
            received += 1;
        }
        for _ in &list {
            assert_eq!(active.success().wr_id, done);
            done += 1;
        }
    }
}

#[test]
fn every_startup_variant_connects_and_carries_data() {
    needs_software("the startup of MPA");
    let rtrs = [Rtr::Write, Rtr::Read].map(RtrSet::only);
    let mut variants = vec![
        ConnectOptions { revision: Revision::One, ..Default::default() },
        ConnectOptions { peer_to_peer: false, ..Default::default() },
        ConnectOptions { ird: 0, ord: 0, ..Default::default() },
    ];
    variants.extend(rtrs.map(|rtr| ConnectOptions { rtr, ..Default::default() }));
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        for options in &variants {
            let (active, passive) = (End::new(), End::new());
            let inbox = passive.region(64, Access::LOCAL_WRITE);
            passive.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
            connect_on(addr, &active, &passive, options, &ConnectOptions::default());
            active.qp.post_send(&SendWr::send_inline(2, b"hello")).unwrap();
            assert_eq!(passive.success().byte_len, 5);
            let back = active.region(64, Access::LOCAL_WRITE);
            active.qp.post_recv(RecvWr::one(3, back.whole())).unwrap();
            passive.qp.post_send(&SendWr::send_inline(4, b"hello back")).unwrap();
            active.success();
            assert_eq!(active.success().byte_len, 10);
        }
    }
}

#[test]
fn a_passive_side_that_posts_first_is_held_back_until_the_first_fpdu() {
    needs_software("the startup of MPA");
    let options = ConnectOptions { peer_to_peer: false, ..Default::default() };
    let (active, passive) = (End::new(), End::new());
    let inbox = active.region(64, Access::LOCAL_WRITE);
    active.qp.post_recv(RecvWr::one(1, inbox.whole())).unwrap();
    connect_on("127.0.0.1:0", &active, &passive, &options, &options);
    passive.qp.post_send(&SendWr::send_inline(2, b"early")).unwrap();
    assert!(!active.cq.wait(Some(std::time::Duration::from_millis(50))).unwrap());
    active
        .qp
        .post_send(&SendWr::write_inline(3, b"", rddp_rnic::Remote { stag: rddp_rnic::Stag(0), to: 0 }))
        .unwrap();
    active.success();
    assert_eq!(active.success().byte_len, 5);
    assert_eq!(passive.success().status, Status::Success);
}

/// RFC 5042 §6.2.2: dropping a region closes all access to it, through its windows too.
#[test]
fn a_dropped_region_takes_its_windows_along() {
    needs("memory windows", |device| device.windows);
    let (active, passive) = connected(&ConnectOptions::default());
    let region = passive.region(4096, Access::LOCAL_WRITE | Access::BIND);
    let window = passive.pd.allocate_window().unwrap();
    let bind = SendWr::bind(1, window.stag(), region.whole(), Access::REMOTE_WRITE);
    passive.qp.post_send(&bind).unwrap();
    passive.success();
    assert!(region.deregister().is_err());
    let remote = window.remote(0);
    drop(region);
    active.qp.post_send(&SendWr::write_inline(2, b"late", remote)).unwrap();
    refused(&active, &passive, 0x1100);
}

/// RFC 5042 §6.2.2: a request that failed half-way through its gather list holds no memory back.
#[test]
fn a_failed_gather_keeps_no_grant() {
    needs_software("Invalidate of a region");
    let (active, _passive) = connected(&ConnectOptions::default());
    let (good, gone) = (active.region(64, Access::empty()), active.region(64, Access::empty()));
    let list = vec![good.whole(), gone.whole()];
    let invalidate = SendWr::invalidate(0, gone.stag()).unsignaled();
    active.qp.post_sends(&[invalidate, SendWr::send(1, list)]).unwrap();
    assert_eq!(active.next().status, Status::LocalProtection);
    good.deregister().unwrap();
}

/// RFC 5041 §5.3, and demanded by receivers in the field: a message is complete before the next
/// begins, although both ends write, send and answer Reads at once.
#[test]
fn messages_are_not_interleaved() {
    each_framing(|active, passive| {
        const LEN: usize = 1_000_000;
        let ends = [active, passive];
        let regions = ends.map(|end| [end.region(LEN, ALL), end.region(LEN, ALL), end.region(LEN, ALL)]);
        for (end, [source, ..]) in ends.iter().zip(&regions) {
            source.write(0, &pattern(LEN, 4)).unwrap();
            for i in 0..8 {
                end.qp.post_recv(RecvWr::one(100 + i, source.sge(0..0))).unwrap();
            }
        }
        for (i, end) in ends.iter().enumerate() {
            let ([source, _, sink], [from, target, _]) = (&regions[i], &regions[1 - i]);
            let round = [
                SendWr::read(1, sink.whole(), from.remote(0)),
                SendWr::write(2, source.whole(), target.remote(0)),
                SendWr::send(3, source.sge(0..0)),
            ];
            for _ in 0..8 {
                end.qp.post_sends(&round).unwrap();
            }
        }
        std::thread::scope(|scope| {
            for end in ends {
                scope.spawn(move || {
                    for _ in 0..32 {
                        end.success();
                    }
                });
            }
        });
        for [_, target, sink] in &regions {
            assert_eq!(target.read(0, LEN).unwrap(), pattern(LEN, 4));
            assert_eq!(sink.read(0, LEN).unwrap(), pattern(LEN, 4));
        }
    });
}

/// draft-hilland-rddp-verbs §6.3: each direction of a QP has a completion queue, and waiting on
/// either makes progress.
#[test]
fn sends_and_receives_complete_on_queues_of_their_own() {
    let with_two_queues = || {
        let mut end = End::new();
        let received = end.rnic.create_cq(16).unwrap();
        let config = QpConfig { recv_cq: received.clone(), ..QpConfig::new(&end.cq) };
        end.qp = end.pd.create_qp(&config).unwrap();
        (end, received)
    };
    let ((active, active_received), (passive, passive_received)) = (with_two_queues(), with_two_queues());
    connect_on("127.0.0.1:0", &active, &passive, &ConnectOptions::default(), &ConnectOptions::default());
    let (inbox, source) = (passive.region(64, ALL), active.region(64, ALL));
    for id in 0..10 {
        passive.qp.post_recv(RecvWr::one(id, inbox.whole())).unwrap();
        active.qp.post_send(&SendWr::send_inline(id, b"hello")).unwrap();
        assert!(passive_received.wait(Some(common::PATIENCE)).unwrap(), "a message woke nobody");
        let received = passive_received.poll_one().unwrap();
        assert_eq!((received.wr_id, received.completed), (id, Completed::Receive));
        passive.qp.post_send(&SendWr::read(id, inbox.whole(), source.remote(0))).unwrap();
        assert_eq!(
            (passive.success().completed, active.success().completed),
            (Completed::Read, Completed::Send)
        );
    }
    assert!(active_received.poll_one().is_none() && passive_received.poll_one().is_none());
    assert!(active.cq.poll_one().is_none() && passive.cq.poll_one().is_none());
}

/// A passive siw may leave the first FPDU unread until more arrives.
#[test]
fn a_silent_peer_is_nudged_a_few_times() {
    needs_software("the startup of MPA");
    // A Read RTR would be answered.
    let options = ConnectOptions { rtr: RtrSet::only(Rtr::Write), ..Default::default() };
    let (active, passive) = connected(&options);
    let received = || passive.qp.counters().fpdus_received;
    let deadline = std::time::Instant::now() + common::PATIENCE;
    // The RTR and five nudges; nothing of them shows to either program.
    while received() < 6 && std::time::Instant::now() < deadline {
        assert!(!passive.cq.wait(Some(std::time::Duration::from_millis(50))).unwrap());
    }
    assert_eq!(received(), 6);
    assert!(active.cq.poll_one().is_none());
    let (active, passive) = connected(&ConnectOptions { nudge: false, ..options });
    std::thread::sleep(std::time::Duration::from_millis(400));
    passive.cq.poll_one();
    assert_eq!(passive.qp.counters().fpdus_received, 1);
    drop(active);
}
