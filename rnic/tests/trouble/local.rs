//! Mistakes of this end's program: one completion reports it, all others are flushed, the peer gets
//! a Terminate without headers (draft-hilland-rddp-verbs §8.3.2), and work posted before is done.

use rddp_rdmap::{Opcode, TerminateCode};
use rddp_rnic::{
    Access, AsyncEventKind, Capabilities, Completed, Fault, MemoryRegion, Operation, PostError,
    PostListError, QpConfig, QpState, RecvWr, Remote, Rnic, SendWr, Sge, SgeFault, Stag, Status,
};
use rddp_test_support::{Peer, plain, segment};

use crate::common::raw::{BOTH, Role, client_server, connect_raw, with_plain_raw};
use crate::common::{ALL, End};

const LIMITS: Capabilities = Rnic::CAPABILITIES;

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Returns 16 octets of memory that are invalid in several ways; the regions are kept, so that the
/// fault is the intended one.
fn bad_sges(end: &End) -> Vec<(SgeFault, &'static str, Sge, Vec<MemoryRegion>)> {
    let good = end.region(16, ALL);
    let foreign = end.rnic.alloc_pd().allocate(16, ALL).unwrap();
    let gone = end.region(16, ALL);
    let gone_sge = gone.whole();
    gone.deregister().unwrap();
    let other_key = Sge { stag: Stag(good.stag().0 ^ 1), ..good.whole() };
    let wrapping = Sge { addr: u64::MAX - 7, ..good.whole() };
    let read_only = end.region(16, Access::REMOTE_READ);
    let invalid = end.region(16, ALL);
    end.qp.post_send(&SendWr::invalidate(99, invalid.stag())).unwrap();
    end.success();
    let again = end.region(16, ALL);
    let before = again.whole();
    again.reregister(ALL).unwrap();
    let window = end.pd.allocate_window().unwrap();
    end.qp.post_send(&SendWr::bind(99, window.stag(), good.whole(), Access::REMOTE_READ)).unwrap();
    end.success();
    let bound = Sge { stag: window.stag(), ..good.whole() };
    // Leaked, so that it stays bound.
    std::mem::forget(window);
    vec![
        (SgeFault::Invalid, "unknown", Sge { stag: Stag(0x1234_5678), ..good.whole() }, vec![]),
        (SgeFault::Invalid, "zero", Sge { stag: Stag(0), ..good.whole() }, vec![]),
        (SgeFault::Invalid, "another key", other_key, vec![]),
        (SgeFault::Invalid, "deregistered", gone_sge, vec![gone]),
        (SgeFault::Invalid, "invalidated", invalid.whole(), vec![invalid]),
        (SgeFault::Invalid, "registered again", before, vec![again]),
        (SgeFault::Invalid, "a window", bound, vec![]),
        (SgeFault::OutOfBounds, "past its end", good.sge(1..17), vec![]),
        (SgeFault::OutOfBounds, "long", good.sge(0..1 << 20), vec![]),
        (SgeFault::OutOfBounds, "before its start", Sge { addr: good.base() - 1, ..good.whole() }, vec![]),
        (SgeFault::OutOfBounds, "wrapping", wrapping, vec![good]),
        (SgeFault::OtherPd, "another PD's", foreign.whole(), vec![foreign]),
        (SgeFault::ReadOnly, "not writable", read_only.whole(), vec![read_only]),
    ]
}

/// Ways in which memory becomes invalid after a request was posted.
const WAYS: [fn(&MemoryRegion); 3] = [
    |region| region.deregister().unwrap(),
    |region| _ = region.reregister(ALL).unwrap(),
    |region| _ = region.reregister(Access::REMOTE_READ).unwrap(),
];

/// Checks that the peer gets `before`, then a Terminate without headers.
fn sees_the_end(raw: &mut Peer, before: &[Opcode]) {
    for opcode in before {
        raw.expect(*opcode);
    }
    let terminate = raw.terminate();
    assert_eq!((terminate.code, terminate.header), (TerminateCode::LOCAL_CATASTROPHIC, None));
}

/// Checks that the ids 0 and 1 succeed, 2 fails, and all others are flushed.
fn fails_at_two(end: &End, count: u64, failure: Status) {
    for completion in end.completions_of(0..count) {
        let expected = match completion.wr_id {
            0 | 1 => Status::Success,
            2 => failure,
            _ => Status::Flushed,
        };
        assert_eq!(completion.status, expected, "{completion:?}");
    }
    end.event_like(|event| *event == AsyncEventKind::Fault(Fault::LocalCatastrophic));
}

/// Memory that an earlier request of the queue makes invalid was valid when it was posted.
#[test]
fn bad_memory_in_a_request_ends_it_alone() {
    type Make = fn(Sge, Sge) -> SendWr;
    let operations: [Make; 6] = [
        |bad, _| SendWr::send(2, bad),
        |bad, good| SendWr::write(2, vec![good, bad], REMOTE),
        |bad, _| SendWr::read(2, bad, REMOTE),
        |bad, _| SendWr::fetch_add(2, bad, REMOTE, 1),
        |bad, _| SendWr::cmp_swap(2, bad, REMOTE, 1, 2),
        |bad, good| SendWr::write_immediate(2, vec![good, bad], REMOTE, [0; 8]),
    ];
    for (i, make) in operations.iter().enumerate() {
        for role in BOTH {
            let (end, mut raw) = with_plain_raw(role);
            let (inbox, good) = (end.region(8, Access::LOCAL_WRITE), end.region(8, ALL));
            end.qp.post_recv(RecvWr::one(5, inbox.whole())).unwrap();
            let bad = end.region(16, ALL);
            let request = make(bad.whole(), good.whole());
            let list = [
                SendWr::send_inline(0, b"first"),
                SendWr::write_inline(1, b"second", REMOTE),
                SendWr::invalidate(9, bad.stag()).unsignaled(),
                // Failures make a completion whether they are signaled or not.
                if i % 2 == 0 { request.unsignaled() } else { request },
                SendWr::send_inline(3, b"never").unsignaled(),
                SendWr::read(4, good.whole(), REMOTE),
            ];
            end.qp.post_sends(&list).unwrap();
            sees_the_end(&mut raw, &[Opcode::Send, Opcode::Write]);
            fails_at_two(&end, 6, Status::LocalProtection);
        }
    }
}

#[test]
fn bad_memory_in_a_receive_ends_it_alone() {
    for (which, way) in WAYS.iter().enumerate() {
        for large in [false, true] {
            let (end, mut raw) = with_plain_raw(BOTH[which % 2]);
            let (good, bad) = (end.region(60_000, ALL), end.region(16, ALL));
            let list =
                if large { vec![bad.whole(), good.whole()] } else { vec![good.sge(0..1), bad.whole()] };
            for (id, scatter) in [(0, vec![]), (1, vec![]), (2, list), (3, vec![])] {
                end.qp.post_recv(RecvWr::new(id, scatter)).unwrap();
            }
            way(&bad);
            end.qp.post_send(&SendWr::read(4, good.sge(0..8), REMOTE)).unwrap();
            raw.send(&segment::send(1, 0, true, b""));
            raw.send(&segment::send(2, 0, true, b""));
            raw.send(&segment::send(3, 0, true, &vec![1; if large { 60_000 } else { 17 }]));
            sees_the_end(&mut raw, &[Opcode::ReadRequest]);
            fails_at_two(&end, 5, Status::LocalProtection);
            assert_eq!(end.qp.state(), QpState::Terminate, "{which}");
        }
    }
}

/// draft-hilland-rddp-verbs §8.2: elements that a message does not reach are not checked, and
/// neither are empty ones.
#[test]
fn memory_that_is_not_used_is_not_checked() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let (good, gone) = (end.region(8, ALL), end.region(8, ALL));
    let empty = Sge { stag: Stag(0x1234_5678), addr: 0, len: 0 };
    end.qp.post_recv(RecvWr::new(1, [empty, good.whole(), gone.whole()])).unwrap();
    gone.deregister().unwrap();
    raw.send(&segment::send(1, 0, true, b"12345678"));
    assert_eq!(end.success().byte_len, 8);
    end.qp.post_send(&SendWr::send(2, vec![empty, good.whole(), empty])).unwrap();
    assert_eq!(raw.expect(Opcode::Send).1, b"12345678");
    end.qp.post_send(&SendWr::read(3, empty, REMOTE)).unwrap();
    assert_eq!(raw.read_request().size, 0);
}

/// draft-hilland-rddp-verbs §6.5: a Read on a connection with an ORD of 0.
#[test]
fn a_read_without_ord_ends_the_connection() {
    for make in [
        |sge| SendWr::read(2, sge, REMOTE),
        |sge| SendWr::fetch_add(2, sge, REMOTE, 1),
        |sge| SendWr::cmp_swap(2, sge, REMOTE, 1, 2),
    ] {
        let end = End::new();
        let options = rddp_rnic::ConnectOptions { ord: 0, ..client_server() };
        let mut startup = plain();
        startup.ird = 0;
        let mut raw = connect_raw(Role::Active, &end, &options, &startup);
        let sink = end.region(8, ALL);
        let list = [
            SendWr::send_inline(0, b"first"),
            SendWr::send_inline(1, b"second"),
            make(sink.whole()),
            SendWr::send_inline(3, b"never"),
        ];
        end.qp.post_sends(&list).unwrap();
        sees_the_end(&mut raw, &[Opcode::Send, Opcode::Send]);
        fails_at_two(&end, 4, Status::LocalOperation);
    }
}

/// draft-hilland-rddp-verbs §7.8, §7.10: binds and invalidations that are refused end the
/// connection.
#[test]
fn refused_binds_and_invalidations_end_the_connection() {
    type Make = fn(&End, &MemoryRegion) -> SendWr;
    let cases: [Make; 6] = [
        |_, _| SendWr::invalidate(2, Stag(0x1234_5678)),
        |_, region| SendWr::invalidate(2, Stag(region.stag().0 ^ 1)),
        |end, _| {
            let foreign = Box::leak(Box::new(end.rnic.alloc_pd().allocate(8, ALL).unwrap()));
            SendWr::invalidate(2, foreign.stag())
        },
        |_, region| SendWr::bind(2, Stag(0x1234_5678), region.whole(), Access::REMOTE_WRITE),
        |end, _| {
            let window = Box::leak(Box::new(end.pd.allocate_window().unwrap()));
            let unbindable = Box::leak(Box::new(end.region(8, Access::LOCAL_WRITE)));
            SendWr::bind(2, window.stag(), unbindable.whole(), Access::REMOTE_WRITE)
        },
        |end, region| {
            let window = Box::leak(Box::new(end.pd.allocate_window().unwrap()));
            SendWr::bind(2, window.stag(), region.sge(1..9), Access::REMOTE_WRITE)
        },
    ];
    for make in cases {
        let (end, mut raw) = with_plain_raw(Role::Passive);
        let region = end.region(8, ALL);
        let kept = end.region(8, ALL);
        let list = [
            SendWr::send_inline(0, b"first"),
            SendWr::invalidate(1, kept.stag()),
            make(&end, &region),
            SendWr::send_inline(3, b"never"),
        ];
        end.qp.post_sends(&list).unwrap();
        sees_the_end(&mut raw, &[Opcode::Send]);
        fails_at_two(&end, 4, Status::MemoryBind);
        assert!(!kept.is_valid() && region.is_valid());
    }
}

/// A Read whose sink cannot be invalidated ends the connection; here a window holds the sink.
#[test]
fn a_sink_that_cannot_be_invalidated_ends_the_connection() {
    let (end, mut raw) = with_plain_raw(Role::Passive);
    let (sink, window) = (end.region(8, ALL), end.pd.allocate_window().unwrap());
    let operation = Operation::Read {
        sink: sink.whole(),
        remote: Remote { stag: Stag(1), to: 0 },
        invalidate_sink: true,
    };
    let list = [
        SendWr::bind(0, window.stag(), sink.whole(), Access::REMOTE_WRITE),
        SendWr::send_inline(1, b"first"),
        SendWr::new(2, operation),
        SendWr::send_inline(3, b"never").read_fence(),
    ];
    end.qp.post_sends(&list).unwrap();
    raw.expect(Opcode::Send);
    let request = raw.read_request();
    raw.send(&segment::response(request.sink_stag, request.sink_to, true, &[7; 8]));
    sees_the_end(&mut raw, &[]);
    fails_at_two(&end, 4, Status::MemoryBind);
    assert_eq!(sink.read(0, 8).unwrap(), [7; 8]);
}

/// draft-hilland-rddp-verbs §8.1: such a request is refused at once; the queue is unchanged, and
/// nothing of the list from there on is posted.
#[test]
fn requests_that_cannot_be_posted_leave_the_queue_alone() {
    let end = End::with(|config: &mut QpConfig| (config.max_send, config.max_recv) = (4, 2));
    let region = end.region(8, ALL);
    let sge = region.whole();
    let long = Sge { len: u64::from(u32::MAX), ..sge };
    let cases = [
        (
            SendWr::send(9, vec![sge; LIMITS.max_sge + 1]),
            PostError::TooManySges { count: LIMITS.max_sge + 1, max: LIMITS.max_sge },
        ),
        (
            SendWr::send_inline(9, &[0; LIMITS.max_inline + 1]),
            PostError::InlineTooLong { len: LIMITS.max_inline + 1, max: LIMITS.max_inline },
        ),
        (SendWr::write(9, vec![long, sge], REMOTE), PostError::MessageTooLong { len: (1 << 32) + 7 }),
    ];
    for (bad, expected) in cases {
        let list = [SendWr::send_inline(0, b"a"), bad.clone(), SendWr::send_inline(1, b"b")];
        assert_eq!(end.qp.post_send(&bad), Err(expected));
        assert_eq!(end.qp.post_sends(&list), Err(PostListError { posted: 1, error: expected }));
        end.qp.abort();
        assert_eq!(end.completions_of([0])[0].completed, Completed::Send);
        assert!(end.qp.reset());
    }
    let full = PostError::QueueFull { capacity: 4 };
    let list = vec![SendWr::send_inline(7, b"x"); 6];
    assert_eq!(end.qp.post_sends(&list), Err(PostListError { posted: 4, error: full }));
    let halves = Operation::WriteImmediate { gather: sge.into(), remote: REMOTE, data: [0; 8] };
    assert_eq!(end.qp.post_send(&SendWr::new(8, halves)), Err(full));
    for id in 0..2 {
        end.qp.post_recv(RecvWr::one(id, sge)).unwrap();
    }
    assert_eq!(end.qp.post_recv(RecvWr::one(2, sge)), Err(PostError::QueueFull { capacity: 2 }));
    let scatter = vec![sge; LIMITS.max_sge + 1];
    let refused = end.qp.post_recv(RecvWr::new(3, scatter));
    assert_eq!(refused, Err(PostError::TooManySges { count: LIMITS.max_sge + 1, max: LIMITS.max_sge }));
    end.qp.abort();
    assert_eq!(end.completions_of([7, 7, 7, 7, 0, 1]).len(), 6);
}

/// RFC 5041 §5.2: no DDP message is that long, and none is shortened silently.
#[test]
fn a_range_of_more_than_a_message_is_refused() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let region = end.region(8, ALL);
    for len in [1 << 32, 5 << 30] {
        let long = region.sge(0..len);
        for wr in [SendWr::send(1, long), SendWr::write(1, long, REMOTE), SendWr::read(1, long, REMOTE)] {
            let expected = PostError::MessageTooLong { len: len as u64 };
            assert_eq!(end.qp.post_send(&wr), Err(expected), "{wr:?}");
        }
    }
    #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
    let reversed = region.sge(5..3);
    assert!(matches!(end.qp.post_send(&SendWr::send(1, reversed)), Err(PostError::MessageTooLong { .. })));
    let behind = region.sge(region.len() + 1..);
    assert!(matches!(end.qp.post_send(&SendWr::send(1, behind)), Err(PostError::MessageTooLong { .. })));
    let endless = RecvWr::one(1, region.sge(..=usize::MAX));
    assert!(matches!(end.qp.post_recv(endless), Err(PostError::Memory { .. })));
    end.qp.post_send(&SendWr::send(2, region.whole())).unwrap();
    raw.expect(Opcode::Send);
}

/// draft-hilland-rddp-verbs §8.1: a request that can never become valid is refused at once, and the
/// connection goes on.
#[test]
fn bad_memory_is_refused_when_it_is_posted() {
    let (end, mut raw) = with_plain_raw(Role::Active);
    let good = end.region(16, ALL);
    for (fault, name, bad, _kept) in bad_sges(&end) {
        let refused = |index| Err(PostError::Memory { index, stag: bad.stag, fault });
        let mut requests = vec![(0, SendWr::read(1, bad, REMOTE))];
        // Eight octets of the others are inside.
        if !matches!(name, "past its end" | "long") {
            requests.push((0, SendWr::fetch_add(1, bad, REMOTE, 1)));
            requests.push((0, SendWr::cmp_swap(1, bad, REMOTE, 1, 2)));
        }
        if fault != SgeFault::ReadOnly {
            requests.push((0, SendWr::send(1, bad)));
            requests.push((1, SendWr::write(1, vec![good.whole(), bad], REMOTE)));
            requests.push((1, SendWr::write_immediate(1, vec![good.whole(), bad], REMOTE, [0; 8])));
        }
        for (index, wr) in requests {
            assert_eq!(end.qp.post_send(&wr), refused(index), "{name}: {wr:?}");
        }
        assert_eq!(end.qp.post_recv(RecvWr::new(1, [good.whole(), bad])), refused(1), "{name}");
    }
    let short = good.sge(0..7);
    let refused = Err(PostError::Memory { index: 0, stag: short.stag, fault: SgeFault::TooShort });
    assert_eq!(end.qp.post_send(&SendWr::fetch_add(1, short, REMOTE, 1)), refused);
    assert_eq!(end.qp.post_send(&SendWr::cmp_swap(1, short, REMOTE, 1, 2)), refused);
    end.qp.post_recv(RecvWr::one(2, good.whole())).unwrap();
    end.qp.post_send(&SendWr::send(3, good.whole())).unwrap();
    raw.expect(Opcode::Send);
    raw.send(&segment::send(1, 0, true, b"hello"));
    assert_eq!(end.completions_of([2, 3]).len(), 2);
}
